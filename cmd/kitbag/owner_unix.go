//go:build unix

package main

import (
	"io/fs"
	"syscall"
)

// ownedBy reports whether the file belongs to the user with the id user.
func ownedBy(info fs.FileInfo, user int) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == user
}
