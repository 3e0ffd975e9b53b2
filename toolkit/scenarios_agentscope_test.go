package toolkit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/groupcase"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/toolkit"
)

func agentscopeFixture(t testing.TB, sc groupcase.Scenario) *fixture {
	cfg := toolkit.Config{Preset: toolkit.AgentScope()}
	if sc.Config.Variant == "doc" {
		cfg.Preset = cfg.Preset.Documented()
	}
	cfg.Basic.Tools = specified(sc.Config.BasicTools)
	cfg.Basic.Skills = loaders(sc.Config.BasicSkills)
	for _, g := range sc.Groups {
		cfg.Groups = append(cfg.Groups, toolkit.Group{Name: g.Name, Description: g.Description,
			Instructions: g.Instructions, Tools: specified(g.Tools), Skills: loaders(g.Skills)})
	}
	w := newFixture(t, sc, cfg, nil)
	if sc.Config.StateActive != nil {
		groupcase.Decode(t, mustJSON(map[string]any{"active": sc.Config.StateActive}), w.scope)
	}
	w.hidden = func(e *toolkit.HiddenError) string {
		if len(e.Groups) == 0 {
			return fmt.Sprintf("ToolNotFoundError: The tool named '%s' doesn't exist.", e.Tool)
		}
		return fmt.Sprintf("ToolGroupInactiveError: The tool '%s' in group '%s' is currently inactive. "+
			"You should first activate the group by calling the 'reset_tools' tool.", e.Tool, e.Groups[0])
	}
	w.ops = map[string]func(groupcase.Step) outcome{
		"register": w.agentscopeRegister, "call": w.callStep, "list": w.list,
		"unregister": w.unregister,
		"reset": func(s groupcase.Step) outcome {
			out := w.call("reset_tools", mustJSON(s.Args))
			if out.err == nil && out.result != nil {
				out.text = agentscopeText(t, out.result)
			}
			return out
		},
	}
	return w
}

func (w *fixture) agentscopeRegister(s groupcase.Step) outcome {
	if what := groupcase.Arg[string](w.t, s, "what"); what != "tool" {
		return w.construct(s)
	}
	return outcome{err: w.tk.Add(groupcase.Arg[string](w.t, s, "group"), fakes(groupcase.Arg[string](w.t, s, "name", "tool"))...)}
}

type skillList []string

func loaders(names []string) []skill.Loader {
	if len(names) == 0 {
		return nil
	}
	return []skill.Loader{skillList(names)}
}

func (l skillList) Load(context.Context) ([]*skill.Skill, []skill.Diagnostic, error) {
	var out []*skill.Skill
	for _, n := range l {
		out = append(out, &skill.Skill{Name: n, Description: "About " + n + "."})
	}
	return out, nil, nil
}

// agentscopeText translates our answer to AgentScope's text.
func agentscopeText(t testing.TB, result map[string]any) string {
	var r struct {
		Active []struct{ Name, Instructions string }
	}
	groupcase.Decode(t, mustJSON(result), &r)
	if len(r.Active) == 0 {
		return "All tool groups are currently deactivated."
	}
	var names []string
	var instructions strings.Builder
	for _, g := range r.Active {
		names = append(names, g.Name)
		if g.Instructions != "" {
			fmt.Fprintf(&instructions, "<group name=\"%s\">%s</group>\n", g.Name, g.Instructions)
		}
	}
	text := "The currently activated tool group(s): " + strings.Join(names, ", ") + "."
	if instructions.Len() == 0 {
		return text
	}
	return text + "\n<tool-instructions>\nThe tool instructions are a collection of suggestions, rules and " +
		"notifications about how to use the tools in the activated groups.\n" + instructions.String() + "</tool-instructions>"
}
