package builtin

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// newMark returns an environment variable by which the processes of one call
// are known, even those that left their process group.
func newMark() string { return "KITBAG_CALL=" + rand.Text() }

// killMarked kills every process that was started with mark in its
// environment. New ones may appear while it looks, so it looks until it finds
// none.
func killMarked(mark string) {
	for range 5 {
		found := false
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
		if !found {
			return
		}
	}
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
