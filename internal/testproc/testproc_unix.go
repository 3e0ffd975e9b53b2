//go:build unix

// Package testproc has what the servers of tests need of the operating system. They run on Unix only; elsewhere the
// package compiles, so that what imports it does.
package testproc

import (
	"os"
	"os/exec"
	"syscall"
)

// LockFile waits until no other process holds the lock of f. Closing f unlocks it.
func LockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }

// Detach keeps signals for this process, such as ^C, from cmd.
func Detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// RunAs has a detached cmd run as another user; only root may.
func RunAs(cmd *exec.Cmd, uid, gid int) {
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}
