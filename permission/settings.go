package permission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Settings is a settings file with a policy:
//
//	{"permissions": {
//	    "mode": "default",
//	    "allow": ["Bash(git commit:*)"], "ask": [], "deny": ["Read(.env)"],
//	    "additionalDirectories": ["/srv/data"]}}
//
// Other members of the file are kept and written back by [Settings.JSON]. The zero Settings is an empty file.
type Settings struct {
	// Policy is the policy in the file. Its Dirs are the additional directories; put the working directory in
	// front of them.
	Policy Policy

	outer, inner map[string]json.RawMessage // unknown members of the file, and of its "permissions"
}

// ParseSettings parses a settings file. name is used in errors, and as the Source of the rules. Every invalid rule is
// an error that names the file, the list and the rule; all of them are reported at once. Two members with the same
// name are an error, anywhere in the file.
//
// The mode may also be called defaultMode, with the spellings of [ParseMode]. Two different modes are an error: one of
// them would have no effect. Member names are compared exactly.
func ParseSettings(name string, data []byte) (*Settings, error) {
	s := &Settings{}
	if len(bytes.TrimSpace(data)) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(data, &s.outer); err != nil {
		return nil, fmt.Errorf("settings %s: not a JSON object: %w", name, err)
	}
	if err := checkRepeated(data); err != nil {
		return nil, fmt.Errorf("settings %s: %w", name, err)
	}
	raw, ok := s.outer["permissions"]
	if !ok {
		return s, nil
	}
	delete(s.outer, "permissions")
	if err := json.Unmarshal(raw, &s.inner); err != nil {
		return nil, fmt.Errorf("settings %s: permissions: not a JSON object: %w", name, err)
	}
	return s, errors.Join(s.read(name)...)
}

func (s *Settings) read(name string) (errs []error) {
	fail := func(key string, err error) {
		errs = append(errs, fmt.Errorf("settings %s: permissions.%s: %w", name, key, err))
	}
	for _, key := range []string{"defaultMode", "mode"} {
		raw, ok := s.inner[key]
		if !ok {
			continue
		}
		delete(s.inner, key)
		var text string
		var mode Mode
		err := json.Unmarshal(raw, &text)
		if err == nil {
			mode, err = ParseMode(text)
		}
		if first := s.Policy.Mode; err == nil && first != "" && first != mode {
			err = fmt.Errorf("it is %s, but permissions.defaultMode is %s; remove one of them", mode, first)
		}
		if err != nil {
			fail(key, err)
			continue
		}
		s.Policy.Mode = mode
	}
	for _, b := range []Behavior{Allow, Ask, Deny} {
		list, err := s.list(string(b))
		if err != nil {
			fail(string(b), err)
		}
		for i, text := range list {
			r, err := ParseRule(text, b)
			if err != nil {
				fail(fmt.Sprintf("%s[%d]", b, i), err)
				continue
			}
			r.Source = name
			s.Policy.Rules = append(s.Policy.Rules, r)
		}
	}
	dirs, err := s.list("additionalDirectories")
	if err != nil {
		fail("additionalDirectories", err)
	}
	for _, d := range dirs {
		if err := checkDir(d); err != nil {
			fail("additionalDirectories", err)
		}
	}
	s.Policy.Dirs = dirs
	return errs
}

// list removes a list of strings from the members and returns it.
func (s *Settings) list(key string) ([]string, error) {
	raw, ok := s.inner[key]
	if !ok {
		return nil, nil
	}
	delete(s.inner, key)
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("not a list of strings: %w", err)
	}
	return list, nil
}

// Unknown returns the members of "permissions" that kitbag does not know, sorted. They are kept and have no effect,
// which a program should report.
func (s *Settings) Unknown() []string {
	var names []string
	for k := range s.inner {
		names = append(names, "permissions."+k)
	}
	slices.Sort(names)
	return names
}

// JSON returns the file with the current policy. Members are sorted, the lists contain the rules in the policy's
// order, and unknown members are kept.
func (s *Settings) JSON() ([]byte, error) {
	inner := map[string]any{}
	for k, v := range s.inner {
		inner[k] = v
	}
	if s.Policy.Mode != "" {
		inner["mode"] = s.Policy.Mode
	}
	for _, b := range []Behavior{Allow, Ask, Deny} {
		list := []string{}
		for _, r := range s.Policy.Rules {
			if r.effect() == b {
				list = append(list, r.String())
			}
		}
		inner[string(b)] = list
	}
	if len(s.Policy.Dirs) > 0 {
		inner["additionalDirectories"] = s.Policy.Dirs
	}
	outer := map[string]any{"permissions": inner}
	for k, v := range s.outer {
		outer[k] = v
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(outer); err != nil {
		return nil, fmt.Errorf("write settings: %w", err)
	}
	return b.Bytes(), nil
}
