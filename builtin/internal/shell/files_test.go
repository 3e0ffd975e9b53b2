package shell

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// TestFileRules checks that rules for files apply to the files that commands are known to read and write.
func TestFileRules(t *testing.T) {
	home := t.TempDir()
	work := filepath.Join(home, "work")
	write(t, work, map[string]string{"secret/x": "x", "secret/list": "x", "src/main.go": "x", "src/key.pem": "x", "src/deep/z": "x", "a": "x", "README.md": "x", "secrets.md": "x"})
	for link, to := range map[string]string{"link": "secret/x", "dirlink": "secret"} {
		if err := os.Symlink(to, filepath.Join(work, link)); err != nil {
			t.Fatal(err)
		}
	}
	at := pathrule.Place{Cwd: work, Home: home, Dirs: []string{work}}
	for _, row := range rows[struct {
		Rule, Command string
		Reads, Writes *bool
		May           *bool // whether it may read by a name that is only known at run time
		MayWrite      *bool // the same for writing and deleting
	}](t, "filerules.jsonl") {
		a := Analyze(row.Command, at)
		got, err := a.Reads(at, row.Rule)
		if row.Reads != nil && got != *row.Reads || err != nil {
			t.Errorf("%s: %q reads: %v, %v", row.Rule, row.Command, got, err)
		}
		if may := a.MayRead(at, row.Rule); row.May != nil && may != *row.May {
			t.Errorf("%s: %q may read: %v", row.Rule, row.Command, may)
		}
		if may := a.MayWrite(at, row.Rule); row.MayWrite != nil && may != *row.MayWrite {
			t.Errorf("%s: %q may write: %v", row.Rule, row.Command, may)
		}
		got, err = a.Writes(at, row.Rule)
		if row.Writes != nil && got != *row.Writes || err != nil {
			t.Errorf("%s: %q writes: %v, %v", row.Rule, row.Command, got, err)
		}
	}
	a := Analyze("cat x", at)
	for name, f := range map[string]func(pathrule.Place, string) (bool, error){"Reads": a.Reads, "Writes": a.Writes} {
		if got, err := f(at, ""); !got || err == nil {
			t.Errorf("%s with an invalid pattern: %v, %v", name, got, err)
		}
	}
}
