package permission

import (
	"errors"
	"slices"
)

// orElse returns the result of call, which calls a method of a Checker, or safe if the method panics: a bug in a tool
// must neither allow a call nor end the program.
func orElse[T any](safe T, call func() T) (result T) {
	defer func() {
		if recover() != nil {
			result = safe
		}
	}()
	return call()
}

func (c *Call) checker() Checker {
	if c.Checker == nil {
		return BaseChecker{}
	}
	return c.Checker
}

// check returns the tool's verdict. It does not use orElse, which would copy the large Verdict several times.
func (c *Call) check(p *Policy) (v Verdict) {
	defer func() {
		if recover() != nil {
			v = Verdict{Behavior: Ask, Safety: true, Reason: "the tool cannot judge this call"}
		}
	}()
	return c.checker().Check(p)
}

var errCannotMatch = errors.New("the tool cannot match the rule")

func (c *Call) match(p *Policy, r Rule) (matched bool, err error) {
	defer func() {
		if recover() != nil {
			err = errCannotMatch
		}
	}()
	return c.checker().Match(p, r)
}

// TakesPatterns reports whether rules for the tool may have a pattern.
func (c *Call) TakesPatterns(p *Policy) bool {
	_, err := c.match(p, Rule{Tool: c.Tool, Pattern: "*", Behavior: Allow})
	return !errors.Is(err, ErrNoPatterns)
}

func (c *Call) suggest(p *Policy) []Rule {
	rules := slices.Clone(orElse(nil, func() []Rule { return c.checker().Suggest(p) })) // the tool may use its slice again
	for i := range rules {
		if rules[i].Tool == "" {
			rules[i].Tool = c.Tool
		}
	}
	return rules
}

func (c *Call) parts(p *Policy) []Part {
	return orElse(nil, func() []Part { return c.checker().Parts(p) })
}
