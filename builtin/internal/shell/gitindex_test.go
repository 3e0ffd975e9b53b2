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
		for command, want := range map[string]bool{
			"git diff": true, "git diff HEAD~1": true, "git show": true, "git log -p": true, "git log -U3": true, "git stash show -p": true, "git --no-pager diff": true, "git diff --stat -p": true,
			"git diff --stat": false, "git log": false, "git log --oneline": false, "git stash show": false, "git diff -- main.go": false, "git diff main.go": false, "git show --name-only": false, "git remote show": false, "git notes show": false, "git status": false, "git -C .. diff": true, `git log "$x"`: true, `git log --"$x"`: true,
		} {
			a := Analyze(command, at)
			past := command != "git diff" && command != "git diff --stat -p" && command != "git --no-pager diff" && command != "git -C .. diff"
			for rule, covers := range map[string]bool{"secret/**": true, "secret/very/**": true, "src/main.go": true, "untracked/**": past, "none": past, "~/x": false, "/etc/**": false} {
				if rule == "src/main.go" && strings.Contains(command, "main.go") {
					continue // it is named
				}
				if got := a.MayRead(at, rule); got != (want && covers) {
					t.Errorf("version %s, %s: %q may read: %v", version, rule, command, got)
				}
			}
		}
	}
	secretsInIndex(t)
	at := pathrule.Place{Cwd: t.TempDir()}
	for _, command := range []string{"cd $(cat f) && git diff", `git -C "$x" diff`, "git --git-dir=../x/.git diff", "git --git-dir ../x/.git --work-tree ../x log -p"} {
		if !Analyze(command, at).MayRead(at, "secret") {
			t.Errorf("%q in an unknown directory may read no file", command)
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
		if got := Analyze("git diff", at).MayRead(at, "secret"); got != c.want {
			t.Errorf("%s: an index that cannot be read: %v", script, got)
		}
	}
	for _, bad := range []string{"", "DIRC", "DIRC\x00\x00\x00\x02\x00\x00\x00\x01", "DIRC\x00\x00\x00\x05\x00\x00\x00\x00", "DIRC\x00\x00\x00\x04\x00\x00\x00\x01" + strings.Repeat("\xff", 70)} {
		if eachTracked([]byte(bad), func(string) {}) {
			t.Errorf("%q is an index", bad)
		}
	}
}

// secretsInIndex: changes in a tracked file with credentials are shown only with approval.
func secretsInIndex(t *testing.T) {
	t.Helper()
	work := t.TempDir()
	write(t, work, map[string]string{"config/master.key": "k", "testdata/server.key": "k", ".npmrc": "x", "main.go": "x"})
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = work
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	git("init", "-q")
	git("add", "testdata", ".npmrc", "main.go")
	at := pathrule.Place{Cwd: work, Home: t.TempDir(), Dirs: []string{work}}
	check := func(want bool, commands ...string) {
		t.Helper()
		for _, command := range commands {
			if a := Analyze(command, at); asks(a, at) != want {
				t.Errorf("%q asks: %v: %s", command, asks(a, at), a.ReadOnly())
			}
		}
	}
	shown := []string{"git diff", "git show", "git log -p", "git diff HEAD~1", "git -C . log -p -1", "git stash show -p", "cd / && git -C " + work + " show",
		"git log -p -- .", "git log -p -- ':/'", "git show HEAD -- ':!main.go'", "git diff -- '*key'", "git diff .", "git log -p config", "git log -p -- testdata/..", "git log -wp", "git log --binary", "git log --remerge-diff",
		"git log --patch-with-raw", "git reflog -p", "git status -v", "git status -vv", "git grep k", "git grep k HEAD", "git grep k -- config", "git grep '' -- ':!main.go'", "git grep --cached k", "git --icase-pathspecs log -p -- CONFIG",
		"git log --oneline -p -- conf*", "git log -p -- " + work, "git diff HEAD -- ./config", "git -C config log -p -- .", "git log -p -- testdata config", "git log --format=%h -5 | while read h; do git show $h; done",
		"git show :/initial", "git show HEAD:main.go HEAD~1", "git log -p --encoding main.go", "git log -p --exclude main.go --all", "git show --encoding main.go HEAD~1", "git grep -h -e main.go -e k",
		"git log -p --full-diff main.go", "git log -p --stdin main.go <<< HEAD", "git -C . log -p -C HEAD", "git diff --check HEAD~1", "git stash show --word-diff", "git stash show -w", "git stash show -M stash@{0}", "git stash show --color"}
	named := []string{"git diff --stat", "git log", "git show --stat", "git diff -- main.go", "git log -p -- main.go", "git status", "git log -p -- testdata", "git diff testdata main.go", "git grep -l k", "git grep k -- testdata", "git grep k main.go", "git log -5", "git log -n5 --stat", "git log -Sp", "git reflog",
		"git stash show --stat -w", "git stash list -5", "git stash show stash@{0}", "git remote show", "git notes show", "git notes show HEAD", "git remote show -n origin", "git branch --show-current", "git show-ref"}
	check(false, append(shown, named...)...)
	git("add", "config")
	check(true, shown...)
	check(false, named...)
}

// Settings of git are shown without approval unless they have credentials.
func TestGitSettings(t *testing.T) {
	show := []string{"git config --list", "git config -l --show-origin", "git config --get-regexp remote", "git remote -v", "git remote get-url origin", "git remote show -n origin", "git config remote.origin.url",
		"git config --get remote.origin.url", "git config list", "git config get --all remote.origin.url", "git var -l", "git -C . remote -v", "cd src && git remote -v"}
	never := []string{"git config --get-all http.https://github.com/.extraheader", "git config http.extraheader", "git config --get sendemail.smtppass", "git config get x.token", "git config x.mySecret", "git credential fill"}
	always := []string{"git config user.name", "git config --get user.email", "git remote", "git config -l --name-only", "git config --get-all remote.origin.fetch"}
	for config, credentials := range map[string]bool{
		"[remote \"origin\"]\n\turl = https://github.com/o/r\n[user]\n\tname = u\n":                            false,
		"[remote \"origin\"]\n\turl = git@github.com:o/r\n":                                                    false,
		"[remote \"origin\"]\n\turl = https://u:pw@github.com/o/r\n":                                           true,
		"[remote \"origin\"]\n\turl = https://ghp_aaaaaaaaaaaaaaaaaaaaaaaa@github.com/o/r\n":                   true,
		"[http \"https://github.com/\"]\n\textraheader = AUTHORIZATION: basic eA==\n":                          true,
		"[includeIf \"gitdir:/\"]\n\tpath = ../included # too\n":                                               true,
		"[sendemail]\n\tsmtpPass = x\n":                                                                        true,
		"[core]\n\tbare = false\n[url \"https://x-access-token:y@github.com/\"]\n\tinsteadOf = ssh://github\n": true,
	} {
		work := t.TempDir()
		write(t, work, map[string]string{".git/HEAD": "ref: refs/heads/main\n", ".git/config": config, "src/a": "x", "included": "[sendemail]\n\tsmtpPass = x\n"})
		at := pathrule.Place{Cwd: work, Home: t.TempDir(), Dirs: []string{work}, Trusted: []string{work}}
		for _, command := range show {
			if a := Analyze(command, at); asks(a, at) != credentials {
				t.Errorf("%q: %q asks: %v: %s", config, command, asks(a, at), a.ReadOnly())
			}
		}
		for _, command := range never {
			if a := Analyze(command, at); !asks(a, at) {
				t.Errorf("%q needs no approval", command)
			}
		}
		for _, command := range always {
			if a := Analyze(command, at); asks(a, at) {
				t.Errorf("%q: %q asks: %s", config, command, a.ReadOnly())
			}
		}
	}
}
