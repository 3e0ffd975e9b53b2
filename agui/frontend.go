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

// A grant is what a request may use: the ceiling that the host grants, and the request's own tools.
type grant struct {
	ceiling toolkit.Ceiling
	tools   []frontendTool
}

func (g grant) equal(other grant) bool {
	return g.ceiling.String() == other.ceiling.String() && reflect.DeepEqual(g.tools, other.tools)
}

// toolsKey is the key of the last request's tools in a session's State.
var toolsKey = toolstate.NewKey[[]frontendTool]("agui.frontend_tools")

// grantOf returns the grant of a session.
func grantOf(st *agent.State) (grant, error) {
	g := grant{ceiling: st.Scope.Ceiling()}
	err := toolsKey.Update(toolstate.With(context.Background(), &st.Tools), func(list *[]frontendTool) error {
		g.tools = slices.Clone(*list)
		return nil
	})
	return g, err
}

// apply makes g the grant of a session.
func (g grant) apply(st *agent.State) error {
	st.Scope.SetCeiling(g.ceiling)
	return toolsKey.Update(toolstate.With(context.Background(), &st.Tools), func(list *[]frontendTool) error {
		*list = slices.Clone(g.tools)
		return nil
	})
}

// maxToolBytes is the size of all tools of a request.
const maxToolBytes = 64 << 10

// toolName matches the names that all model APIs accept.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// controls are the names of the control tools of toolkits. All are reserved, since an agent may later use another style.
var controls = []string{"call_tool", "describe_tools", "enable_tools", "reset_tools", "search_tools"}

// checkTools checks the tools of a request, and sets missing parameters. It does not compare them with the toolkit's.
func checkTools(list []frontendTool, limit int) ([]frontendTool, error) {
	if len(list) > limit {
		return nil, fmt.Errorf("tools has %d tools; at most %d are allowed", len(list), limit)
	}
	size := 0
	seen := map[string]bool{}
	checked := slices.Clone(list)
	for i, t := range list {
		size += len(t.Name) + len(t.Description) + len(t.Parameters)
		name := strings.ToLower(t.Name) // models and people confuse Send and send
		switch {
		case !toolName.MatchString(t.Name):
			return nil, fmt.Errorf("the tool name %q must have 1 to 64 letters, digits, '_' and '-'", t.Name)
		case strings.HasPrefix(name, "mcp__"):
			return nil, fmt.Errorf("the tool name %q begins with mcp__, like those of MCP servers; rename the tool", t.Name)
		case slices.Contains(controls, name):
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

// withFrontend returns the agent for a run with frontend tools, or an error if one of them cannot be used.
func withFrontend(ctx context.Context, cfg agent.Config, tools []frontendTool) (*agent.Agent, error) {
	for _, t := range tools {
		if name := namesake(cfg.Toolkit, t); name != "" {
			return nil, fmt.Errorf("the agent has a tool %q; rename the frontend's %q", name, t.Name)
		}
	}
	tk, err := addFrontend(cfg.Toolkit, tools)
	if err != nil {
		return nil, err
	}
	view, err := tk.View(ctx, &toolkit.Scope{})
	if err != nil {
		return nil, err
	}
	for _, s := range view.Skipped() {
		if slices.ContainsFunc(tools, func(f frontendTool) bool { return f.Name == s.Tool }) {
			return nil, fmt.Errorf("the tool %q is not usable: %s", s.Tool, s.Reason)
		}
	}
	cfg.Toolkit = tk
	return agent.New(cfg)
}

// Agent returns the agent for a run of a session with the frontend tools of its last request. The workers of a
// [Config.Engine] must create the agent with it. A frontend tool with the name of one of the agent's, in upper or
// lower case, is left out.
func Agent(ctx context.Context, cfg agent.Config, s *session.Session) (*agent.Agent, error) {
	g, err := grantOf(s.State)
	if err != nil {
		return nil, err
	}
	tools := slices.DeleteFunc(g.tools, func(f frontendTool) bool { return namesake(cfg.Toolkit, f) != "" })
	if len(tools) > 0 {
		if cfg.Toolkit, err = addFrontend(cfg.Toolkit, tools); err != nil {
			return nil, err
		}
	}
	return agent.New(cfg)
}

// namesake returns the name of a tool in any group of the toolkit that equals a frontend tool's name ignoring case; ""
// if there is none.
func namesake(tk *toolkit.Toolkit, f frontendTool) string {
	registered, listed := tk.Registered()
	for _, t := range slices.Concat(registered, listed) {
		if name := t.Info().Name; strings.EqualFold(name, f.Name) {
			return name
		}
	}
	return ""
}

// addFrontend returns a copy of a toolkit with frontend tools.
func addFrontend(tk *toolkit.Toolkit, tools []frontendTool) (*toolkit.Toolkit, error) {
	src := &frontendSource{}
	for _, t := range tools {
		src.tools = append(src.tools, externalTool{tool.Info{Name: t.Name, Description: t.Description, Input: t.Parameters, External: true}})
	}
	kit := tk.Config()
	kit.Basic.Sources = append(slices.Clone(kit.Basic.Sources), src) // a source never replaces a tool
	return toolkit.New(kit)
}

// A frontendSource is the [tool.Source] of the tools of a request.
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

// Judge lets calls run without approval, unless a rule says otherwise: nothing runs on the server.
func (e externalTool) Judge(c *permission.Call) { c.Checker = allowed{} }

type allowed struct{ permission.BaseChecker }

func (allowed) Check(*permission.Policy) permission.Verdict {
	return permission.Verdict{Behavior: permission.Allow, Reason: "the frontend runs it"}
}
