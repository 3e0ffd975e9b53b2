//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package session

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRelease unlocks a file while it is open a second time, as in a child process between its fork and its
// exec.
func TestRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first := open()
	if err := lock(first); err != nil {
		t.Fatal(err)
	}
	child, err := unix.Dup(int(first.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
	second := open()
	if err := lock(second); err == nil {
		t.Error("both files have the lock")
	}
	if err := release(first); err != nil {
		t.Fatal(err)
	}
	if err := lock(second); err != nil {
		t.Errorf("after the release: %v", err)
	}
	if err := release(second); err != nil {
		t.Fatal(err)
	}
}
