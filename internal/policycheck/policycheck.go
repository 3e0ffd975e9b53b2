// Package policycheck reports rules of a policy that cannot work with the existing tools.
package policycheck

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/near"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// Check reports the errors of [permission.Policy.Check], and rules whose tool name is unknown but similar to a known one.
// own are the program's tools, others further names for rules, and listed the tools that sources have listed. A rule for
// any other name may be for a tool that a source will list later.
func Check(p *permission.Policy, own, listed []tool.Tool, others ...string) error {
	known := append(names(own), others...)
	for _, t := range own {
		known = append(known, tool.PermissionCall(t, nil).Borrows...)
	}
	slices.Sort(known)
	known = slices.Compact(known) // several tools borrow the same rules
	all := append(slices.Clone(known), names(listed)...)
	var errs []error
	for _, r := range p.Rules {
		if slices.ContainsFunc(all, r.Names) || strings.Contains(r.Tool, "*") {
			continue
		}
		if meant := near.Typos(r.Tool, known, 3); len(meant) > 0 {
			errs = append(errs, fmt.Errorf("rule %q (%s): there is no tool %q; did you mean %s?", r, r.Behavior, r.Tool, strings.Join(meant, " or ")))
		}
	}
	var calls []*permission.Call
	for _, t := range slices.Concat(own, listed) {
		name := t.Info().Name
		if slices.ContainsFunc(p.Rules, func(r permission.Rule) bool { return r.Pattern != "" && r.Names(name) }) {
			calls = append(calls, tool.AnyCall(t))
		}
	}
	return errors.Join(append(errs, p.Check(calls...))...)
}

func names(tools []tool.Tool) []string {
	out := make([]string, len(tools))
	for i, t := range tools {
		out[i] = t.Info().Name
	}
	return out
}
