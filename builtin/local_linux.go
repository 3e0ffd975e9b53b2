package builtin

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// newMark returns an environment variable by which the processes of one call
// are known, even those that left their process group.
func newMark() string { return "KITBAG_CALL=" + rand.Text() }

// killMarked kills every process that was started with mark in its
// environment. One that is just starting a program shows no environment for a
// moment, so it looks until it has found none several times.
func killMarked(mark string) {
	for looks, empty := 0, 0; looks < 20 && empty < 3; looks++ {
		if looks > 0 {
			time.Sleep(2 * time.Millisecond)
		}
		if empty++; killOnce(mark) {
			empty = 0
		}
	}
}

// killOnce reports whether there was a process to kill.
func killOnce(mark string) (found bool) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range environs {
		env, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(env, []byte(mark)) {
			continue // not ours, or gone
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
		}
	}
	return found
}

// isKernelFile reports whether f is part of a file system whose files are made
// up by the kernel: they look regular, may be endless, and hold secrets of
// processes.
func isKernelFile(f *os.File) bool {
	var st syscall.Statfs_t
	if syscall.Fstatfs(int(f.Fd()), &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case 0x9fa0, // proc
		0x62656572, // sysfs
		0x64626720, // debugfs
		0x74726163, // tracefs
		0x73636673, // securityfs
		0x27e0eb,   // cgroup
		0x63677270: // cgroup2
		return true
	}
	return false
}
