//go:build !unix

package main

import "io/fs"

// ownedBy is not asked on this system, where a file has no user id.
func ownedBy(fs.FileInfo, int) bool { return true }
