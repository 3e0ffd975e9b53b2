package mcpclient

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// TestConfine checks that a server that must be confined is not started otherwise, and that cleanup is called
// at its end.
func TestConfine(t *testing.T) {
	var confined, ended atomic.Int32
	server := child(t, "demo")
	command := server.Transport.(Command)
	command.Confine = func(cmd *exec.Cmd, s Sandbox) (func() error, error) {
		if s.Profile != "work" || !slices.Equal(s.Write, []string{"/data"}) || cmd.Process != nil {
			t.Errorf("%+v, %v", s, cmd)
		}
		confined.Add(1)
		return func() error { ended.Add(1); return nil }, nil
	}
	server.Transport = command
	connect(t, server).Close()
	if confined.Load() != 0 {
		t.Error("a server without a sandbox was confined")
	}
	command.Sandbox = Sandbox{Profile: "work", Write: []string{"/data"}}
	server.Transport = command
	connect(t, server).Close()
	if confined.Load() != 1 || ended.Load() != 1 {
		t.Errorf("confined %d times, ended %d times; want 1", confined.Load(), ended.Load())
	}

	for want, confine := range map[string]func(*exec.Cmd, Sandbox) (func() error, error){
		"set Command.Confine": nil,
		"no namespaces here":  func(*exec.Cmd, Sandbox) (func() error, error) { return nil, errors.New("no namespaces here") },
		"it did not start": func(cmd *exec.Cmd, _ Sandbox) (func() error, error) {
			cmd.Path, cmd.Args = "/bin/false", []string{"false"}
			return func() error { return errors.New("it did not start") }, nil
		},
		"no such file": func(cmd *exec.Cmd, _ Sandbox) (func() error, error) {
			cmd.Path = "/no/such/program"
			return func() error { ended.Add(1); return nil }, nil
		},
	} {
		command.Confine = confine
		server.Transport = command
		if c, err := tryConnect(t.Context(), server); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
			if err == nil {
				c.Close()
			}
		}
	}
	if ended.Load() != 2 {
		t.Errorf("ended %d times, want 2", ended.Load())
	}
}
