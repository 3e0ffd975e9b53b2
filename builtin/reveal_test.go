package builtin

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
)

// TestLocalSpec checks what settings add to the lists of paths, and remove from them. A revealed path stays
// read-only.
func TestLocalSpec(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{".env", "a/.env", "ab/.env", ".git/config", "notes"} {
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a", at("link")); err != nil {
		t.Fatal(err)
	}
	more := sandbox.Spec{Protect: []string{at("vendor")}, Hide: []string{at("notes")}, Scratch: []string{at("cache")}}
	for _, c := range []struct {
		reveal, hidden []string
	}{
		{nil, []string{".env", "a/.env", "ab/.env", "notes"}},
		{[]string{"a"}, []string{".env", "ab/.env", "notes"}},
		{[]string{"a/"}, []string{".env", "ab/.env", "notes"}},
		{[]string{"link"}, []string{".env", "ab/.env", "notes"}},
		{[]string{".env", "notes"}, []string{"a/.env", "ab/.env"}},
		{[]string{"."}, nil},
	} {
		l := &Local{Dirs: []string{dir}, Sandbox: more}
		for _, name := range c.reveal {
			l.Reveal = append(l.Reveal, dir+"/"+name)
		}
		s, err := l.Spec(permission.ProfileWork)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{".env", "a/.env", "ab/.env", "notes"} {
			if got := slices.Contains(s.Hide, at(name)); got != slices.Contains(c.hidden, name) || got == slices.Contains(s.Protect, at(name)) {
				t.Errorf("reveal %q: %s is hidden: %t; it must be either hidden or protected", c.reveal, name, got)
			}
		}
		if !slices.Contains(s.Protect, at("vendor")) || !slices.Contains(s.Protect, at(".git/config")) || !slices.Contains(s.Scratch, at("cache")) {
			t.Errorf("protected %q, caches %q", s.Protect, s.Scratch)
		}
	}
}
