package toolkit_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/kitbag-go/kitbag/internal/groupcase"
	"github.com/kitbag-go/kitbag/toolkit"
	"github.com/kitbag-go/kitbag/toolkit/config"
)

func trustgraphFixture(t testing.TB, sc groupcase.Scenario) *fixture {
	failing := false
	base := func(raws []json.RawMessage) toolkit.Config {
		cfg := toolkit.Config{Preset: toolkit.TrustGraph()}
		for i, raw := range raws {
			var v struct{ Name string }
			groupcase.Decode(t, raw, &v)
			if v.Name == "" {
				v.Name = fmt.Sprintf("unnamed-%d", i)
			}
			cfg.Basic.Tools = append(cfg.Basic.Tools, &fake{name: v.Name, fail: &failing})
		}
		return cfg
	}
	load := func(raws []json.RawMessage) (toolkit.Config, error) {
		if sc.Config.SkipValidation {
			raws = scalarsAsLists(t, raws)
		}
		return config.Apply(base(raws), mustJSON(map[string]any{"tools": raws}))
	}
	cfg, err := load(sc.Config.Tools)
	w := newFixture(t, sc, cfg, err)
	w.hidden = func(e *toolkit.HiddenError) string { return fmt.Sprintf("No action for %s!", e.Tool) }
	w.ops = map[string]func(groupcase.Step) outcome{
		"list": w.list,
		"register": func(s groupcase.Step) outcome {
			if groupcase.Arg[string](t, s, "what") != "reload" {
				return w.construct(s)
			}
			return outcome{err: w.tk.Update(func(c *toolkit.Config) (err error) {
				next, err := load(groupcase.Arg[[]json.RawMessage](t, s, "tools"))
				if err == nil {
					*c = next
				}
				return err
			})}
		},
		"request": func(s groupcase.Step) outcome {
			if _, ok := s.Args["subagent_of"]; ok {
				w.scope = w.scope.Sub()
				return outcome{}
			}
			var req struct {
				Group toolkit.Ceiling
				State string
			}
			groupcase.Decode(t, mustJSON(s.Args), &req)
			w.scope = newScope(req.Group, req.State)
			return outcome{}
		},
		"call": func(s groupcase.Step) outcome {
			failing = groupcase.Arg[string](t, s, "outcome") == "error"
			name := groupcase.Arg[string](t, s, "tool")
			v := w.view()
			out := w.call(name, json.RawMessage("{}"))
			// TrustGraph's code advances after failed calls too; our host must do this itself.
			if out.err == nil || out.failed && sc.Config.Variant == "code" {
				v.Advance(name)
			}
			return out
		},
	}
	return w
}

// scalarsAsLists turns a name into a list of one element, for scenarios that skip the
// validation of the file.
func scalarsAsLists(t testing.TB, raws []json.RawMessage) []json.RawMessage {
	var out []json.RawMessage
	for _, raw := range raws {
		var m map[string]any
		groupcase.Decode(t, raw, &m)
		for _, key := range []string{"group", "applicable-states"} {
			if s, ok := m[key].(string); ok {
				m[key] = []string{s}
			}
		}
		out = append(out, mustJSON(m))
	}
	return out
}

func mcpFixture(t testing.TB, sc groupcase.Scenario) *fixture {
	cfg := toolkit.Config{Preset: toolkit.MCP()}
	labels := map[string][]string{}
	var order []string
	for _, g := range sc.Groups {
		cfg.Groups = append(cfg.Groups, toolkit.Group{Name: g.Name, Title: g.Title, Description: g.Description, Parents: g.All()})
		for _, t := range g.Tools {
			labels[t.Name] = append(labels[t.Name], g.Name)
			order = append(order, t.Name)
		}
	}
	for _, t := range sc.Config.UngroupedTools {
		order = append(order, t.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(sc.Config.RawMeta)) {
		labels[name] = metaLabels(sc.Config.RawMeta[name])
		order = append(order, name)
	}
	for i, name := range order {
		if !slices.Contains(order[:i], name) {
			cfg.Basic.Tools = append(cfg.Basic.Tools, &fake{name: name, labels: labels[name]})
		}
	}
	w := newFixture(t, sc, cfg, nil)
	group := func(s groupcase.Step) string { return groupcase.Arg[string](t, s, "group") }
	w.ops = map[string]func(groupcase.Step) outcome{
		"call": w.callStep, "list": w.mcpList, "register": w.mcpRegister,
		"disable":    func(s groupcase.Step) outcome { return outcome{err: w.tk.RemoveGroup(group(s))} },
		"unregister": func(s groupcase.Step) outcome { return outcome{err: w.tk.RemoveGroup(group(s))} },
		"enable": func(s groupcase.Step) outcome {
			i := slices.IndexFunc(cfg.Groups, func(g toolkit.Group) bool { return g.Name == group(s) })
			return outcome{err: w.tk.AddGroup(cfg.Groups[i])}
		},
		"request": func(s groupcase.Step) outcome {
			f := groupcase.Arg[struct {
				Groups []string
				Depth  int
				Tags   []string
			}](t, s, "filter")
			if f.Tags != nil {
				return outcome{err: fmt.Errorf("a toolkit has no tags")}
			}
			ceiling, contained, unknown := w.tk.Select(f.Groups, f.Depth)
			w.scope = newScope(ceiling, "")
			return outcome{groups: orEmpty(contained), unknown: unknown}
		},
	}
	return w
}

func (w *fixture) mcpList(s groupcase.Step) outcome {
	switch what := groupcase.Arg[string](w.t, s, "what"); what {
	case "groups":
		return w.listGroups(s)
	case "tools", "", "capabilities":
		return w.list(s)
	default:
		return outcome{err: fmt.Errorf("a toolkit has no %s", what)}
	}
}

func (w *fixture) mcpRegister(s groupcase.Step) outcome {
	name := groupcase.Arg[string](w.t, s, "name")
	switch what := groupcase.Arg[string](w.t, s, "what"); what {
	case "construct":
		return w.construct(s)
	case "group":
		g := toolkit.Group{Name: name, Description: groupcase.Arg[string](w.t, s, "description")}
		if p := groupcase.Arg[string](w.t, s, "parent"); p != "" {
			g.Parents = []string{p}
		}
		return outcome{err: w.tk.AddGroup(g)}
	case "tool_update":
		return outcome{err: w.tk.Update(func(cfg *toolkit.Config) error {
			cfg.Settings = append(cfg.Settings, toolkit.Setting{Tool: name, Groups: groupcase.Arg[[]string](w.t, s, "groups")})
			return nil
		})}
	default:
		return outcome{err: fmt.Errorf("the adapter does not know how to register %q", what)}
	}
}

// metaLabels returns the groups that the _meta of a scenario's tool names, as an MCP client
// reads them: values that are not strings are left out.
func metaLabels(meta json.RawMessage) []string {
	var m struct {
		Groups json.RawMessage `json:"io.modelcontextprotocol/groups"`
	}
	var list []any
	if json.Unmarshal(meta, &m) != nil || json.Unmarshal(m.Groups, &list) != nil {
		return nil
	}
	var out []string
	for _, v := range list {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
