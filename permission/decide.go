package permission

import (
	"cmp"
	"fmt"
)

// Decide answers whether c may run under p. It has no side effects and is safe
// for concurrent use if the Checker of c is.
func Decide(p *Policy, c *Call) Decision {
	return decide(p, c, nil)
}

// Explain is [Decide], and also returns the steps of the decision and the parts of the call.
func Explain(p *Policy, c *Call) Explanation {
	var e Explanation
	e.Decision = decide(p, c, &e.Steps)
	e.Parts = c.parts(p)
	return e
}

// An Explanation is a decision with its reasons in order.
type Explanation struct {
	Decision
	Steps []Step `json:"steps"`
	Parts []Part `json:"parts,omitempty"` // empty if the tool judges the call as a whole
}

// A Step is one step of a decision, in the order of the package's documentation. The last step decided.
type Step struct {
	Name   string   `json:"step"`   // "deny rules", "tool", "explore", …
	Answer Behavior `json:"answer"` // BehaviorNone if the next step follows
	Reason string   `json:"reason"`
	Rule   *Rule    `json:"rule,omitempty"` // the rule that matched
}

// A Part is a piece of a call that is judged by itself, such as a simple command in a line of shell.
type Part struct {
	Argv    []string `json:"argv"`
	Effects []string `json:"effects"`          // such as "read", "write", "network"
	Reason  string   `json:"reason,omitempty"` // why the part is not read-only
}

// decide appends the steps of the decision to trace, unless trace is nil.
func decide(p *Policy, c *Call, trace *[]Step) Decision {
	mode := cmp.Or(p.Mode, ModeDefault)
	e := engine{policy: p, call: c, mode: mode, trace: trace}
	a := answer{step: "mode", behavior: Deny}
	if mode.known() {
		a = e.firstAnswer()
	} else {
		a.reason = fmt.Sprintf("unknown mode %q; %s", mode, modeNames)
	}
	e.addStep(Step{a.step, a.behavior, a.reason, a.rule})
	d := Decision{Behavior: a.behavior, Safety: a.safety, ReadOnly: c.ReadOnly, Reason: a.reason, Rule: a.rule}
	switch {
	case d.Behavior == Deny:
		return d
	case d.Behavior == Ask && mode == ModeDontAsk:
		d.Behavior, d.Safety, d.Reason = Deny, false, "mode dont-ask: "+d.Reason
		e.addStep(Step{"mode", Deny, d.Reason, d.Rule})
		return d
	}
	d.Confined = e.verdict.Confined
	d.Judgement = e.verdict.Found
	d.Judgement.complete(p, c, d.Behavior == Ask || d.Rule != nil)
	// No allow rule overrides a safety ask or an ask rule, so none is suggested.
	if d.Behavior == Ask && !d.Safety && d.Rule == nil {
		d.Suggest = c.suggest(p)
	}
	return d
}

// An engine makes one decision.
type engine struct {
	policy  *Policy
	call    *Call
	mode    Mode
	trace   *[]Step // nil unless the decision is explained
	verdict Verdict // of the tool; set after the deny rules
}

// An answer is the result of the step that decided.
type answer struct {
	step     string
	behavior Behavior
	reason   string
	rule     *Rule // the rule that decided, or nil
	safety   bool
}

func (e *engine) addStep(s Step) {
	if e.trace != nil {
		*e.trace = append(*e.trace, s)
	}
}

// firstRule returns the first rule with behavior b that covers the call, and the rule's name for a reason. Without such
// a rule it adds a step.
func (e *engine) firstRule(b Behavior) (*Rule, string) {
	r, invalid := firstMatch(e.policy, e.call, b)
	switch {
	case invalid != nil:
		return r, r.String() + ", which covers every call because its pattern is invalid: " + invalid.Error()
	case r != nil:
		return r, r.String()
	case e.trace != nil: // else the name of the step is not needed
		e.addStep(Step{Name: string(b) + " rules", Reason: "none covers the call"})
	}
	return nil, ""
}

// firstAnswer takes the steps in the order of the package's documentation until a step has an answer.
func (e *engine) firstAnswer() answer {
	if r, name := e.firstRule(Deny); r != nil {
		return answer{step: "deny rules", behavior: Deny, reason: "denied by rule " + name, rule: r}
	}
	e.verdict = e.call.check(e.policy)
	verdict := &e.verdict
	// A tool denies calls that can never be right: no mode and no later step overrides that.
	if verdict.Behavior == Deny {
		return answer{step: "tool", behavior: Deny, reason: verdict.Reason}
	}
	if b := verdict.Behavior; b != BehaviorNone && b != Allow && b != Ask { // may be a misspelled deny
		return answer{step: "tool", behavior: Deny, reason: fmt.Sprintf("the tool's verdict has the unknown behavior %q", b)}
	}
	if e.call.Control {
		return answer{step: "tool", behavior: Allow, reason: "control tool"}
	}
	if verdict.Confined && verdict.Found.Profile == ProfileOpen && networkRule(e.policy) == Deny {
		return answer{step: "deny rules", behavior: Deny, reason: "denied by rule Network: outside of the sandbox the call would have network access"}
	}
	// Mode explore comes before ask rules: the user must not be asked about a call that is denied in any case.
	if e.mode == ModeExplore && !e.call.ReadOnly {
		why := "mode explore: the call is not read-only"
		if verdict.Reason != "" {
			why += ": " + verdict.Reason
		}
		return answer{step: "explore", behavior: Deny, reason: why}
	}
	if verdict.Behavior == Ask && verdict.Safety {
		switch e.mode {
		case ModeExplore:
			return answer{step: "safety", behavior: Deny, reason: "mode explore: " + verdict.Reason}
		case ModeBypass:
			e.addStep(Step{Name: "safety", Reason: "mode bypass skips: " + verdict.Reason})
		default:
			return answer{step: "safety", behavior: Ask, reason: verdict.Reason, safety: true}
		}
	}
	// Ask rules come before read-only and the tool's own allow, and so override both.
	if r, name := e.firstRule(Ask); r != nil {
		return answer{step: "ask rules", behavior: Ask, reason: "asked by rule " + name, rule: r}
	}
	return e.lastSteps()
}

// lastSteps decides about a call that no deny or ask rule and no safety ask has stopped. In mode explore the call is
// read-only.
func (e *engine) lastSteps() answer {
	verdict := &e.verdict
	if e.call.ReadOnly {
		if e.policy.TrustReadOnly || e.mode == ModeAcceptEdits || e.mode == ModeSandboxed || e.mode == ModeExplore || e.mode == ModeBypass {
			return answer{step: "read-only", behavior: Allow, reason: "read-only"}
		}
		e.addStep(Step{Name: "read-only", Reason: "the tool's claim alone does not count in this mode"})
	}
	if verdict.Behavior == Allow {
		return answer{step: "tool", behavior: Allow, reason: verdict.Reason}
	}
	e.addStep(Step{Name: "tool", Reason: cmp.Or(verdict.Reason, "no opinion")})
	if r, name := e.firstRule(Allow); r != nil {
		return answer{step: "allow rules", behavior: Allow, reason: "allowed by rule " + name, rule: r}
	}
	switch e.mode {
	case ModeSandboxed:
		if p := verdict.Found.Profile; verdict.Confined && (p == ProfileRead || p == ProfileWork) {
			return answer{step: "mode", behavior: Allow, reason: "mode sandboxed: the call is confined"}
		}
	case ModeBypass:
		return answer{step: "mode", behavior: Allow, reason: "mode bypass"}
	}
	return answer{step: "mode", behavior: Ask, reason: cmp.Or(verdict.Reason, "no rule covers the call")}
}

// firstMatch returns the first rule with behavior b that covers the call, and the error of its pattern if the pattern is
// invalid.
func firstMatch(p *Policy, c *Call, b Behavior) (match *Rule, invalid error) {
	for i := range p.Rules {
		if r := &p.Rules[i]; r.effect() == b {
			if ok, invalid := r.matches(p, c); ok {
				return r, invalid
			}
		}
	}
	return nil, nil
}
