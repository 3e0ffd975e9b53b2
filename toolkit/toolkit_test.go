package toolkit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestNew: every mistake in a configuration is an error that names the group or tool.
func TestNew(t *testing.T) {
	groups := func(gs ...toolkit.Group) toolkit.Config { return toolkit.Config{Groups: gs} }
	basic := func(ts ...tool.Tool) toolkit.Config { return toolkit.Config{Basic: toolkit.Group{Tools: ts}} }
	with := func(cfg toolkit.Config, change func(*toolkit.Config)) toolkit.Config { change(&cfg); return cfg }
	parent := func(name string, parents ...string) toolkit.Group {
		g := group(name)
		g.Parents = parents
		return g
	}
	hooked := group("a")
	hooked.OnActivate = func(context.Context) error { return nil }
	for name, row := range map[string]struct {
		cfg  toolkit.Config
		want string // part of the error; empty for none
	}{
		"nothing":                                {toolkit.Config{}, ""},
		"named basic":                            {toolkit.Config{Basic: toolkit.Group{Name: "x"}}, `called "x"`},
		"no name":                                {groups(group("")), "no name"},
		"reserved name":                          {groups(group("basic")), `group "basic": the name is reserved`},
		"no description":                         {groups(toolkit.Group{Name: "a"}), `group "a" has no description`},
		"duplicate group":                        {groups(group("a"), group("a")), `two groups have the name "a"`},
		"unknown parent":                         {groups(parent("a", "z")), `group "a": parent "z"`},
		"own parent":                             {groups(parent("a", "a")), `group "a" is its own ancestor`},
		"cycle":                                  {groups(parent("a", "b"), parent("b", "c"), parent("c", "a")), `is its own ancestor`},
		"diamond":                                {groups(group("a"), parent("b", "a"), parent("c", "a"), parent("d", "b", "c")), ""},
		"nil tool":                               {basic(nil), "a tool is nil; remove it"},
		"nil skill loader":                       {toolkit.Config{Basic: toolkit.Group{Skills: []skill.Loader{nil}}}, "a skill loader is nil"},
		"a method like that of a capability":     {toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{almost{fakes("t")[0]}}}}, `tool "t" in the basic group: toolkit_test.almost has the method Remind() string, which is not called`},
		"duplicate tool":                         {groups(group("a", "t"), group("b", "t")), `tool "t" in group "b": another tool in group "a" has this name`},
		"tool without a name":                    {basic(served{tool.Info{}}), "the name is empty"},
		"bad tool name":                          {basic(served{tool.Info{Name: "a b"}}), `tool "a b" in the basic group`},
		"long tool name":                         {basic(served{tool.Info{Name: strings.Repeat("a", 129)}}), "128"},
		"invalid JSON schema":                    {basic(served{tool.Info{Name: "t", Input: json.RawMessage(`{"type":`)}}), `tool "t"`},
		"schema not an object":                   {basic(served{tool.Info{Name: "t", Input: json.RawMessage(`true`)}}), `tool "t"`},
		"schema of a list":                       {basic(served{tool.Info{Name: "t", Input: json.RawMessage(`{"type":"array"}`)}}), `the type array`},
		"name of a control tool":                 {groups(group("a", "reset_tools")), `tool "reset_tools" in group "a": a control tool has this name`},
		"name of a control tool without control": {basic(fakes("reset_tools")...), ""},
		"per group, bad name":                    {with(groups(group("a b")), func(c *toolkit.Config) { c.Control = toolkit.PerGroup() }), `control tool "a b_activate"`},
		"exclusion of one":                       {with(groups(group("a")), func(c *toolkit.Config) { c.Exclusive = [][]string{{"a", "a"}} }), "at least two groups"},
		"exclusion of unknown":                   {with(groups(group("a")), func(c *toolkit.Config) { c.Exclusive = [][]string{{"a", "z"}} }), `group "z" does not exist`},
		"exclusion of ancestor":                  {with(groups(group("a"), parent("b", "a"), parent("c", "b")), func(c *toolkit.Config) { c.Exclusive = [][]string{{"c", "a"}} }), `group "c" needs group "a"`},
		"setting twice":                          {with(basic(fakes("t")...), func(c *toolkit.Config) { c.Settings = []toolkit.Setting{{Tool: "t"}, {Tool: "t"}} }), `tool "t" has two settings`},
		"setting of an unknown tool":             {with(basic(fakes("t")...), func(c *toolkit.Config) { c.Settings = []toolkit.Setting{{Tool: "z"}} }), `tool "z" has a setting but is not registered`},
		"setting of an unknown group":            {with(basic(fakes("t")...), func(c *toolkit.Config) { c.Settings = []toolkit.Setting{{Tool: "t", Groups: []string{"z"}}} }), `tool "t": group "z"`},
		"initial unknown":                        {with(groups(group("a")), func(c *toolkit.Config) { c.Initial = []string{"z"} }), `initial group "z"`},
		"initial child first":                    {with(groups(group("a"), parent("b", "a")), func(c *toolkit.Config) { c.Initial = []string{"b", "a"} }), `initial group "b": put its parent "a" before it`},
		"initial with a hook":                    {with(groups(hooked), func(c *toolkit.Config) { c.Initial = []string{"a"} }), `initial group "a" has an OnActivate hook`},
		"initial over quota":                     {with(groups(group("a", "x", "y")), func(c *toolkit.Config) { c.Initial, c.MaxTools = []string{"a"}, 1 }), "2 tools"},
		"initial groups that exclude each other": {with(groups(group("a"), group("b")), func(c *toolkit.Config) { c.Initial, c.Exclusive = []string{"a", "b"}, [][]string{{"a", "b"}} }), `"a" and "b" exclude each other`},
		"nil source":                             {toolkit.Config{Basic: toolkit.Group{Sources: []tool.Source{nil}}}, "a source is nil"},
	} {
		for range 2 { // the second time schemas are cached
			_, err := toolkit.New(row.cfg)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s: got %v, want %q", name, err, row.want)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("Of accepted two tools with one name")
		}
	}()
	toolkit.Of(fakes("a", "a")...)
}

// TestSharedTool: a tool may be in several groups, and in the basic one.
func TestSharedTool(t *testing.T) {
	shared := fakes("shared")
	a, b := group("a", "x"), group("b", "y")
	a.Tools, b.Tools = append(a.Tools, shared...), append(shared, b.Tools...)
	tk := newToolkit(t, toolkit.Config{Groups: []toolkit.Group{a, b}, Control: new(toolkit.Control), MaxTools: 3})
	s := new(toolkit.Scope)
	ctx := context.Background()
	if _, err := tk.Enable(ctx, s, "a", "b"); err != nil {
		t.Fatal(err)
	}
	if got := listed(newView(t, tk, s)); !slices.Equal(got, []string{"x", "shared", "y"}) {
		t.Errorf("listed %q", got)
	}
	if _, err := tk.Disable(ctx, s, "a"); err != nil {
		t.Fatal(err)
	}
	if got := listed(newView(t, tk, s)); !slices.Equal(got, []string{"shared", "y"}) {
		t.Errorf("listed %q after one of its groups was closed", got)
	}
	if err := tk.Add("", shared...); err != nil {
		t.Fatal(err)
	}
	if got := listed(newView(t, tk, newScope(toolkit.Ceiling{}, ""))); !slices.Equal(got, []string{"shared"}) {
		t.Errorf("listed %q with all closed", got)
	}
}

// TestWhatWasShownRuns: calls of a model answer run against the view that the model was
// shown, even if scope and catalogue change meanwhile.
func TestWhatWasShownRuns(t *testing.T) {
	tk := newToolkit(t, toolkit.Config{Groups: []toolkit.Group{group("a", "x"), group("b", "y")}})
	s := new(toolkit.Scope)
	ctx := context.Background()
	if _, err := tk.Enable(ctx, s, "a"); err != nil {
		t.Fatal(err)
	}
	shown := newView(t, tk, s)
	if _, err := tk.Set(ctx, s, "b"); err != nil {
		t.Fatal(err)
	}
	if err := tk.RemoveGroup("a"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := shown.Resolve(t.Context(), "x", nil); err != nil {
		t.Errorf("x was shown: %v", err)
	}
	if _, _, err := shown.Resolve(t.Context(), "y", nil); err == nil {
		t.Error("y was not shown but resolves")
	}
	if _, _, err := newView(t, tk, s).Resolve(t.Context(), "x", nil); err == nil {
		t.Error("x was removed but resolves")
	}
}

func TestUpdate(t *testing.T) {
	tk := newToolkit(t, toolkit.Config{Basic: toolkit.Group{Tools: fakes("now")}, Groups: []toolkit.Group{group("a", "x"), group("b", "y")},
		Exclusive: [][]string{{"a", "b"}}, Settings: []toolkit.Setting{{Tool: "x", Next: "p"}}})
	var changes []toolkit.Change
	stop := tk.OnChange(func(c toolkit.Change) { changes = append(changes, c) })
	s := new(toolkit.Scope)
	if _, err := tk.Enable(context.Background(), s, "a"); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		what          string
		do            func() error
		tools, groups bool
		err           string
	}{
		{"add", func() error { return tk.Add("a", fakes("z")...) }, true, false, ""},
		{"add twice", func() error { return tk.Add("b", fakes("z")...) }, false, false, `tool "z" in group "b"`},
		{"add to an unknown group", func() error { return tk.Add("q", fakes("z")...) }, false, false, `group "q"`},
		{"add a group", func() error { return tk.AddGroup(group("c", "w")) }, true, true, ""},
		{"add a group twice", func() error { return tk.AddGroup(group("c")) }, false, false, `the name "c"`},
		{"remove", func() error { return tk.Remove("z", "x", "unknown") }, true, false, ""},
		{"remove an unknown tool", func() error { return tk.Remove("unknown") }, false, false, ""},
		{"remove a group", func() error { return tk.RemoveGroup("a") }, true, true, ""},
		{"remove a group twice", func() error { return tk.RemoveGroup("a") }, false, false, `group "a"`},
		{"fail", func() error { return tk.Update(func(*toolkit.Config) error { return errors.New("no") }) }, false, false, "no"},
		{"change nothing", func() error { return tk.Update(func(*toolkit.Config) error { return nil }) }, false, false, ""},
		{"a setting", func() error {
			return tk.Update(func(c *toolkit.Config) error {
				c.Settings = append(c.Settings, toolkit.Setting{Tool: "y", Phases: []string{"p"}})
				return nil
			})
		}, true, false, ""},
	} {
		changes = nil
		before := newView(t, tk, s).Digest()
		err := row.do()
		if (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%s: %v", row.what, err)
		}
		if row.err != "" && newView(t, tk, s).Digest() != before {
			t.Errorf("%s failed and changed the list", row.what)
		}
		want := btoi(row.tools || row.groups)
		if len(changes) != want || want == 1 && (changes[0].Tools != row.tools || changes[0].Groups != row.groups || changes[0].Scope != nil) {
			t.Errorf("%s: reported %+v", row.what, changes)
		}
	}
	if got := listed(newView(t, tk, s)); !slices.Equal(got, []string{"reset_tools", "now"}) {
		t.Errorf("listed %q", got)
	}
	if _, err := tk.Enable(context.Background(), s, "b"); err != nil {
		t.Errorf("Enable after the group that excluded b was removed: %v", err)
	}
	if active, _ := s.Active(); !slices.Equal(active, []string{"b"}) {
		t.Errorf("a transition keeps removed groups: %q", active)
	}
	stop()
	changes = nil
	if err := tk.Add("b", fakes("late")...); err != nil || len(changes) > 0 {
		t.Errorf("%v, reported %+v after stop", err, changes)
	}
}

// TestNotify: one report per transition, and only if something has changed.
func TestNotify(t *testing.T) {
	tk := newToolkit(t, toolkit.Config{Groups: []toolkit.Group{group("empty"), group("a", "x"), group("b", "y")},
		Settings: []toolkit.Setting{{Tool: "x", Next: "p"}, {Tool: "y", Phases: []string{"p"}}}})
	var changes []toolkit.Change
	defer tk.OnChange(func(c toolkit.Change) { changes = append(changes, c) })()
	s := new(toolkit.Scope)
	ctx := context.Background()
	for _, row := range []struct {
		what string
		do   func() error
		want int
	}{
		{"an empty group", func() error { _, err := tk.Enable(ctx, s, "empty"); return err }, 1},
		{"the same empty group", func() error { _, err := tk.Enable(ctx, s, "empty"); return err }, 0},
		{"two groups", func() error { _, err := tk.Enable(ctx, s, "a", "b"); return err }, 1},
		{"the same", func() error { _, err := tk.Enable(ctx, s, "a", "b"); return err }, 0},
		{"another phase", func() error { newView(t, tk, s).Advance("x"); return nil }, 1},
		{"no other phase", func() error { newView(t, tk, s).Advance("y", "nope"); return nil }, 0},
		{"all closed", func() error { _, err := tk.Set(ctx, s); return err }, 1},
	} {
		changes = nil
		if err := row.do(); err != nil {
			t.Errorf("%s: %v", row.what, err)
		}
		if len(changes) != row.want || row.want > 0 && changes[0].Scope != s {
			t.Errorf("%s: reported %+v", row.what, changes)
		}
	}
}

// TestQuota: transitions that exceed a quota are refused, but not those that reduce an excess.
func TestQuota(t *testing.T) {
	tk := newToolkit(t, toolkit.Config{Groups: []toolkit.Group{group("a", "x", "y"), group("b", "z"), group("c")}, MaxTools: 2, MaxGroups: 2})
	s := new(toolkit.Scope)
	if err := json.Unmarshal([]byte(`{"active":["a","b","c"]}`), s); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for _, row := range []struct {
		do    transition
		names []string
		want  string
	}{
		{tk.Set, []string{"a", "b"}, ""}, // 3 tools, as before
		{tk.Disable, []string{"b"}, ""},
		{tk.Enable, []string{"b"}, "3 tools, and 2"},
		{tk.Set, []string{"a", "b", "c"}, "3 tools, and 2"},
		{tk.Enable, []string{"c"}, ""},
		{tk.Set, []string{"b", "c"}, ""},
		{tk.Enable, []string{"a"}, "3 tools"},
	} {
		_, err := row.do(ctx, s, row.names...)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: got %v, want %q", row.names, err, row.want)
		}
	}
	// The quota is already exceeded: groups that do not raise the count may be opened.
	over := newToolkit(t, toolkit.Config{Groups: []toolkit.Group{group("a", "x", "y", "z"), group("b", "u", "v"), group("c", "w")}, MaxTools: 1})
	if err := json.Unmarshal([]byte(`{"active":["a"]}`), s); err != nil {
		t.Fatal(err)
	}
	if _, err := over.Set(ctx, s, "b", "c"); err != nil {
		t.Errorf("3 tools instead of 3: %v", err)
	}
	if _, err := over.Set(ctx, s, "a", "c"); err == nil {
		t.Error("4 tools instead of 3 with a quota of 1 were accepted")
	}
	bytes := newToolkit(t, toolkit.Config{Groups: []toolkit.Group{group("a", "x"), group("b", "y")}, MaxBytes: 150})
	_, err := bytes.Enable(ctx, new(toolkit.Scope), "a", "b")
	if ge, ok := errors.AsType[*toolkit.GroupError](err); !ok || ge.Unit != "bytes" || ge.Limit != 150 {
		t.Errorf("bytes: %v", err)
	}
}

// TestExclusion: opening a group closes those it excludes; one request for both is refused.
func TestExclusion(t *testing.T) {
	tk := newToolkit(t, toolkit.Config{Groups: []toolkit.Group{group("a"), group("b"), group("c")}, Exclusive: [][]string{{"a", "b"}}})
	s := new(toolkit.Scope)
	ctx := context.Background()
	if _, err := tk.Enable(ctx, s, "a", "c"); err != nil {
		t.Fatal(err)
	}
	out, err := tk.Enable(ctx, s, "b")
	if err != nil || !slices.Equal(out.Opened, []string{"b"}) || !slices.Equal(out.Closed, []string{"a"}) {
		t.Errorf("%+v, %v", out, err)
	}
	for _, do := range []transition{tk.Enable, tk.Set} {
		_, err := do(ctx, s, "a", "b")
		if ge, ok := errors.AsType[*toolkit.GroupError](err); !ok || ge.Reason != toolkit.ReasonExcluded {
			t.Errorf("both at once: %v", err)
		}
	}
}

// TestSetBelowCeiling: Set leaves groups open that the ceiling does not grant, unless an opened
// group excludes them.
func TestSetBelowCeiling(t *testing.T) {
	tk := newToolkit(t, toolkit.Config{Groups: []toolkit.Group{group("host", "h"), group("a", "x"), group("b", "y")}, Exclusive: [][]string{{"host", "b"}}})
	s := new(toolkit.Scope)
	ctx := context.Background()
	if _, err := tk.Enable(ctx, s, "host", "a"); err != nil {
		t.Fatal(err)
	}
	s.SetCeiling(toolkit.Only("a", "b"))
	for _, row := range []struct {
		names []string
		want  string
	}{{nil, "host"}, {[]string{"b"}, "b"}} {
		if _, err := tk.Set(ctx, s, row.names...); err != nil {
			t.Errorf("%q: %v", row.names, err)
		}
		if active, _ := s.Active(); !slices.Equal(active, []string{row.want}) {
			t.Errorf("%q leaves %q open, want %s", row.names, active, row.want)
		}
	}
}

// TestScopeJSON: unset, empty and listed values are distinguished.
func TestScopeJSON(t *testing.T) {
	for _, row := range []string{
		`{}`, `{"active":[]}`, `{"active":["b","a"]}`, `{"phase":"p"}`,
		`{"ceiling":[]}`, `{"ceiling":["*"]}`, `{"active":["x"],"phase":"q","ceiling":["a","b"]}`,
	} {
		s := new(toolkit.Scope)
		if err := json.Unmarshal([]byte(row), s); err != nil {
			t.Errorf("%s: %v", row, err)
		}
		if got := string(mustJSON(s)); got != row {
			t.Errorf("%s comes back as %s", row, got)
		}
	}
	for _, row := range []string{`{"ceiling":"a"}`, `{"ceiling":[1]}`, `{"active":"a"}`, `[]`} {
		if err := json.Unmarshal([]byte(row), new(toolkit.Scope)); err == nil {
			t.Errorf("%s was accepted", row)
		}
	}
	var c struct{ C toolkit.Ceiling }
	if err := json.Unmarshal([]byte(`{"C":null}`), &c); err != nil || !c.C.IsZero() {
		t.Errorf("null: %v, %v", c.C, err)
	}
}

// TestParentOfParent: an ancestor is named and opened before the groups that need it, even if a child names it first.
func TestParentOfParent(t *testing.T) {
	leaf, middle := group("leaf", "x"), group("middle", "y")
	leaf.Parents, middle.Parents = []string{"root", "middle"}, []string{"root"}
	tk := newToolkit(t, toolkit.Config{Groups: []toolkit.Group{leaf, middle, group("root", "z")}})
	s := new(toolkit.Scope)
	_, err := tk.Enable(t.Context(), s, "leaf")
	if e, ok := errors.AsType[*toolkit.GroupError](err); !ok || !slices.Equal(e.Others, []string{"root", "middle"}) {
		t.Errorf("open leaf alone: %v", err)
	}
	out, err := tk.Set(t.Context(), s, "leaf", "middle", "root")
	if err != nil || !slices.Equal(out.Opened, []string{"root", "middle", "leaf"}) {
		t.Errorf("opened %q, %v", out.Opened, err)
	}
}

// TestInitial: a new scope has the initial groups open; after a transition its own groups
// count.
func TestInitial(t *testing.T) {
	tk := newToolkit(t, toolkit.Config{Groups: []toolkit.Group{group("a", "x"), group("b", "y")}, Initial: []string{"b"}})
	scope := new(toolkit.Scope)
	if out, err := tk.Set(context.Background(), scope, "b"); err != nil || out.Changed() {
		t.Errorf("Set to the initial groups: %+v, %v", out, err)
	}
	if active, decided := scope.Active(); !decided || !slices.Equal(active, []string{"b"}) {
		t.Errorf("after Set to the initial groups: active %q, decided %v", active, decided)
	}
	s := new(toolkit.Scope)
	if got := listed(newView(t, tk, s)); !slices.Equal(got, []string{"reset_tools", "y"}) {
		t.Errorf("listed %q", got)
	}
	if _, err := tk.Enable(context.Background(), s, "a"); err != nil {
		t.Fatal(err)
	}
	if got := string(mustJSON(s)); got != `{"active":["b","a"]}` {
		t.Errorf("saved %s", got)
	}
	if _, err := tk.Set(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	if got := string(mustJSON(s)); got != `{"active":[]}` {
		t.Errorf("saved %s after all were closed", got)
	}
	if got := listed(newView(t, tk, s)); !slices.Equal(got, []string{"reset_tools"}) {
		t.Errorf("listed %q after all were closed", got)
	}
}

func TestPage(t *testing.T) {
	for name, items := range map[string][]string{"sorted": {"a", "b", "c", "d", "e"}, "unsorted": {"e", "b", "c", "a", "d"}} {
		tk := newToolkit(t, toolkit.Config{Basic: toolkit.Group{Tools: fakes(items...)}})
		page := func(cursor string, size int) ([]string, string, error) {
			infos, next, err := newView(t, tk, new(toolkit.Scope)).Page(cursor, size)
			var names []string
			for _, i := range infos {
				names = append(names, i.Name)
			}
			return names, next, err
		}
		var all []string
		for cursor, n := "", 0; n == 0 || cursor != ""; n++ {
			names, next, err := page(cursor, 2)
			if err != nil || len(names) > 2 {
				t.Fatal(name, names, err)
			}
			all, cursor = append(all, names...), next
		}
		if !slices.Equal(all, items) {
			t.Errorf("%s: pages give %q", name, all)
		}
		_, next, err := page("", 3)
		if err != nil {
			t.Fatal(err)
		}
		if err := tk.Remove("c"); err != nil {
			t.Fatal(err)
		}
		rest, _, err := page(next, 0)
		if name == "sorted" && !slices.Equal(rest, []string{"d", "e"}) || name == "unsorted" && !errors.Is(err, toolkit.ErrCursor) {
			t.Errorf("%s, after a change: %q, %v", name, rest, err)
		}
		if _, _, err := page("%", 1); !errors.Is(err, toolkit.ErrCursor) {
			t.Errorf("a made-up cursor: %v", err)
		}
	}
	v := newView(t, newToolkit(t, toolkit.Config{Preset: toolkit.Tmcp(), Basic: toolkit.Group{Tools: fakes("b", "a")}}), new(toolkit.Scope))
	for cursor, want := range map[string]int{"": 2, "0": 2, "1": 1, "2": 0, "3": -1, "x": -1, "-1": -1} {
		page, _, err := v.Page(cursor, 0)
		if want < 0 != (err != nil) || err == nil && len(page) != want {
			t.Errorf("offset %q: %d tools, %v", cursor, len(page), err)
		}
	}
}

// TestImport: unknown parents and cycles are removed.
func TestImport(t *testing.T) {
	in := []toolkit.Group{
		{Name: "s/a", Parents: []string{"s/b", "s/ghost"}}, {Name: "s/b", Title: "The B", Parents: []string{"s/a", "s/b"}},
		{Name: "s/c", Description: "C.", Parents: []string{"s/b", "s/b"}}, {Name: "s/a"}, {}, {Name: "basic"},
	}
	out := toolkit.Import(in)
	var got []string
	for _, g := range out {
		got = append(got, g.Name+"<"+strings.Join(g.Parents, ",")+" "+g.Description)
	}
	if want := []string{"s/a<s/b s/a", "s/b< The B", "s/c<s/b C."}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	newToolkit(t, toolkit.Config{Groups: out})
}

// TestPredicates: a predicate is evaluated for every view; a panic counts as false and is reported.
func TestPredicates(t *testing.T) {
	on := false
	tk := newToolkit(t, toolkit.Config{Basic: toolkit.Group{Tools: fakes("flag", "bad", "with_a")}, Groups: []toolkit.Group{group("a", "x")},
		Settings: []toolkit.Setting{
			{Tool: "flag", When: func(func(string) bool) bool { return on }},
			{Tool: "bad", When: func(func(string) bool) bool { panic("oh") }},
			{Tool: "with_a", When: func(active func(string) bool) bool { return active("a") && !active("ghost") }},
		}})
	s := new(toolkit.Scope)
	v := newView(t, tk, s)
	if got := listed(v); !slices.Equal(got, []string{"reset_tools"}) || len(v.Skipped()) != 1 || v.Skipped()[0].Tool != "bad" {
		t.Errorf("listed %q, skipped %+v", got, v.Skipped())
	}
	on = true
	if got := listed(newView(t, tk, s)); !slices.Equal(got, []string{"reset_tools", "flag"}) {
		t.Errorf("listed %q", got)
	}
	if _, err := tk.Enable(context.Background(), s, "a"); err != nil {
		t.Fatal(err)
	}
	if got := listed(newView(t, tk, s)); !slices.Equal(got, []string{"reset_tools", "flag", "with_a", "x"}) {
		t.Errorf("listed %q", got)
	}
}

// TestDigest: equal lists have equal digests, also in different toolkits.
func TestDigest(t *testing.T) {
	digest := func(cfg toolkit.Config, open ...string) string {
		tk, s := newToolkit(t, cfg), new(toolkit.Scope)
		if _, err := tk.Enable(context.Background(), s, open...); err != nil {
			t.Fatal(err)
		}
		return newView(t, tk, s).Digest()
	}
	cfg := func() toolkit.Config {
		return toolkit.Config{Groups: []toolkit.Group{group("a", "x"), group("b", "y")}}
	}
	seen := map[string]string{}
	for _, open := range []string{"", "a", "b", "a b", "b a"} {
		d := digest(cfg(), strings.Fields(open)...)
		if other, ok := seen[d]; ok {
			t.Errorf("%q and %q have the same digest", open, other)
		}
		seen[d] = open
		if digest(cfg(), strings.Fields(open)...) != d {
			t.Errorf("%q has different digests in two toolkits", open)
		}
	}
	byName := func() toolkit.Config {
		return toolkit.Config{Preset: toolkit.Tmcp(), Groups: []toolkit.Group{group("a", "a.x"), group("b", "b.y")}}
	}
	if digest(byName(), "a", "b") != digest(byName(), "b", "a") {
		t.Error("sorted by name, the order of opening changes the digest")
	}
}

func TestCost(t *testing.T) {
	src := &listing{names: []string{"remote"}}
	a := group("a", "x", "y")
	a.Sources = []tool.Source{src}
	tk := newToolkit(t, toolkit.Config{Basic: toolkit.Group{Tools: fakes("now")}, Groups: []toolkit.Group{a, group("b", "z")}, Control: new(toolkit.Control)})
	s := new(toolkit.Scope)
	before := newView(t, tk, s).Cost()
	if before.Total.Tools != 1 || before.Groups[0].Tools != 2 || before.Total.Bytes <= 0 {
		t.Errorf("before: %+v", before)
	}
	if _, err := tk.Enable(context.Background(), s, "a"); err != nil {
		t.Fatal(err)
	}
	c := newView(t, tk, s).Cost()
	if c.Total.Tools != 4 || c.Groups[0].Tools != 3 || len(c.Tools) != 4 {
		t.Errorf("after: %+v", c)
	}
	if c.Total.Bytes != before.Total.Bytes+c.Groups[0].Bytes || c.Total.Tokens != (c.Total.Bytes+3)/4 {
		t.Errorf("the total is not the sum: %+v", c)
	}
}

// TestImportOfLayers: groups with very many paths between them are imported in reasonable time.
func TestImportOfLayers(t *testing.T) {
	in := []toolkit.Group{{Name: "a0"}, {Name: "b0"}}
	for i := range 40 {
		parents := []string{fmt.Sprint("a", i), fmt.Sprint("b", i)}
		in = append(in, toolkit.Group{Name: fmt.Sprint("a", i+1), Parents: parents}, toolkit.Group{Name: fmt.Sprint("b", i+1), Parents: parents})
	}
	out := toolkit.Import(in)
	if last := out[len(out)-1]; !slices.Equal(last.Parents, []string{"a39", "b39"}) {
		t.Errorf("parents %q", last.Parents)
	}
}

// TestRemoveGroupWithSettings: the settings of removed tools are removed, others stay.
func TestRemoveGroupWithSettings(t *testing.T) {
	shared := fakes("shared")[0]
	g := group("g", "own")
	g.Tools = append(g.Tools, shared)
	tk := newToolkit(t, toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{shared}}, Groups: []toolkit.Group{g},
		Settings: []toolkit.Setting{{Tool: "own", Phases: []string{"p"}}, {Tool: "shared", Next: "q"}}})
	if err := tk.RemoveGroup("g"); err != nil {
		t.Fatal(err)
	}
	if left := tk.Config().Settings; len(left) != 1 || left[0].Tool != "shared" {
		t.Errorf("settings %+v", left)
	}
}

// almost has a method Remind with another signature than [tool.Reminder].
type almost struct{ tool.Tool }

func (almost) Remind() string { return "" }

// TestExcludedNamesTheOther: the error names two groups that exclude each other, not the last of the requested groups.
func TestExcludedNamesTheOther(t *testing.T) {
	child := group("child", "c")
	child.Parents = []string{"parent"}
	tk := newToolkit(t, toolkit.Config{
		Groups:    []toolkit.Group{group("parent", "p"), child, group("rival", "r"), group("other", "o")},
		Exclusive: [][]string{{"parent", "rival"}},
	})
	for _, row := range []struct {
		names []string
		group string
	}{
		{[]string{"parent", "rival", "other"}, "parent"},
		{[]string{"child", "rival", "other"}, "child"}, // closed with its parent
	} {
		s := new(toolkit.Scope)
		if _, err := tk.Enable(t.Context(), s, "parent"); err != nil {
			t.Fatal(err)
		}
		_, err := tk.Enable(t.Context(), s, row.names...)
		e, ok := errors.AsType[*toolkit.GroupError](err)
		if !ok || e.Reason != toolkit.ReasonExcluded || e.Group != row.group || !slices.Equal(e.Others, []string{"rival"}) {
			t.Errorf("%q: %v, want that %s and rival exclude each other", row.names, err, row.group)
		}
	}
}
