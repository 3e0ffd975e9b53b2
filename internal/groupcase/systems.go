package groupcase

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// Wags returns the toolkit of a scenario of wags. made makes a tool that returns its name, with its own labels.
func Wags(sc Scenario, made func(name string, labels []string) tool.Tool) toolkit.Config {
	cfg := toolkit.Config{Preset: toolkit.Wags(), Initial: sc.Config.InitialGroups, MaxTools: sc.Config.MaxTools}
	places := maps.Clone(sc.Config.Handlers)
	if places == nil {
		places = map[string][]string{}
	}
	order := slices.Clone(sc.Config.Upstream)
	for _, g := range sc.Groups {
		cfg.Groups = append(cfg.Groups, toolkit.Group{Name: g.Name, Description: g.Description, Parents: g.All()})
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
		cfg.Basic.Tools = append(cfg.Basic.Tools, made(name, sc.Config.MetaGroups[name]))
		if groups, ok := places[name]; ok {
			cfg.Settings = append(cfg.Settings, toolkit.Setting{Tool: name, Groups: groups})
		}
	}
	return cfg
}

// Tmcp makes toolkits of scenarios of tmcp.
type Tmcp struct {
	Made func(name, text string) tool.Tool // a tool that returns text

	// Hook returns the hook of a group, for "+" or "-" and a kind.
	Hook func(sign, group, kind string) func(context.Context) error

	// Flag returns the external condition that a tool depends on.
	Flag func(name string) bool
}

// Config returns the toolkit of a scenario.
func (t *Tmcp) Config(tb testing.TB, sc Scenario) toolkit.Config {
	cfg := toolkit.Config{Preset: toolkit.Tmcp(), Exclusive: sc.Config.Exclusions,
		Basic: toolkit.Group{Tools: t.tools(sc.Config.RootTools)}}
	if sc.Config.Variant == "doc" {
		cfg.Preset = cfg.Preset.Documented()
	}
	for _, g := range sc.Groups {
		cfg.Groups = append(cfg.Groups, toolkit.Group{Name: g.Name, Description: g.Description, Parents: g.All(),
			Tools:        t.tools(g.Tools),
			OnActivate:   t.hook("+", g.Name, g.Hooks["on_activate"]),
			OnDeactivate: t.hook("-", g.Name, g.Hooks["on_deactivate"])})
		if g.ShowDeactivator != nil && !*g.ShowDeactivator {
			cfg.Hidden = append(cfg.Hidden, g.Name+".deactivate")
		}
	}
	for _, raw := range sc.Config.Tools {
		var v struct{ Name, Visibility string }
		Decode(tb, raw, &v)
		t.Place(&cfg, v.Name, v.Visibility)
	}
	return cfg
}

func (t *Tmcp) tools(specs []ToolSpec) (out []tool.Tool) {
	for _, s := range specs {
		out = append(out, t.Made(s.Name, cmp.Or(s.Output, s.Name)))
	}
	return out
}

func (t *Tmcp) hook(sign, group, kind string) func(context.Context) error {
	if kind == "" {
		return nil
	}
	return t.Hook(sign, group, kind)
}

// Place registers a tool with one of tmcp's visibilities.
func (t *Tmcp) Place(cfg *toolkit.Config, name, visibility string) {
	tl := t.Made(name, name)
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
			When: func(func(string) bool) bool { return t.Flag(what) }})
	}
	cfg.Basic.Tools = append(cfg.Basic.Tools, tl)
}
