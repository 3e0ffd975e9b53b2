package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// EnforceSkillTools returns a middleware that narrows what the model may call once it has opened
// skills with allowed-tools: to the calls that one of their rules covers, and to control tools. It
// allows nothing by itself; what is within the rules is judged as ever. Skills without
// allowed-tools narrow nothing. When the opened skills are not known, every call is denied.
func EnforceSkillTools() Middleware {
	return Middleware{Judge: func(next JudgeFunc) JudgeFunc {
		return func(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
			if c.Control { // else the model could not open another skill, or close a task
				return next(ctx, p, c)
			}
			opened, err := toolkit.OpenedSkills(ctx)
			if err != nil {
				return permission.Decision{Behavior: permission.Deny, Reason: fmt.Sprintf("which skills are in use is not known: %v", err)}
			}
			opened = slices.DeleteFunc(opened, func(o toolkit.OpenedSkill) bool { return len(o.AllowedTools) == 0 })
			if len(opened) == 0 || covers(p, c, skillRules(opened)) {
				return next(ctx, p, c)
			}
			var limits []string
			for _, o := range opened {
				limits = append(limits, fmt.Sprintf("the skill %s is for %s", o.Name, strings.Join(o.AllowedTools, ", ")))
			}
			return permission.Decision{Behavior: permission.Deny, Reason: strings.Join(limits, "; ") + " only"}
		}
	}}
}

// decidePolicy is what the policy says. With a question it also suggests the
// rules of opened skills that would answer it; accepting them is the person's.
func decidePolicy(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
	d := permission.Decide(p, c)
	if d.Behavior != permission.Ask || d.Safety {
		return d
	}
	opened, err := toolkit.OpenedSkills(ctx)
	if err != nil {
		return d // the question only has fewer suggestions
	}
	for _, r := range skillRules(opened) {
		known := slices.ContainsFunc(d.Suggest, func(s permission.Rule) bool { return s.Tool == r.Tool && s.Pattern == r.Pattern })
		// A rule for all calls of a tool that knows patterns is too much to accept in passing.
		if known || r.Tool != c.Tool || r.Pattern == "" && c.TakesPatterns(p) || !covers(p, c, []permission.Rule{r}) {
			continue
		}
		d.Suggest = append(slices.Clip(d.Suggest), r)
	}
	return d
}

// skillRules are the rules that skills wish for. What cannot be read allows nothing.
func skillRules(opened []toolkit.OpenedSkill) []permission.Rule {
	var rules []permission.Rule
	for _, o := range opened {
		for _, text := range o.AllowedTools {
			r, err := permission.ParseRule(text, permission.Allow)
			if err != nil {
				continue
			}
			r.Source = "skill " + o.Name
			rules = append(rules, r)
		}
	}
	return rules
}

// covers reports whether allow rules cover all of a call, whatever else speaks
// for it or against it.
func covers(p *permission.Policy, c *permission.Call, rules []permission.Rule) bool {
	policy, call := *p, *c
	// Nothing but the rules must be able to allow it: no mode, no flag, and not the tool itself.
	policy.Mode, policy.Rules = permission.ModeDontAsk, rules
	call.Control, call.ReadOnly, call.Checker = false, false, onlyRules{c.Checker}
	return permission.Decide(&policy, &call).Behavior == permission.Allow
}

// onlyRules is a Checker without the verdict of the tool.
type onlyRules struct{ permission.Checker }

func (onlyRules) Check(*permission.Policy) permission.Verdict { return permission.Verdict{} }
