//go:build !unix

package mcpclient

import "os/exec"

// Without process groups only the server itself is killed; its children must exit when their input closes.
func newProcessGroup(*exec.Cmd)    {}
func terminateGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
func killGroup(cmd *exec.Cmd)      { _ = cmd.Process.Kill() }
