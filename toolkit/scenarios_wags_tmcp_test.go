package toolkit_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kitbag-go/kitbag/internal/groupcase"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

func wagsFixture(t testing.TB, sc groupcase.Scenario) *fixture {
	cfg := groupcase.Wags(sc, func(name string, labels []string) tool.Tool { return &fake{name: name, labels: labels} })
	w := newFixture(t, sc, cfg, nil)
	w.hidden = func(e *toolkit.HiddenError) string {
		text := fmt.Sprintf("Tool '%s' is not available. Enable its group first. ", e.Tool)
		if len(e.Groups) > 0 {
			text += fmt.Sprintf("Try: enable_tools(groups=%s) ", pythonList(e.Groups))
		}
		if len(e.Active) == 0 {
			return text + "Currently enabled: none"
		}
		return text + "Currently enabled: " + pythonList(sorted(e.Active))
	}
	transition := func(name string) func(groupcase.Step) outcome {
		return func(s groupcase.Step) outcome {
			return w.call(name, mustJSON(s.Args))
		}
	}
	w.ops = map[string]func(groupcase.Step) outcome{
		"register": w.construct, "list": w.list, "call": w.callStep,
		"enable": transition("enable_tools"), "disable": transition("disable_tools"),
	}
	return w
}

func pythonList(names []string) string { return "['" + strings.Join(names, "', '") + "']" }

func tmcpFixture(t testing.TB, sc groupcase.Scenario) *fixture {
	w := &fixture{t: t, sc: sc, scope: new(toolkit.Scope), flags: map[string]bool{}}
	tmcp := &groupcase.Tmcp{Hook: w.hook, Flag: w.flag,
		Made: func(name, text string) tool.Tool { return &fake{name: name, text: text} }}
	w.build(tmcp.Config(t, sc), nil)
	w.hidden = func(e *toolkit.HiddenError) string { return "ToolNotFound:" + e.Tool }
	w.ops = map[string]func(groupcase.Step) outcome{
		"call": w.callStep, "list": w.tmcpList, "register": func(s groupcase.Step) outcome { return w.tmcpRegister(tmcp, s) },
		"unregister": w.unregister,
		"activate":   func(s groupcase.Step) outcome { return w.tmcpSwitch(s, w.tk.Enable) },
		"deactivate": func(s groupcase.Step) outcome { return w.tmcpSwitch(s, w.tk.Disable) },
	}
	return w
}

func (w *fixture) tmcpSwitch(s groupcase.Step, do func(context.Context, *toolkit.Scope, ...string) (toolkit.Outcome, error)) outcome {
	names := groupcase.Arg[[]string](w.t, s, "parallel")
	if names == nil {
		o, err := do(context.Background(), w.scope, groupcase.Arg[string](w.t, s, "group"))
		return outcome{err: err, changed: btoi(o.Changed())}
	}
	var wg sync.WaitGroup
	var out outcome
	for range groupcase.Arg[int](w.t, s, "times") {
		for _, name := range names {
			wg.Go(func() {
				o, err := do(context.Background(), w.scope, name)
				w.mu.Lock()
				defer w.mu.Unlock()
				out.changed += btoi(o.Changed())
				if err != nil {
					out.err = err
				}
			})
		}
	}
	wg.Wait()
	return out
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (w *fixture) tmcpList(s groupcase.Step) outcome {
	switch groupcase.Arg[string](w.t, s, "what") {
	case "groups":
		type row struct {
			Name        string  `json:"name"`
			Active      bool    `json:"active"`
			Parent      *string `json:"parent"`
			ToolCount   int     `json:"tool_count"`
			Description string  `json:"description"`
		}
		rows := []row{}
		listed := w.visible()
		for _, g := range w.tk.Groups(w.scope) {
			r := row{Name: g.Name, Active: g.Active, ToolCount: len(g.Tools), Description: g.Description}
			if len(g.Parents) > 0 {
				r.Parent = &g.Parents[0]
			}
			for _, auto := range []string{".activate", ".deactivate"} {
				if slices.Contains(listed, g.Name+auto) && !slices.Contains(g.Tools, g.Name+auto) {
					r.ToolCount++
				}
			}
			rows = append(rows, r)
		}
		slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.Name, b.Name) })
		out := outcome{groups: rows, names: []string{}}
		for _, r := range rows {
			out.names = append(out.names, r.Name)
		}
		return out
	case "is_active":
		return outcome{value: slices.Contains(w.active(), groupcase.Arg[string](w.t, s, "group"))}
	case "", "tools", "descriptions":
		return w.list(s)
	default:
		return outcome{err: fmt.Errorf("the adapter does not know how to list %s", s.Args["what"])}
	}
}

func (w *fixture) tmcpRegister(tmcp *groupcase.Tmcp, s groupcase.Step) outcome {
	name := groupcase.Arg[string](w.t, s, "name")
	switch what := groupcase.Arg[string](w.t, s, "what"); what {
	case "construct":
		return w.construct(s)
	case "flag":
		w.mu.Lock()
		defer w.mu.Unlock()
		w.flags[name] = groupcase.Arg[bool](w.t, s, "value")
		return outcome{}
	case "group":
		g := toolkit.Group{Name: name, Description: groupcase.Arg[string](w.t, s, "description")}
		if p := groupcase.Arg[string](w.t, s, "parent"); p != "" {
			g.Parents = []string{p}
		}
		return outcome{err: w.tk.AddGroup(g)}
	case "tool":
		return outcome{err: w.tk.Update(func(cfg *toolkit.Config) error {
			tmcp.Place(cfg, name, groupcase.Arg[string](w.t, s, "visibility"))
			return nil
		})}
	case "exclusion":
		return outcome{err: w.tk.Update(func(cfg *toolkit.Config) error {
			cfg.Exclusive = append(cfg.Exclusive, groupcase.Arg[[]string](w.t, s, "groups", "set", "members", "names"))
			return nil
		})}
	case "notify":
		w.tk.Refresh()
		return outcome{}
	default:
		return outcome{err: fmt.Errorf("the adapter does not know how to register %q", what)}
	}
}
