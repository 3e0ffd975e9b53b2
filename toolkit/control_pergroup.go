package toolkit

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/kitbag-go/kitbag/tool"
)

// PerGroup returns the control of tmcp: for every group two tools without arguments,
// GROUP.activate and GROUP.deactivate, which are always listed;
// see [Config.Hidden].
func PerGroup() *Control {
	var p perGroup
	return &Control{Tools: p.tools, Hint: p.hint, Opens: p.opens, Static: true}
}

const (
	activateSuffix   = ".activate"
	deactivateSuffix = ".deactivate"
)

// perGroup is static: it lists the tools of all granted groups, including children whose
// parents are closed.
type perGroup struct{}

func (perGroup) hint(_ string, _, want []string) string {
	calls := make([]string, len(want))
	for i, name := range want {
		calls[i] = name + activateSuffix
	}
	return "call " + strings.Join(calls, ", then ")
}

func (perGroup) opens(_ *Toolkit, _ *Scope, name string, _ json.RawMessage) []string {
	if group, ok := strings.CutSuffix(name, activateSuffix); ok {
		return []string{group}
	}
	return nil
}

func (perGroup) tools(tk *Toolkit, s *Scope, groups []GroupInfo) []tool.Tool {
	var out []tool.Tool
	for _, g := range groups {
		out = append(out, switchTool(tk, s, g.Name+activateSuffix, "Activate", g, (*Toolkit).Enable),
			switchTool(tk, s, g.Name+deactivateSuffix, "Deactivate", g, (*Toolkit).Disable))
	}
	return out
}

// A transition is Enable or Disable.
type transition func(*Toolkit, context.Context, *Scope, ...string) (Outcome, error)

// switchTool returns the tool that opens or closes one group.
func switchTool(tk *Toolkit, s *Scope, name, verb string, g GroupInfo, do transition) *controlTool {
	info := tool.Info{Name: name, Input: schema(nil), Control: true}
	if g.Description != "" {
		info.Description = verb + " " + g.Description
	}
	return &controlTool{info: info, run: func(ctx context.Context, _ json.RawMessage) (answer, error) {
		out, err := do(tk, ctx, s, g.Name)
		if err != nil {
			return answer{}, err
		}
		return tk.report(ctx, s, out, wording{newOnly: true})
	}}
}
