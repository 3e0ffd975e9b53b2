package toolkit_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kitbag-go/kitbag/toolkit"
)

func wagsWorld(t testing.TB, sc scenario) *world {
	cfg := toolkit.Config{Policy: toolkit.Wags(), Initial: sc.Config.InitialGroups, MaxTools: sc.Config.MaxTools}
	places := maps.Clone(sc.Config.Handlers)
	if places == nil {
		places = map[string][]string{}
	}
	order := slices.Clone(sc.Config.Upstream)
	for _, g := range sc.Groups {
		cfg.Groups = append(cfg.Groups, toolkit.Group{Name: g.Name, Description: g.Description, Parents: g.parents()})
		for _, t := range g.Tools {
			places[t.Name] = append(places[t.Name], g.Name)
			order = append(order, t.Name)
		}
	}
	order = append(order, slices.Sorted(maps.Keys(sc.Config.Handlers))...)
	for i, name := range order {
		if slices.Contains(order[:i], name) {
			continue
		}
		cfg.Basic.Tools = append(cfg.Basic.Tools, &fake{name: name, labels: sc.Config.MetaGroups[name]})
		if groups, ok := places[name]; ok {
			cfg.Settings = append(cfg.Settings, toolkit.Setting{Tool: name, Groups: groups})
		}
	}
	w := newWorld(t, sc, cfg, nil)
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
	transition := func(name string) func(scenarioStep) outcome {
		return func(s scenarioStep) outcome {
			return w.call(name, mustJSON(s.Args))
		}
	}
	w.ops = map[string]func(scenarioStep) outcome{
		"register": w.construct, "list": w.list, "call": w.callStep,
		"enable": transition("enable_tools"), "disable": transition("disable_tools"),
	}
	return w
}

func pythonList(names []string) string { return "['" + strings.Join(names, "', '") + "']" }

func tmcpWorld(t testing.TB, sc scenario) *world {
	w := &world{t: t, sc: sc, scope: new(toolkit.Scope), flags: map[string]bool{}}
	cfg := toolkit.Config{Policy: toolkit.Tmcp(), Exclusive: sc.Config.Exclusions,
		Basic: toolkit.Group{Tools: specified(sc.Config.RootTools)}}
	if sc.Config.Variant == "doc" {
		cfg.Policy.NotifyAlways = false
	}
	for _, g := range sc.Groups {
		cfg.Groups = append(cfg.Groups, toolkit.Group{Name: g.Name, Description: g.Description, Parents: g.parents(),
			Tools:        specified(g.Tools),
			OnActivate:   w.hook("+", g.Name, g.Hooks["on_activate"]),
			OnDeactivate: w.hook("-", g.Name, g.Hooks["on_deactivate"])})
		if g.ShowDeactivator != nil && !*g.ShowDeactivator {
			cfg.Hidden = append(cfg.Hidden, g.Name+".deactivate")
		}
	}
	for _, raw := range sc.Config.Tools {
		var v struct{ Name, Visibility string }
		decode(t, raw, &v)
		w.place(&cfg, v.Name, v.Visibility)
	}
	w.build(cfg, nil)
	w.hidden = func(e *toolkit.HiddenError) string { return "ToolNotFound:" + e.Tool }
	w.ops = map[string]func(scenarioStep) outcome{
		"call": w.callStep, "list": w.tmcpList, "register": w.tmcpRegister,
		"unregister": w.unregister,
		"activate":   func(s scenarioStep) outcome { return w.tmcpSwitch(s, w.tk.Enable) },
		"deactivate": func(s scenarioStep) outcome { return w.tmcpSwitch(s, w.tk.Disable) },
	}
	return w
}

// place registers a tool with one of tmcp's visibilities.
func (w *world) place(cfg *toolkit.Config, name, visibility string) {
	tl := fakes(name)[0]
	kind, what, _ := strings.Cut(visibility, ":")
	switch kind {
	case "group":
		if i := slices.IndexFunc(cfg.Groups, func(g toolkit.Group) bool { return g.Name == what }); i >= 0 {
			cfg.Groups[i].Tools = append(cfg.Groups[i].Tools, tl)
			return
		}
		cfg.Settings = append(cfg.Settings, toolkit.Setting{Tool: name, Groups: []string{what}})
	case "when":
		group, negated := strings.CutPrefix(what, "!")
		cfg.Settings = append(cfg.Settings, toolkit.Setting{Tool: name,
			When: func(active func(string) bool) bool { return active(group) != negated }})
	case "flag":
		cfg.Settings = append(cfg.Settings, toolkit.Setting{Tool: name,
			When: func(func(string) bool) bool { return w.flag(what) }})
	}
	cfg.Basic.Tools = append(cfg.Basic.Tools, tl)
}

func (w *world) tmcpSwitch(s scenarioStep, do func(context.Context, *toolkit.Scope, ...string) (toolkit.Outcome, error)) outcome {
	names := arg[[]string](w.t, s, "parallel")
	if names == nil {
		o, err := do(context.Background(), w.scope, arg[string](w.t, s, "group"))
		return outcome{err: err, changed: btoi(o.Changed())}
	}
	var wg sync.WaitGroup
	var out outcome
	for range arg[int](w.t, s, "times") {
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

func (w *world) tmcpList(s scenarioStep) outcome {
	switch arg[string](w.t, s, "what") {
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
		return outcome{value: slices.Contains(w.active(), arg[string](w.t, s, "group"))}
	case "", "tools", "descriptions":
		return w.list(s)
	default:
		return outcome{err: fmt.Errorf("the adapter does not know how to list %s", s.Args["what"])}
	}
}

func (w *world) tmcpRegister(s scenarioStep) outcome {
	name := arg[string](w.t, s, "name")
	switch what := arg[string](w.t, s, "what"); what {
	case "construct":
		return w.construct(s)
	case "flag":
		w.mu.Lock()
		defer w.mu.Unlock()
		w.flags[name] = arg[bool](w.t, s, "value")
		return outcome{}
	case "group":
		g := toolkit.Group{Name: name, Description: arg[string](w.t, s, "description")}
		if p := arg[string](w.t, s, "parent"); p != "" {
			g.Parents = []string{p}
		}
		return outcome{err: w.tk.AddGroup(g)}
	case "tool":
		return outcome{err: w.tk.Update(func(cfg *toolkit.Config) error {
			w.place(cfg, name, arg[string](w.t, s, "visibility"))
			return nil
		})}
	case "exclusion":
		return outcome{err: w.tk.Update(func(cfg *toolkit.Config) error {
			cfg.Exclusive = append(cfg.Exclusive, arg[[]string](w.t, s, "groups", "set", "members", "names"))
			return nil
		})}
	case "notify":
		w.tk.Refresh()
		return outcome{}
	default:
		return outcome{err: fmt.Errorf("the adapter does not know how to register %q", what)}
	}
}
