package agui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A frontendTool is a tool of a request, which the frontend runs.
type frontendTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// A grant is what a run may use: the ceiling that the host grants to a request, and the request's frontend tools.
type grant struct {
	ceiling toolkit.Ceiling
	tools   []frontendTool
}

func (g grant) equal(other grant) bool {
	return g.ceiling.String() == other.ceiling.String() && reflect.DeepEqual(g.tools, other.tools)
}

// toolsKey is the key of the last request's frontend tools in a session's State.
var toolsKey = toolstate.NewKey[[]frontendTool]("agui.frontend_tools")

// storedGrant returns the grant in a session's State, which is that of the session's last request.
func storedGrant(st *agent.State) (grant, error) {
	g := grant{ceiling: st.Scope.Ceiling()}
	err := toolsKey.Update(toolstate.With(context.Background(), &st.Tools), func(list *[]frontendTool) error {
		g.tools = slices.Clone(*list)
		return nil
	})
	return g, err
}

// setIn sets the grant in a session's State.
func (g grant) setIn(st *agent.State) error {
	st.Scope.SetCeiling(g.ceiling)
	return toolsKey.Update(toolstate.With(context.Background(), &st.Tools), func(list *[]frontendTool) error {
		*list = slices.Clone(g.tools)
		return nil
	})
}

// maxToolBytes is the maximum size of all frontend tools of a request.
const maxToolBytes = 64 << 10

// toolName matches the names that all model APIs accept.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// controlTools are the tools of all controls of package toolkit. All are reserved, since a later version of the agent
// may have another control.
var controlTools = []string{"call_tool", "describe_tools", "enable_tools", "reset_tools", "search_tools"}

// checkTools checks the tools of a request, but does not compare them with the agent's tools. In the result, missing
// parameters are replaced by a schema that accepts any object.
func checkTools(list []frontendTool, limit int) ([]frontendTool, error) {
	if len(list) > limit {
		return nil, fmt.Errorf("tools has %d tools; at most %d are allowed", len(list), limit)
	}
	size := 0
	seen := map[string]bool{}
	checked := slices.Clone(list)
	for i, t := range list {
		size += len(t.Name) + len(t.Description) + len(t.Parameters)
		name := strings.ToLower(t.Name) // names that differ only in case are easily confused
		switch {
		case !toolName.MatchString(t.Name):
			return nil, fmt.Errorf("the tool name %q must have 1 to 64 letters, digits, '_' and '-'", t.Name)
		case strings.HasPrefix(name, "mcp__"):
			return nil, fmt.Errorf("the tool name %q begins with mcp__, like those of MCP servers; rename the tool", t.Name)
		case slices.Contains(controlTools, name):
			return nil, fmt.Errorf("the tool name %q is reserved for a control tool; rename the tool", t.Name)
		case seen[name]:
			return nil, fmt.Errorf("two tools have the name %q", t.Name)
		}
		seen[name] = true
		if len(t.Parameters) == 0 || string(t.Parameters) == "null" {
			checked[i].Parameters = json.RawMessage(`{"type":"object"}`)
		}
	}
	if size > maxToolBytes {
		return nil, fmt.Errorf("tools has %d bytes; at most %d are allowed", size, maxToolBytes)
	}
	return checked, nil
}

// agentWithTools returns the agent for a run with frontend tools, or an error if the agent cannot use one of the tools.
func agentWithTools(ctx context.Context, cfg agent.Config, tools []frontendTool) (*agent.Agent, error) {
	for _, t := range tools {
		if name := namesake(cfg.Toolkit, t); name != "" {
			return nil, fmt.Errorf("the agent has a tool %q; rename the frontend's %q", name, t.Name)
		}
	}
	var err error
	if cfg.Toolkit, err = addTools(cfg.Toolkit, tools); err != nil {
		return nil, err
	}
	view, err := cfg.Toolkit.View(ctx, &toolkit.Scope{})
	if err != nil {
		return nil, err
	}
	for _, skipped := range view.Skipped() {
		if slices.ContainsFunc(tools, func(t frontendTool) bool { return t.Name == skipped.Tool }) {
			return nil, fmt.Errorf("the tool %q is not usable: %s", skipped.Tool, skipped.Reason)
		}
	}
	return agent.New(cfg)
}

// Agent returns the agent for a run of a session with the frontend tools of the session's last request. The workers of
// a [Config.Engine] must create the agent with it. A frontend tool is left out if a tool of the agent has the same name
// or one that differs only in case.
func Agent(ctx context.Context, cfg agent.Config, s *session.Session) (*agent.Agent, error) {
	g, err := storedGrant(s.State)
	if err != nil {
		return nil, err
	}
	tools := slices.DeleteFunc(g.tools, func(t frontendTool) bool { return namesake(cfg.Toolkit, t) != "" })
	if len(tools) > 0 {
		if cfg.Toolkit, err = addTools(cfg.Toolkit, tools); err != nil {
			return nil, err
		}
	}
	return agent.New(cfg)
}

// namesake returns the name of the toolkit's tool, in any group, whose name is that of the frontend tool, ignoring case;
// "" if there is none.
func namesake(tk *toolkit.Toolkit, frontend frontendTool) string {
	registered, listed := tk.Registered()
	for _, t := range slices.Concat(registered, listed) {
		if name := t.Info().Name; strings.EqualFold(name, frontend.Name) {
			return name
		}
	}
	return ""
}

// addTools returns a copy of a toolkit with frontend tools. They come from a [tool.Source], since tools of a source
// never replace other tools.
func addTools(tk *toolkit.Toolkit, tools []frontendTool) (*toolkit.Toolkit, error) {
	src := &frontendSource{}
	for _, t := range tools {
		src.tools = append(src.tools, externalTool{tool.Info{Name: t.Name, Description: t.Description, Input: t.Parameters, External: true}})
	}
	cfg := tk.Config()
	cfg.Basic.Sources = append(slices.Clone(cfg.Basic.Sources), src)
	return toolkit.New(cfg)
}

type frontendSource struct{ tools []tool.Tool }

func (f *frontendSource) Tools(context.Context) ([]tool.Tool, error) { return f.tools, nil }

// An externalTool is a tool that the frontend runs.
type externalTool struct{ info tool.Info }

func (e externalTool) Info() tool.Info { return e.info }

func (e externalTool) Call(context.Context, tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		yield(tool.Chunk{}, errors.New("the frontend runs this tool"))
	}
}

// Judge lets calls run without approval, unless a rule says otherwise, since nothing runs on the server.
func (e externalTool) Judge(c *permission.Call) { c.Checker = allowed{} }

type allowed struct{ permission.BaseChecker }

func (allowed) Check(*permission.Policy) permission.Verdict {
	return permission.Verdict{Behavior: permission.Allow, Reason: "the frontend runs it"}
}
