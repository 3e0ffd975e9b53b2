//go:build !linux

package main

import "os"

// flushInput does nothing: it is only implemented on Linux.
func flushInput(*os.File) {}
