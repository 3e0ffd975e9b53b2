package skill

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write the diagnostics that are found into testdata")

// unpack writes the skills of an archive into a folder.
func unpack(t *testing.T, archive *txtar.Archive) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range archive.Files {
		name := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lines formats diagnostics as in a corpus.
func lines(diagnostics []Diagnostic) []string {
	out := []string{}
	for _, d := range diagnostics {
		severity := d.Severity
		if d.Fatal {
			severity = "fatal"
		}
		out = append(out, fmt.Sprintf("%d %s %s", d.Line, severity, d.Rule))
	}
	return out
}

// corpus validates an archive's skills and compares the diagnostics with their .want files. It
// returns the reports by folder.
func corpus(t *testing.T, name string, atLeast int) (dir string, reports map[string]Report, archive *txtar.Archive) {
	t.Helper()
	archive, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	dir = unpack(t, archive)
	list, err := Validate(t.Context(), Under(dir))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < atLeast {
		t.Fatalf("%d skills, want at least %d", len(list), atLeast)
	}
	want := map[string][]string{}
	reports = map[string]Report{}
	for _, f := range archive.Files {
		folder, file := path.Split(f.Name)
		if folder = strings.TrimSuffix(folder, "/"); file == ".want" {
			want[folder] = strings.FieldsFunc(string(f.Data), func(c rune) bool { return c == '\n' })
		} else if isSkillFile(file) && want[folder] == nil {
			want[folder] = []string{}
		}
	}
	got := map[string][]string{}
	for _, r := range list {
		folder, _ := filepath.Rel(dir, r.Path)
		folder = filepath.ToSlash(folder)
		reports[folder], got[folder] = r, slices.Sorted(slices.Values(lines(r.Diagnostics)))
	}
	if *update {
		rewrite(t, name, archive, got)
	}
	for _, folder := range slices.Sorted(maps.Keys(want)) {
		if w := slices.Sorted(slices.Values(want[folder])); !slices.Equal(w, got[folder]) {
			t.Errorf("%s:\n got %q\nwant %q\n%v", folder, got[folder], w, reports[folder].Diagnostics)
		}
	}
	return dir, reports, archive
}

func rewrite(t *testing.T, name string, archive *txtar.Archive, got map[string][]string) {
	t.Helper()
	for i, f := range archive.Files {
		if folder, file := path.Split(f.Name); file == ".want" {
			archive.Files[i].Data = nil
			for _, line := range got[strings.TrimSuffix(folder, "/")] {
				archive.Files[i].Data = fmt.Appendln(archive.Files[i].Data, line)
			}
		}
	}
	if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestValidCorpus(t *testing.T) {
	dir, reports, archive := corpus(t, "testdata/valid.txtar", 40)
	for folder, r := range reports {
		if !r.Valid || !r.Loads {
			t.Errorf("%s: valid %v, loads %v: %v", folder, r.Valid, r.Loads, r.Diagnostics)
		}
	}
	skills, _, err := In(dir).Load(t.Context())
	if err != nil || len(skills) != len(reports) {
		t.Fatalf("loaded %d skills of %d: %v", len(skills), len(reports), err)
	}
	for _, s := range skills {
		if s.Name != filepath.Base(s.Dir) {
			t.Errorf("the skill in %s is read as %q", s.Dir, s.Name)
		}
	}
	if read := compareAll(t, dir, skills, archive); read < 20 {
		t.Errorf("%d readings compared", read)
	}
}

// compareAll compares each skill below dir that has a .read.json, and returns how many have.
func compareAll(t *testing.T, dir string, skills []*Skill, archive *txtar.Archive) int {
	t.Helper()
	read := 0
	for _, s := range skills {
		folder, _ := filepath.Rel(dir, s.Dir)
		for _, f := range archive.Files {
			if f.Name == filepath.ToSlash(folder)+"/.read.json" {
				read++
				compareRead(t, s, f.Data)
			}
		}
	}
	return read
}

// compareRead compares the fields of a loaded skill with want.
func compareRead(t *testing.T, s *Skill, want []byte) {
	t.Helper()
	doc := s.Document()
	sections, lineNumbers, links := []any{}, []any{}, []any{}
	for _, sec := range doc.Sections {
		sections, lineNumbers = append(sections, sec.Anchor), append(lineNumbers, float64(sec.Line))
	}
	for _, l := range doc.Links {
		links = append(links, l.Target)
	}
	got := map[string]any{
		"description": s.Description, "license": s.License, "compatibility": s.Compatibility, "metadata": s.Metadata,
		"tools": s.AllowedTools, "title": doc.Title, "sections": sections, "lines": lineNumbers, "links": links,
	}
	var fields map[string]any
	if err := json.Unmarshal(want, &fields); err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	for field, w := range fields {
		g, known := got[field]
		gotJSON, _ := json.Marshal(g)
		wantJSON, _ := json.Marshal(w)
		if !known || string(gotJSON) != string(wantJSON) {
			t.Errorf("%s: %s\n got %s\nwant %s", s.Name, field, gotJSON, wantJSON)
		}
	}
}

func TestBrokenCorpus(t *testing.T) {
	dir, reports, archive := corpus(t, "testdata/broken.txtar", 60)
	skills, diagnostics, err := Under(dir).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	loaded := map[string]bool{}
	for _, s := range skills {
		folder, _ := filepath.Rel(dir, s.Dir)
		loaded[filepath.ToSlash(folder)] = true
	}
	for folder, r := range reports {
		if folder != "shadow" && loaded[folder] != r.Loads {
			t.Errorf("%s: loaded %v, the report says %v", folder, loaded[folder], r.Loads)
		}
		for _, d := range r.Diagnostics {
			if d.Message == "" || !strings.HasPrefix(d.File, r.Path) {
				t.Errorf("%s: %+v names no file or says nothing", folder, d)
			}
		}
	}
	if read := compareAll(t, dir, skills, archive); read < 6 {
		t.Errorf("%d readings compared", read)
	}
	for _, d := range diagnostics {
		if !strings.HasPrefix(d.File, dir) {
			t.Errorf("%v is about no file of the corpus", d)
		}
	}
}
