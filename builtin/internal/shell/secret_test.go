package shell

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// secretYard returns a project with secrets, and with links to some, in a home directory with more.
func secretYard(t *testing.T) pathrule.Place {
	t.Helper()
	home := t.TempDir()
	work := filepath.Join(home, "project")
	write(t, home, map[string]string{".ssh/id_rsa": "k", ".ssh/work_key": "k", ".ssh/config": "c", ".ssh/id_rsa.pub": "p", ".aws/credentials": "k", ".netrc": "k"})
	write(t, work, map[string]string{".env": "KEY=1\n", ".env.example": "KEY=\n", "a": "a\n", "src/main.go": "package main\n", "config/master.key": "k", "sub/b.md": "b\n", "credentials.json": "{}"})
	for link, to := range map[string]string{"link": "../.ssh/id_rsa", "dirlink": "../.ssh", "notes.txt": "../.aws/credentials", "sub/deep": "../../.netrc", "good.md": "sub/b.md"} {
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
	var sh Analyzer
	all, shown := lines(t, "secrets.txt"), 0
	for _, cmd := range all {
		if !asks(sh.Analyze(cmd, at), at) {
			t.Errorf("%q needs no approval", cmd)
			shown++
		}
	}
	t.Logf("%d of %d shown", shown, len(all))
}

// TestNoSecrets checks commands that show no secret, in the same place.
func TestNoSecrets(t *testing.T) {
	at := secretYard(t)
	var sh Analyzer
	for _, cmd := range lines(t, "nosecrets.txt") {
		a := sh.Analyze(cmd, at)
		if asks(a, at) {
			t.Errorf("%q asks: %s %v", cmd, a.ReadOnly(), a.Dangers(at, pathrule.Protected{}))
		}
	}
}
