package shell

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// secretYard returns a project with secrets, and with links to some, in a home directory with more.
func secretYard(t *testing.T) pathrule.Place {
	t.Helper()
	home := t.TempDir()
	work := filepath.Join(home, "project")
	write(t, home, map[string]string{".ssh/id_rsa": "k", ".ssh/work_key": "k", ".ssh/config": "c", ".ssh/id_rsa.pub": "p", ".aws/credentials": "k", ".netrc": "k", ".ssh/sub/x": "k"})
	write(t, work, map[string]string{".env": "KEY=1\n", ".env.example": "KEY=\n", "a": "a\n", "src/main.go": "package main\n", "config/master.key": "k", "sub/b.md": "b\n", "credentials.json": "{}"})
	for link, to := range map[string]string{"link": "../.ssh/id_rsa", "dirlink": "../.ssh", "deeplink": "../.ssh/sub", "notes.txt": "../.aws/credentials", "sub/deep": "../../.netrc", "sub/k": "../../.ssh", "good.md": "sub/b.md"} {
		if err := os.Symlink(to, filepath.Join(work, link)); err != nil {
			t.Fatal(err)
		}
	}
	return pathrule.Place{Cwd: work, Home: home, Dirs: []string{work}}
}

// asks reports whether a command needs approval in default mode.
func asks(a *Analysis, at pathrule.Place) bool {
	return a.ReadOnly() != "" || len(a.Dangers(at, pathrule.Protected{})) > 0
}

// TestSecretsAreAskedAbout checks ways to show a secret. Each needs approval, except those that the package doc
// names.
func TestSecretsAreAskedAbout(t *testing.T) {
	at := secretYard(t)
	all, shown := lines(t, "secrets.txt"), 0
	for _, cmd := range all {
		if !asks(Analyze(cmd, at), at) {
			t.Errorf("%q needs no approval", cmd)
			shown++
		}
	}
	t.Logf("%d of %d shown", shown, len(all))
}

// TestNoSecrets checks commands that show no secret, in the same place.
func TestNoSecrets(t *testing.T) {
	at := secretYard(t)
	for _, cmd := range lines(t, "nosecrets.txt") {
		a := Analyze(cmd, at)
		if asks(a, at) {
			t.Errorf("%q asks: %s %v", cmd, a.ReadOnly(), a.Dangers(at, pathrule.Protected{}))
		}
	}
}

// TestCredentialsInSettings checks commands that show the settings of a repository, with a token in them and without.
func TestCredentialsInSettings(t *testing.T) {
	for _, text := range []string{
		"[http \"https://github.com/\"]\n\textraheader = AUTHORIZATION: basic eDp5\n",
		"[remote \"origin\"]\n\turl = https://user:ghp_abc@github.com/a/b\n",
		"[remote \"origin\"]\n\turl = https://github.com/a/b\n",
	} {
		work := t.TempDir()
		write(t, work, map[string]string{".git/config": text, ".git/HEAD": "ref: refs/heads/main\n", "a.txt": "a", "src/b.txt": "b"})
		at := pathrule.Place{Cwd: work, Home: "/home/u", Dirs: []string{work}}
		for _, cmd := range []string{
			"cat .git/config", "head .git/config", "grep -n url .git/config", "grep -r extraheader .git", "sed -n p .git/config", "awk 1 .git/config", "less .git/config",
			"strings .git/config", "cat .git/*", "cat < .git/config", "diff .git/config a.txt", "find . -name config -exec cat {} +", "find . -name 'conf*' | xargs cat",
			"cd .git && cat config", "for f in .git/*; do cat $f; done", "d=.git; cat $d/con*", "d=$(echo .git); cat $d/config", "ls .git/* | xargs cat", "grep -r url .",
			"cat src/../.git/config", "f=$(ls .git/config); cat $f",
		} {
			if a := Analyze(cmd, at); asks(a, at) != strings.Contains(text, "basic") && asks(a, at) != strings.Contains(text, "ghp") {
				t.Errorf("%q asks: %v with %q: %s", cmd, asks(a, at), text, a.ReadOnly())
			}
		}
	}
}

// TestTopOfWorkTree checks that a secret at the top of a work tree is found from a directory below.
func TestTopOfWorkTree(t *testing.T) {
	work := t.TempDir()
	write(t, work, map[string]string{".git/HEAD": "ref: refs/heads/main\n", ".git/config": "", "credentials.json": "{}", "src/b.txt": "b"})
	at := pathrule.Place{Cwd: filepath.Join(work, "src"), Home: "/home/u", Dirs: []string{work}}
	for _, cmd := range []string{`grep -r x "$(git rev-parse --show-toplevel)"`, `cat "$(git rev-parse --show-toplevel)"/*`, `for f in "$(git rev-parse --show-toplevel)"/*.json; do cat "$f"; done`} {
		if a := Analyze(cmd, at); !asks(a, at) {
			t.Errorf("%q needs no approval", cmd)
		}
	}
}
