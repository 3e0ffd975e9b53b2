package gitignore_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/internal/gitignore"
	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
)

// ignored checks path and the directories above it, like a search.
func ignored(rules map[string]string, path string) bool {
	var d *gitignore.Dir
	if r, ok := rules[""]; ok {
		d = gitignore.Top("", gitignore.Parse([]byte(r)))
	}
	for i, c := range path {
		if c != '/' {
			continue
		}
		if d.Ignored(path[:i], true) {
			return true
		}
		if r, ok := rules[path[:i]]; ok {
			d = d.Sub(path[:i], gitignore.Parse([]byte(r)))
		}
	}
	return d.Ignored(path, false)
}

func TestIgnored(t *testing.T) {
	for _, row := range []struct {
		rules, path string
		ignored     bool
	}{
		{"a", "a", true}, {"a", "x/a", true}, {"a", "a/x", true}, {"a", "ab", false},
		{"/a", "a", true}, {"/a", "x/a", false}, {"a/b", "a/b", true}, {"a/b", "x/a/b", false},
		{"a/", "a", false}, {"a/", "a/x", true}, {"*.o", "x/y.o", true}, {"*.o\n!y.o", "x/y.o", false},
		{"d/*\n!d/keep", "d/keep", false}, {"d/\n!d/keep", "d/keep", true}, {"x/**", "x/a", true},
		{"x/**/y", "x/y", true}, {"x/**/y", "x/a/b/y", true}, {"**/y", "a/y", true}, {"# a", "# a", false},
		{`\#a`, "#a", true}, {`\!a`, "!a", true}, {"a ", "a", true}, {`a\ `, "a ", true}, {"{a,b}", "a", false},
		{"{a,b}", "{a,b}", true}, {"[!c]", "a", true}, {"[!c]", "c", false}, {"?q", "aq", true}, {"[", "[", false},
		{"[]a]", "]", true}, {"[]a]", "b", false}, {"[!]a]", "]", false}, {"[!]a]", "b", true}, {"[^]", "a", false},
		{"[[:digit:]_]x", "1x", true}, {"[[:digit:]_]x", "ax", false}, {"[![:upper:]]", "a", true}, {"[[:nope:]]", "n", false},
		{"[[:]", ":", true}, {"[a-]", "-", true}, {"[a-]", "b", false}, {"[z-a]", "a", false}, {`[\]]`, "]", true}, {`[\a-\c]`, "b", true},
		{"a[!-~]b", "a/b", false}, {"a[!-~]b", "a.b", true}, {"[ab", "a", false}, {"[a\\", "a", false}, {"\ufeffa", "a", true},
		{"", "a", false}, {"/", "a", false}, {"*\n!*/\n!*.go", "d/a.go", false}, {"*\n!*/\n!*.go", "d/a.c", true},
		{"a**/*", "ab c", true}, {"b/a**", "b/ax/y", true}, {"?**/*", "ab", false}, {"b/***/c", "b/x/y/c", true},
		{"*/***", "c", false}, {"*/***", "b/c", true},
	} {
		if got := ignored(map[string]string{"": row.rules}, row.path); got != row.ignored {
			t.Errorf("%q: %q ignored: %v, want %v", row.rules, row.path, got, row.ignored)
		}
	}
}

// TestLikeGit compares the results for every path of a tree, with random rules in two directories, with git's.
func TestLikeGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal("the test needs git: ", err)
	}
	repo := t.TempDir()
	run := func(stdin string, args ...string) string {
		cmd := exec.Command(git, append([]string{"-C", repo, "-c", "core.excludesFile=/dev/null"}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.Output()
		if e, ok := err.(*exec.ExitError); err != nil && (!ok || e.ExitCode() != 1) {
			t.Fatalf("git %v: %v", args, err)
		}
		return string(out)
	}
	run("", "init", "-q")
	var paths []string
	for _, a := range []string{"", "a/", "b/", "a/b/", "a/b/d/", "ab/"} {
		for _, f := range []string{"c", "b.o", "b.go", "ab c", "{a,b}", "!c", "#b", "a[b]"} {
			paths = append(paths, a+f)
			if err := os.MkdirAll(filepath.Join(repo, a), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(repo, a+f), nil, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	segment := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
			"a", "b", "c", "*", "**", "?", ".o", ".go", "[ab]", "[!c]", "{a,b}", `\!`, `\#`, " "}), 1, 3).Draw(t, "segment"), "")
	})
	line := rapid.Custom(func(t *rapid.T) string {
		parts := rapid.SliceOfN(rapid.OneOf(segment, segment, segment, rapid.Just("**")), 1, 3).Draw(t, "parts")
		prefix := rapid.SampledFrom([]string{"", "", "!", "/", "#"}).Draw(t, "prefix")
		suffix := rapid.SampledFrom([]string{"", "", "/", "/*", " "}).Draw(t, "suffix")
		return prefix + strings.Join(parts, "/") + suffix
	})
	rapid.Check(t, func(t *rapid.T) {
		rules := map[string]string{
			"":  strings.Join(rapid.SliceOfN(line, 1, 4).Draw(t, "top"), "\n"),
			"a": strings.Join(rapid.SliceOfN(line, 0, 3).Draw(t, "sub"), "\n"),
		}
		for dir, text := range rules {
			if err := os.WriteFile(filepath.Join(repo, dir, ".gitignore"), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		byGit := map[string]bool{}
		for p := range strings.SplitSeq(run(strings.Join(paths, "\x00")+"\x00", "check-ignore", "--stdin", "-z", "--no-index"), "\x00") {
			byGit[p] = true
		}
		for _, p := range paths {
			if got := ignored(rules, p); got != byGit[p] {
				t.Errorf("%q ignored: %v, git says %v", p, got, byGit[p])
			}
		}
	})
}
