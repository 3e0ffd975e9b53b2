package pathrule

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/casetest"

	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
)

func TestDangerousPath(t *testing.T) {
	at := Place{Cwd: "/p", Home: "/home/user"}
	type row struct {
		Path        string
		Dangerous   bool
		Recommended bool
	}
	rows := casetest.Rows[row](t, "dangerous_path.jsonl")
	better := map[string]bool{}
	for _, r := range rows {
		if r.Recommended {
			better[r.Path] = true
		}
	}
	for _, r := range rows {
		want := r.Dangerous || better[r.Path]
		if got := (Protected{}).Hit(at, r.Path) != ""; got != want {
			t.Errorf("%q: protected %v, want %v", r.Path, got, want)
		}
	}
}

type fileRule struct {
	Behavior, Tool, Pattern string
	FilePath                string `json:"file_path"`
	Input                   struct {
		FilePath string `json:"file_path"`
		Path     string
		Pattern  string
	}
	Match       bool
	ExpectMatch *bool `json:"expect_match"`
	Origin      string
	Reason      string
}

// judge checks a path like the file tools.
func (r fileRule) judge(t *testing.T, at Place) bool {
	t.Helper()
	name, walks := r.Input.FilePath, false
	switch {
	case r.Tool == "Glob" && r.Input.Path == "":
		name = r.Input.Pattern
	case r.Tool == "Glob" || r.Tool == "Grep":
		walks = true
		if name = r.Input.Path; name == "" {
			name = at.Cwd
		}
	}
	name = strings.NewReplacer("${TMP}", "/tmp/x", "${CWD}", at.Cwd).Replace(name)
	pattern := strings.NewReplacer("${TMP}", "/tmp/x", "${CWD}", at.Cwd).Replace(r.Pattern)
	match := at.MatchAny
	switch {
	case r.Behavior == "allow":
		match = at.Match
	case walks:
		match = at.MatchTree
	}
	ok, err := match(pattern, name)
	if err != nil {
		t.Errorf("%s(%s): %v", r.Tool, r.Pattern, err)
	}
	return ok
}

func noLinks(string) (string, error) { return "", os.ErrInvalid }

func TestFileRuleAdversarial(t *testing.T) {
	at := Place{Cwd: "/work", Home: "/home/u", Dirs: []string{"/work"}, Readlink: noLinks}
	for _, r := range casetest.Rows[fileRule](t, "file_rule_adversarial.jsonl") {
		if got := r.judge(t, at); got != *r.ExpectMatch {
			t.Errorf("%s %s(%s) %+v: match %v: %s", r.Behavior, r.Tool, r.Pattern, r.Input, got, r.Reason)
		}
	}
}

func TestFileRuleMatch(t *testing.T) {
	at := Place{Cwd: "/work", Home: "/home/u", Readlink: noLinks}
	deviations := casetest.LoadDeviations(t, "deviations_file_rule_match.json")
	for _, r := range casetest.Rows[fileRule](t, "file_rule_match.jsonl") {
		if r.Pattern == "" {
			continue // package permission judges rules without a pattern
		}
		for _, b := range []string{"allow", "deny"} {
			r.Behavior = b
			got := r.judge(t, at)
			key := b + " " + r.Pattern + " " + r.Input.FilePath + r.Input.Path + " " + r.Input.Pattern
			if got != r.Match && !deviations.Allowed(key) {
				t.Errorf("%q: match %v, upstream %v", key, got, r.Match)
			}
		}
	}
}

// TestLinks checks that a link inside the working directory is treated as its target.
func TestLinks(t *testing.T) {
	tmp := t.TempDir()
	work := filepath.Join(tmp, "work")
	for _, dir := range []string{"work/src", "work/.git/hooks", "out"} {
		if err := os.MkdirAll(filepath.Join(tmp, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"work/hooks": ".git/hooks", "work/out": "../out", "work/loop": "loop", "work/in": "src", "alias": "work", "work/file": "../out/a",
	} {
		if err := os.Symlink(target, filepath.Join(tmp, link)); err != nil {
			t.Fatal(err)
		}
	}
	at := Place{Cwd: work, Home: "/home/u", Dirs: []string{work}}
	inside := map[string]bool{
		"src/a": true, "in/a": true, "out/a": false, "out": false, "loop/a": false, "in/../../x": false,
		"in/../x": true, "out/../work/x": true, "../alias/x": true, ".": true, "..": false, "new/deep/x": true, "": false,
		"new/../out/a": false, "new/deep/../../in/a": true, "new/deep/../out/a": true,
	}
	for name, want := range inside {
		if got := at.Inside(name); got != want {
			t.Errorf("Inside(%q) = %v, real path %q", name, got, at.Real(name))
		}
	}
	if (Protected{}).Hit(at, "hooks/pre-commit") == "" {
		t.Error("a link to .git/hooks is not protected")
	}
	// A missing directory may be created before the path is used.
	for _, name := range []string{"new/../hooks/pre-commit", "new/deep/../../hooks/pre-commit", work + "/new/./../hooks/x"} {
		if (Protected{}).Hit(at, name) == "" {
			t.Errorf("%s hides a link to .git/hooks: %s", name, at.Real(name))
		}
	}
	if ok, _ := at.MatchAny(filepath.Join(tmp, "out")+"/**", "new/../out/a"); !ok {
		t.Error("a deny rule does not see through a link behind a missing directory")
	}
	if ok, _ := at.MatchAny(filepath.Join(tmp, "out")+"/**", "out/a"); !ok {
		t.Error("a deny rule does not see through a link")
	}
	if ok, _ := at.Match("**", "out/a"); ok {
		t.Error("an allow rule follows a link out of its tree")
	}
	for _, swapped := range []string{"out/**", work + "/out/**", filepath.Join(tmp, "alias/out/**")} { // the model may have made the link
		if ok, _ := at.Match(swapped, "out/a"); ok {
			t.Errorf("%s allows what a link leads to", swapped)
		}
	}
	for _, name := range []string{"out/a", work + "/out/a", filepath.Join(tmp, "alias/out/a"), "../alias/src/a", "in/a", "file"} {
		if pattern := at.Suggest(name); pattern == "" {
			t.Errorf("nothing is suggested for %s", name)
		} else if ok, err := at.Match(pattern, name); !ok || err != nil {
			t.Errorf("Suggest(%q) = %q does not cover it: %v", name, pattern, err)
		}
	}
	if ok, _ := at.Match(filepath.Join(tmp, "alias")+"/**", filepath.Join(tmp, "alias", "src", "a")); !ok {
		t.Error("an allow rule for a linked directory does not cover what is below it")
	}
}

// TestCoveredBy checks which paths, and which whole directories, the globs of a rule cover.
func TestCoveredBy(t *testing.T) {
	at := Place{Cwd: "/w", Home: "/home/u", Dirs: []string{"/w"}, Readlink: func(name string) (string, error) {
		if name == "/w/link" {
			return "secret", nil
		}
		return "", os.ErrInvalid
	}}
	for _, row := range []struct {
		pattern, path string
		covered, tree bool
	}{
		{"secret/**", "/w/secret/a/b", true, true}, {"secret/**", "/w/secret", true, true}, {"secret/", "/w/secret/a", true, true},
		{"secret/**", "/w/secrets", false, false}, {"secret/**", "/w", false, false},
		{"link/**", "/w/secret/a", true, true}, {"link/**", "/w/link/a", true, true},
		{"secret/*", "/w/secret/a", true, false}, {"secret/*", "/w/secret/a/b", false, false}, {"secret", "/w/secret", true, true},
		{"*.pem", "/w/a/b.pem", true, false}, {"*.pem", "/w/a/b.pemx", false, false}, {"**/deep/**", "/w/a/deep/b", true, true},
		{"/**", "/w", true, true}, {"~/**", "/home/u/a", true, true}, {"[id]/**", "/w/[id]/a", true, true},
		{"secret", "/w/x/secret/a", true, true}, {"./secret", "/w/secret/a", true, true}, {"x/secret", "/w/x/secret/a/b", true, true},
		{"/srv/[id]", "/srv/[id]/a", true, true}, {"/srv/[id]", "/srv/i/a", false, false}, {"~", "/home/u/a", true, true}, {"a.pem", "/w/a.pem", true, true},
		{"a[!b]c", "/w/a/c", false, false}, {"a[^b]c", "/w/axc", true, false}, {`a\[!b]`, "/w/a[!b]", true, true}, {"src{/a,/b}", "/w/src/b", true, true},
		{"x{~,}", "/w/x~", true, false}, {"[[...s]]/a", "/w/[[...s]]/a", true, true},
	} {
		globs, err := at.DenyGlobs(row.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := CoveredBy(globs, row.path); got != row.covered {
			t.Errorf("%s covers %s: %v, want %v (%q)", row.pattern, row.path, got, row.covered, globs)
		}
		if got := TreeCoveredBy(globs, row.path); got != row.tree {
			t.Errorf("%s covers all of %s: %v, want %v (%q)", row.pattern, row.path, got, row.tree, globs)
		}
		if any, err := at.MatchAny(row.pattern, row.path); err != nil || any != row.covered {
			t.Errorf("%s: MatchAny says %v of %s", row.pattern, any, row.path)
		}
	}
	if _, err := at.Globs("["); err == nil {
		t.Error("no error for a pattern that is invalid")
	}
}

func TestPatternErrors(t *testing.T) {
	at := Place{Cwd: "/work"}
	for _, p := range []string{"", " ", "a[", "{a", `a\`, "a*/../b", "~/x", "a\x00",
		"{/etc/**,secret/**}", "{secret,~/secret}/**", "{./a,b}", "{a,../b}/**", "{a,b/../c}", "a/{b,..}", "a/{b,/c}", "{{/a,b},c}",
		"[[:alpha:]]", "a[b[:digit:]]", "[[=a=]]", "[[.a.]]", "[a/b]"} {
		if ok, err := at.Match(p, "/work/a"); ok || err == nil {
			t.Errorf("Match(%q) = %v, %v", p, ok, err)
		}
		if ok, err := at.MatchAny(p, "/work/a"); !ok || err == nil {
			t.Errorf("MatchAny(%q) = %v, %v", p, ok, err)
		}
	}
}

func TestGuardAndSecrets(t *testing.T) {
	at := Place{Cwd: "/p", Home: "/home/u", Readlink: noLinks}
	g := Protected{Files: []string{"Secrets.yaml"}, Dirs: []string{".deploy"}}
	for name, want := range map[string]bool{
		"a/secrets.YAML": true, ".deploy/x": true, "deploy/x": false, "/dev/null": false, "/dev/sda": true,
		".svn/wc.db": true, ".jj/repo/x": true, "~/.cargo/env": true, "~/.cargo/environment": false, "~/.gem/credentials": true,
		"~/.vault-token": true, "/var/spool/at/x": true, ".devcontainer/devcontainer.json": true, ".devcontainer.json": true, ".zed/settings.json": true,
	} {
		if got := g.Hit(at, name) != ""; got != want {
			t.Errorf("Hit(%q) = %v", name, got)
		}
	}
	for name, want := range map[string]bool{
		".env": true, ".env.example": false, "~/.ssh/id_work": true, "~/.ssh/id_work.pub": false,
		"~/.aws/credentials": true, "/proc/self/environ": true, "main.go": false, "~/.bashrc": false,
	} {
		if got := at.Secret(name) != ""; got != want {
			t.Errorf("Secret(%q) = %v", name, got)
		}
	}
}

// TestSuggestRoundTrip checks that the result of Suggest covers its argument, for any name.
func TestSuggestRoundTrip(t *testing.T) {
	at := Place{Cwd: "/work", Home: "/home/u", Dirs: []string{"/work"}, Readlink: noLinks}
	rapid.Check(t, func(t *rapid.T) {
		segs := rapid.SliceOfN(rapid.StringMatching(`[a-z*?\[\]{}, \\~.]{1,6}`), 1, 4).Draw(t, "segments")
		name := strings.Join(segs, "/")
		if rapid.Bool().Draw(t, "absolute") {
			name = "/" + name
		}
		if strings.HasPrefix(name, "~") {
			return
		}
		pattern := at.Suggest(name)
		if ok, err := at.Match(pattern, name); !ok || err != nil {
			t.Fatalf("Suggest(%q) = %q does not cover it: %v", name, pattern, err)
		}
	})
}

func TestSuggest(t *testing.T) {
	at := Place{Cwd: "/work/sub", Dirs: []string{"/work"}}
	for name, want := range map[string]string{
		"/test.py": "/**", "src/a.go": "sub/src/**", "..": "/**", "../a": "**", "../../a": "/**",
		"/srv/[id]/p": `/srv/\[id\]/**`, "~/x": "~/**", "": "", "/tmp//x": "/tmp/**",
	} {
		if got := at.Suggest(name); got != want {
			t.Errorf("Suggest(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestRuleRows checks patterns and paths in every spelling, in a tree with links: link and [l] lead to
// ../secret, k to ../secret/key, alias to work, loop to itself.
func TestRuleRows(t *testing.T) {
	links := map[string]string{"/r/work/link": "../secret", "/r/work/k": "/r/secret/key", "/r/alias": "work", "/r/work/loop": "loop", "/r/work/[l]": "../secret"}
	at := Place{Cwd: "/r/work", Home: "/root", Dirs: []string{"/r/work"}, Readlink: func(name string) (string, error) {
		if to, ok := links[name]; ok {
			return to, nil
		}
		return "", os.ErrInvalid
	}}
	raw, err := os.ReadFile("testdata/rules.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var row struct {
			Behavior, Pattern, Path string
			Walks, Match            bool
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		match := at.MatchAny
		switch {
		case row.Behavior == "allow":
			match = at.Match
		case row.Walks:
			match = at.MatchTree
		}
		if got, err := match(row.Pattern, row.Path); got != row.Match || err != nil {
			t.Errorf("%s %q, %q: %v, %v", row.Behavior, row.Pattern, row.Path, got, err)
		}
	}
}
