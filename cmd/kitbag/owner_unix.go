//go:build unix

package main

import (
	"io/fs"
	"syscall"
)

// ownedBy reports whether a file belongs to the user with the id.
func ownedBy(info fs.FileInfo, user int) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == user
}
