package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
	"golang.org/x/sys/unix"
)

// TestDeviceElsewhere checks a device outside /dev, as in a tree made for chroot. It only matters for users who
// may create devices.
func TestDeviceElsewhere(t *testing.T) {
	w := newWorld(t)
	name := filepath.Join(w.home, "device")
	if err := unix.Mknod(name, unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))); err != nil {
		if os.Geteuid() == 0 && err != unix.EPERM {
			t.Fatal(err)
		}
		return
	}
	for _, p := range []permission.Profile{permission.ProfileRead, permission.ProfileWork} {
		s := sandbox.Spec{Profile: p, Write: []string{w.work}}
		if out, err := confined(t, s, bash(w, "head -c 1 "+name+" | wc -c")); err != nil || !strings.HasSuffix(out, "0\n") {
			t.Errorf("%s reads a device: %q, %v", p, out, err)
		}
	}
}
