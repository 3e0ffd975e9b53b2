package permission

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Add appends rules that are not in the policy yet; rules that differ only in Source are equal. It returns an error, and
// adds nothing, if the text form of a rule does not parse to the same rule.
func (p *Policy) Add(rules ...Rule) error {
	for _, r := range rules {
		parsed, err := ParseRule(r.String(), r.Behavior)
		if err != nil {
			return err
		}
		if parsed.Tool != r.Tool { // equal tools imply equal patterns
			return fmt.Errorf("rule %q is parsed as tool %q with pattern %q; use a tool name without parentheses and spaces", r.String(), parsed.Tool, parsed.Pattern)
		}
	}
	for _, r := range rules {
		isEqual := func(old Rule) bool {
			old.Source = r.Source
			return old == r
		}
		if !slices.ContainsFunc(p.Rules, isEqual) {
			p.Rules = append(p.Rules, r)
		}
	}
	return nil
}

// Check reports an unknown mode, every directory that is not absolute, and every rule that cannot work with the
// tools of calls: a pattern that the tool cannot parse, or any pattern if the tool takes none. Patterns for other tools
// are not checked: such a tool may be added later. The inputs of the calls do not matter.
func (p *Policy) Check(calls ...*Call) error {
	var errs []error
	if p.Mode != "" && !p.Mode.known() {
		errs = append(errs, fmt.Errorf("unknown mode %q; %s", p.Mode, modeNames))
	}
	for _, d := range p.Dirs {
		if err := checkDir(d); err != nil {
			errs = append(errs, fmt.Errorf("working directory %w", err))
		}
	}
	for _, r := range p.Rules {
		if _, err := ParseRule(r.String(), r.Behavior); err != nil {
			errs = append(errs, err)
			continue
		}
		if r.Tool == networkTool && (r.Pattern != "" || r.Behavior == Ask) {
			errs = append(errs, fmt.Errorf("rule %q (%s): Network takes no pattern and cannot be in ask; write Network in allow or deny", r.String(), r.Behavior))
		}
		for _, c := range calls {
			if r.Pattern == "" || !r.Names(c.Tool) {
				continue
			}
			_, err := c.match(p, r)
			if errors.Is(err, ErrNoPatterns) {
				err = fmt.Errorf("%s takes no patterns; write %s without one", c.Tool, r.Tool)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("rule %q (%s): %w", r.String(), r.Behavior, err))
				break // the same error is likely for the rule's other tools
			}
		}
	}
	return errors.Join(errs...)
}

// checkDir returns an error unless d is absolute, or below the home directory.
func checkDir(d string) error {
	if filepath.IsAbs(d) || path.IsAbs(d) || strings.HasPrefix(d, "~/") {
		return nil
	}
	return fmt.Errorf("%q is not absolute; write the full path", d)
}
