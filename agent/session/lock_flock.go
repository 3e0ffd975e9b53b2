//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package session

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock locks an open file until [release], or until the process ends. The error is ErrConflict if another process
// has the file locked for 8 ms: dir.isOpen, which locks a file only for a moment, is no conflict.
func lock(f *os.File) error {
	for try := 1; ; try++ {
		err := tryLock(f)
		if !errors.Is(err, ErrConflict) || try == 5 {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// tryLock locks an open file, or fails at once.
func tryLock(f *os.File) error {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("%w open; end the other program or use another session", ErrConflict)
		default:
			return fmt.Errorf("lock the file: %w", err)
		}
	}
}

// release unlocks and closes f. Closing would not be enough, because the lock lasts until every process has closed the
// file: a child process that another goroutine is just starting has the file open until it executes its program.
func release(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_UN)
		if !errors.Is(err, unix.EINTR) {
			return errors.Join(err, f.Close())
		}
	}
}
