package toolkit_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestSavedScope: unknown names in a saved scope, and groups whose parents are closed, have no
// effect.
func TestSavedScope(t *testing.T) {
	child := group("child", "y")
	child.Parents = []string{"parent"}
	tk := newToolkit(t, toolkit.Config{Control: new(toolkit.Control), Groups: []toolkit.Group{group("parent", "x"), child}})
	for saved, want := range map[string][]string{
		`{"active":["child"]}`:                    nil,
		`{"active":["ghost","parent"]}`:           {"x"},
		`{"active":["child","parent","parent"]}`:  {"y", "x"},
		`{"active":["parent"],"phase":"unknown"}`: {"x"},
	} {
		s := new(toolkit.Scope)
		if err := json.Unmarshal([]byte(saved), s); err != nil {
			t.Fatal(err)
		}
		if got := listed(newView(t, tk, s)); !slices.Equal(got, want) {
			t.Errorf("%s lists %q, want %q", saved, got, want)
		}
	}
}

// TestShadow: of two visible tools with one name the later is called, and is listed at the
// position of the earlier.
func TestShadow(t *testing.T) {
	named := func(text string) []tool.Tool { return []tool.Tool{&fake{name: "same", text: text}} }
	first, second := group("first", "a"), group("second", "b")
	first.Tools, second.Tools = append(named("one"), first.Tools...), append(second.Tools, named("two")...)
	tk := newToolkit(t, toolkit.Config{Preset: toolkit.AgentScope(), Groups: []toolkit.Group{first, second}})
	s := new(toolkit.Scope)
	for _, row := range []struct {
		open []string
		list string
		text string
	}{
		{[]string{"first"}, "reset_tools same a", "one"},
		{[]string{"first", "second"}, "reset_tools same a b", "two"},
		{[]string{"second"}, "reset_tools b same", "two"},
	} {
		if _, err := tk.Set(context.Background(), s, row.open...); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(listed(newView(t, tk, s)), " "); got != row.list {
			t.Errorf("%q lists %s", row.open, got)
		}
		if got := mustDo(t, tk, s, "same", "{}"); got != row.text {
			t.Errorf("%q calls %s", row.open, got)
		}
	}
}

// TestOpaque: calls of a hidden tool and of one that does not exist get the same error.
func TestOpaque(t *testing.T) {
	tk := newToolkit(t, toolkit.Config{Preset: toolkit.Tmcp(), Groups: []toolkit.Group{group("a", "a.tool")}})
	v := newView(t, tk, new(toolkit.Scope))
	_, _, hidden := v.Resolve(t.Context(), "a.tool", nil)
	_, _, unknown := v.Resolve(t.Context(), "a.toll", nil)
	if hidden == nil || unknown == nil || strings.ReplaceAll(hidden.Error(), "a.tool", "a.toll") != unknown.Error() {
		t.Errorf("hidden: %v, unknown: %v", hidden, unknown)
	}
}

// TestOpaqueSkill: a skill of a closed group looks like one that does not exist, even if other skills cannot be read.
func TestOpaqueSkill(t *testing.T) {
	closed := group("a", "a.tool")
	closed.Skills = []skill.Loader{skill.Memory(&skill.Skill{Name: "pdf", Description: "P."})}
	basic := toolkit.Group{Skills: []skill.Loader{failingLoader{}}}
	tk := newToolkit(t, toolkit.Config{Preset: toolkit.Tmcp(), Basic: basic, Groups: []toolkit.Group{closed}})
	s := new(toolkit.Scope)
	_, hidden := do(t, tk, s, "Skill", `{"skill":"pdf"}`)
	_, unknown := do(t, tk, s, "Skill", `{"skill":"pdx"}`)
	if hidden == nil || unknown == nil || strings.ReplaceAll(hidden.Error(), "pdf", "pdx") != unknown.Error() {
		t.Errorf("hidden: %v, unknown: %v", hidden, unknown)
	}
}

// TestQuiet: with the preset Tmcp only Refresh reports changes of the catalogue.
func TestQuiet(t *testing.T) {
	tk := newToolkit(t, toolkit.Config{Preset: toolkit.Tmcp()})
	n := 0
	defer tk.OnChange(func(toolkit.Change) { n++ })()
	if err := tk.Add("", fakes("x")...); err != nil || n != 0 {
		t.Errorf("%v, %d reports", err, n)
	}
	if tk.Refresh(); n != 1 {
		t.Errorf("%d reports", n)
	}
}

// TestUnfolding: with the preset Wags a group is named only while its parent is open.
func TestUnfolding(t *testing.T) {
	child := group("inner", "x")
	child.Parents = []string{"outer"}
	tk := newToolkit(t, toolkit.Config{Preset: toolkit.Wags(), Groups: []toolkit.Group{group("outer"), child}})
	s := new(toolkit.Scope)
	texts := func() string {
		return mustDo(t, tk, s, "enable_tools", `{"groups":["nope"]}`) + string(mustJSON(newView(t, tk, s).Tools()))
	}
	if got := texts(); strings.Contains(got, "inner") || !strings.Contains(got, "the groups are outer") {
		t.Errorf("before its parent is open: %s", got)
	}
	mustDo(t, tk, s, "enable_tools", `{"groups":["outer"]}`)
	if got := texts(); !strings.Contains(got, "the groups are outer, inner") {
		t.Errorf("when its parent is open: %s", got)
	}
	for _, input := range []string{`{"groups":null}`, `{"groups":"outer"}`, `{"groups":[1]}`, `{"group":["outer"]}`} {
		tl, _, err := newView(t, tk, s).Resolve(t.Context(), "disable_tools", nil)
		if err != nil {
			t.Fatal(err)
		}
		// Unlike an agent, do not repair and validate the arguments first.
		for chunk := range tool.Run(context.Background(), tl, tool.Call{Input: json.RawMessage(input)}) {
			if !chunk.Failed {
				t.Errorf("%s was accepted", input)
			}
		}
	}
}

// TestPrompt: the prompt has the instructions and skills of the basic group, if that is granted, and
// does not change when skills are edited and sources are listed.
func TestPrompt(t *testing.T) {
	skills := &changing{name: "one"}
	tk := newToolkit(t, toolkit.Config{
		Basic:  toolkit.Group{Instructions: "Be brief.", Skills: []skill.Loader{skills}},
		Groups: []toolkit.Group{{Name: "g", Description: "G.", Sources: []tool.Source{&listing{names: []string{"x"}}}}},
	})
	s := new(toolkit.Scope)
	before := newView(t, tk, s).Prompt()
	if !strings.Contains(before, "Be brief.") || !strings.Contains(before, "one") {
		t.Errorf("prompt: %q", before)
	}
	skills.name = "two"
	if _, err := tk.Enable(context.Background(), s, "g"); err != nil {
		t.Fatal(err)
	}
	if got := newView(t, tk, s).Prompt(); got != before {
		t.Errorf("opening a group with a source made it %q", got)
	}
	if got := newView(t, tk, newScope(toolkit.Only("g"), "")).Prompt(); got != "" {
		t.Errorf("without the basic group: %q", got)
	}
}

// changing is a loader whose skill a test renames.
type changing struct{ name string }

func (c *changing) Load(ctx context.Context) ([]*skill.Skill, []skill.Diagnostic, error) {
	return skillList{c.name}.Load(ctx)
}

// A phaseSetter is a source that changes a scope's phase while it is listed.
type phaseSetter struct{ scope *toolkit.Scope }

func (m *phaseSetter) Tools(context.Context) ([]tool.Tool, error) {
	m.scope.SetPhase("next")
	return fakes("x"), nil
}

// TestViewOfMovingScope: a view is cached only for the state that it shows.
func TestViewOfMovingScope(t *testing.T) {
	s := new(toolkit.Scope)
	tk := newToolkit(t, toolkit.Config{Basic: toolkit.Group{Tools: fakes("now"), Sources: []tool.Source{&phaseSetter{s}}},
		Settings: []toolkit.Setting{{Tool: "now", Phases: []string{"next"}}}})
	newView(t, tk, s)
	if got := listed(newView(t, tk, s)); !slices.Equal(got, []string{"now", "x"}) {
		t.Errorf("listed %q", got)
	}
}

// TestViewOfByUser: a control may show who has opened a group, so a view with another answer is not reused, neither for
// the same scope nor for another one.
func TestViewOfByUser(t *testing.T) {
	control := &toolkit.Control{Tools: func(_ *toolkit.Toolkit, _ *toolkit.Scope, groups []toolkit.GroupInfo) []tool.Tool {
		tools := fakes("by_model", "by_user")
		if groups[0].ByUser {
			return tools[1:]
		}
		return tools[:1]
	}}
	tk := newToolkit(t, toolkit.Config{Control: control, Groups: []toolkit.Group{group("g", "x")}})
	model, user := new(toolkit.Scope), new(toolkit.Scope)
	for _, s := range []*toolkit.Scope{model, user} {
		out, err := tk.Enable(t.Context(), s, "g")
		if err != nil || !slices.Equal(listed(newView(t, tk, s)), []string{"by_model", "x"}) {
			t.Fatalf("listed %q, %v", listed(newView(t, tk, s)), err)
		}
		if s == user {
			s.ByUser(out)
		}
	}
	if got := listed(newView(t, tk, user)); !slices.Equal(got, []string{"by_user", "x"}) {
		t.Errorf("opened by the user: listed %q", got)
	}
	if got := listed(newView(t, tk, model)); !slices.Equal(got, []string{"by_model", "x"}) {
		t.Errorf("opened by the model: listed %q", got)
	}
}

// TestListedOnce: views that need the same list at the same time fetch it once.
func TestListedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &listing{names: []string{"x"}, wait: make(chan struct{})}
		tk := newToolkit(t, toolkit.Config{Basic: toolkit.Group{Sources: []tool.Source{src}}})
		done := make(chan []string)
		for range 5 {
			go func() { done <- listed(newView(t, tk, new(toolkit.Scope))) }()
		}
		synctest.Wait()
		close(src.wait)
		for range 5 {
			if got := <-done; !slices.Equal(got, []string{"x"}) {
				t.Errorf("listed %q", got)
			}
		}
		if src.calls != 1 {
			t.Errorf("listed %d times", src.calls)
		}
	})
}

// TestIncomparableSource: a source that == cannot compare is listed
// once, and keeps its list when the catalogue changes.
func TestIncomparableSource(t *testing.T) {
	calls := 0
	tk := newToolkit(t, toolkit.Config{Basic: toolkit.Group{Sources: []tool.Source{sourceFunc(func() []tool.Tool {
		calls++
		return fakes("x")
	})}}})
	s := new(toolkit.Scope)
	newView(t, tk, s)
	if err := tk.Add("", fakes("y")...); err != nil {
		t.Fatal(err)
	}
	if got := listed(newView(t, tk, s)); !slices.Equal(got, []string{"y", "x"}) || calls != 1 {
		t.Errorf("listed %q, called %d times", got, calls)
	}
}

type sourceFunc func() []tool.Tool

func (f sourceFunc) Tools(context.Context) ([]tool.Tool, error) { return f(), nil }

// TestConfigChangesWhileListing: a view that waits for a list while the configuration changes
// has the tools of the new configuration.
func TestConfigChangesWhileListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &listing{names: []string{"slow"}, wait: make(chan struct{})}
		tk := newToolkit(t, toolkit.Config{Basic: toolkit.Group{Sources: []tool.Source{slow}}})
		s := new(toolkit.Scope)
		done := make(chan []string)
		go func() { done <- listed(newView(t, tk, s)) }()
		synctest.Wait()
		err := tk.Update(func(cfg *toolkit.Config) error {
			cfg.Basic.Sources = append(cfg.Basic.Sources, &listing{names: []string{"new"}})
			cfg.Groups, cfg.Initial = []toolkit.Group{group("g", "opened")}, []string{"g"}
			cfg.Control = new(toolkit.Control)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		close(slow.wait)
		want := []string{"slow", "new", "opened"}
		if first, second := <-done, listed(newView(t, tk, s)); !slices.Equal(first, want) || !slices.Equal(second, want) {
			t.Errorf("listed %q, then %q, want %q", first, second, want)
		}
	})
}

// TestRefreshWhileListing: a list that was being fetched when Refresh was called is fetched
// again.
func TestRefreshWhileListing(t *testing.T) {
	tk, calls := (*toolkit.Toolkit)(nil), 0
	tk = newToolkit(t, toolkit.Config{Basic: toolkit.Group{Sources: []tool.Source{sourceFunc(func() []tool.Tool {
		if calls++; calls == 1 {
			old := fakes("old")
			tk.Refresh()
			return old
		}
		return fakes("new")
	})}}})
	s := new(toolkit.Scope)
	newView(t, tk, s)
	if got := listed(newView(t, tk, s)); !slices.Equal(got, []string{"new"}) || calls != 2 {
		t.Errorf("listed %q, called %d times", got, calls)
	}
}
