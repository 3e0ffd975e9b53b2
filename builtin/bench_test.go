package builtin

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// BenchmarkGrep searches the tree named by KITBAG_GREP_DIR, by default the Go
// module cache, beside rg -j2 where that is installed.
func BenchmarkGrep(b *testing.B) {
	dir := os.Getenv("KITBAG_GREP_DIR")
	if dir == "" {
		out, err := exec.Command("go", "env", "GOMODCACHE").Output()
		if err != nil {
			b.Fatal(err)
		}
		dir = strings.TrimSpace(string(out))
	}
	tl, err := Grep(Config{Dirs: []string{dir}})
	if err != nil {
		b.Fatal(err)
	}
	for _, row := range []struct {
		name, pattern string
		fold          bool
	}{
		{"rare literal", "WriteHeaderNow", false},
		{"common literal", "context.Context", false},
		{"regexp with literal", `\bfunc\s+(\w+)Reader\(`, false},
		{"literal, any case", "withtimeoutcause", true},
		{"no literal", `[A-Z][a-z]+[0-9]{4}\b`, false},
	} {
		b.Run(row.name+"/kitbag", func(b *testing.B) {
			for b.Loop() {
				if res := call(b.Context(), tl, args("pattern", row.pattern, "i", row.fold, "output_mode", "count", "head_limit", 0)); res.Outcome != "success" {
					b.Fatal(res.Text())
				}
			}
		})
		if _, err := exec.LookPath("rg"); err != nil {
			continue
		}
		b.Run(row.name+"/rg", func(b *testing.B) {
			for b.Loop() {
				cmd := exec.Command("rg", "-j2", "--hidden", "--count", "--no-config", "--no-require-git", "--crlf", "-g!.git", "-e", row.pattern, "--", dir)
				if row.fold {
					cmd.Args = append(cmd.Args[:1:1], append([]string{"-i"}, cmd.Args[1:]...)...)
				}
				cmd.Run() // exit code 1: nothing found
			}
		})
	}
}
