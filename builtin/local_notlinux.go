//go:build !linux

package builtin

import "os"

func newMark() string { return "KITBAG_CALL=1" }

// The process group is all that can be found here.
func killMarked(string)            {}
func killHolders(string, *os.File) {}

func isKernelFile(*os.File) bool { return false }
