package toolkit

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/tool"
)

// PerGroup returns a control like that of tmcp, another system that groups tools. For every group it has two tools
// without arguments, GROUP_activate and GROUP_deactivate, which are always listed; see [Config.Hidden]. Model APIs
// refuse a dot in a tool's name, so a group's dots become underscores. With the preset [Tmcp] the tools are
// GROUP.activate and GROUP.deactivate.
func PerGroup() *Control { return perGroup{"_"}.control() }

// perGroup is static: it lists the tools of all granted groups, including children whose parents are closed.
type perGroup struct {
	separator string // "_"; or "." as in tmcp, with the descriptions of tmcp
}

func (p perGroup) control() *Control {
	return &Control{Tools: p.tools, Hint: p.hint, Opens: p.opens, Static: true}
}

const (
	activate   = "activate"
	deactivate = "deactivate"
)

func (p perGroup) name(group, verb string) string {
	return strings.ReplaceAll(group, ".", p.separator) + p.separator + verb
}

func (p perGroup) hint(_ string, _, want []string) string {
	calls := make([]string, len(want))
	for i, name := range want {
		calls[i] = p.name(name, activate)
	}
	return "call " + strings.Join(calls, ", then ")
}

func (p perGroup) opens(tk *Toolkit, s *Scope, name string, _ json.RawMessage) []string {
	groups := tk.Groups(s)
	if i := slices.IndexFunc(groups, func(g GroupInfo) bool { return p.name(g.Name, activate) == name }); i >= 0 {
		return []string{groups[i].Name}
	}
	return nil
}

func (p perGroup) tools(tk *Toolkit, s *Scope, groups []GroupInfo) []tool.Tool {
	var out []tool.Tool
	for _, g := range groups {
		out = append(out, switchTool(tk, s, p.name(g.Name, activate), p.describe("Activate", "Opens", g), g.Name, (*Toolkit).Enable),
			switchTool(tk, s, p.name(g.Name, deactivate), p.describe("Deactivate", "Closes", g), g.Name, (*Toolkit).Disable))
	}
	return out
}

// describe returns the description of a group's tool, which starts with one of the verbs.
func (p perGroup) describe(tmcpVerb, verb string, g GroupInfo) string {
	switch {
	case p.separator != ".":
		return strings.TrimSuffix(verb+" the group of tools "+g.Name+": "+g.Description, ": ")
	case g.Description == "":
		return ""
	}
	return tmcpVerb + " " + g.Description
}

// switchTool returns the tool that opens or closes one group, by the method Enable or Disable.
func switchTool(tk *Toolkit, s *Scope, name, description, group string,
	enableOrDisable func(*Toolkit, context.Context, *Scope, ...string) (Outcome, error)) *controlTool {
	info := tool.Info{Name: name, Description: description, Input: schema(nil), Control: true}
	return &controlTool{info: info, scope: s, run: func(ctx context.Context, s *Scope, _ json.RawMessage) (answer, error) {
		out, err := enableOrDisable(tk, ctx, s, group)
		if err != nil {
			return answer{}, err
		}
		a, err := tk.report(ctx, s, out, reportOptions{newOnly: true})
		if !out.Changed() {
			a.text = "This changed nothing. " + a.text
		}
		return a, err
	}}
}
