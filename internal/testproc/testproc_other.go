//go:build !unix

package testproc

import (
	"errors"
	"os"
	"os/exec"
)

func LockFile(*os.File) error { return errors.New("the servers of tests run on Unix only") }

func Detach(*exec.Cmd) {}

func RunAs(*exec.Cmd, int, int) {}
