package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/near"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// checkPolicy reports rules of the policy that cannot work with the tools there are. No source is
// contacted: the tools of one that has not listed them, or will list others, are not known, so a
// rule for a name that resembles none of the program's own tools may be for one of those.
func (c *Config) checkPolicy(background tool.Tool) error {
	if len(c.Policy.Rules) == 0 {
		return c.Policy.Check()
	}
	own, listed := c.tools()
	if background != nil {
		own = append(own, background)
	}
	known := append(names(own), "Network") // which is no tool, but what rules about confined calls name
	for _, t := range own {
		if b, ok := tool.As[tool.RuleBorrower](t); ok {
			known = append(known, b.BorrowsRules()...)
		}
	}
	all := append(slices.Clone(known), names(listed)...)
	var errs []error
	for _, r := range c.Policy.Rules {
		if slices.ContainsFunc(all, r.Names) || strings.Contains(r.Tool, "*") {
			continue
		}
		if meant := near.Typos(r.Tool, known, 3); len(meant) > 0 {
			errs = append(errs, fmt.Errorf("rule %q (%s): there is no tool %q; did you mean %s?", r, r.Behavior, r.Tool, strings.Join(meant, " or ")))
		}
	}
	var calls []*permission.Call
	for _, t := range append(own, listed...) {
		name := t.Info().Name
		if slices.ContainsFunc(c.Policy.Rules, func(r permission.Rule) bool { return r.Pattern != "" && r.Names(name) }) {
			calls = append(calls, tool.AnyCall(t))
		}
	}
	return errors.Join(append(errs, c.Policy.Check(calls...))...)
}

// tools returns the tools whose calls the policy is asked about, those of sub-agents included: the
// program's own, and those that sources listed last.
func (c *Config) tools() (own, listed []tool.Tool) {
	own, listed = c.Toolkit.Registered()
	for _, t := range slices.Clone(own) {
		if s, ok := tool.As[*subagent](t); ok {
			o, l := s.agent.cfg.tools()
			own, listed = append(own, o...), append(listed, l...)
		}
	}
	return own, listed
}

func names(tools []tool.Tool) []string {
	out := make([]string, len(tools))
	for i, t := range tools {
		out[i] = t.Info().Name
	}
	return out
}
