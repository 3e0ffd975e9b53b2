package builtin

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// searchOnly opens a directory for access to its entries, without the right to list it.
const searchOnly = unix.O_PATH

// lastChange returns the ctime of a file, which the owner cannot set, unlike the time of modification.
func lastChange(info os.FileInfo) time.Time {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctim.Unix())
	}
	return info.ModTime()
}

// newMark returns an environment variable that identifies the processes of one call, even those that left their
// process group.
func newMark() string { return "KITBAG_CALL=" + rand.Text() }

// killMarked kills every process that was started with mark in its environment.
func killMarked(mark string) {
	killSelected(mark, func(string) bool { return true })
}

// killHolders ends the marked processes that have the pipe open: with SIGTERM, and after termGrace with SIGKILL.
func killHolders(mark string, pipe *os.File) {
	info, err := pipe.Stat()
	if err != nil {
		return
	}
	holds := func(proc string) bool {
		fds, _ := filepath.Glob(proc + "/fd/*")
		return slices.ContainsFunc(fds, func(fd string) bool {
			other, err := os.Stat(fd)
			return err == nil && os.SameFile(info, other)
		})
	}
	sig, misses := syscall.SIGTERM, 0
	for limit := time.Now().Add(termGrace); time.Now().Before(limit) && misses < maxMisses; time.Sleep(searchPause) {
		if misses++; signalMarked(mark, sig, holds) {
			sig, misses = 0, 0 // signal 0 only checks whether the processes still exist
		}
	}
	killSelected(mark, holds)
}

const (
	// After maxMisses searches in a row without a marked process there is none. A single search is not enough, as a
	// process has no environment for a moment while it calls exec.
	maxMisses   = 3
	maxSearches = 20 // processes that multiply must not keep killSelected searching
	searchPause = 2 * time.Millisecond
)

// killSelected kills the marked processes whose directory in /proc selects accepts.
func killSelected(mark string, selects func(proc string) bool) {
	for searches, misses := 0, 0; searches < maxSearches && misses < maxMisses; searches++ {
		if searches > 0 {
			time.Sleep(searchPause)
		}
		if misses++; signalMarked(mark, syscall.SIGKILL, selects) {
			misses = 0
		}
	}
}

// signalMarked sends sig to the marked processes that selects accepts, and reports whether there was one.
func signalMarked(mark string, sig syscall.Signal, selects func(proc string) bool) (sent bool) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range environs {
		env, err := os.ReadFile(name)
		proc := filepath.Dir(name)
		if err != nil || !bytes.Contains(env, []byte(mark)) || !selects(proc) {
			continue // the process is another user's, has ended, or is not selected
		}
		if pid, err := strconv.Atoi(filepath.Base(proc)); err == nil {
			sent = syscall.Kill(pid, sig) == nil || sent
		}
	}
	return sent
}

// isKernelFile reports whether f is in a file system that the kernel generates. Such files look regular, but
// may be endless, and contain secrets of processes.
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
