package toolkit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/toolkit"
)

// failingLoader is a loader that fails.
type failingLoader struct{}

func (failingLoader) Load(context.Context) ([]*skill.Skill, []skill.Diagnostic, error) {
	return nil, nil, errors.New("the disk is gone")
}

// TestReadableSkills: Skills and Reachable return the skills and groups that the tool Skill can show.
func TestReadableSkills(t *testing.T) {
	about := func(names ...string) skill.Loader {
		var all []*skill.Skill
		for _, n := range names {
			all = append(all, &skill.Skill{Name: n, Description: "About " + n + ".", Body: "Do it."})
		}
		return skill.Memory(all...)
	}
	cfg := toolkit.Config{
		Basic: toolkit.Group{Tools: fakes("now"), Skills: []skill.Loader{about("start")}},
		Groups: []toolkit.Group{
			{Name: "docs", Description: "D.", Skills: []skill.Loader{about("pdf", "start")}},
			{Name: "deep", Description: "D.", Parents: []string{"docs"}, Skills: []skill.Loader{about("ocr")}},
			{Name: "bare", Description: "B.", Tools: fakes("x")},
			{Name: "dead", Description: "D.", Skills: []skill.Loader{failingLoader{}}},
		},
	}
	with := func(change func(*toolkit.Config)) toolkit.Config {
		c := cfg
		change(&c)
		return c
	}
	for _, row := range []struct {
		what                  string
		cfg                   toolkit.Config
		ceiling               toolkit.Ceiling
		open                  []string
		skills, groups, reach string
		fails                 bool
	}{
		{"a new scope", cfg, toolkit.Ceiling{}, nil, "start", ",", ",", false},
		{"an open group; its skill start, a duplicate, is ignored", cfg, toolkit.Ceiling{}, []string{"docs"}, "start pdf", ",docs", ",docs", false},
		{"a child", cfg, toolkit.Ceiling{}, []string{"docs", "deep"}, "start pdf ocr", ",docs,deep", ",docs,deep", false},
		{"a group without skills", cfg, toolkit.Ceiling{}, []string{"bare"}, "start", ",", ",bare", false},
		{"a loader that fails does not affect the others", cfg, toolkit.Ceiling{}, []string{"docs", "dead"}, "start pdf", ",docs", ",docs,dead", true},
		{"outside the ceiling", cfg, toolkit.Only("bare"), []string{"bare"}, "", "", "bare", false},
		{"a ceiling without the basic group", cfg, toolkit.Only("docs"), []string{"docs"}, "pdf start", "docs,docs", "docs", false},
		{"Discover reaches all groups", with(func(c *toolkit.Config) { c.Control = toolkit.Discover() }), toolkit.Only("docs", "bare"), nil,
			"pdf start", "docs,docs", "docs,bare", false},
		{"labels", with(func(c *toolkit.Config) { c.Preset = toolkit.MCP() }), toolkit.Only("docs"), nil, "pdf start", "docs,docs", "docs", false},
	} {
		tk := newToolkit(t, row.cfg)
		s := new(toolkit.Scope)
		s.SetCeiling(row.ceiling)
		if len(row.open) > 0 {
			if _, err := tk.Enable(t.Context(), s, row.open...); err != nil {
				t.Fatalf("%s: %v", row.what, err)
			}
		}
		skills, groups, err := tk.Skills(t.Context(), s)
		var names []string
		for _, sk := range skills {
			names = append(names, sk.Name)
		}
		if got := strings.Join(names, " "); got != row.skills || (err != nil) != row.fails {
			t.Errorf("%s: skills %q, error %v; want %q", row.what, got, err, row.skills)
		}
		join := func(names []string) string {
			if slices.Equal(names, []string{""}) {
				return ","
			}
			return strings.Join(names, ",")
		}
		if got, reach := join(groups), join(tk.Reachable(s)); got != row.groups || reach != row.reach {
			t.Errorf("%s: groups %q, reachable %q; want %q, %q", row.what, got, reach, row.groups, row.reach)
		}
	}
}

// loaderFunc is a loader of a type that cannot be compared.
type loaderFunc func()

func (loaderFunc) Load(context.Context) ([]*skill.Skill, []skill.Diagnostic, error) {
	return nil, nil, nil
}

// TestSkillChanges: transitions and changes of the catalogue report whether the skills have
// changed.
func TestSkillChanges(t *testing.T) {
	some := skill.FS(fstest.MapFS{"pdf/SKILL.md": {Data: []byte("---\nname: pdf\ndescription: P.\n---\n")}})
	memo := skill.Memory(&skill.Skill{Name: "memo", Description: "M."})
	odd := []skill.Loader{memo, skill.Merge(memo, some)}
	tk := newToolkit(t, toolkit.Config{Groups: []toolkit.Group{group("a", "x"), {Name: "docs", Description: "D.", Skills: []skill.Loader{some}},
		{Name: "odd", Description: "O.", Skills: odd}}})
	var last toolkit.Change
	swap := func(i int, l skill.Loader) func() error {
		return func() error {
			return tk.Update(func(c *toolkit.Config) error { c.Groups[2].Skills[i] = l; return nil })
		}
	}
	defer tk.OnChange(func(c toolkit.Change) { last = c })()
	s := new(toolkit.Scope)
	for _, row := range []struct {
		what string
		do   func() error
		want bool
	}{
		{"open a group without skills", func() error { _, err := tk.Enable(t.Context(), s, "a"); return err }, false},
		{"open a group with only skills", func() error { _, err := tk.Enable(t.Context(), s, "docs"); return err }, true},
		{"close both", func() error { _, err := tk.Set(t.Context(), s); return err }, true},
		{"a new group without skills", func() error { return tk.AddGroup(group("b", "y")) }, false},
		{"a new group with skills", func() error {
			return tk.AddGroup(toolkit.Group{Name: "more", Description: "M.", Skills: []skill.Loader{some}})
		}, true},
		{"skills of the basic group", func() error {
			return tk.Update(func(c *toolkit.Config) error { c.Basic.Skills = []skill.Loader{some}; return nil })
		}, true},
		{"remove a group with skills", func() error { return tk.RemoveGroup("more") }, true},
		{"other skills in memory", swap(0, skill.Memory(&skill.Skill{Name: "memo", Description: "M."})), true},
		{"the same again", func() error { return tk.Add("a", fakes("again")...) }, false},
		{"another kind", swap(1, memo), true},
		{"a function, which cannot be compared", swap(1, loaderFunc(nil)), true},
		{"a function and a new tool", func() error { return tk.Add("a", fakes("more")...) }, true},
	} {
		last = toolkit.Change{}
		if err := row.do(); err != nil || last.Skills != row.want {
			t.Errorf("%s: %v, reported %+v", row.what, err, last)
		}
	}
	if cfg := tk.Config(); len(cfg.Groups) != 4 || len(cfg.Basic.Skills) != 1 {
		t.Errorf("config: %+v", cfg)
	}
	cfg := tk.Config()
	cfg.Groups[0].Name = "other"
	if tk.Config().Groups[0].Name != "a" {
		t.Error("Config does not return a copy")
	}
}

// TestHiddenSkillTool: if the tool Skill is hidden, another tool may have its name.
func TestHiddenSkillTool(t *testing.T) {
	docs := toolkit.Group{Name: "docs", Description: "D.", Skills: []skill.Loader{skill.Memory(&skill.Skill{Name: "pdf", Description: "About PDFs.", Body: "Do it."})}}
	cfg := toolkit.Config{Basic: toolkit.Group{Tools: fakes("Skill")}, Groups: []toolkit.Group{docs}, Hidden: []string{"Skill"}}
	if _, err := toolkit.New(cfg); err != nil {
		t.Error(err)
	}
}
