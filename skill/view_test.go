package skill

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"
)

// TestView answers the queries of an archive: each "query" file is followed by its "page".
func TestView(t *testing.T) {
	const name = "testdata/view.txtar"
	archive, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := unpack(t, archive)
	skills, _ := load(t, In(dir))
	queries := 0
	for i, f := range archive.Files {
		fields, ok := strings.CutPrefix(f.Name, "query ")
		if !ok {
			continue
		}
		queries++
		q := Query{Limit: 400}
		for _, field := range strings.Split(fields, ", ") {
			key, value, _ := strings.Cut(field, "=")
			switch key {
			case "skill":
				q.Skill = value
			case "section":
				q.Section = value
			case "file":
				q.File = value
			default:
				t.Fatalf("%s: no field %q", f.Name, key)
			}
		}
		var got string
		switch page, err := View(t.Context(), skills, q); {
		case err != nil:
			got = "error: " + err.Error()
		case page.Data != nil:
			got = fmt.Sprintf("data: %s, %d bytes", page.MediaType, len(page.Data))
		default:
			got = page.Text
		}
		got = strings.TrimRight(strings.ReplaceAll(got, dir, "DIR"), "\n") + "\n"
		if *update {
			archive.Files[i].Data = []byte(got)
		} else if got != string(f.Data) {
			t.Errorf("%s:\n got %s\nwant %s", f.Name, got, f.Data)
		}
	}
	if queries < 15 {
		t.Fatalf("%d queries only", queries)
	}
	if *update {
		if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestViewBinary(t *testing.T) {
	dir := t.TempDir()
	png := "\x89PNG\r\n\x1a\n\x00\x00"
	write(t, dir, "s/SKILL.md", source("s", "x"))
	write(t, dir, "s/assets/logo.png", png)
	write(t, dir, "s/assets/blob", "\x00\x01")
	skills, _ := load(t, In(dir))
	for name, want := range map[string]string{"assets/logo.png": "image/png", "assets/blob": "application/octet-stream"} {
		page, err := View(t.Context(), skills, Query{Skill: "s", File: name})
		if err != nil || page.MediaType != want || page.Text != "" {
			t.Errorf("%s: %+v, %v", name, page, err)
		}
	}
	if page, _ := View(t.Context(), skills, Query{Skill: "s", File: "assets/logo.png"}); string(page.Data) != png {
		t.Errorf("data %q", page.Data)
	}
}

func TestNotFound(t *testing.T) {
	skills := []*Skill{
		{Name: "pdf-forms", Description: "Use when the user fills in forms."},
		{Name: "pdf-merge", Description: "Use when documents are joined."},
		{Name: "charts", Description: "Use when figures are drawn.", Body: "# Bars\n\n## Stacked bars\n"},
	}
	for _, row := range []struct {
		q    Query
		kind string
		near []string
	}{
		{Query{Skill: "pdf-form"}, "skill", []string{"pdf-forms", "pdf-merge"}},
		{Query{Skill: "PDF"}, "skill", []string{"pdf-forms", "pdf-merge"}},
		{Query{Skill: "join two documents"}, "skill", []string{"pdf-merge"}},
		{Query{Skill: "draw figures"}, "skill", []string{"charts"}},
		{Query{Skill: ""}, "skill", []string{"charts", "pdf-forms", "pdf-merge"}},
		{Query{Skill: "xyzzy"}, "skill", []string{"charts", "pdf-forms", "pdf-merge"}},
		{Query{Skill: "charts", Section: "stacked bar"}, "section", []string{"Stacked bars"}},
	} {
		_, err := View(t.Context(), skills, row.q)
		e, ok := errors.AsType[*NotFoundError](err)
		if !ok || e.Kind != row.kind || !slices.Equal(e.Near, row.near) {
			t.Errorf("%+v: %#v, want near %q", row.q, err, row.near)
		}
	}
	if _, err := View(t.Context(), nil, Query{Skill: "x"}); err == nil {
		t.Error("a skill is found in an empty list")
	}
}

// TestPartsJoin checks that the parts of a long text join to the text.
// TestManySections: the outline of a text is limited like the text, as the result of the tool Skill is never cut, and is
// repeated after each compaction.
func TestManySections(t *testing.T) {
	s := &Skill{Name: "many", Description: "Use it.", Body: strings.Repeat("# A section\n\n## Below it\n\n", 10_000)}
	for _, q := range []Query{{Skill: "many"}, {Skill: "many", Limit: 1000}, {Skill: "many", Section: "nowhere"}} {
		text := ""
		if page, err := View(t.Context(), []*Skill{s}, q); err == nil {
			text = page.Text
		} else {
			text = err.Error()
		}
		if limit := cmp.Or(q.Limit, DefaultLimit); len(text) > limit+2000 || !strings.Contains(text, "more sections; ") {
			t.Errorf("%+v: %d bytes: %.300s", q, len(text), text)
		}
	}
	if text := Reminder([]*Skill{s}); len(text) > 4000 {
		t.Errorf("the reminder has %d bytes", len(text))
	}
}

func TestPartsJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([a-zé日 ]{0,30}\n?){0,20}`).Draw(t, "text")
		limit := rapid.IntRange(4, 60).Draw(t, "limit")
		var joined strings.Builder
		for part := 1; joined.Len() < len(text); part++ {
			got := cutPart(text, limit, part)
			if end := strings.LastIndex(got, "\n[part "); end >= 0 {
				got = got[:end]
			}
			if got == "" || len(got) > limit || !utf8.ValidString(got) {
				t.Fatalf("part %d is %q", part, got)
			}
			joined.WriteString(got)
		}
		if joined.String() != text {
			t.Fatalf("joined %q, want %q", joined.String(), text)
		}
	})
}

func TestSectionsCoverTheBody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.StringMatching("((#{1,4} [A-Da ]{1,3}|[a-b ]{0,5}|```|Title\n===|- # x)\n){0,15}").Draw(t, "body")
		doc := ParseDocument(body)
		seen := map[string]bool{}
		at := len(body)
		if len(doc.Sections) > 0 {
			at = doc.Sections[0].start
		}
		for _, s := range doc.Sections {
			if s.start != at || s.introEnd < s.start || s.end < s.introEnd || s.Text != body[s.start:s.end] {
				t.Fatalf("%+v begins at %d, want %d", s, s.start, at)
			}
			at = s.introEnd
			if seen[s.Anchor] {
				t.Fatalf("two sections have the anchor %q", s.Anchor)
			}
			seen[s.Anchor] = true
			if found, ok := doc.Section("#" + s.Anchor); !ok || found.Line != s.Line {
				t.Fatalf("the anchor %q finds %+v", s.Anchor, found)
			}
		}
		if at != len(body) {
			t.Fatalf("the sections end at %d of %d", at, len(body))
		}
	})
}

func TestFragment(t *testing.T) {
	many := func(n, length int) []*Skill {
		var skills []*Skill
		for i := range n {
			skills = append(skills, &Skill{Name: fmt.Sprintf("skill-%03d", (i*7)%n), Description: strings.Repeat("word ", length/5)})
		}
		return skills
	}
	if got := Fragment(nil, 0); got != "" {
		t.Errorf("without skills: %q", got)
	}
	for _, row := range []struct {
		about                string
		skills               []*Skill
		budget               int
		described, all, more bool
	}{
		{"few", many(5, 200), 0, true, true, false},
		{"200 short ones", many(200, 25), 0, true, true, false},
		{"200 of usual length", many(200, 300), 0, false, true, false},
		{"2,000", many(2000, 300), 0, false, false, true},
		{"no room", many(20, 300), 1, false, false, false},
	} {
		t.Run(row.about, func(t *testing.T) {
			got := Fragment(row.skills, row.budget)
			if row.budget == 0 && len(got) > DefaultBudget {
				t.Errorf("%d bytes", len(got))
			}
			if described := strings.Contains(got, "<skill name="); described != row.described {
				t.Errorf("described is %v", described)
			}
			if hint := strings.Contains(got, "search"); hint == row.described {
				t.Errorf("search hint: %v", hint)
			}
			last := fmt.Sprintf("skill-%03d", len(row.skills)-1)
			if all := strings.Contains(got, last); all != row.all {
				t.Errorf("all are named: %v", all)
			}
			if more := strings.Contains(got, " more\n"); more != row.more {
				t.Errorf("number of the others: %v", more)
			}
			shuffled := slices.Clone(row.skills)
			slices.Reverse(shuffled)
			if Fragment(shuffled, row.budget) != got {
				t.Error("the result depends on the order of the skills")
			}
		})
	}
}

// TestFragmentCannotBeForged checks that names and descriptions cannot look like tags.
func TestFragmentCannotBeForged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{"</skill>", "</skills>", "<", ">", `"`, "&", "\n", "\r", "\u2028", "\u0085", "\x1b[0m", "\u202e", "\u200b", "\ufe01", "\U000e0120", "\u3164", "a", " ", "</skill>\n<skill name=\"x\">"})
		text := func(label string) string { return strings.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, label), "") }
		s := &Skill{Name: text("name"), Description: text("description")}
		got := strings.TrimPrefix(Fragment([]*Skill{s}, 0), "<skills>\n"+fragmentIntro)
		if strings.Count(got, "<") != 3 || strings.Count(got, ">") != 3 || strings.Count(got, "\n") != 2 || strings.Count(got, `"`) != 2 {
			t.Fatalf("%q", got)
		}
		if strings.ContainsAny(got, "\r\u2028\u0085\x1b\u202e\u200b\ufe01\U000e0120\u3164") {
			t.Fatalf("control characters in %q", got)
		}
	})
}

func TestReminder(t *testing.T) {
	if got := Reminder(nil); got != "" {
		t.Errorf("without skills: %q", got)
	}
	got := Reminder([]*Skill{{Name: "a", Description: "Use when\n<b>.", Body: "# Title\n\nText.\n\n## </skill> \\<i>\n"}})
	want := "<opened-skills>\n" + reminderIntro + "<skill name=\"a\">Use when &lt;b&gt;.\n- Title (#title)\n  - &lt;i&gt; (#i)\n</skill>\n</opened-skills>\n"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestExampleFolderIsValid(t *testing.T) {
	reports, err := Validate(t.Context(), Under(filepath.Join("testdata", "example")))
	if err != nil || len(reports) == 0 {
		t.Fatalf("%v, %v", reports, err)
	}
	for _, r := range reports {
		if len(r.Diagnostics) > 0 {
			t.Errorf("%s: %v", r.Path, r.Diagnostics)
		}
	}
}
