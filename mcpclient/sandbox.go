package mcpclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// A Sandbox says what a started server may access. The client itself confines nothing: [Command.Confine] does.
type Sandbox struct {
	// Profile is "read" (the server may write only temporary files) or "work" (the server may also write in the directories
	// of Write). With the Profile "" the server is not confined, and the other fields must be zero.
	Profile string

	Write   []string // absolute paths of directories
	Network bool     // the server may use the network of this machine
}

func (s Sandbox) check() error {
	if s.Profile == "" && (len(s.Write) > 0 || s.Network) {
		return errors.New(`write and network have no effect without a sandbox; add "sandbox": "work"`)
	}
	if !slices.Contains([]string{"", "read", "work"}, s.Profile) {
		return fmt.Errorf("unknown sandbox %q; use read or work, or leave it out", s.Profile)
	}
	if s.Profile == "read" && len(s.Write) > 0 {
		return errors.New(`a server in the sandbox "read" cannot write; remove write, or use "work"`)
	}
	for _, dir := range s.Write {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("write: %q is not an absolute path; Sandbox.Write must have absolute paths", dir)
		}
	}
	return nil
}

// sandbox reads "sandbox", "write" and "network". A relative path is relative to the directory of the configuration file.
func (e *commandEntry) sandbox(x *expander) (Sandbox, error) {
	s := Sandbox{Profile: string(e.Sandbox), Write: x.list("write", e.Write)}
	for i, dir := range s.Write {
		if !filepath.IsAbs(dir) {
			s.Write[i] = filepath.Join(x.dir, dir)
		}
	}
	if len(e.Network) > 0 && json.Unmarshal(e.Network, &s.Network) != nil {
		return s, fmt.Errorf("network must be true or false; it is %.40s", e.Network)
	}
	return s, s.check()
}
