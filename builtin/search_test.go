package builtin

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/kitbag-go/kitbag/internal/countdown"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"pgregory.net/rapid"
)

// listed returns the paths of a result, relative to dir, sorted.
func listed(res *message.ToolResult, dir string) []string {
	var rel []string
	for line := range strings.Lines(res.Text()) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), dir+"/"); ok {
			rel = append(rel, p)
		}
	}
	slices.Sort(rel)
	return rel
}

// TestGlobLikeDoublestar checks that Glob finds all matches although it skips directories that cannot contain any.
func TestGlobLikeDoublestar(t *testing.T) {
	tree := map[string]string{}
	for _, d := range []string{"", "a/", "a/b/", "a/b/c/", "ab/", "b/", ".h/", "a/[x]/"} {
		for _, f := range []string{"a", "b.go", "c.txt", ".d", "x"} {
			if d+f != "a" && d+f != "a/b" && d+f != "b" {
				tree[d+f+"_"] = ""
			}
		}
	}
	dir := files(t, tree)
	tools, _ := fileTools(t, dir)
	segment := rapid.SampledFrom([]string{"*", "**", "a", "b", "ab", "?", "[ab]", "{a,b}", "{a,a/b}", "*.go_", "*_", "[!a]*", ".*", "x_", "."})
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(rapid.SliceOfN(segment, 1, 4).Draw(t, "pattern"), "/")
		var want []string
		plain := strings.NewReplacer("[!a]", "[!a/]", "./", "").Replace(pattern)
		if pattern == "." || strings.HasSuffix(pattern, "/.") {
			plain = strings.TrimSuffix(plain, "/.")
		}
		for name := range tree {
			if ok, err := doublestar.Match(plain, name); err != nil {
				t.Fatal(err)
			} else if ok {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		got := listed(call(context.Background(), tools["Glob"], args("pattern", pattern)), dir)
		if !slices.Equal(got, want) {
			t.Fatalf("%q finds %q, want %q", pattern, got, want)
		}
	})
}

func TestGlob(t *testing.T) {
	dir := files(t, map[string]string{"old.go": "", "new.go": "", "src/a.go": "", "app/[id]/p.ts": ""})
	tools, ctx := fileTools(t, dir)
	past := time.Now().Add(-time.Hour)
	for _, name := range []string{"old.go", "src/a.go"} {
		if err := os.Chtimes(filepath.Join(dir, name), past, past); err != nil {
			t.Fatal(err)
		}
	}
	glob := func(kv ...any) *message.ToolResult { return call(ctx, tools["Glob"], args(kv...)) }
	if got := glob("pattern", "**/*.go").Text(); got != dir+"/new.go\n"+dir+"/old.go\n"+dir+"/src/a.go" {
		t.Errorf("the newest comes first, then by path: %s", got)
	}
	for pattern, want := range map[string]string{
		dir + "/src/*.go": "src/a.go", "app/[id]/*": "app/[id]/p.ts", `src\*.go`: "src/a.go", "./src//a.go": "src/a.go", "../*": "", "": "", "[": "",
	} {
		if got := strings.Join(listed(glob("pattern", pattern), dir), " "); got != want {
			t.Errorf("%q finds %q, want %q", pattern, got, want)
		}
	}
	want(t, glob("pattern", "*", "path", "new.go"), "error", "is a file")
	want(t, glob("pattern", "*", "path", "none"), "error", "does not exist")
}

func TestGlobIsCapped(t *testing.T) {
	tree := map[string]string{}
	for i := range 4*maxMatches + 100 {
		tree[fmt.Sprintf("%d/%d", i%7, i)] = ""
	}
	dir := files(t, tree)
	tools, ctx := fileTools(t, dir)
	res := call(ctx, tools["Glob"], args("pattern", "**"))
	if got := len(listed(res, dir)); got != maxMatches || !strings.Contains(res.Text(), "[1600 files more;") {
		t.Errorf("%d files, %s", got, res.Text()[len(res.Text())-60:])
	}
}

// TestGlobGitIgnore compares the ignored files with git's.
func TestGlobGitIgnore(t *testing.T) {
	dir := files(t, map[string]string{
		".gitignore": "*.log\n/build/\n!keep.log\n", ".git/info/exclude": "private\n",
		"a.go": "", "a.log": "", "keep.log": "", "build/x.go": "", "src/build/y.go": "", "private": "",
		"src/.gitignore": "gen/\n!a.log\n", "src/a.log": "", "src/gen/z.go": "", "src/deep/b.log": "", "src/deep/c": "",
	})
	repo, err := filepath.Rel("/", dir)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "-C", dir, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git init in %s: %v %s", repo, err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, ".git/info/exclude"), []byte("private\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"", "src"} {
		cmd := exec.Command("git", "-c", "core.excludesFile=/dev/null", "ls-files", "-co", "--exclude-standard")
		cmd.Dir = filepath.Join(dir, sub)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Fields(string(out))
		slices.Sort(want)
		tools, ctx := fileTools(t, cmd.Dir)
		if got := listed(call(ctx, tools["Glob"], args("pattern", "**", "gitignore", true)), cmd.Dir); !slices.Equal(got, want) {
			t.Errorf("in %q: %q, git lists %q", sub, got, want)
		}
	}
}

// TestGrepPages checks that pages of results add up to all results, sorted by path, and that a repeated search
// has the same result.
func TestGrepPages(t *testing.T) {
	tree := map[string]string{}
	for i := range 60 {
		tree[fmt.Sprintf("d%d/f%d.txt", i%9, i)] = strings.Repeat("match\nother\n", i%5)
	}
	dir := files(t, tree)
	tools, ctx := fileTools(t, dir)
	page := func(limit, offset int) []string {
		res := call(ctx, tools["Grep"], args("pattern", "match", "output_mode", "content", "head_limit", limit, "offset", offset))
		text, _, _ := strings.Cut(res.Text(), "\n\n[")
		if strings.HasPrefix(text, "No ") {
			return nil
		}
		return strings.Split(text, "\n")
	}
	all := page(0, 0)
	if len(all) != 120 {
		t.Fatalf("%d results", len(all))
	}
	for _, size := range []int{1, 7, 50, 119, 120, 121} {
		var got []string
		for {
			p := page(size, len(got))
			if p == nil {
				break
			}
			got = append(got, p...)
		}
		if !slices.Equal(got, all) {
			t.Errorf("pages of %d: %d results\n%q", size, len(got), got)
		}
	}
	want(t, call(ctx, tools["Grep"], args("pattern", "match", "offset", 2*maxOffset)), "success", "after the first 100000")
}

func TestGrepFiles(t *testing.T) {
	dir := files(t, map[string]string{
		"a.go": "needle\n", "a_test.go": "needle\n", "b.py": "needle\n", "src/c.ts": "needle\n", "src/d.tsx": "needle\n", "ignored.log": "needle\n",
		".gitignore": "*.log\n", ".env": "KEY=needle\n", "vendor/.ignore": "*", "vendor/e.go": "needle\n", "bin": "\x00needle", ".hidden": "needle\n",
	})
	tools, ctx := fileTools(t, dir)
	for _, row := range []struct{ more, want string }{
		{"", ".hidden a.go a_test.go b.py src/c.ts src/d.tsx"},
		{`,"glob":"*.go"`, "a.go a_test.go vendor/e.go"}, // named files override ignore files
		{`,"glob":"*.go !*_test.go"`, "a.go vendor/e.go"},
		{`,"glob":"src/*.{ts,tsx}"`, "src/c.ts src/d.tsx"},
		{`,"glob":"*.{ts,tsx},*.py"`, "b.py src/c.ts src/d.tsx"},
		{`,"glob":"*.py,*.ts"`, "b.py src/c.ts"},
		{`,"glob":"*.log"`, "ignored.log"},
		{`,"glob":"!src"`, ".hidden a.go a_test.go b.py"},
		{`,"type":"go"`, "a.go a_test.go"},
		{`,"type":"typescript","path":"src"`, "src/c.ts src/d.tsx"},
		{`,"path":"ignored.log"`, "ignored.log"},
		{`,"path":".env"`, ".env"},
		{`,"path":"bin"`, ""},
	} {
		res := call(ctx, tools["Grep"], `{"pattern":"needle"`+row.more+`}`)
		if got := strings.Join(listed(res, dir), " "); got != row.want {
			t.Errorf("%s: %q, want %q (%s)", row.more, got, row.want, res.Text())
		}
	}
	want(t, call(ctx, tools["Grep"], args("pattern", "x", "type", "nonsense")), "error", "no file type")
	want(t, call(ctx, tools["Grep"], args("pattern", "x", "path", "none")), "error", "does not exist")
}

// TestSearchPermission checks that searches need approval for what they may find, not only for where they begin.
func TestSearchPermission(t *testing.T) {
	dir := files(t, map[string]string{"f": ""})
	if err := os.Symlink("/etc", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	tools, _ := fileTools(t, dir)
	for _, row := range []struct {
		tool, in, rule string
		want           permission.Behavior
	}{
		{"Grep", args("pattern", "x"), "", permission.Allow},
		{"Grep", args("pattern", "x", "path", "/etc"), "", permission.Ask},
		{"Grep", args("pattern", "x", "path", "out"), "", permission.Ask},
		{"Grep", args("pattern", "x", "path", "../.."), "", permission.Ask},
		{"Grep", args("pattern", "x"), "secret/**", permission.Deny},
		{"Grep", args("pattern", "x", "path", "src"), "secret/**", permission.Allow},
		{"Glob", args("pattern", "**"), "", permission.Allow},
		{"Glob", args("pattern", "/etc/*"), "", permission.Ask},
		{"Glob", args("pattern", "secret/*"), "secret/**", permission.Deny},
		{"Glob", args("pattern", "src/*"), "secret/**", permission.Allow},
		{"Glob", args("pattern", "*/k"), "secret/**", permission.Deny},
		{"Glob", args("pattern", "../secret/*", "path", "src"), "secret/**", permission.Deny},
		{"Glob", args("pattern", "src/../../x/*"), "", permission.Ask},
	} {
		p := &permission.Policy{Dirs: []string{dir}}
		if row.rule != "" {
			p.Rules = []permission.Rule{{Tool: row.tool, Pattern: row.rule, Behavior: permission.Deny}}
		}
		if d := permission.Decide(p, tool.PermissionCall(tools[row.tool], []byte(row.in))); d.Behavior != row.want {
			t.Errorf("%s %s, deny %q: %s (%s), want %s", row.tool, row.in, row.rule, d.Behavior, d.Reason, row.want)
		}
	}
}

// TestPolicyDirs checks that working directories are recognised however the policy spells them.
func TestPolicyDirs(t *testing.T) {
	dir := files(t, map[string]string{"sub/f": ""})
	t.Setenv("HOME", dir)
	tools, _ := fileTools(t, dir)
	for _, d := range []string{dir + "/sub", dir + "/sub/", dir + "/./sub", "~/sub", "sub"} {
		p := &permission.Policy{Dirs: []string{d}, Rules: []permission.Rule{{Tool: "Bash", Pattern: "rm:*", Behavior: permission.Allow}}}
		for _, row := range []struct {
			tool, in string
			want     permission.Behavior
		}{
			{"Read", args("file_path", dir+"/sub/f"), permission.Allow},
			{"Read", args("file_path", dir+"/f"), permission.Ask},
			{"Bash", args("command", "rm -r "+dir+"/sub/f"), permission.Allow},
			{"Bash", args("command", "rm -r "+dir+"/sub"), permission.Ask}, // deleting a working directory
		} {
			if got := permission.Decide(p, tool.PermissionCall(tools[row.tool], []byte(row.in))); got.Behavior != row.want {
				t.Errorf("%q: %s %s: %s (%s), want %s", d, row.tool, row.in, got.Behavior, got.Reason, row.want)
			}
		}
	}
}

// memory is a backend with only the three methods of Backend.
type memory struct{ files fstest.MapFS }

func (m memory) name(path string) string {
	if path == "/" {
		return "."
	}
	return strings.TrimPrefix(path, "/")
}

func (m memory) Run(_ context.Context, c Command) (Exit, error) {
	fmt.Fprintf(c.Output, "%s in %s", c.Args[len(c.Args)-1], c.Dir)
	return Exit{Code: 7}, nil
}

func (m memory) Open(_ context.Context, file permission.File) (fs.File, error) {
	return m.files.Open(m.name(file.Path))
}

func (m memory) Write(_ context.Context, file permission.File, data []byte) error {
	m.files[m.name(file.Path)] = &fstest.MapFile{Data: data}
	return nil
}

func TestOtherBackend(t *testing.T) {
	m := memory{fstest.MapFS{"w/a.txt": {Data: []byte("hello\n")}, "w/.gitignore": {Data: []byte("*.o\n")}, "w/sub/b.o": {Data: []byte("hello\n")}}}
	all, err := New(Config{Dirs: []string{"/w"}, Backend: m})
	if err != nil {
		t.Fatal(err)
	}
	ctx := toolstate.With(t.Context(), &toolstate.State{})
	for _, step := range []struct{ tool, in, outcome, text string }{
		{"Bash", args("command", "ls"), "error", "ls in /w\n[exit code 7]"},
		{"Glob", args("pattern", "**/*.*"), "success", "/w/sub/b.o"},
		{"Grep", args("pattern", "hello"), "success", "/w/a.txt"},
		{"Read", args("file_path", "/w/a.txt"), "success", "     1\thello"},
		{"Edit", args("file_path", "/w/a.txt", "old_string", "hello", "new_string", "bye"), "success", ""},
		{"Read", args("file_path", "/w/a.txt"), "success", "     1\tbye"},
		{"Read", args("file_path", "/w/none"), "error", "does not exist"},
		{"Read", args("file_path", "/w/sub"), "error", "is a directory"},
	} {
		i := slices.IndexFunc(all, func(tl tool.Tool) bool { return tl.Info().Name == step.tool })
		want(t, call(ctx, all[i], step.in), message.Outcome(step.outcome), step.text)
	}
}

// broken is a backend that panics in a worker of a search.
type broken struct{ memory }

func (b broken) Open(ctx context.Context, file permission.File) (fs.File, error) {
	if strings.HasSuffix(file.Path, "a.txt") {
		panic("broken disk")
	}
	return b.memory.Open(ctx, file)
}

func (b broken) Run(context.Context, Command) (Exit, error) { panic("broken machine") }

// TestPanicsOfBackends checks that a backend that panics fails the call, not the program.
func TestPanicsOfBackends(t *testing.T) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // package tool logs the stack
	all, err := New(Config{Dirs: []string{"/w"}, Backend: broken{memory{fstest.MapFS{"w/a.txt": {}, "w/b/c": {}}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tl := range all {
		switch tl.Info().Name {
		case "Grep":
			want(t, call(t.Context(), tl, args("pattern", "x")), "error", "")
		case "Bash":
			want(t, call(t.Context(), tl, args("command", "x")), "error", "broken machine")
		}
	}
}

// TestManyBraces checks that only as many words are made as are used, since braces multiply them.
func TestManyBraces(t *testing.T) {
	if got := expandBraces(strings.Repeat("{a,b}", 40), maxAlternatives); len(got) != maxAlternatives {
		t.Errorf("%d words, want %d", len(got), maxAlternatives)
	}
	tools, ctx := fileTools(t, files(t, map[string]string{strings.Repeat("a", 250): ""}))
	want(t, call(ctx, tools["Glob"], args("pattern", strings.Repeat("{a,b}", 40))), "error", "more than 1000 patterns")
	want(t, call(ctx, tools["Glob"], args("pattern", strings.Repeat("*{a,aa}", 8)+"b")), "success", "No files")
}

// TestGrepCancelInText checks that a search in text that is already read ends with its context: in a multiline
// search every match may scan the whole rest.
func TestGrepCancelInText(t *testing.T) {
	for _, mode := range []string{"count", "content"} {
		s, err := newGrepSearch(grepIn{Pattern: "a", OutputMode: mode, Multiline: true}, "")
		if err != nil {
			t.Fatal(err)
		}
		ctx := &countdown.Context{Context: t.Context(), Left: 10}
		s.search(ctx, 0, "/x", strings.NewReader(strings.Repeat("a\n", 100)))
		if ctx.Left < -2 {
			t.Errorf("%s: it continued for %d matches", mode, -ctx.Left)
		}
		if ctx.Left > 0 {
			t.Errorf("%s: the context was never polled", mode)
		}
	}
}
