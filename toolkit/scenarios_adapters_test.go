package toolkit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
	"github.com/kitbag-go/kitbag/toolkit/config"
)

var adapters = map[string]func(testing.TB, scenario) *world{
	"wags":       wagsWorld,
	"tmcp":       tmcpWorld,
	"agentscope": agentscopeWorld,
	"trustgraph": trustgraphWorld,
	"mcp":        mcpWorld,
}

var wordings = []wording{
	{`Unknown group: (.*)`, `group "$1"`},
	{`Group already enabled: (.*)`, `group "$1" is enabled already`},
	{`Group not enabled: (.*)`, `group "$1" is not enabled`},
	{`Group '(.*)' not visible. Enable parent '(.*)' first.`, `group "$1" needs .*$2 to be open first`},
	{`Cannot enable '(.*)': would result in (\d+) tools, exceeding max_tools=(\d+).*`, `group "$1": that would make $2 tools, and $3 are allowed`},
	{`Cannot initially enable '(.*)': parent '(.*)' not enabled`, `initial group "$1": its parent "$2" is not open before it`},
	{`Group '(.*)' has unknown parent '(.*)'`, `group "$1": its parent "$2" does not exist`},
	{`Handler '(.*)' references unknown group '(.*)'\. .*`, `tool "$1": its group "$2" does not exist`},

	{`GroupNotFound:(.*)`, `(there is no group "$1"|(group|parent) "$1" does not exist)`},
	{`GroupInactive:(.*):(.*)`, `group "$1" needs .*$2 to be open first`},
	{`Other:hook failed: ([+-])(.*)`, `group "$2": hook failed: [$1]$2`},
	{`InvalidConfiguration:group already registered: (.*)`, `group "$1": there are two of that name`},
	{`InvalidConfiguration:group name is empty`, `a group has no name`},
	{`InvalidConfiguration:invalid group segment: `, `a part of the path is empty`},
	{`InvalidConfiguration:group '(.*)' must be nested under parent '(.*)'`, `group "$1": its name must start with that of its parent, "$2\."`},
	{`InvalidConfiguration:tool already registered: (.*)`, `tool "$1" in .*: another tool of that name`},

	{`Invalid group name\(s\): (.*)\. The current available groups are: (.*)`, `there is no group "$1"; the groups are $2$`},
	{`description is required for tool group '(.*)'`, `group "$1": has no description`},

	{`Tool '(.*)' field must be a list of strings`, `tools\[\d+\]\.$1: got .*, want array`},
	{`All group names must be strings`, `\.group\[\d+\]: got .*, want string`},
	{`All state names must be strings`, `states\[\d+\]: got .*, want string`},

	{`Group (.*) is already registered`, `group "$1": there are two of that name`},
}

// wags

func wagsWorld(t testing.TB, sc scenario) *world {
	cfg := toolkit.Config{Policy: toolkit.Wags(), Initial: sc.Config.InitialGroups, MaxTools: sc.Config.MaxTools}
	places := maps.Clone(sc.Config.Handlers)
	if places == nil {
		places = map[string][]string{}
	}
	order := slices.Clone(sc.Config.Upstream)
	for _, g := range sc.Groups {
		cfg.Groups = append(cfg.Groups, toolkit.Group{Name: g.Name, Description: g.Description, Parents: g.parents()})
		for _, name := range g.Tools {
			places[name] = append(places[name], g.Name)
		}
		order = append(order, g.Tools...)
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

// tmcp

func tmcpWorld(t testing.TB, sc scenario) *world {
	w := &world{t: t, sc: sc, scope: new(toolkit.Scope), flags: map[string]bool{}}
	cfg := toolkit.Config{Policy: toolkit.Tmcp(), Exclusive: sc.Config.Exclusions,
		Basic: toolkit.Group{Tools: fakes(sc.Config.RootTools...)}}
	if sc.Config.Variant == "doc" {
		cfg.Policy.NotifyAlways = false
	}
	for _, g := range sc.Groups {
		cfg.Groups = append(cfg.Groups, toolkit.Group{Name: g.Name, Description: g.Description, Parents: g.parents(),
			Tools: fakes(g.Tools...), NoDeactivator: g.ShowDeactivator != nil && !*g.ShowDeactivator,
			OnActivate:   w.hook("+", g.Name, g.Hooks["on_activate"]),
			OnDeactivate: w.hook("-", g.Name, g.Hooks["on_deactivate"])})
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
		"unregister": func(s scenarioStep) outcome {
			return outcome{err: w.tk.Remove(arg[string](t, s, "tool") + arg[string](t, s, "name"))}
		},
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
		for i := range cfg.Groups {
			if cfg.Groups[i].Name == what {
				cfg.Groups[i].Tools = append(cfg.Groups[i].Tools, tl)
			}
		}
		return
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
			cfg.Exclusive = append(cfg.Exclusive, arg[[]string](w.t, s, "groups"))
			return nil
		})}
	case "notify":
		w.tk.Refresh()
		return outcome{}
	default:
		return outcome{err: fmt.Errorf("the adapter does not know how to register %q", what)}
	}
}

// agentscope

func agentscopeWorld(t testing.TB, sc scenario) *world {
	cfg := toolkit.Config{Policy: toolkit.AgentScope()}
	cfg.Policy.NewOnly = sc.Config.Variant == "doc"
	for _, raw := range sc.Config.BasicTools {
		cfg.Basic.Tools = append(cfg.Basic.Tools, agentscopeTool(t, raw))
	}
	cfg.Basic.Skills = loaders(sc.Config.BasicSkills)
	for _, g := range sc.Groups {
		cfg.Groups = append(cfg.Groups, toolkit.Group{Name: g.Name, Description: g.Description,
			Instructions: g.Instructions, Tools: fakes(g.Tools...), Skills: loaders(g.Skills)})
	}
	w := newWorld(t, sc, cfg, nil)
	if sc.Config.StateActive != nil {
		decode(t, mustJSON(map[string]any{"active": sc.Config.StateActive}), w.scope)
	}
	w.hidden = func(e *toolkit.HiddenError) string {
		if len(e.Groups) == 0 {
			return fmt.Sprintf("ToolNotFoundError: The tool named '%s' doesn't exist.", e.Tool)
		}
		return fmt.Sprintf("ToolGroupInactiveError: The tool '%s' in group '%s' is currently inactive. "+
			"You should first activate the group by calling the 'reset_tools' tool.", e.Tool, e.Groups[0])
	}
	w.ops = map[string]func(scenarioStep) outcome{
		"register": w.agentscopeRegister, "call": w.callStep, "list": w.list,
		"unregister": func(s scenarioStep) outcome {
			return outcome{err: w.tk.Remove(arg[string](t, s, "tool") + arg[string](t, s, "name"))}
		},
		"reset": func(s scenarioStep) outcome {
			out := w.call("reset_tools", mustJSON(s.Args))
			if out.err == nil && out.result != nil {
				out.text = agentscopeText(t, out.result)
			}
			return out
		},
	}
	return w
}

func (w *world) agentscopeRegister(s scenarioStep) outcome {
	if what := arg[string](w.t, s, "what"); what != "tool" {
		return w.construct(s)
	}
	return outcome{err: w.tk.Add(arg[string](w.t, s, "group"), fakes(arg[string](w.t, s, "name"))...)}
}

func agentscopeTool(t testing.TB, raw json.RawMessage) tool.Tool {
	var v struct{ Name, Output string }
	if bytes.HasPrefix(raw, []byte(`"`)) {
		decode(t, raw, &v.Name)
	} else {
		decode(t, raw, &v)
	}
	return &fake{name: v.Name, text: v.Output}
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

// agentscopeText says what our answer says in AgentScope's words.
func agentscopeText(t testing.TB, result map[string]any) string {
	var r struct {
		Active []struct{ Name, Instructions string }
	}
	decode(t, mustJSON(result), &r)
	if len(r.Active) == 0 {
		return "All tool groups are currently deactivated."
	}
	var names []string
	var told strings.Builder
	for _, g := range r.Active {
		names = append(names, g.Name)
		if g.Instructions != "" {
			fmt.Fprintf(&told, "<group name=\"%s\">%s</group>\n", g.Name, g.Instructions)
		}
	}
	text := "The currently activated tool group(s): " + strings.Join(names, ", ") + "."
	if told.Len() == 0 {
		return text
	}
	return text + "\n<tool-instructions>\nThe tool instructions are a collection of suggestions, rules and " +
		"notifications about how to use the tools in the activated groups.\n" + told.String() + "</tool-instructions>"
}

// trustgraph

func trustgraphWorld(t testing.TB, sc scenario) *world {
	failing := false
	base := func(raws []json.RawMessage) toolkit.Config {
		cfg := toolkit.Config{Policy: toolkit.TrustGraph()}
		for i, raw := range raws {
			var v struct{ Name string }
			decode(t, raw, &v)
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
	w := newWorld(t, sc, cfg, err)
	w.hidden = func(e *toolkit.HiddenError) string { return e.Error() }
	w.ops = map[string]func(scenarioStep) outcome{
		"list": w.list,
		"register": func(s scenarioStep) outcome {
			if arg[string](t, s, "what") != "reload" {
				return w.construct(s)
			}
			return outcome{err: w.tk.Update(func(c *toolkit.Config) (err error) {
				next, err := load(arg[[]json.RawMessage](t, s, "tools"))
				if err == nil {
					*c = next
				}
				return err
			})}
		},
		"request": func(s scenarioStep) outcome {
			if _, ok := s.Args["subagent_of"]; ok {
				w.scope = w.scope.Sub()
				return outcome{}
			}
			var req struct {
				Group toolkit.Ceiling
				State string
			}
			decode(t, mustJSON(s.Args), &req)
			w.scope = toolkit.NewScope(req.Group, req.State)
			return outcome{}
		},
		"call": func(s scenarioStep) outcome {
			failing = arg[string](t, s, "outcome") == "error"
			name := arg[string](t, s, "tool")
			v := w.view()
			out := w.call(name, json.RawMessage("{}"))
			// Who moves on after failures too, as their code does, says so here.
			if out.err == nil || out.failed && sc.Config.Variant == "code" {
				v.Advance(name)
			}
			return out
		},
	}
	return w
}

// scalarsAsLists reads a name as a list of one, for rows that skip the
// validation of the file.
func scalarsAsLists(t testing.TB, raws []json.RawMessage) []json.RawMessage {
	var out []json.RawMessage
	for _, raw := range raws {
		var m map[string]any
		decode(t, raw, &m)
		for _, key := range []string{"group", "applicable-states"} {
			if s, ok := m[key].(string); ok {
				m[key] = []string{s}
			}
		}
		out = append(out, mustJSON(m))
	}
	return out
}

// mcp

func mcpWorld(t testing.TB, sc scenario) *world {
	cfg := toolkit.Config{Policy: toolkit.MCP()}
	labels := map[string][]string{}
	var order []string
	for _, g := range sc.Groups {
		cfg.Groups = append(cfg.Groups, toolkit.Group{Name: g.Name, Title: g.Title, Description: g.Description, Parents: g.parents()})
		for _, name := range g.Tools {
			labels[name] = append(labels[name], g.Name)
			order = append(order, name)
		}
	}
	order = append(order, sc.Config.UngroupedTools...)
	for _, name := range slices.Sorted(maps.Keys(sc.Config.RawMeta)) {
		labels[name] = tool.MetaLabels(sc.Config.RawMeta[name])
		order = append(order, name)
	}
	for i, name := range order {
		if !slices.Contains(order[:i], name) {
			cfg.Basic.Tools = append(cfg.Basic.Tools, &fake{name: name, labels: labels[name]})
		}
	}
	w := newWorld(t, sc, cfg, nil)
	group := func(s scenarioStep) string { return arg[string](t, s, "group") }
	w.ops = map[string]func(scenarioStep) outcome{
		"call": w.callStep, "list": w.mcpList, "register": w.mcpRegister,
		"disable":    func(s scenarioStep) outcome { return outcome{err: w.tk.RemoveGroup(group(s))} },
		"unregister": func(s scenarioStep) outcome { return outcome{err: w.tk.RemoveGroup(group(s))} },
		"enable": func(s scenarioStep) outcome {
			i := slices.IndexFunc(cfg.Groups, func(g toolkit.Group) bool { return g.Name == group(s) })
			return outcome{err: w.tk.AddGroup(cfg.Groups[i])}
		},
		"request": func(s scenarioStep) outcome {
			f := arg[struct {
				Groups []string
				Depth  int
				Tags   []string
			}](t, s, "filter")
			if f.Tags != nil {
				return outcome{err: fmt.Errorf("there are no tags")}
			}
			sel := w.tk.Select(f.Groups, f.Depth)
			w.scope = toolkit.NewScope(sel.Ceiling, "")
			return outcome{groups: orEmpty(sel.Groups), unknown: sel.Unknown}
		},
	}
	return w
}

func (w *world) mcpList(s scenarioStep) outcome {
	switch what := arg[string](w.t, s, "what"); what {
	case "groups":
		return w.listGroups(s)
	case "tools", "", "capabilities":
		return w.list(s)
	default:
		return outcome{err: fmt.Errorf("a toolkit has no %s", what)}
	}
}

func (w *world) mcpRegister(s scenarioStep) outcome {
	name := arg[string](w.t, s, "name")
	switch what := arg[string](w.t, s, "what"); what {
	case "construct":
		return w.construct(s)
	case "group":
		g := toolkit.Group{Name: name, Description: arg[string](w.t, s, "description")}
		if p := arg[string](w.t, s, "parent"); p != "" {
			g.Parents = []string{p}
		}
		return outcome{err: w.tk.AddGroup(g)}
	case "tool_update":
		return outcome{err: w.tk.Update(func(cfg *toolkit.Config) error {
			cfg.Settings = append(cfg.Settings, toolkit.Setting{Tool: name, Groups: arg[[]string](w.t, s, "groups")})
			return nil
		})}
	default:
		return outcome{err: fmt.Errorf("the adapter does not know how to register %q", what)}
	}
}
