//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main

import "os"

// lockOld does nothing: on these systems session.Dir does not work, so nothing is imported.
func lockOld(*os.File) error { return nil }
