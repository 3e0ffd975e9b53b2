package builtin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// TestBashObeysRulesForFiles checks that deny and ask rules for Read, Write and Edit apply to the files of
// commands, with links and wildcards resolved, in every mode, even if an allow rule covers the command.
func TestBashObeysRulesForFiles(t *testing.T) {
	dir := files(t, map[string]string{"w/a.txt": "a\n", "w/secret/b.txt": "b\n", "out/o": "o\n"})
	w := filepath.Join(dir, "w")
	if err := os.Symlink("secret", filepath.Join(w, "link")); err != nil {
		t.Fatal(err)
	}
	bash := tools(t, Config{Dirs: []string{w}})["Bash"]
	for _, row := range []struct{ rule, command, want string }{
		{"deny Read(secret/**)", "cat a.txt", "allow"},
		{"deny Read(secret/**)", "cat secret/b.txt", "deny"},
		{"deny Read(secret/**)", "cat link/b.txt", "deny"},
		{"deny Read(secret/**)", "cat sec*/b.txt", "deny"},
		{"deny Read(secret/**)", "grep -r b .", "deny"},
		{"deny Read(secret/**)", "echo $(<secret/b.txt)", "deny"},
		{"deny Read(secret/**)", "wc -l < secret/b.txt", "deny"},
		{"deny Read(secret/**)", "cd secret && cat b.txt", "deny"},
		{"deny Read(secret/**)", "echo secret", "allow"},
		{"ask Read(secret/**)", "cat secret/b.txt", "ask"},
		{"ask Read(secret/**)", "cat a.txt", "allow"},
		{"deny Read(secret/**)", "cat ~+/secret/b.txt", "deny"},
		{"deny Read(secret/**)", "for d in *; do cat $d/b.txt; done", "deny"},
		{"deny Read(secret/**)", "find . -name b.txt -exec grep b {} +", "ask"},
		{"deny Read(secret/**)", "find . | xargs cat", "ask"},
		{"ask Read(secret/**)", "ls | while read d; do cat $d/b.txt; done", "ask"},
		{"deny Read(secret/**)", "find . -name 'a*' | xargs cat", "allow"},
		{"deny Read(absent/**)", "find . | xargs cat", "allow"},
		{"deny Read(" + dir + "/out/**)", "cat ../out/o", "deny"},
		{"deny Write(secret/**)", "echo x > secret/b.txt", "deny"},
		{"deny Edit(secret/**)", "rm link/b.txt", "deny"},
		{"deny Edit(secret/**)", "cat secret/b.txt", "allow"},
		{"deny Edit(secret/**)", "find . -name b.txt | xargs rm", "ask"},
		{"deny Write(secret/**)", "while read -r f; do echo x > $f; done < a.txt", "ask"},
		{"ask Edit(secret/**)", "find . -name b.txt | xargs rm", "ask"},
		{"deny Edit(secret/**)", "find . -name 'n*' | xargs rm -f", "allow"},
		{"deny Edit(absent.txt)", "find . -name b.txt | xargs grep b", "allow"},
		{"deny Read(secret/[)", "ls", "deny"}, // an invalid pattern
	} {
		b, text, _ := strings.Cut(row.rule, " ")
		rule, err := permission.ParseRule(text, permission.Behavior(b))
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []permission.Mode{permission.ModeDefault, permission.ModeAcceptEdits, permission.ModeBypass} {
			p := &permission.Policy{Mode: mode, Dirs: []string{w}, Rules: []permission.Rule{rule, {Tool: "Bash", Pattern: "*", Behavior: permission.Allow}}}
			res, d := judged(t.Context(), bash, p, args("command", row.command), nil)
			want := row.want
			if mode == permission.ModeBypass && want == "ask" && b == "deny" { // this mode cannot ask
				want = "deny"
			}
			if got := string(d.Behavior); got != want || (res != nil) != (got == "allow") {
				t.Errorf("%s with %s in %s: %s (%s), want %s", row.command, row.rule, mode, got, d.Reason, want)
			}
		}
	}
}

// TestBashInUntrustedDirectory checks that a read-only command that would run programs of its directory needs
// approval unless the directory is trusted.
func TestBashInUntrustedDirectory(t *testing.T) {
	dir := files(t, map[string]string{".git/HEAD": "ref: refs/heads/main\n", ".git/objects/x": "", ".git/refs/x": "",
		".git/config": "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch PWNED\n[diff]\n\texternal = touch PWNED\n"})
	for _, row := range []struct {
		trusted []string
		want    permission.Behavior
	}{{nil, permission.Ask}, {[]string{dir}, permission.Allow}} {
		bash := tools(t, Config{Dirs: []string{dir}, Trusted: row.trusted})["Bash"]
		_, d := judged(t.Context(), bash, &permission.Policy{Dirs: []string{dir}}, args("command", "git diff"), nil)
		if d.Behavior != row.want {
			t.Errorf("trusted %q: %s (%s), want %s", row.trusted, d.Behavior, d.Reason, row.want)
		}
		if _, err := os.Lstat(filepath.Join(dir, "PWNED")); err == nil {
			t.Errorf("trusted %q: the directory's program ran", row.trusted)
		}
	}
}

// TestBashRulesAreChecked checks that Policy.Check validates the patterns of Bash, whatever the call.
func TestBashRulesAreChecked(t *testing.T) {
	bash := tools(t, Config{Dirs: []string{t.TempDir()}})["Bash"]
	for _, row := range []struct {
		rule     string
		behavior permission.Behavior
		want     string
	}{
		{"Bash(npm run build && npm test)", permission.Allow, "write a rule for each: Bash(npm run build) and Bash(npm test)"},
		{"Bash(npm run build && npm test)", permission.Deny, ""},
		{"Bash(rm:*)", permission.Deny, ""},
		{"Bash(npm test)", permission.Allow, ""},
		{"Bash(:*)", permission.Ask, "would cover everything"},
	} {
		rule, err := permission.ParseRule(row.rule, row.behavior)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		if err := (&permission.Policy{Rules: []permission.Rule{rule}}).Check(tool.AnyCall(bash)); err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, row.want) || row.want == "" && text != "" {
			t.Errorf("%s (%s): %q", row.rule, row.behavior, text)
		}
	}
}
