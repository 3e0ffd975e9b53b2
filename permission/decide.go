package permission

import "fmt"

// Decide answers whether c may run under p. It has no side effects and is safe
// for concurrent use if the functions in c are.
func Decide(p *Policy, c *Call) Decision {
	mode := p.Mode
	if mode == "" {
		mode = Default
	}
	if !mode.known() {
		return Decision{Behavior: Deny, ReadOnly: c.ReadOnly, Reason: fmt.Sprintf(
			"unknown mode %q; the modes are default, accept-edits, explore, bypass, dont-ask", mode)}
	}
	d := decide(p, c, mode)
	d.ReadOnly = c.ReadOnly
	if d.Behavior == Ask && mode == DontAsk {
		return Decision{Behavior: Deny, ReadOnly: c.ReadOnly, Rule: d.Rule,
			Reason: "mode dont-ask: " + d.Reason}
	}
	if d.Behavior == Ask && !d.Safety {
		d.Suggest = suggest(p, c)
	}
	return d
}

func decide(p *Policy, c *Call, mode Mode) Decision {
	if r := firstMatch(p, c, Deny); r != nil {
		return Decision{Behavior: Deny, Rule: r, Reason: "denied by rule " + r.String()}
	}
	var own Verdict
	if c.Check != nil {
		own = c.Check(p)
	}
	if own.Behavior == Deny {
		return Decision{Behavior: Deny, Reason: own.Reason}
	}
	if c.Control {
		return Decision{Behavior: Allow, Reason: "control tool"}
	}
	if mode == Explore && !c.ReadOnly {
		return Decision{Behavior: Deny, Reason: "mode explore: the call is not read-only"}
	}
	if own.Behavior == Ask && own.Safety && mode != Bypass {
		if mode == Explore {
			return Decision{Behavior: Deny, Reason: "mode explore: " + own.Reason}
		}
		return Decision{Behavior: Ask, Safety: true, Reason: own.Reason}
	}
	if r := firstMatch(p, c, Ask); r != nil {
		return Decision{Behavior: Ask, Rule: r, Reason: "asked by rule " + r.String()}
	}
	if c.ReadOnly && (p.TrustReadOnly || mode == AcceptEdits || mode == Explore || mode == Bypass) {
		return Decision{Behavior: Allow, Reason: "read-only"}
	}
	if own.Behavior == Allow {
		return Decision{Behavior: Allow, Reason: own.Reason}
	}
	if r := firstMatch(p, c, Allow); r != nil {
		return Decision{Behavior: Allow, Rule: r, Reason: "allowed by rule " + r.String()}
	}
	return byMode(mode, own)
}

func byMode(mode Mode, own Verdict) Decision {
	why := own.Reason
	if why == "" {
		why = "no rule covers the call"
	}
	switch mode {
	case Bypass:
		return Decision{Behavior: Allow, Reason: "mode bypass"}
	case Explore:
		return Decision{Behavior: Deny, Reason: "mode explore: " + why}
	default:
		return Decision{Behavior: Ask, Reason: why}
	}
}

func (m Mode) known() bool {
	switch m {
	case Default, AcceptEdits, Explore, Bypass, DontAsk:
		return true
	}
	return false
}

func firstMatch(p *Policy, c *Call, b Behavior) *Rule {
	for i := range p.Rules {
		if r := &p.Rules[i]; r.Behavior == b && r.matches(p, c) {
			return r
		}
	}
	return nil
}

func suggest(p *Policy, c *Call) []Rule {
	if c.Suggest != nil {
		return c.Suggest(p)
	}
	return []Rule{{Tool: c.Tool, Behavior: Allow, Source: "suggested"}}
}
