//go:build !unix

package mcpclient

import "os/exec"

// Without process groups only the server itself is ended; what it started is
// its own to end when its input closes.
func ownGroup(*exec.Cmd)           {}
func terminateGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
func killGroup(cmd *exec.Cmd)      { _ = cmd.Process.Kill() }
