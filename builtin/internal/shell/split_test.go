package shell

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// TestNamesReadAsWords checks commands that read names from a text, in checkouts that have names with white space,
// quotes and wildcards. All need approval but in the place without a name that may hide another one.
func TestNamesReadAsWords(t *testing.T) {
	root := t.TempDir()
	home := filepath.Join(root, "h")
	write(t, home, map[string]string{".ssh/id_rsa": "k"})
	for name, files := range map[string]map[string]string{
		"absolute": {"sub/d " + home + "/.ssh/id_rsa y.txt": "x"},
		"newline":  {"sub/d\n" + home + "/.ssh/id_rsa\ny.txt": "x"},
		"relative": {"x .env y.txt": "x", "sub/x ../.env y.txt": "x", ".env": "k"},
		"quotes":   {"sub/x .e\"n\"v y.txt": "x", ".env": "k"},
		"escape":   {"sub/x .e\\nv y.txt": "x", ".env": "k"},
		"link":     {"x link y.txt": "x", "sub/x link y.txt": "x"},
		"wildcard": {"x .[e]nv y.txt": "x", "sub/x .[e]n? y.txt": "x", ".env": "k"},
		"plain":    {"My file.txt": "x", "sub/[id].txt": "x", "sub/a b/c d.txt": "x", ".env": "k"},
		"rule":     {"sub/e secret/x .txt": "x", "secret/x": "k"},
	} {
		work := filepath.Join(root, name)
		files["sub/a.txt"] = "hi"
		write(t, work, files)
		if name == "link" {
			if err := os.Symlink("../h/.ssh/id_rsa", filepath.Join(work, "link")); err != nil {
				t.Fatal(err)
			}
		}
		at := pathrule.Place{Cwd: work, Home: home, Dirs: []string{work}}
		for _, cmd := range lines(t, "words.txt") {
			a, want := Analyze(cmd, at), name != "plain" && name != "rule"
			if asks(a, at) != want {
				t.Errorf("%s: %q asks: %v (%s)", name, cmd, !want, a.ReadOnly())
			}
			if may := a.MayRead(at, "secret/**"); may != (name == "rule") && !want {
				t.Errorf("%s: %q may read secret/**: %v", name, cmd, may)
			}
		}
		for _, cmd := range lines(t, "whole.txt") {
			if a := Analyze(cmd, at); asks(a, at) {
				t.Errorf("%s: %q asks: %s", name, cmd, a.ReadOnly())
			}
		}
	}
}
