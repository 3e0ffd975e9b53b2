package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// flushInput drops terminal input that was not read yet.
func flushInput(f *os.File) {
	_ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) // fails if f is not a terminal: then nothing is dropped
}
