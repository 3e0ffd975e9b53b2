package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/skill"
)

func skillFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// someSkills writes a good skill and three with errors below dir.
func someSkills(t *testing.T, dir string) {
	t.Helper()
	skillFile(t, dir+"/good/SKILL.md", "---\nname: good\ndescription: Use when all is well.\n---\n# Good\n\n## Steps\n\nDo it.\n")
	skillFile(t, dir+"/good/references/more.md", "More of it.\n")
	skillFile(t, dir+"/invalid/SKILL.md", "---\nname: Other\ndescription: Use when \x1b[31mred.\n---\n# Invalid\n")
	skillFile(t, dir+"/broken/SKILL.md", "---\nname: broken\n")
	skillFile(t, dir+"/quoted/SKILL.md", "---\nname: quoted\ndescription: Use when: the user asks\n---\n# Quoted\n")
}

func TestSkillsListJSON(t *testing.T) {
	workspace(t)
	someSkills(t, "skills")
	got := kitbag(t.Context(), "skills", "list", "--json", "skills")
	var list struct {
		Skills []struct {
			Name, Description, Path string
			Bytes, Sections         int
		}
		Skipped []struct{ Path, Reason string }
	}
	if err := json.Unmarshal([]byte(got.out), &list); err != nil || got.code != exitDone {
		t.Fatalf("%+v: %v", got, err)
	}
	if len(list.Skills) != 2 || len(list.Skipped) != 2 {
		t.Fatalf("%+v", list)
	}
	good := list.Skills[0]
	abs, _ := filepath.Abs("skills/good")
	info, _ := os.Stat("skills/good/SKILL.md")
	if good.Name != "good" || good.Description != "Use when all is well." || good.Path != abs || good.Bytes != int(info.Size()) || good.Sections != 2 {
		t.Errorf("%+v", good)
	}
	if s := list.Skipped[0]; filepath.Base(s.Path) != "broken" || !strings.Contains(s.Reason, "not closed") {
		t.Errorf("%+v", s)
	}
	if empty := kitbag(t.Context(), "skills", "list", "--json"); empty.code != exitDone || !strings.Contains(empty.out, `"skipped"`) {
		t.Errorf("%+v", empty)
	}
}

// TestSkillsListFails checks that a folder that cannot be searched is named, and does not affect the others.
func TestSkillsListFails(t *testing.T) {
	workspace(t)
	someSkills(t, "skills")
	if err := os.Mkdir("~", 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", "")
	got := kitbag(t.Context(), "skills", "list", "~", "skills")
	if got.code != exitDone || !strings.Contains(got.out, "good") || !strings.Contains(got.stderr, "skipped: load skills from \"~\": ") {
		t.Errorf("%+v", got)
	}
	if got := kitbag(t.Context(), "skills", "list", "--json", "~", "skills"); !strings.Contains(got.out, `"reason": "load skills from \"~\": `) || strings.Contains(got.out, `"path": ""`) {
		t.Errorf("%+v", got)
	}
}

func TestSkillsValidateJSON(t *testing.T) {
	workspace(t)
	someSkills(t, ".agents/skills")
	got := kitbag(t.Context(), "skills", "validate", "--json")
	var out struct {
		Skills []struct {
			Path        string
			Valid       *bool
			Loads       *bool
			Diagnostics []struct {
				File, Rule, Severity, Message string
				Line                          *int
			}
		}
	}
	if err := json.Unmarshal([]byte(got.out), &out); err != nil || got.code != exitError {
		t.Fatalf("%+v: %v", got, err)
	}
	type verdict struct {
		valid, loads bool
		rules        string
	}
	want := map[string]verdict{
		"good":    {true, true, ""},
		"invalid": {false, false, "error yaml"},
		"broken":  {false, false, "error frontmatter-unclosed"},
		"quoted":  {false, true, "error yaml-quoted"},
	}
	if len(out.Skills) != len(want) {
		t.Fatalf("%d skills", len(out.Skills))
	}
	for _, s := range out.Skills {
		var rules []string
		for _, d := range s.Diagnostics {
			rules = append(rules, d.Severity+" "+d.Rule)
			if d.Line == nil || d.Message == "" || filepath.Dir(d.File) != s.Path {
				t.Errorf("%+v", d)
			}
		}
		if s.Valid == nil || s.Loads == nil || s.Diagnostics == nil {
			t.Fatalf("%+v", s)
		}
		if v := (verdict{*s.Valid, *s.Loads, strings.Join(rules, ", ")}); v != want[filepath.Base(s.Path)] {
			t.Errorf("%s: %+v, want %+v", s.Path, v, want[filepath.Base(s.Path)])
		}
	}
}

func TestSkillsValidate(t *testing.T) {
	workspace(t)
	someSkills(t, "skills")
	skillFile(t, "none/README.md", "no skill")
	for _, row := range []struct {
		args string
		code int
		out  string
		err  string
	}{
		{"skills/good", exitDone, "1 of 1 skills are valid", ""},
		{"skills/good/SKILL.md", exitDone, "1 of 1 skills are valid", ""},
		{"skills/quoted", exitError, "SKILL.md:3: error:", ""},
		{"skills/good skills/broken", exitError, "1 of 2 skills are valid", ""},
		{"skills", exitError, "broken/SKILL.md:1: error: the front matter that begins here is not closed", ""},
		{"none", exitError, "(skill-file)", ""},
		{"absent", exitError, "", "search for skills: stat absent"},
		{"none/README.md", exitUsage, "", "is not a folder"},
	} {
		got := kitbag(t.Context(), append([]string{"skills", "validate"}, strings.Fields(row.args)...)...)
		if got.code != row.code || !strings.Contains(got.out, row.out) || !strings.Contains(got.stderr, row.err) {
			t.Errorf("validate %s: %+v", row.args, got)
		}
	}
}

func TestSkillsShow(t *testing.T) {
	workspace(t)
	someSkills(t, ".claude/skills")
	for _, row := range []struct {
		args string
		code int
		out  string
		err  string
	}{
		{"good", exitDone, "## Steps\n\nDo it.\n\nFiles of this skill", ""},
		{"good --section steps", exitDone, "## Steps\n\nDo it.\n", ""},
		{"good --file references/more.md", exitDone, "More of it.\n", ""},
		{"good --file more.md", exitError, "", "references/more.md"},
		{"good --file ../quoted/SKILL.md", exitError, "", "stay inside"},
		{"good --section stops", exitError, "", "Steps"},
		{"god", exitError, "", "good"},
		{"broken", exitError, "", "broken: line "},
		{"good absent", exitError, "", "absent"},
		{"", exitUsage, "", "name of a skill"},
	} {
		got := kitbag(t.Context(), append([]string{"skills", "show"}, strings.Fields(row.args)...)...)
		if got.code != row.code || !strings.Contains(got.out, row.out) || !strings.Contains(got.stderr, row.err) {
			t.Errorf("show %s: %+v", row.args, got)
		}
	}
}

// TestHostileSkills lists, checks and shows a hostile folder, which must not control the terminal, imitate a
// line of kitbag, lead out of the folder, or block.
func TestHostileSkills(t *testing.T) {
	dir := workspace(t)
	const front = "---\nname: %q\ndescription: \"Use when \\e[31m\\u202e it is\\nkitbag: all well\"\n---\n# A\x1b[2J\n"
	skillFile(t, "a/SKILL.md", fmt.Sprintf(front, "a"))
	skillFile(t, "b\nkitbag: fine/SKILL.md", fmt.Sprintf(front, "b\nkitbag: fine"))
	skillFile(t, "c\x1b[31m/SKILL.md", "---\nname: c\n")
	for name, target := range map[string]string{"a/out": "/etc/passwd", "a/etc": "/etc", "a/loop": "loop", "d": "/etc", "e": "/dev/zero"} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		args string
		code int
	}{
		{"list", exitDone}, {"validate", exitError}, {"show a", exitDone}, {"show x", exitError}, {"show a --file out", exitError},
		{"show a --file etc/passwd", exitError}, {"show a --file loop", exitError}, {"show a --file " + dir + "/a/SKILL.md", exitError},
	} {
		got := kitbag(t.Context(), append([]string{"skills"}, strings.Fields(row.args)...)...)
		shown := got.out + got.stderr
		if strings.HasPrefix(row.args, "show a") && row.code == exitDone {
			shown = got.stderr // standard output is not a terminal, so it has the text unchanged
		}
		if got.code != row.code || strings.ContainsAny(shown, "\x1b\u202e") || strings.Contains(shown, "root:") || strings.Contains(shown, "\nkitbag: ") {
			t.Errorf("%s: code %d: %q", row.args, got.code, shown)
		}
	}
}

func TestSkillsNew(t *testing.T) {
	workspace(t)
	if got := kitbag(t.Context(), "skills", "new", "my-skill", ".agents/skills"); got.code != exitDone || strings.TrimSpace(got.out) != filepath.Join(".agents", "skills", "my-skill", "SKILL.md") {
		t.Fatalf("%+v", got)
	}
	reports, err := skill.Validate(t.Context(), skill.Under("."))
	if err != nil || len(reports) != 1 || len(reports[0].Diagnostics) > 0 {
		t.Errorf("%+v, %v", reports, err)
	}
	if got := kitbag(t.Context(), "skills", "new", "my-skill", ".agents/skills"); got.code != exitError || !strings.Contains(got.stderr, "already exists") {
		t.Errorf("again: %+v", got)
	}
	for _, name := range []string{"", "My-Skill", "../up", "a/b", "a\nb", "a: b", "a #b", "[a", "-", "a--b", strings.Repeat("a", 65)} {
		if got := kitbag(t.Context(), "skills", "new", "--", name); got.code != exitUsage {
			t.Errorf("%q: %+v", name, got)
		}
	}
	if entries, _ := os.ReadDir("."); len(entries) != 1 {
		t.Errorf("something was created: %v", entries)
	}
}
