//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package session

import (
	"fmt"
	"os"
	"runtime"
)

// lock fails: without locks two processes could write to the same file.
func lock(*os.File) error {
	return fmt.Errorf("session files need flock, which %s does not have; use another session.Store", runtime.GOOS)
}

func release(f *os.File) error { return f.Close() }

func tryLock(f *os.File) error { return lock(f) }
