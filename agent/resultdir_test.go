package agent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
)

// TestResultDirLinks: links in the directory, or in place of it, do not lead to files outside.
func TestResultDirLinks(t *testing.T) {
	for _, row := range []struct{ name, at, to string }{
		{"a link to a file", "s.results/a.txt", "../../out/a.txt"},
		{"a link to nothing", "s.results/a.txt", "../../out/new"},
		{"an absolute link", "s.results/a.txt", "/out/a.txt"},
		{"a link to a file next to it", "s.results/a.txt", "../.env"},
		{"a link to a folder", "s.results", "../out"},
	} {
		dir := t.TempDir()
		link := filepath.Join(dir, "w", row.at)
		out := filepath.Join(dir, "out")
		to := row.to
		if filepath.IsAbs(to) {
			to = dir + to
		}
		for _, d := range []string{filepath.Dir(link), out} {
			if err := os.MkdirAll(d, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		secrets := []string{filepath.Join(out, "a.txt"), filepath.Join(dir, "w", ".env")}
		for _, file := range secrets {
			if err := os.WriteFile(file, []byte("SECRET"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
		kept := agent.ResultDir(filepath.Join(dir, "w", "s.results"))
		if text, err := kept.Get(t.Context(), "a"); err == nil {
			t.Errorf("%s: Get read %q", row.name, text)
		}
		// Put replaces a link at the file's path.
		if err := kept.Put(t.Context(), "a", "result"); err == nil {
			if text, err := kept.Get(t.Context(), "a"); err != nil || text != "result" {
				t.Errorf("%s: stored %q, %v", row.name, text, err)
			}
		}
		if left, err := os.ReadDir(out); err != nil || len(left) != 1 {
			t.Errorf("%s: outside there is %v, %v", row.name, left, err)
		}
		for _, file := range secrets {
			if data, err := os.ReadFile(file); err != nil || string(data) != "SECRET" {
				t.Errorf("%s: %s contains %q, %v", row.name, file, data, err)
			}
		}
	}
}
