//go:build linux

package sandbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
)

func run(t *testing.T, s sandbox.Spec, dir, script string) (string, int) {
	t.Helper()
	cmd := exec.Command("bash", "--noprofile", "--norc", "-c", script)
	cmd.Dir = dir
	cleanup, err := s.Command(cmd)
	if err != nil {
		t.Fatal(err)
	}
	out, runErr := cmd.CombinedOutput()
	if _, err := cleanup(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, failed := runErr.(*exec.ExitError); runErr != nil && !failed {
		t.Fatal(runErr)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// TestProfiles holds what the profiles differ in.
func TestProfiles(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := func(s string) string { return strings.NewReplacer("@DIR", dir, "@OTHER", other).Replace(s) }
	for _, c := range []struct {
		script     string
		read, work string // the output; "" is an exit code that is not 0
	}{
		{"cat a", "hello\n", "hello\n"},
		{"pwd", "@DIR\n", "@DIR\n"},
		{"cat <(echo sub)", "sub\n", "sub\n"},
		{"echo b 2>/dev/null >b && cat b", "", "b\n"},
		{"touch @OTHER/c 2>/dev/null", "", ""},
		{"echo t >$TMPDIR/t && cat $TMPDIR/t", "t\n", "t\n"},
		{"grep -c . /proc/net/dev; cat /sys/class/net/lo/operstate", "6\nunknown\n", "3\nunknown\n"},
		{"awk '/^Cap/ {print $2}' /proc/self/status | sort -u", "0000000000000000\n", "0000000000000000\n"},
	} {
		for profile, want := range map[permission.Profile]string{permission.ProfileRead: c.read, permission.ProfileWork: c.work} {
			out, code := run(t, sandbox.Spec{Profile: profile, Write: []string{dir}}, dir, script(c.script))
			if want == "" && code == 0 || want != "" && (code != 0 || out != script(want)) {
				t.Errorf("%s: %s: got %q, exit code %d; want %q", profile, c.script, out, code, script(want))
			}
		}
	}
	if names, err := os.ReadDir(other); err != nil || len(names) > 0 {
		t.Errorf("outside: %v, %v", names, err)
	}
}

// BenchmarkTrue compares what a command costs, with and without.
func BenchmarkTrue(b *testing.B) {
	dir := b.TempDir()
	for _, p := range []permission.Profile{permission.ProfileOpen, permission.ProfileRead, permission.ProfileWork} {
		b.Run(string(p), func(b *testing.B) {
			s := sandbox.Spec{Profile: p, Write: []string{dir}}
			for b.Loop() {
				cmd := exec.Command("true")
				cmd.Dir = dir
				cleanup, err := s.Command(cmd)
				if err != nil {
					b.Fatal(err)
				}
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
				if _, err := cleanup(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
