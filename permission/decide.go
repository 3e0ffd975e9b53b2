package permission

import "fmt"

// Decide answers whether c may run under p. It has no side effects and is safe
// for concurrent use if the Checker of c is.
func Decide(p *Policy, c *Call) Decision {
	return run(p, c, nil)
}

// Explain is Decide with the steps that led there, and the parts of the call
// as the tool understands them.
func Explain(p *Policy, c *Call) Explanation {
	var e Explanation
	e.Decision = run(p, c, &e.Steps)
	e.Parts = c.parts(p)
	return e
}

// An Explanation is a decision with its reasons in order.
type Explanation struct {
	Decision
	Steps []Step `json:"steps"`
	Parts []Part `json:"parts,omitempty"`
}

// A Step is one question that was asked on the way to a decision, in the order
// of the package's documentation. The last one decided.
type Step struct {
	Name   string   `json:"step"`           // "deny rules", "tool", "explore", …
	Answer Behavior `json:"answer"`         // BehaviorNone: went on to the next step
	Reason string   `json:"reason"`         // what was found
	Rule   *Rule    `json:"rule,omitempty"` // the rule that matched
}

// A Part is a piece of a call that is judged by itself, such as a simple
// command in a line of shell.
type Part struct {
	Argv    []string `json:"argv"`
	Effects []string `json:"effects"`          // such as "read", "write", "network"
	Reason  string   `json:"reason,omitempty"` // why it is not read-only
}

func run(p *Policy, c *Call, trace *[]Step) Decision {
	mode := p.Mode
	if mode == "" {
		mode = ModeDefault
	}
	e := engine{p: p, c: c, mode: mode, trace: trace}
	if !mode.known() {
		return e.answer("mode", Decision{Behavior: Deny, Reason: fmt.Sprintf("unknown mode %q; %s", mode, modeNames)})
	}
	d := e.decide()
	if d.Behavior != Deny {
		d.Confined = e.own.Confined
		d.Judgement = e.own.found(p, d.Behavior == Ask || d.Rule != nil)
		d.Judgement.seal = d.Judgement.digest(c.Tool, c.Input)
	}
	if d.Behavior == Ask && mode == ModeDontAsk {
		return e.answer("mode", Decision{Behavior: Deny, Rule: d.Rule, Reason: "mode dont-ask: " + d.Reason})
	}
	// A safety ask and an ask rule win over every allow rule, so none is suggested.
	if d.Behavior == Ask && !d.Safety && d.Rule == nil {
		d.Suggest = c.suggest(p)
	}
	return d
}

// An engine is one decision under way.
type engine struct {
	p     *Policy
	c     *Call
	mode  Mode
	trace *[]Step
	own   Verdict // of the tool
}

func (e *engine) answer(step string, d Decision) Decision {
	d.ReadOnly = e.c.ReadOnly
	e.note(Step{step, d.Behavior, d.Reason, d.Rule})
	return d
}

func (e *engine) note(s Step) {
	if e.trace != nil {
		*e.trace = append(*e.trace, s)
	}
}

// rules returns the first rule of one behavior that covers the call, and its name for a reason.
func (e *engine) rules(b Behavior) (*Rule, string) {
	r, unreadable := firstMatch(e.p, e.c, b)
	switch {
	case unreadable != nil:
		return r, r.String() + ", which covers every call because its pattern cannot be read: " + unreadable.Error()
	case r != nil:
		return r, r.String()
	case e.trace != nil: // most decisions are not explained
		e.note(Step{Name: string(b) + " rules", Reason: "none covers the call"})
	}
	return nil, ""
}

func (e *engine) decide() Decision {
	if r, name := e.rules(Deny); r != nil {
		return e.answer("deny rules", Decision{Behavior: Deny, Rule: r, Reason: "denied by rule " + name})
	}
	e.own = e.c.check(e.p)
	own := &e.own
	// A tool refuses what can never be right: before its word counts for less,
	// and in every mode.
	if own.Behavior == Deny {
		return e.answer("tool", Decision{Behavior: Deny, Reason: own.Reason})
	}
	if e.c.Control {
		return e.answer("tool", Decision{Behavior: Allow, Reason: "control tool"})
	}
	if own.Confined && own.Found.Profile == ProfileOpen && networkRule(e.p) == Deny {
		return e.answer("deny rules", Decision{Behavior: Deny, Reason: "denied by rule Network: outside of the sandbox the call would have it"})
	}
	// Before ask rules: a question about a call that explore denies would be useless.
	if e.mode == ModeExplore && !e.c.ReadOnly {
		why := "mode explore: the call is not read-only"
		if own.Reason != "" {
			why += ": " + own.Reason
		}
		return e.answer("explore", Decision{Behavior: Deny, Reason: why})
	}
	if own.Behavior == Ask && own.Safety {
		switch e.mode {
		case ModeExplore:
			return e.answer("safety", Decision{Behavior: Deny, Reason: "mode explore: " + own.Reason})
		case ModeBypass:
			e.note(Step{Name: "safety", Reason: "mode bypass skips: " + own.Reason})
		default:
			return e.answer("safety", Decision{Behavior: Ask, Safety: true, Reason: own.Reason})
		}
	}
	// Before read-only and the tool's own allow, which an ask rule overrides.
	if r, name := e.rules(Ask); r != nil {
		return e.answer("ask rules", Decision{Behavior: Ask, Rule: r, Reason: "asked by rule " + name})
	}
	return e.settle()
}

// settle answers what no deny or ask rule and no safety ask stopped.
func (e *engine) settle() Decision {
	own := &e.own
	if e.c.ReadOnly {
		if e.p.TrustReadOnly || e.mode == ModeAcceptEdits || e.mode == ModeSandboxed || e.mode == ModeExplore || e.mode == ModeBypass {
			return e.answer("read-only", Decision{Behavior: Allow, Reason: "read-only"})
		}
		e.note(Step{Name: "read-only", Reason: "the tool's word alone does not count in this mode"})
	}
	if own.Behavior == Allow {
		return e.answer("tool", Decision{Behavior: Allow, Reason: own.Reason})
	}
	why := own.Reason
	if why == "" {
		why = "no opinion"
	}
	e.note(Step{Name: "tool", Reason: why})
	if r, name := e.rules(Allow); r != nil {
		return e.answer("allow rules", Decision{Behavior: Allow, Rule: r, Reason: "allowed by rule " + name})
	}
	if own.Reason == "" {
		why = "no rule covers the call"
	}
	switch e.mode {
	case ModeSandboxed:
		if p := own.Found.Profile; own.Confined && (p == ProfileRead || p == ProfileWork) {
			return e.answer("mode", Decision{Behavior: Allow, Reason: "mode sandboxed: the call is confined"})
		}
	case ModeBypass:
		return e.answer("mode", Decision{Behavior: Allow, Reason: "mode bypass"})
	case ModeExplore:
		return e.answer("mode", Decision{Behavior: Deny, Reason: "mode explore: " + why})
	}
	return e.answer("mode", Decision{Behavior: Ask, Reason: why})
}

func firstMatch(p *Policy, c *Call, b Behavior) (*Rule, error) {
	for i := range p.Rules {
		if r := &p.Rules[i]; r.effect() == b {
			if ok, unreadable := r.matches(p, c); ok {
				return r, unreadable
			}
		}
	}
	return nil, nil
}
