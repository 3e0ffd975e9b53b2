//go:build unix

package pathrule

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestNamesOfPipe checks that Names does not open a pipe, which would block.
func TestNamesOfPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if names, err := (Place{}).Names(pipe); err == nil {
		t.Errorf("Names of a pipe = %q", names)
	}
}
