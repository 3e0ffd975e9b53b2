//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/kitbag-go/kitbag/agent/session"
)

// lockOld locks a session file until it is closed, as older versions do while they have it open.
func lockOld(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%w open; end the other program or use another session", session.ErrConflict)
	}
	return err
}
