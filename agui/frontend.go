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
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A frontendTool is a tool of a request: the frontend runs its calls.
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

// toolsKey is where a session's State has the tools of its last request.
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

// toolName is what all model APIs accept.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// checkTools checks the tools of a request, except whether the toolkit has the same names, and completes them.
func checkTools(list []frontendTool, limit int) ([]frontendTool, error) {
	if len(list) > limit {
		return nil, fmt.Errorf("tools has %d tools; at most %d are allowed", len(list), limit)
	}
	size := 0
	seen := map[string]bool{}
	checked := slices.Clone(list)
	for i, t := range list {
		size += len(t.Name) + len(t.Description) + len(t.Parameters)
		switch {
		case !toolName.MatchString(t.Name):
			return nil, fmt.Errorf("the tool name %q must have 1 to 64 letters, digits, '_' and '-'", t.Name)
		case strings.HasPrefix(t.Name, "mcp__"):
			return nil, fmt.Errorf("the tool name %q begins with mcp__, like those of MCP servers; rename the tool", t.Name)
		case seen[t.Name]:
			return nil, fmt.Errorf("two tools have the name %q", t.Name)
		}
		seen[t.Name] = true
		if len(t.Parameters) == 0 || string(t.Parameters) == "null" {
			checked[i].Parameters = json.RawMessage(`{"type":"object"}`)
		}
	}
	if size > maxToolBytes {
		return nil, fmt.Errorf("tools has %d bytes; at most %d are allowed", size, maxToolBytes)
	}
	return checked, nil
}

// withFrontend returns the agent for a run with frontend tools.
func withFrontend(ctx context.Context, cfg agent.Config, tools []frontendTool) (*agent.Agent, error) {
	own, listed := cfg.Toolkit.Registered()
	for _, t := range slices.Concat(own, listed) {
		if name := t.Info().Name; slices.ContainsFunc(tools, func(f frontendTool) bool { return f.Name == name }) {
			return nil, fmt.Errorf("the agent has a tool %q; rename the frontend's", name)
		}
	}
	src := &frontend{}
	for _, t := range tools {
		src.tools = append(src.tools, external{tool.Info{Name: t.Name, Description: t.Description, Input: t.Parameters, External: true}})
	}
	kit := cfg.Toolkit.Config()
	kit.Basic.Sources = append(slices.Clone(kit.Basic.Sources), src) // a source never replaces a tool
	tk, err := toolkit.New(kit)
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

// A frontend is the source of the tools of a request.
type frontend struct{ tools []tool.Tool }

func (f *frontend) Tools(context.Context) ([]tool.Tool, error) { return f.tools, nil }

// An external is a tool that the frontend runs.
type external struct{ info tool.Info }

func (e external) Info() tool.Info { return e.info }

func (e external) Call(context.Context, tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		yield(tool.Chunk{}, errors.New("the frontend runs this tool"))
	}
}

// Judge lets calls run without approval, unless a rule says otherwise: nothing runs on the server.
func (e external) Judge(c *permission.Call) { c.Checker = allowed{} }

type allowed struct{ permission.BaseChecker }

func (allowed) Check(*permission.Policy) permission.Verdict {
	return permission.Verdict{Behavior: permission.Allow, Reason: "the frontend runs it"}
}
