//go:build unix

package builtin

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// BenchmarkGrep searches the tree named by KITBAG_GREP_DIR, by default the Go module cache, and compares with
// rg -j2 if it is installed.
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
			defer reportCPU(b, syscall.RUSAGE_SELF)()
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
			defer reportCPU(b, syscall.RUSAGE_CHILDREN)()
			for b.Loop() {
				cmd := exec.Command("rg", "-j2", "--hidden", "--count", "--no-config", "--no-require-git", "--crlf", "-g!.git", "-e", row.pattern, "--", dir)
				if row.fold {
					cmd.Args = append(cmd.Args[:1:1], append([]string{"-i"}, cmd.Args[1:]...)...)
				}
				cmd.Run() // exit code 1 means no match
			}
		})
	}
}

// reportCPU reports the processor time of the benchmark, which depends less on other processes than the elapsed time.
func reportCPU(b *testing.B, who int) func() {
	cpu := func() int64 {
		var u syscall.Rusage
		syscall.Getrusage(who, &u)
		return u.Utime.Nano() + u.Stime.Nano()
	}
	start := cpu()
	return func() { b.ReportMetric(float64(cpu()-start)/1e6/float64(b.N), "cpu-ms/op") }
}
