package builtin

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// TestDenyRulesConfined runs commands whose files cannot be known in advance, in mode sandboxed: they must not
// read or change what a deny rule for a file tool covers.
func TestDenyRulesConfined(t *testing.T) {
	dir := files(t, map[string]string{"data/x": "GUARDED\n", "a/b.pem": "GUARDED\n", "[id]/x": "GUARDED\n", "lock": "l\n", "gen/x": "l\n", "free": "free\n", "priv/deep/x": "GUARDED\n"})
	if err := os.Symlink("../a/b.pem", filepath.Join(dir, "gen/link")); err != nil {
		t.Fatal(err)
	}
	bash := tools(t, Config{Dirs: []string{dir}})["Bash"]
	policy := &permission.Policy{Mode: permission.ModeSandboxed, Dirs: []string{dir}}
	for _, text := range []string{"Read(data/**)", "Read(*.pem)", "Read([id]/x)", "Read(priv)", "Edit(lock)", "Write(gen/**)"} {
		r, err := permission.ParseRule(text, permission.Deny)
		if err != nil {
			t.Fatal(err)
		}
		policy.Rules = append(policy.Rules, r)
	}
	run := func(code string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "run.sh"), []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		in := args("command", "bash ./run.sh")
		d := permission.Decide(policy, tool.PermissionCall(bash, json.RawMessage(in)))
		if d.Behavior != permission.Allow || d.Judgement.Profile != permission.ProfileWork {
			t.Fatalf("%s in %q, want allow in work", d.Behavior, d.Judgement.Profile)
		}
		return runApproved(bash, d, in).Text()
	}
	for _, code := range []string{
		"cat data/x", "cat a/b.pem", "cat gen/link", "cat '[id]/x'", "cat priv/deep/x", "mv data d && cat d/x", "cp -r data d; cat d/x", "ln a/b.pem c; cat c",
	} {
		if got := run(code); strings.Contains(got, "GUARDED") {
			t.Errorf("%s reads what a rule denies: %s", code, got)
		}
	}
	for _, code := range []string{"echo x >> lock", "rm -f lock", "mv lock l", "echo x > gen/x", "touch gen/new", "mv gen g"} {
		run(code)
		if got := content(t, filepath.Join(dir, "lock")) + content(t, filepath.Join(dir, "gen/x")); got != "l\nl\n" {
			t.Fatalf("%s changed what a rule denies: %q", code, got)
		}
		if _, err := os.Lstat(filepath.Join(dir, "gen/new")); err == nil {
			t.Fatalf("%s made what a rule denies", code)
		}
	}
	if got := run("cat free && echo more > free && cat free"); got != "free\nmore\n" {
		t.Errorf("a file that no rule covers: %q", got)
	}
}

// TestCovered checks which paths patterns cover.
func TestCovered(t *testing.T) {
	dir := files(t, map[string]string{"a/x.pem": "", "a/y": "", "b/c/x.pem": "", "node_modules/z.pem": ""})
	for _, row := range []struct {
		globs, want string
		inside      string // the writable directory; "" for all of D
	}{
		{"/D/a/**", "/D/a", ""},
		{"/D/none", "/D/none", ""},
		{"/**/*.pem", "/D/a/x.pem /D/b/c/x.pem /D/node_modules/z.pem", ""},
		{"/D/*/x.pem", "/D/a/x.pem", ""},
		{"/D/**", "/D", ""},
		{"/**", "/D", ""},
		{"/D/*", "", ""},
		{"/D/a/** /D/b/**/x.pem", "/D/a /D/b/c/x.pem", ""},
		{"", "", ""},
		{"/D/b/**/*.pem", "/D/b/c/x.pem", "a"},
		{"/D/**/*.pem", "/D/a/x.pem", "a"},
		{"/D/b/**", "/D/b", "a"},
	} {
		dirs := []string{dir}
		if row.inside != "" {
			dirs[0] = filepath.Join(dir, row.inside)
		}
		got, err := coveredPaths(t.Context(), strings.Fields(strings.ReplaceAll(row.globs, "/D", dir)), dirs)
		slices.Sort(got)
		if text := strings.ReplaceAll(strings.Join(slices.Compact(got), " "), dir, "/D"); err != nil || text != row.want {
			t.Errorf("%s: %q, want %q", row.globs, text, row.want)
		}
	}
}
