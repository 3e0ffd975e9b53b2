package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// EnforceSkillTools returns a middleware that limits what the model may call once it has opened skills with
// allowed-tools: only calls that an allowed-tools rule covers, and control tools ([tool.Options]), such as reset_tools.
// The middleware allows nothing by itself: a call within the rules is judged as usual. Skills without allowed-tools limit
// nothing. If the opened skills cannot be determined, every other call is denied.
func EnforceSkillTools() Middleware {
	return Middleware{Judge: func(next JudgeFunc) JudgeFunc {
		return func(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
			if c.Control { // otherwise the model could not open another skill, or finish a task
				return next(ctx, p, c)
			}
			opened, err := toolkit.OpenedSkills(ctx)
			if err != nil {
				return permission.Decision{Behavior: permission.Deny, Reason: fmt.Sprintf("cannot determine which skills are in use: %v", err)}
			}
			opened = slices.DeleteFunc(opened, func(o toolkit.OpenedSkill) bool { return len(o.AllowedTools) == 0 })
			if len(opened) == 0 || covers(p, c, skillRules(opened)) {
				return next(ctx, p, c)
			}
			var limits []string
			for _, o := range opened {
				limits = append(limits, fmt.Sprintf("the skill %s allows %s", o.Name, strings.Join(o.AllowedTools, ", ")))
			}
			return permission.Decision{Behavior: permission.Deny, Reason: strings.Join(limits, "; ") + " only"}
		}
	}}
}

// decidePolicy returns the decision of the policy. If the user has to be asked, decidePolicy adds the allowed-tools rules
// of opened skills that would allow the call to the suggested rules.
func decidePolicy(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
	d := permission.Decide(p, c)
	if d.Behavior != permission.Ask || d.Safety { // no rule can allow a call that a safety check asks about
		return d
	}
	opened, err := toolkit.OpenedSkills(ctx)
	if err != nil {
		return d // without more suggestions
	}
	for _, r := range skillRules(opened) {
		suggested := slices.ContainsFunc(d.Suggest, func(s permission.Rule) bool { return s.Tool == r.Tool && s.Pattern == r.Pattern })
		// Without a pattern, a rule allows too much to be suggested, unless the tool has no patterns.
		tooBroad := r.Pattern == "" && c.TakesPatterns(p)
		if suggested || tooBroad || r.Tool != c.Tool || !covers(p, c, []permission.Rule{r}) {
			continue
		}
		d.Suggest = append(slices.Clip(d.Suggest), r)
	}
	return d
}

// skillRules returns the allowed-tools of skills as rules. It leaves out rules that cannot be parsed: they allow nothing.
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

// covers reports whether these allow rules alone would allow the whole call.
func covers(p *permission.Policy, c *permission.Call, rules []permission.Rule) bool {
	policy, call := *p, *c
	// Neither the mode, nor a flag of the tool, nor its Check may allow the call.
	policy.Mode, policy.Rules = permission.ModeDontAsk, rules
	call.Control, call.ReadOnly, call.Checker = false, false, onlyRules{c.Checker}
	return permission.Decide(&policy, &call).Behavior == permission.Allow
}

// onlyRules is a Checker without the tool's own verdict.
type onlyRules struct{ permission.Checker }

func (onlyRules) Check(*permission.Policy) permission.Verdict { return permission.Verdict{} }
