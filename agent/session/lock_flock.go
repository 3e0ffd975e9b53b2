//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package session

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lock takes the lock of an open file, which the system releases when f is
// closed or the process ends. The error is ErrConflict when another has it.
func lock(f *os.File) error {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("%w open; end the other program or use another session", ErrConflict)
		default:
			return fmt.Errorf("lock it: %w", err)
		}
	}
}
