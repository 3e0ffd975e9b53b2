//go:build amd64 || arm64

package sandbox_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
	"golang.org/x/sys/unix"
)

// craft runs in the sandbox: it starts this program as Command does, with a plan of its own that
// grants everything.
func craft(outside string) {
	plan := sandbox.Crafted(outside)
	fd, err := unix.MemfdCreate("kitbag-sandbox-plan", unix.MFD_ALLOW_SEALING)
	if err != nil {
		panic(err)
	}
	f := os.NewFile(uintptr(fd), "")
	f.Write(plan)
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		panic(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"kitbag-sandbox-init", "3"}
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.CombinedOutput()
	fmt.Printf("%v %s", err, out)
}

// TestCraftedPlan holds that the way in which this program confines itself is no way out.
func TestCraftedPlan(t *testing.T) {
	for _, profile := range []permission.Profile{permission.ProfileRead, permission.ProfileWork} {
		w := newWorld(t)
		before := everything(t, w.home)
		cmd := exec.Command("/proc/self/exe", "craft", w.home)
		cmd.Dir = w.work
		out, err := confined(t, w.spec(profile), cmd)
		if err != nil || !strings.Contains(out, "sandbox: user namespace: setgroups: read-only file system") {
			t.Errorf("%s: %v\n%s", profile, err, out)
		}
		if after := everything(t, w.home); strings.Join(after, "\n") != strings.Join(before, "\n") {
			t.Errorf("%s: outside has changed", profile)
		}
	}
}

// TestLongLists has more paths to protect and to hide than anybody has: all are, or nothing runs.
func TestLongLists(t *testing.T) {
	w := newWorld(t)
	s := w.spec(permission.ProfileWork)
	for i := range 1500 {
		name := filepath.Join(w.work, "many", strconv.Itoa(i))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("secret\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			s.Hide = append(s.Hide, name)
		} else {
			s.Protect = append(s.Protect, name)
		}
	}
	out, err := confined(t, s, bash(w, `for ((i=0; i<1500; i+=2)); do cat many/$i && echo read $i; echo x >many/$((i+1)) && echo wrote $i; done 2>/dev/null; echo end`))
	if err != nil || out != "end\n" {
		t.Errorf("%v\n%.500s", err, out)
	}
}
