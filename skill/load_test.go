package skill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source returns a valid SKILL.md.
func source(name, body string) string {
	return "---\nname: " + name + "\ndescription: Use when " + name + " is tested.\n---\n" + body
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, l Loader) ([]*Skill, []Diagnostic) {
	t.Helper()
	skills, diagnostics, err := l.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return skills, diagnostics
}

func names(skills []*Skill) []string {
	out := []string{}
	for _, s := range skills {
		out = append(out, s.Name)
	}
	return out
}

func TestParseBytes(t *testing.T) {
	text := source("bytes", "# Title\n\nText.\n")
	utf16 := "\xff\xfe-\x00-\x00-\x00"
	for _, row := range []struct {
		name, content string
		want          []string
		body          string
	}{
		{"plain", text, nil, "# Title\n\nText.\n"},
		{"bom", "\ufeff" + text, nil, "# Title\n\nText.\n"},
		{"crlf", strings.ReplaceAll(text, "\n", "\r\n"), nil, "# Title\n\nText.\n"},
		{"bom and crlf", "\ufeff" + strings.ReplaceAll(text, "\n", "\r\n"), nil, "# Title\n\nText.\n"},
		{"cr", strings.ReplaceAll(text, "\n", "\r"), nil, "# Title\n\nText.\n"},
		{"mixed line ends", strings.Replace(text, "\n", "\r\n", 2), nil, "# Title\n\nText.\n"},
		{"utf-16", utf16, []string{"1 fatal encoding"}, ""},
		{"not utf-8", source("bytes", "caf\xe9\n"), []string{"5 error encoding"}, "caf\ufffd\n"},
		{"a real replacement character", source("bytes", "\ufffd\n"), nil, "\ufffd\n"},
		{"not utf-8 in a field", "---\nname: bytes\ndescription: Use when caf\xe9\n---\nx", []string{"3 error encoding"}, "x"},
		{"nul in a field", "---\nname: bytes\ndescription: Use \x00 when\n---\nx", []string{"2 fatal yaml"}, ""},
		{"at the limit", source("bytes", strings.Repeat("x", maxSkillFile-len(source("bytes", "")))), nil, strings.Repeat("x", maxSkillFile-len(source("bytes", "")))},
		{"over the limit", source("bytes", strings.Repeat("x", maxSkillFile)), []string{"0 fatal too-large"}, ""},
		{"large front matter", "---\nname: bytes\ndescription: Use when\nlicense: " + strings.Repeat("x", maxFrontMatter) + "\n---\n", []string{"2 fatal too-large"}, ""},
		{"deep front matter", "---\nname: " + strings.Repeat("[", maxFrontMatter/2) + "\n---\n", []string{"2 fatal yaml"}, ""},
		{"name of 64", "---\nname: " + strings.Repeat("é", 64) + "\ndescription: Use when\n---\nx", []string{"2 warning name-ascii"}, "x"},
		{"description of 1024", "---\nname: bytes\ndescription: Use when " + strings.Repeat("é", 1015) + "\n---\nx", nil, "x"},
		{"description of 1025", "---\nname: bytes\ndescription: Use when " + strings.Repeat("é", 1016) + "\n---\nx", []string{"3 error description-length"}, "x"},
		{"compatibility of 500", "---\nname: bytes\ndescription: Use when\ncompatibility: " + strings.Repeat("é", 500) + "\n---\nx", nil, "x"},
		{"no name and no folder", "---\ndescription: Use when\n---\n", []string{"0 fatal name-missing"}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, diagnostics := Parse("SKILL.md", []byte(row.content))
			if got := lines(diagnostics); !slices.Equal(got, row.want) {
				t.Fatalf("got %q, want %q: %v", got, row.want, diagnostics)
			}
			if s == nil {
				if row.body != "" {
					t.Fatal("no skill")
				}
				return
			}
			if s.Body != row.body {
				t.Errorf("body %.80q, want %.80q", s.Body, row.body)
			}
		})
	}
}

// TestManyMistakes parses what would take half a minute if the YAML library expanded its
// aliases, and checks that the number of diagnostics is bounded.
func TestManyMistakes(t *testing.T) {
	aliases := strings.Repeat("&a a: *a\n", maxFrontMatter/10)
	s, diagnostics := Parse("SKILL.md", []byte("---\nname: x\n"+aliases+"---\n"))
	if s != nil || len(diagnostics) != maxDiagnostics+1 {
		t.Errorf("%d diagnostics", len(diagnostics))
	}
	var unknown strings.Builder
	for i := range 2 * maxDiagnostics {
		fmt.Fprintf(&unknown, "unknown-%d: x\n", i)
	}
	_, diagnostics = Parse("SKILL.md", []byte("---\nname: x\ndescription: Use when.\n"+unknown.String()+"license: []\n---\n"))
	if last := diagnostics[len(diagnostics)-1]; len(diagnostics) != maxDiagnostics+1 || last.Rule != "field-type" {
		t.Errorf("%d diagnostics, the last is %v", len(diagnostics), last)
	}
}

func TestLoaders(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	write(t, dir, "set/one/SKILL.md", source("one", "1"))
	write(t, dir, "set/two/SKILL.md", source("two", "2"))
	write(t, dir, "set/two/references/inner/SKILL.md", source("inner", "a skill inside of a skill is a file of it"))
	write(t, dir, "set/deep/er/three/SKILL.md", source("three", "3"))
	write(t, dir, "set/node_modules/four/SKILL.md", source("four", "4"))
	write(t, dir, "set/.git/five/SKILL.md", source("five", "5"))
	write(t, dir, "set/.hidden/six/SKILL.md", source("six", "6"))
	write(t, dir, "set/README.md", "no skill")
	t.Chdir(dir)
	memory := Memory(&Skill{Name: "seven", Description: "Use when told.", Body: "# Seven"})
	for _, row := range []struct {
		about  string
		loader Loader
		want   []string
	}{
		{"one", One(filepath.Join(dir, "set/one")), []string{"one"}},
		{"relative", One("set/one"), []string{"one"}},
		{"home", In("~/set"), []string{"one", "two"}},
		{"folder", In("set"), []string{"one", "two"}},
		{"tree", Under("set"), []string{"six", "three", "one", "two"}},
		{"fs", FS(os.DirFS("set")), []string{"six", "three", "one", "two"}},
		{"fs of one", FS(os.DirFS("set/one")), []string{"one"}},
		{"memory", memory, []string{"seven"}},
		{"merged", Merge(memory, One("set/two"), In("set")), []string{"seven", "two", "one"}},
		{"nothing", Merge(), []string{}},
		{"a folder of none", In("set/deep/er/three"), []string{"three"}},
	} {
		t.Run(row.about, func(t *testing.T) {
			skills, _ := load(t, row.loader)
			if got := names(skills); !slices.Equal(got, row.want) {
				t.Errorf("got %q, want %q", got, row.want)
			}
			for _, s := range skills {
				if s.Dir != "" && !filepath.IsAbs(s.Dir) {
					t.Errorf("%s: Dir %q is not absolute", s.Name, s.Dir)
				}
			}
		})
	}
	for _, l := range []Loader{One("absent"), In("absent"), Under("absent"), One("")} {
		if _, _, err := l.Load(t.Context()); err == nil {
			t.Error("a missing folder loads")
		}
	}
	if _, d := load(t, One("set")); !slices.Equal(lines(d), []string{"0 fatal skill-file"}) {
		t.Errorf("a folder without SKILL.md: %v", d)
	}
}

func TestMerge(t *testing.T) {
	a := Memory(&Skill{Name: "x", Description: "Use when first."}, &Skill{Name: "bad"})
	b := Memory(&Skill{Name: "y", Description: "Use when other."}, &Skill{Name: "x", Description: "Use when second."})
	skills, diagnostics := load(t, Merge(a, In("absent"), b))
	if got := names(skills); !slices.Equal(got, []string{"x", "y"}) || skills[0].Description != "Use when first." {
		t.Errorf("got %q", got)
	}
	want := []string{"0 fatal description-missing", "0 fatal loader", "0 warning shadowed"}
	if got := lines(diagnostics); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for i, prefix := range []string{`skill "bad": error: the skill has no description`, "error: load skills from ", `skill "x": warning: the skill "x" is hidden by the one in "memory"`} {
		if got := diagnostics[i].String(); !strings.HasPrefix(got, prefix) {
			t.Errorf("got %s, want %s…", got, prefix)
		}
	}
	reports, err := Validate(t.Context(), Merge(a, b))
	if err != nil || len(reports) != 3 || reports[0].Path != `skill "bad"` || reports[0].Loads {
		t.Errorf("%+v, %v; want a report for each skill", reports, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, l := range []Loader{Merge(a, b), Merge(In(t.TempDir())), In(t.TempDir())} {
		if _, _, err := l.Load(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("after cancel: %v", err)
		}
	}
}

// TestLinks checks the confinement with links of every kind.
func TestLinks(t *testing.T) {
	outside := t.TempDir()
	write(t, outside, "secret", "the secret")
	write(t, outside, "evil/SKILL.md", source("evil", "the secret"))
	dir := t.TempDir()
	write(t, dir, "good/SKILL.md", source("good", "x"))
	write(t, dir, "good/references/in.md", "inside")
	write(t, dir, "linked-file/data", "x")
	write(t, dir, "store/hidden/real/SKILL.md", source("real", "x"))
	for link, target := range map[string]string{
		"evil":                     filepath.Join(outside, "evil"),
		"dangling":                 filepath.Join(dir, "nowhere"),
		"circle":                   dir,
		"real":                     "store/hidden/real",
		"linked-file/SKILL.md":     filepath.Join(outside, "evil", "SKILL.md"),
		"good/secret":              filepath.Join(outside, "secret"),
		"good/up":                  "..",
		"good/references/absolute": outside,
		"good/references/same":     "in.md",
		"note":                     filepath.Join(outside, "secret"),
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	links := In(dir)
	skills, diagnostics := load(t, links)
	if got := names(skills); !slices.Equal(got, []string{"good", "real"}) {
		t.Errorf("got %q", got)
	}
	if l, ok := links.(loader).finder.(*scanner); !ok || l.found == nil {
		t.Error("a refused file prevents caching of the scan")
	}
	refused := []string{}
	for _, d := range diagnostics {
		if d.Rule == "symlink" && d.Fatal {
			rel, _ := filepath.Rel(dir, d.File)
			refused = append(refused, filepath.ToSlash(rel))
		}
	}
	slices.Sort(refused)
	if want := []string{"circle", "dangling", "evil", "linked-file/SKILL.md"}; !slices.Equal(refused, want) {
		t.Errorf("refused %q, want %q", refused, want)
	}
	good := skills[0]
	files, err := good.Files()
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(files); got != "[{references/in.md 6 reference} {references/same 6 reference}]" {
		t.Errorf("files %v", got)
	}
	for _, name := range []string{
		"secret", "up/good/SKILL.md", "up", "references/absolute/secret", "../real/SKILL.md", "references/../../real/SKILL.md",
		"/etc/passwd", filepath.Join(outside, "secret"), `..\real\SKILL.md`, "", ".", "references", "no.md", "\x00",
	} {
		if data, err := good.readForModel(t.Context(), name); err == nil {
			t.Errorf("%q reads %q", name, data)
		} else if strings.Contains(err.Error(), "the secret") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"references/in.md", "./references/in.md", "references//in.md", "references/same", `references\in.md`} {
		if data, err := good.readForModel(t.Context(), name); string(data) != "inside" || err != nil {
			t.Errorf("%q reads %q, %v", name, data, err)
		}
	}
	// The folder is exchanged for a link after the scan.
	if err := os.RemoveAll(good.Dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, good.Dir); err != nil {
		t.Fatal(err)
	}
	if data, err := good.readForModel(t.Context(), "secret"); err == nil {
		t.Errorf("after the exchange: %q", data)
	}
}

// TestHiddenFiles checks that a model is shown neither hidden files of a skill, which may hold credentials, nor
// hidden characters.
func TestHiddenFiles(t *testing.T) {
	dir := t.TempDir()
	const smuggled = "a\u202eb\u200bc\U000E0041d"
	write(t, dir, "s/SKILL.md", source("s", "# One\n"+smuggled+"\n# Two\n"+smuggled))
	write(t, dir, "s/notes.txt", smuggled)
	for _, name := range []string{".env", "scripts/.env", ".ssh/config", ".secrets/key"} {
		write(t, dir, "s/"+name, "the secret")
	}
	for name, target := range map[string]string{"env.txt": ".env", "again.txt": "env.txt", "ssh": ".ssh", "scripts/up.txt": "../ssh/config", "copy.txt": "scripts/../notes.txt", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, "s", name)); err != nil {
			t.Fatal(err)
		}
	}
	skills, _ := load(t, In(dir))
	files, err := skills[0].Files()
	if got := fmt.Sprint(files); err != nil || got != "[{copy.txt 14 other} {notes.txt 14 other}]" {
		t.Errorf("files %s, %v", got, err)
	}
	for _, name := range []string{".env", "./.env", "scripts/.env", ".ssh/config", ".secrets/key", `scripts\.env`, "scripts/../.env", "env.txt", "again.txt", "ssh/config", "scripts/up.txt", "loop"} {
		if page, err := View(t.Context(), skills, Query{Skill: "s", File: name}); err == nil || !strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q shows %+v, %v", name, page, err)
		}
		if data, err := skills[0].Read(t.Context(), name); err == nil {
			t.Errorf("%q is served as %q", name, data)
		}
	}
	for _, q := range []Query{{Skill: "s"}, {Skill: "s", Section: "Two"}, {Skill: "s", File: "notes.txt"}} {
		if page, err := View(t.Context(), skills, q); err != nil || !strings.Contains(page.Text, "abcd") || strings.ContainsAny(page.Text, "\u202e\u200b\U000E0041") {
			t.Errorf("%+v shows %+v, %v", q, page, err)
		}
	}
}

func TestReadFileLimit(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "s/SKILL.md", source("s", "x"))
	write(t, dir, "s/assets/big", strings.Repeat("x", maxResource+1))
	write(t, dir, "s/assets/most", strings.Repeat("x", maxResource))
	skills, _ := load(t, In(dir))
	if _, err := skills[0].readForModel(t.Context(), "assets/big"); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("over the limit: %v", err)
	}
	if data, err := skills[0].readForModel(t.Context(), "assets/most"); err != nil || len(data) != maxResource {
		t.Errorf("at the limit: %d bytes, %v", len(data), err)
	}
}

// counting counts the calls of a file system.
type counting struct {
	fstest.MapFS
	opens, stats *atomic.Int64
}

func (c counting) Open(name string) (fs.File, error) { c.opens.Add(1); return c.MapFS.Open(name) }
func (c counting) ReadFile(name string) ([]byte, error) {
	c.opens.Add(1)
	return c.MapFS.ReadFile(name)
}
func (c counting) ReadDir(name string) ([]fs.DirEntry, error) {
	c.opens.Add(1)
	return c.MapFS.ReadDir(name)
}
func (c counting) Stat(name string) (fs.FileInfo, error) { c.stats.Add(1); return c.MapFS.Stat(name) }

func TestUnchangedTreeIsNotOpened(t *testing.T) {
	files := counting{fstest.MapFS{}, new(atomic.Int64), new(atomic.Int64)}
	day := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	put := func(name, content string, at time.Time) {
		files.MapFS[name] = &fstest.MapFile{Data: []byte(content), ModTime: at, Mode: 0o644}
	}
	const n = 50
	for i := range n {
		name := fmt.Sprintf("skill-%02d", i)
		put(name+"/SKILL.md", source(name, "x"), day)
	}
	put("broken/SKILL.md", "no front matter", day)
	put("large/SKILL.md", strings.Repeat("x", maxSkillFile+1), day)
	l := FS(files)
	first, d1 := load(t, l)
	if len(first) != n || len(d1) != 2 {
		t.Fatalf("%d skills, %v", len(first), d1)
	}
	step := func(about string, wantOpens, wantStats int64) []*Skill {
		t.Helper()
		files.opens.Store(0)
		files.stats.Store(0)
		skills, _ := load(t, l)
		if files.opens.Load() > wantOpens || files.stats.Load() > wantStats {
			t.Errorf("%s: %d opens and %d stats, want at most %d and %d", about, files.opens.Load(), files.stats.Load(), wantOpens, wantStats)
		}
		return skills
	}
	for range 3 {
		if again := step("unchanged", 0, n+3); !slices.Equal(again, first) {
			t.Error("the skills are not the same")
		}
	}
	put("skill-07/SKILL.md", source("skill-07", "changed"), day.Add(time.Second))
	changed := step("one file changed", 3, 5*n)
	for i, s := range changed {
		if (s == first[i]) != (s.Name != "skill-07") {
			t.Errorf("%s: kept is %v", s.Name, s == first[i])
		}
	}
	put("skill-08/SKILL.md", source("skill-08", "changed size, same time"), day)
	if s := step("size changed", 3, 5*n)[8]; s.Body != "changed size, same time" {
		t.Errorf("body %q", s.Body)
	}
	delete(files.MapFS, "skill-09/SKILL.md")
	if got := step("one file removed", 3, 5*n); len(got) != n-1 {
		t.Errorf("%d skills", len(got))
	}
	step("unchanged again", 0, n+3)
}

// TestUnreadableFileIsReadAgain: a repair of the permissions changes neither the size nor the time of a file.
func TestUnreadableFileIsReadAgain(t *testing.T) {
	files := lockable{fstest.MapFS{"pdf/SKILL.md": {Data: []byte(source("pdf", "x"))}}, new(atomic.Bool)}
	files.locked.Store(true)
	l := FS(files)
	if skills, diagnostics := load(t, l); len(skills) != 0 || len(diagnostics) != 1 || diagnostics[0].Rule != "unreadable" {
		t.Fatalf("locked: %q, %v", names(skills), diagnostics)
	}
	files.locked.Store(false)
	if skills, diagnostics := load(t, l); len(skills) != 1 || len(diagnostics) != 0 {
		t.Errorf("unlocked: %q, %v", names(skills), diagnostics)
	}
}

// A lockable file system opens no SKILL.md while it is locked.
type lockable struct {
	fstest.MapFS
	locked *atomic.Bool
}

func (f lockable) Open(name string) (fs.File, error) {
	if f.locked.Load() && isSkillFile(path.Base(name)) {
		return nil, fs.ErrPermission
	}
	return f.MapFS.Open(name)
}

func TestDiskChanges(t *testing.T) {
	dir := t.TempDir()
	past := time.Now().Add(-time.Hour)
	age := func(names ...string) {
		for _, name := range names {
			past = past.Add(time.Second)
			if err := os.Chtimes(filepath.Join(dir, name), past, past); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(t, dir, "a/SKILL.md", source("a", "1"))
	write(t, dir, "empty/data", "x")
	age("a/SKILL.md", "a", "empty", ".")
	l := In(dir)
	expect := func(about string, want ...string) {
		t.Helper()
		skills, _ := load(t, l)
		if got := names(skills); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", about, got, want)
		}
	}
	expect("at first", "a")
	write(t, dir, "b/SKILL.md", source("b", "1"))
	expect("a new folder", "a", "b")
	write(t, dir, "empty/SKILL.md", source("empty", "1"))
	expect("a new file in a folder without", "a", "b", "empty")
	if err := os.RemoveAll(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	expect("a folder is removed", "a", "empty")
	write(t, dir, "a/SKILL.md", "broken")
	expect("a skill breaks", "empty")
	write(t, dir, "a/SKILL.md", source("a", "mended"))
	expect("a skill is repaired", "a", "empty")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Load(t.Context()); err == nil {
		t.Error("Load returns no error for a removed folder")
	}
}

func TestLoadIsSafeForConcurrentUse(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		name := fmt.Sprintf("s%02d", i)
		write(t, dir, name+"/SKILL.md", source(name, "# Title\n\n## Section\n"))
	}
	l := In(dir)
	parallel(8, func(int) {
		skills, _, err := l.Load(context.Background())
		if err != nil || len(skills) != 20 {
			t.Errorf("%d skills, %v", len(skills), err)
		}
		for _, s := range skills {
			if len(s.Document().Sections) != 2 {
				t.Errorf("%s: %v", s.Name, s.Document().Sections)
			}
		}
	})
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sets := [][]*Skill{
			{{Name: "a"}}, {{Name: "a"}, {Name: "b"}},
		}
		var calls int
		script := []int{0, 0, 1, -1, -1, 1, 1, 0} // -1 fails
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := loaderFunc(func() ([]*Skill, error) {
			i := script[min(calls, len(script)-1)]
			if calls++; calls > len(script) {
				cancel()
			}
			if i < 0 {
				return nil, errors.New("away")
			}
			return sets[i], nil
		})
		var got []string
		start := time.Now()
		for skills, err := range Watch(ctx, l, time.Minute) {
			got = append(got, fmt.Sprint(int(time.Since(start).Minutes()), len(skills), err))
		}
		want := []string{"0 1 <nil>", "2 2 <nil>", "3 0 away", "5 2 <nil>", "7 1 <nil>"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

type loaderFunc func() ([]*Skill, error)

func (f loaderFunc) Load(context.Context) ([]*Skill, []Diagnostic, error) {
	s, err := f()
	return s, nil, err
}
