package toolkit

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/kitbag-go/kitbag/tool"
)

// PerGroup returns the control of tmcp: for every group a tool GROUP.activate
// and a tool GROUP.deactivate, without arguments. All of them are always listed;
// see [Config.Hidden].
func PerGroup() Control { return perGroup{} }

const (
	activateSuffix   = ".activate"
	deactivateSuffix = ".deactivate"
)

// perGroup is steady: it lists the tools of all granted groups, also of children whose
// parents are closed.
type perGroup struct{}

func (perGroup) steady() bool { return true }

func (perGroup) Hint(_, want []string) string {
	calls := make([]string, len(want))
	for i, name := range want {
		calls[i] = name + activateSuffix
	}
	return "call " + strings.Join(calls, ", then ")
}

func (perGroup) Tools(tk *Toolkit, s *Scope, groups []GroupInfo) []tool.Tool {
	var out []tool.Tool
	for _, g := range groups {
		activate := switchTool(tk, s, g.Name+activateSuffix, "Activate", g, (*Toolkit).Enable)
		activate.opens = func(json.RawMessage) []string { return []string{g.Name} }
		out = append(out, activate, switchTool(tk, s, g.Name+deactivateSuffix, "Deactivate", g, (*Toolkit).Disable))
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
