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
// keeps the file locked. lock retries, because dir.isOpen locks a file for a moment.
func lock(f *os.File) error {
	for try := 1; ; try++ {
		err := tryLock(f)
		if !errors.Is(err, ErrConflict) || try == 5 {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// tryLock is lock without waiting.
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

// release unlocks and closes f. Closing would not be enough: a child that another goroutine is just starting,
// such as a command of the agent, also has the file open until it executes its program, and the lock lasts until
// every process has closed the file.
func release(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_UN)
		if !errors.Is(err, unix.EINTR) {
			return errors.Join(err, f.Close())
		}
	}
}
