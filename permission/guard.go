package permission

import (
	"errors"
	"slices"
)

// The methods below call the Checker of a call. A bug in one must neither allow a call nor end the program, so a
// panic counts as the safe answer.

func (c *Call) check(p *Policy) (v Verdict) {
	if c.Checker == nil {
		return v
	}
	defer func() {
		if recover() != nil {
			v = Verdict{Behavior: Ask, Safety: true, Reason: "the tool cannot judge this call"}
		}
	}()
	return c.Checker.Check(p)
}

var errCannotMatch = errors.New("the tool cannot match the rule")

func (c *Call) match(p *Policy, r Rule) (matched bool, err error) {
	if c.Checker == nil {
		return false, ErrNoPatterns
	}
	defer func() {
		if recover() != nil {
			matched, err = false, errCannotMatch
		}
	}()
	return c.Checker.Match(p, r)
}

// TakesPatterns reports whether rules for the tool may have a pattern.
func (c *Call) TakesPatterns(p *Policy) bool {
	_, err := c.match(p, Rule{Tool: c.Tool, Pattern: "*", Behavior: Allow})
	return !errors.Is(err, ErrNoPatterns)
}

func (c *Call) suggest(p *Policy) (rules []Rule) {
	checker := c.Checker
	if checker == nil {
		checker = BaseChecker{}
	}
	defer func() {
		if recover() != nil {
			rules = nil
		}
	}()
	rules = checker.Suggest(p)
	owned := false // the slice may be the tool's
	for i := range rules {
		if rules[i].Tool != "" {
			continue
		}
		if !owned {
			rules, owned = slices.Clone(rules), true
		}
		rules[i].Tool = c.Tool
	}
	return rules
}

func (c *Call) parts(p *Policy) (parts []Part) {
	if c.Checker == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			parts = nil
		}
	}()
	return c.Checker.Parts(p)
}
