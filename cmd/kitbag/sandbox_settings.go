package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
)

// sandboxSettings are the member "sandbox" of a configuration. All paths are absolute.
type sandboxSettings struct {
	Use     string   // useAuto, useRequired or useOff; "" is useAuto
	Write   []string // directories to make writable, in addition to the working directories
	Protect []string // paths in writable directories to make read-only, in addition to package builtin's
	Hide    []string // paths to make unreadable, in addition to package builtin's
	Reveal  []string // paths that package builtin would make unreadable
}

const (
	useAuto     = "auto"     // confine if the system can
	useRequired = "required" // fail if the system cannot
	useOff      = "off"
)

// readSandbox reads the settings of a configuration.
func (c *config) readSandbox(data json.RawMessage) error {
	if data == nil {
		return nil
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s: sandbox"+format, append([]any{c.file}, args...)...)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return fail(" must be an object; it is %.40s", data)
	}
	s := &c.sandbox
	known := map[string]any{"use": &s.Use, "write": &s.Write, "protect": &s.Protect, "hide": &s.Hide, "reveal": &s.Reveal}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		switch target := known[key]; {
		case key == "network":
			return fail(`.network: unknown key; write "Network" under permissions.allow or permissions.deny`)
		case target == nil:
			return fail(".%s: unknown key; the keys are %s", key, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case json.Unmarshal(members[key], target) != nil && key == "use":
			return fail(".use must be a string; it is %.40s", members[key])
		case json.Unmarshal(members[key], target) != nil:
			return fail(".%s must be a list of paths; it is %.40s", key, members[key])
		}
	}
	if s.Use != "" && s.Use != useAuto && s.Use != useRequired && s.Use != useOff {
		return fail(".use: unknown value %q; write auto, required or off", s.Use)
	}
	for _, list := range []struct {
		name  string
		paths []string
	}{{"write", s.Write}, {"protect", s.Protect}, {"hide", s.Hide}, {"reveal", s.Reveal}} {
		for i, path := range list.paths {
			if path == "" || strings.ContainsAny(path, "*?[") {
				return fail(".%s: %q is not a path; name a file or a directory, without wildcards", list.name, path)
			}
			if rest, ok := strings.CutPrefix(path, "~/"); ok {
				home, err := os.UserHomeDir()
				if err != nil {
					return fail(".%s: %q: %w", list.name, path, err)
				}
				path = filepath.Join(home, rest)
			}
			list.paths[i] = filepath.Clean(c.absolute(path))
		}
	}
	return nil
}

// merge joins the settings of s and t. Use is from s if both have it, but useRequired has precedence.
func (s sandboxSettings) merge(t sandboxSettings) sandboxSettings {
	use := cmp.Or(s.Use, t.Use)
	if t.Use == useRequired {
		use = useRequired
	}
	return sandboxSettings{
		Use:     use,
		Write:   slices.Concat(s.Write, t.Write),
		Protect: slices.Concat(s.Protect, t.Protect),
		Hide:    slices.Concat(s.Hide, t.Hide),
		Reveal:  slices.Concat(s.Reveal, t.Reveal),
	}
}

// restricted returns the settings of s that apply in an untrusted directory: those that remove access.
func (s sandboxSettings) restricted() sandboxSettings {
	r := sandboxSettings{Protect: s.Protect, Hide: s.Hide}
	if s.Use != useOff {
		r.Use = s.Use
	}
	return r
}

// canConfine returns nil if an agent's commands are confined, or else the reason.
func (s sandboxSettings) canConfine() error {
	if s.Use == useOff {
		return errors.New(`"use" is "off" under sandbox`)
	}
	return sandbox.Check().Confines()
}

// backend returns the backend of an agent that works in dirs.
func (s sandboxSettings) backend(dirs []string) (*builtin.Local, error) {
	l := &builtin.Local{Dirs: dirs, Sandbox: sandbox.Spec{Write: s.Write, Protect: s.Protect, Hide: s.Hide}, Reveal: s.Reveal}
	switch s.Use {
	case useOff:
		l.Sandbox.Profile = permission.ProfileOpen
	case useRequired:
		if err := s.canConfine(); err != nil {
			return nil, fmt.Errorf(`%w; or write "use": "auto" under sandbox in %s`, err, configFile)
		}
	}
	if len(s.Reveal) == 0 {
		return l, nil
	}
	spec, err := l.Spec(permission.ProfileWork)
	if err != nil {
		return nil, err
	}
	for _, path := range s.Reveal {
		for _, hidden := range spec.Hide {
			if rel, err := filepath.Rel(hidden, path); err == nil && filepath.IsLocal(rel) {
				return nil, fmt.Errorf(configFile+": sandbox.reveal: %s is in %s, which is hidden as a whole; reveal %[2]s, or remove %[1]s from the list", path, hidden)
			}
		}
	}
	return l, nil
}

// spec returns the confinement of one command with the profile, which works in dirs.
func (s sandboxSettings) spec(profile permission.Profile, dirs []string) (sandbox.Spec, error) {
	s.Use = useAuto // Use is for the commands of agents; here the profile decides
	// The root cannot be made writable, and searching it for protected files would take long.
	dirs = slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return dir == "/" })
	l, err := s.backend(dirs)
	if err != nil {
		return sandbox.Spec{}, err
	}
	return l.Spec(profile)
}
