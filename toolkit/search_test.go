package toolkit_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestSearchQuestions asks for tools of the recorded servers in users' words. The ranking was tuned with
// questions_tuned.jsonl. questions_held.jsonl was written at the same time and measured once, after the tuning:
// 93 of 100 were found. Then two endings that had not been removed (PRs, attachment) were corrected.
func TestSearchQuestions(t *testing.T) {
	tk, s := newToolkit(t, toolkit.Config{Groups: servers(t), Control: toolkit.Discover()}), new(toolkit.Scope)
	for _, file := range []string{"questions_tuned.jsonl", "questions_held.jsonl"} {
		total, found, shown := 0, 0, 0
		for _, q := range questions(t, file) {
			hits, err := tk.Search(t.Context(), s, q.Query, "", 10)
			if err != nil {
				t.Fatal(err)
			}
			total++
			shown += len(hits)
			if slices.ContainsFunc(hits[:min(5, len(hits))], func(i tool.Info) bool {
				return slices.Contains(q.Want, strings.TrimPrefix(i.Name, "mcp__"))
			}) {
				found++
			} else {
				t.Logf("%q: none of %q is among the first five", q.Query, q.Want)
			}
		}
		t.Logf("%s: %d of %d, with %d hits on average", file, found, total, shown/total)
		if 100*found < 95*total {
			t.Errorf("%s: the right tool is among the first five for %d of %d, less than 95 %%", file, found, total)
		}
	}
}

type question struct {
	Query string
	Want  []string // any of them is right
}

func questions(tb testing.TB, file string) (out []question) {
	f, err := os.Open(filepath.Join("testdata", file))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			tb.Fatal(err)
		}
		out = append(out, q)
	}
	return out
}

// TestWithSearch: every control can have search_tools, which says how the group is opened.
func TestWithSearch(t *testing.T) {
	for _, row := range []struct {
		control *toolkit.Control
		hint    string
	}{
		{toolkit.ResetTools(nil), `call reset_tools with {"mail":true} first.`},
		{toolkit.EnableDisable(), `call enable_tools with {"groups":["mail"]} first.`},
		{toolkit.PerGroup(), "call mail_activate first."},
	} {
		tk := newToolkit(t, toolkit.Config{Control: row.control.WithSearch(), Groups: []toolkit.Group{group("files", "read_file"), group("mail", "send_mail")}})
		s := new(toolkit.Scope)
		got := mustDo(t, tk, s, "search_tools", `{"query":"write an email"}`)
		if want := "- send_mail (mail): Does send_mail.\nTo use send_mail, " + row.hint; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if _, err := tk.Enable(t.Context(), s, "mail"); err != nil {
			t.Fatal(err)
		}
		if got := mustDo(t, tk, s, "search_tools", `{"query":"write an email"}`); strings.Contains(got, "To use") {
			t.Errorf("the group is open: %s", got)
		}
	}
	if c := toolkit.Discover(); c.WithSearch() != c {
		t.Error("Discover has search_tools already")
	}
}

// TestSearchStopWords: a stop word finds nothing, wherever it is in the query.
func TestSearchStopWords(t *testing.T) {
	tk, s := newToolkit(t, toolkit.Config{Groups: []toolkit.Group{group("mail", "mail_of_the_day")}}), new(toolkit.Scope)
	for _, query := range []string{"the", "of the", "the file"} {
		if hits, err := tk.Search(t.Context(), s, query, "", 10); err != nil || len(hits) > 0 {
			t.Errorf("%q finds %v, %v", query, hits, err)
		}
	}
}

// FuzzSearch: no query panics or finds more than the limit.
func FuzzSearch(f *testing.F) {
	for _, q := range []string{"", "PRs", "to do", "日本語 ÄÖ ß", "\xff\x00ing", "ments ss ed", strings.Repeat("file ", 1000)} {
		f.Add(q)
	}
	tk, s := newToolkit(f, toolkit.Config{Control: toolkit.Discover(), Groups: []toolkit.Group{group("files", "read_file", "writeFile"), group("mail", "send_mail")}}), new(toolkit.Scope)
	f.Fuzz(func(t *testing.T, q string) {
		hits, err := tk.Search(t.Context(), s, "x "+q, "", 2)
		if err != nil || len(hits) > 2 {
			t.Errorf("%d hits: %v", len(hits), err)
		}
	})
}
