package shell

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// TestTrackedFiles: a rule for a file covers what git shows of it without its name, in every
// version of the index.
func TestTrackedFiles(t *testing.T) {
	for _, version := range []string{"2", "3", "4"} {
		work := t.TempDir()
		write(t, work, map[string]string{"secret/x": "x", "secret/very/long/name/of/a/file": "x", "src/main.go": "x", "untracked/k": "x"})
		git := func(args ...string) {
			t.Helper()
			cmd := exec.Command("git", append([]string{"-c", "index.version=" + version}, args...)...)
			cmd.Dir = work
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		git("init", "-q")
		git("add", "secret", "src")
		if version == "3" {
			write(t, work, map[string]string{"later": "x"})
			git("add", "-N", "later") // which needs the flags of version 3
		}
		at := pathrule.Place{Cwd: filepath.Join(work, "src"), Home: t.TempDir(), Dirs: []string{work}}
		var sh Analyzer
		for command, want := range map[string]bool{
			"git diff": true, "git diff HEAD~1": true, "git show": true, "git log -p": true, "git log -U3": true, "git stash show -p": true, "git --no-pager diff": true, "git diff --stat -p": true,
			"git diff --stat": false, "git log": false, "git log --oneline": false, "git stash show": false, "git diff -- main.go": false, "git diff main.go": false, "git show --name-only": false, "git status": false, "git -C .. diff": true,
		} {
			a := sh.Analyze(command, at)
			for rule, covers := range map[string]bool{"secret/**": true, "secret/very/**": true, "src/main.go": true, "untracked/**": false, "none": false} {
				if rule == "src/main.go" && strings.Contains(command, "main.go") {
					continue // it is named
				}
				if got := a.MayRead(at, rule); got != (want && covers) {
					t.Errorf("version %s, %s: %q may read: %v", version, rule, command, got)
				}
			}
		}
	}
	for _, c := range []struct {
		init, index string
		want        bool
	}{
		{"--object-format=sha256", "", true}, {"--object-format=sha1", "--split-index", true}, {"--object-format=sha1", "", false},
	} {
		work := t.TempDir()
		write(t, work, map[string]string{"x": "x"})
		script := "git init -q " + c.init + " && git add x"
		if c.index != "" {
			script += " && git update-index " + c.index
		}
		cmd := exec.Command("sh", "-ec", script)
		cmd.Dir = work
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %s", script, out)
		}
		at := pathrule.Place{Cwd: work, Dirs: []string{work}}
		if got := new(Analyzer).Analyze("git diff", at).MayRead(at, "secret"); got != c.want {
			t.Errorf("%s: an index that cannot be read: %v", script, got)
		}
	}
	for _, bad := range []string{"", "DIRC", "DIRC\x00\x00\x00\x02\x00\x00\x00\x01", "DIRC\x00\x00\x00\x05\x00\x00\x00\x00", "DIRC\x00\x00\x00\x04\x00\x00\x00\x01" + strings.Repeat("\xff", 70)} {
		if eachTracked([]byte(bad), func(string) {}) {
			t.Errorf("%q is an index", bad)
		}
	}
}
