package shell

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// TestLinksGetOtherNames checks links that exist on disk and get other names in the line.
func TestLinksGetOtherNames(t *testing.T) {
	work := t.TempDir()
	if err := os.Mkdir(filepath.Join(work, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"rc": "/home/u/.bashrc", "dir/rc": "/home/u/.bashrc", "dir/in": "file", "key": "/home/u/.ssh/id_rsa"} {
		if err := os.Symlink(target, filepath.Join(work, link)); err != nil {
			t.Fatal(err)
		}
	}
	at := pathrule.Place{Cwd: work, Home: "/home/u", Dirs: []string{work}}
	for cmd, want := range map[string]bool{
		"cp -P rc b && echo x > b":               true,
		"cp -a dir d && echo x > d/rc":           true,
		"cp -a dir d && echo x > d/in":           false,
		"cp rc b && echo x > b":                  false, // a separate file
		"ln rc b && echo x > b":                  true,
		"ln -s dir d && echo x > d/rc":           true,
		"ln -s dir d && echo x > d/in":           false,
		"mv dir d; echo x > d/rc":                true,
		"mv dir d; mv d e; echo x > e/rc":        true,
		"cp -P key b && cat b":                   true,
		"cp -P key b && ls -l b":                 false,
		"echo x > b":                             false,
		"mkdir -p d/e && ln rc d/e/b; tee d/e/b": true,

		"cd .git; ln config " + work + "/l; echo x > " + work + "/l": true,
	} {
		if got := len(Analyze(cmd, at).Dangers(at, pathrule.Protected{})) > 0; got != want {
			t.Errorf("%q: alarm %v", cmd, got)
		}
	}
}

// TestLinksWhereCopiesLand checks that a copy into a directory writes through a link of the same name.
func TestLinksWhereCopiesLand(t *testing.T) {
	work := t.TempDir()
	for _, dir := range []string{"src", "dst", ".git/hooks"} {
		if err := os.MkdirAll(filepath.Join(work, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"dst/out": "/var/tmp/x", "dst/hook": "../.git/hooks/pre-commit", "dst/in": "../src/in"} {
		if err := os.Symlink(target, filepath.Join(work, link)); err != nil {
			t.Fatal(err)
		}
	}
	at := pathrule.Place{Cwd: work, Home: "/home/u", Dirs: []string{work}}
	for _, c := range []struct {
		cmd           string
		edits, alarms bool
	}{
		{"cp src/a dst", true, false},
		{"cp src/in dst", true, false},
		{"cp src/out dst", false, false},
		{"cp src/a src/out dst/", false, false},
		{"cp -t dst src/out", false, false},
		{"cp src/hook dst", true, true},
		{"cp src/hook dst/hook2", true, false},
		{"install src/hook dst", false, true},
		{"cd dst && cp ../src/hook .", true, true},
		{"cp src/.bashrc dst/", true, true},
		{"mv src/.bashrc dst/", true, true},
		{"cp src/.bashrc dst/bashrc", true, false},
	} {
		a := Analyze(c.cmd, at)
		if got := a.EditsInside(at); got != c.edits {
			t.Errorf("%q: edits inside: %v", c.cmd, got)
		}
		if got := len(a.Dangers(at, pathrule.Protected{})) > 0; got != c.alarms {
			t.Errorf("%q: alarm %v", c.cmd, got)
		}
	}
}
