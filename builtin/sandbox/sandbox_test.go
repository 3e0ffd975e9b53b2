//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
)

// A row is a command of rows.jsonl and what it prints in each profile, without the spaces at
// the end. With "!" in front it fails, and prints that among other things.
type row struct {
	About, Run, Read, Work string
	Code                   int // unless 0, the exit code of a command that fails
}

// A world is a directory that is granted, with what there may be in one, and what is beside.
type world struct{ work, other, home string }

func newWorld(t testing.TB) world {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	// Not in /tmp: what is there is not visible in the profile work.
	w := world{work: filepath.Join(t.TempDir(), "work"), other: t.TempDir()}
	if w.home, err = os.MkdirTemp(home, ".kitbag-test-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(w.home) })
	for name, text := range map[string]string{
		w.work + "/a": "hello\n", w.work + "/.env": "KEY=secret\n", w.work + "/sub/deep/.env": "KEY=secret\n", w.work + "/vault/in/key": "secret\n", w.work + "/vault/b": "secret\n", w.work + "/kitbag.json": "{}\n", w.work + "/.git/hooks/pre-commit": "exit\n",
		w.work + "/.git/config": "[core]\n", w.work + "/editor/settings": "{}\n",
		w.other + "/file": "outside\n", w.home + "/file": "outside\n", w.home + "/.ssh/id": "secret\n", w.home + "/cache/old": "cached\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"out": w.home, "envlink": ".env", ".vscode": "editor"} {
		if err := os.Symlink(target, filepath.Join(w.work, name)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w world) spec(p permission.Profile) sandbox.Spec {
	return sandbox.Spec{
		Profile: p, Write: []string{w.work},
		Protect: []string{w.work + "/kitbag.json", w.work + "/.git/config", w.work + "/.git/hooks", w.work + "/.vscode", w.work + "/.npmrc", w.work + "/editor", w.work + "/editor/settings"},
		Hide:    []string{w.work + "/.env", w.work + "/sub/deep/.env", w.work + "/vault", w.work + "/vault/in/key", w.home + "/.ssh", w.home + "/missing"},
		Scratch: []string{w.home + "/cache", w.home + "/missing"},
	}
}

// fill puts the paths of the world, and what else is only known now, in a text.
func (w world) fill(s string) string {
	return strings.NewReplacer("@WORK", w.work, "@OTHER", w.other, "@HOME", w.home,
		"@UID", strconv.Itoa(os.Geteuid()), "@GID", strconv.Itoa(os.Getegid()), "@PID", strconv.Itoa(os.Getpid())).Replace(s)
}

func bash(w world, script string) *exec.Cmd {
	cmd := exec.Command("bash", "--noprofile", "--norc", "-c", w.fill(script))
	cmd.Dir, cmd.Env = w.work, append(os.Environ(), "KEPT=kept")
	return cmd
}

// TestRows runs each row in a world of its own, of which nothing outside may change.
func TestRows(t *testing.T) {
	for line := range strings.Lines(rows) {
		var r row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		for profile, want := range map[permission.Profile]string{permission.ProfileRead: r.Read, permission.ProfileWork: r.Work} {
			t.Run(r.About+"/"+string(profile), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				before := slices.Concat(everything(t, w.other), everything(t, w.home))
				out, err := confined(t, w.spec(profile), bash(w, r.Run))
				want, fails := strings.CutPrefix(w.fill(want), "!")
				switch code := exitCode(t, err); {
				case fails && (code == 0 || r.Code != 0 && code != r.Code || !strings.Contains(out, want)):
					t.Errorf("got %q, exit code %d; want a failure (%d) with %q", out, code, r.Code, want)
				case !fails && (code != 0 || strings.TrimRight(out, "\n") != want):
					t.Errorf("got %q, exit code %d; want %q", out, code, want)
				}
				if after := slices.Concat(everything(t, w.other), everything(t, w.home)); !slices.Equal(after, before) {
					t.Errorf("outside has changed:\n%s\nit was:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
				}
			})
		}
	}
}

//go:embed testdata/rows.jsonl
var rows string

func exitCode(t *testing.T, err error) int {
	t.Helper()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0
}

// BenchmarkTrue reports what a command costs more than one that is not confined: the median of
// many pairs, side by side, and for a busy machine the difference of the fastest tenths. A
// large caller must not pay for its memory.
func BenchmarkTrue(b *testing.B) {
	w := newWorld(b)
	once := func(p permission.Profile) time.Duration {
		s := w.spec(p)
		start := time.Now()
		cmd := exec.Command("true")
		cmd.Dir = w.work
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
		return time.Since(start)
	}
	pairs := func(b *testing.B, p permission.Profile) {
		var more, open, confined []time.Duration
		for b.Loop() {
			o, c := once(permission.ProfileOpen), once(p)
			open, confined, more = append(open, o), append(confined, c), append(more, c-o)
		}
		ms := func(list []time.Duration, percent int) float64 {
			slices.Sort(list)
			return list[len(list)*percent/100].Seconds() * 1000
		}
		b.ReportMetric(ms(more, 50), "ms-more")
		b.ReportMetric(ms(confined, 10)-ms(open, 10), "ms-more-fastest")
	}
	for _, p := range []permission.Profile{permission.ProfileRead, permission.ProfileWork} {
		b.Run(string(p), func(b *testing.B) { pairs(b, p) })
	}
	b.Run("large", func(b *testing.B) {
		memory := bytes.Repeat([]byte("x"), 200<<20)
		pairs(b, permission.ProfileWork)
		runtime.KeepAlive(memory)
	})
}
