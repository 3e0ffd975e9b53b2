package permission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Settings is the content of a settings file with a policy:
//
//	{"permissions": {
//	    "mode": "default",
//	    "allow": ["Bash(git commit:*)"], "ask": [], "deny": ["Read(.env)"],
//	    "additionalDirectories": ["/srv/data"]}}
//
// Other members of the file are kept and written back by [Settings.JSON]. The zero Settings is an empty file.
type Settings struct {
	// Policy is the policy in the file. Policy.Dirs are only the additional directories: put the working directory
	// before them.
	Policy Policy

	file, permissions map[string]json.RawMessage // the members of the file, and of "permissions", without known ones
}

// ParseSettings parses a settings file. name is used in errors, and as the Source of the rules. Every invalid rule is
// an error that names the file, the list and the rule; all errors are reported at once. Two members with the same name
// are an error, anywhere in the file.
//
// The mode may also be called defaultMode, with the spellings of [ParseMode]. Two different modes are an error, since only one
// can apply. Member names are compared exactly; "permissions" in other capitals is an error.
func ParseSettings(name string, data []byte) (*Settings, error) {
	s := &Settings{}
	if len(bytes.TrimSpace(data)) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(data, &s.file); err != nil {
		return nil, fmt.Errorf("settings %s: not a JSON object: %w", name, err)
	}
	if err := checkRepeated(data); err != nil {
		return nil, fmt.Errorf("settings %s: %w", name, err)
	}
	for i, line := range bytes.Split(data, []byte("\n")) {
		if !utf8.Valid(line) { // a rule would be for another name
			return nil, fmt.Errorf("settings %s: line %d is not valid UTF-8; save the file as UTF-8", name, i+1)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.file)) {
		if key != "permissions" && strings.EqualFold(key, "permissions") {
			return nil, fmt.Errorf("settings %s: %q has no effect; write \"permissions\"", name, key)
		}
	}
	raw, ok := s.file["permissions"]
	if !ok {
		return s, nil
	}
	delete(s.file, "permissions")
	if err := json.Unmarshal(raw, &s.permissions); err != nil {
		return nil, fmt.Errorf("settings %s: permissions: not a JSON object: %w", name, err)
	}
	return s, errors.Join(s.readPermissions(name)...)
}

// readPermissions moves the known members of permissions to s.Policy.
func (s *Settings) readPermissions(name string) (errs []error) {
	fail := func(key string, err error) {
		errs = append(errs, fmt.Errorf("settings %s: permissions.%s: %w", name, key, err))
	}
	for _, key := range []string{"defaultMode", "mode"} {
		raw, ok := s.permissions[key]
		if !ok {
			continue
		}
		delete(s.permissions, key)
		var text string
		var mode Mode
		err := json.Unmarshal(raw, &text)
		if err == nil {
			mode, err = ParseMode(text)
		}
		if first := s.Policy.Mode; err == nil && first != "" && first != mode {
			err = fmt.Errorf("mode is %s, but permissions.defaultMode is %s; remove one of the two", mode, first)
		}
		if err != nil {
			fail(key, err)
			continue
		}
		s.Policy.Mode = mode
	}
	for _, b := range []Behavior{Allow, Ask, Deny} {
		list, err := s.takeList(string(b))
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
	dirs, err := s.takeList("additionalDirectories")
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

// takeList removes a list of strings from the members of permissions and returns the list.
func (s *Settings) takeList(key string) ([]string, error) {
	raw, ok := s.permissions[key]
	if !ok {
		return nil, nil
	}
	delete(s.permissions, key)
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("not a list of strings: %w", err)
	}
	return list, nil
}

// Unknown returns the members of "permissions" that kitbag does not know, sorted. Unknown members are kept but have
// no effect, which a program should report.
func (s *Settings) Unknown() []string {
	var names []string
	for k := range s.permissions {
		names = append(names, "permissions."+k)
	}
	slices.Sort(names)
	return names
}

// JSON returns the file with the current policy. Members are sorted, each list has its rules in the policy's order, and
// unknown members are kept. A rule with an unknown behavior, which denies, is written as a deny rule.
func (s *Settings) JSON() ([]byte, error) {
	permissions := map[string]any{}
	for k, v := range s.permissions {
		permissions[k] = v
	}
	if s.Policy.Mode != "" {
		permissions["mode"] = s.Policy.Mode
	}
	for _, b := range []Behavior{Allow, Ask, Deny} {
		list := []string{}
		for _, r := range s.Policy.Rules {
			if r.effect() == b {
				list = append(list, r.String())
			}
		}
		permissions[string(b)] = list
	}
	if len(s.Policy.Dirs) > 0 {
		permissions["additionalDirectories"] = s.Policy.Dirs
	}
	file := map[string]any{"permissions": permissions}
	for k, v := range s.file {
		file[k] = v
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(file); err != nil {
		return nil, fmt.Errorf("write settings: %w", err)
	}
	return b.Bytes(), nil
}
