//go:build unix

package skill

import (
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// TestPipes checks that reading never blocks on a pipe.
func TestPipes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "s/SKILL.md", source("s", "x"))
	write(t, dir, "piped/data", "x")
	for _, name := range []string{"s/pipe", "piped/SKILL.md"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	skills, diagnostics := load(t, In(dir))
	if got := lines(diagnostics); !slices.Equal(got, []string{"0 fatal unreadable"}) {
		t.Errorf("got %v", diagnostics)
	}
	if _, err := skills[0].readForModel(t.Context(), "pipe"); err == nil {
		t.Error("a pipe is read")
	}
	if files, err := skills[0].Files(); len(files) != 0 || err != nil {
		t.Errorf("files %v, %v", files, err)
	}
}
