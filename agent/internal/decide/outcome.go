package decide

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// OutcomeUnknown is the result of a call that had begun when the program was stopped.
const OutcomeUnknown = "Outcome unknown: the program was stopped while this call ran. " +
	"It may or may not have had its effect: check before you call it again."

// continues is the result of a call that continues in the background.
const continues = "This call continues in the background, as %s. Continue with what does not depend on it. " +
	"You will get its result when it ends."

// crashGap is how many event numbers are skipped after a crash.
const crashGap = 1_000_000

// Begin begins a run with the given id, or continues an earlier one, and reports whether it continues one. A run
// that ended says so in its last save; one that did not may have used more event numbers than it saved.
func (s *State) Begin(id string) (resumed bool) {
	if s.Running {
		s.Seq += crashGap
	}
	s.Running = true
	if s.Run != "" {
		return true
	}
	s.Run = id
	return false
}

// End ends a run. A run that waits keeps its id.
func (s *State) End(waiting bool) {
	s.Running = false
	if !waiting {
		s.Run = ""
	}
}

// A Recovery is what the decision about a call that an earlier run left open depends on.
type Recovery struct {
	Idempotent bool // the tool allows repeating the call
	Stuck      bool // nothing can answer what a sub-agent waits for
	Expired    bool // the question about the call has expired
}

// Recover decides about an open call of an earlier run, perhaps of another program, and reports whether its
// outcome is unknown: then it has that result. It relies on no earlier decision about the call: the policy
// and the tools may be different now, and the State may have been changed.
func (c *Call) Recover(in Recovery) (unknown bool) {
	c.Judged = -1
	if c.Edited && c.Judgement == nil { // the arguments of the user were not judged before the program stopped
		c.Approved = false
	}
	switch {
	case c.Status == Running && c.Sub == nil && (c.Again || !in.Idempotent):
		c.end(message.OutcomeInterrupted, OutcomeUnknown)
		return true
	case c.Status == Running && c.Sub == nil:
		c.Status, c.Again = Allowed, true // only once: a call that stops the program must not do so again and again
	case c.Status == Running, c.Status == Nested && in.Stuck:
		c.Status = Allowed // a sub-agent recovers its own calls
	case c.Status == Covered, c.Status == Asking && in.Expired:
		c.Status = New
	}
	return false
}

// An Opening is what the decision about a call of a new answer depends on.
type Opening struct {
	CutOff       bool   // the answer ended in the middle of the call's arguments
	Final        bool   // the call gives the typed answer, which no limit refuses
	LimitReached string // the limit on calls that was reached before this call, "" for none
}

// AddCall adds a call of a new answer. A call that cannot run gets its result at once, so that after a crash
// it does not look like one that was cut off.
func (s *State) AddCall(c *Call, o Opening) {
	switch {
	case c.Status == Done:
	case o.CutOff: // the rest is unknown: "/tmp/a" may be the beginning of "/tmp/a/b"
		c.end(message.OutcomeError, "Not run: your answer was cut off by the limit on its length, and the arguments with it. Make a shorter call.")
	case o.LimitReached != "" && !o.Final:
		c.end(message.OutcomeError, "Not run: "+o.LimitReached+" was reached.")
	}
	s.Open = append(s.Open, c)
}

// Judged applies the decision about c, and returns the effect: Allow, Ask or Deny.
func (s *State) Judged(c *Call, d permission.Decision) permission.Behavior {
	switch {
	case d.Behavior == permission.Allow, c.mayRun(d):
		c.Status, c.Judged, c.Judgement = Allowed, s.EndedCalls(), &d.Judgement
		if !c.Approved {
			c.Why = d.Reason
		}
		return permission.Allow
	case d.Behavior == permission.Ask:
		c.Approved, c.Judgement, c.Confined = false, &d.Judgement, d.Confined
		c.Why, c.Safety, c.Suggest, c.Danger = d.Reason, d.Safety, d.Suggest, ""
		if d.Safety {
			c.Danger = d.Reason
		}
		return permission.Ask
	}
	return permission.Deny
}

// mayRun reports whether the user's approval answers the question of the decision. It does not if the call is now
// dangerous for a reason that the user was not shown, would do something else, would no longer run in a sandbox, or
// would leave the sandbox although only an unsealed State says that the user agreed.
func (c *Call) mayRun(d permission.Decision) bool {
	if !c.Approved || d.Behavior != permission.Ask || d.Safety && !(c.Safety && d.Reason == c.Danger) {
		return false
	}
	if c.Confined && !d.Confined {
		return false
	}
	if c.Unverified && d.Confined && d.Judgement.Profile == permission.ProfileOpen { // it would leave the sandbox
		return false
	}
	if c.Judgement == nil { // the user has just edited the arguments, or the program that asked stored no judgement
		return c.Edited || d.Judgement.IsZero()
	}
	return c.Judgement.Same(&d.Judgement)
}

// CoveringRules returns the rules that were suggested with each earlier question and that may cover c: ten
// reads of one folder then need one question. Safety questions cover nothing, since no rule can answer them.
func (s *State) CoveringRules(c *Call) (out [][]permission.Rule) {
	if c.Safety {
		return nil
	}
	for _, other := range s.Open {
		if other != c && other.Status == Asking && !other.Safety && other.Tool == c.Tool {
			out = append(out, other.Suggest)
		}
	}
	return out
}

// Ask makes c wait for the user, who is shown the preview.
func (s *State) Ask(c *Call, preview string, now time.Time) {
	c.Status, c.Preview, c.Asked, c.Question = Asking, preview, now, s.Seq+1
}

// Allow records that the user allowed c, with edited arguments unless they are nil. The call is judged again
// before it starts, especially against deny rules.
func (s *State) Allow(c *Call, by string, edited json.RawMessage) {
	s.uncover()
	c.Approved, c.Status, c.Why, c.Judged = true, Allowed, "allowed by "+by, -1
	c.Unverified = c.Unverified && c.Sub != nil // the user has not approved what a sub-agent's State claims
	if edited != nil {                          // judged now, because the arguments may mean something else when the call starts
		c.Input, c.Edited, c.Judgement, c.Status = edited, true, nil, New
	}
}

// Refuse records that the user refused c, and the text that the model reads.
func (s *State) Refuse(c *Call, text string) {
	s.uncover()
	c.end(message.OutcomeDenied, text)
}

// uncover makes the calls that wait for the answer to a similar call be judged again: a rule of that answer may
// allow them; otherwise the user is asked about each.
func (s *State) uncover() {
	for _, c := range s.Open {
		if c.Status == Covered {
			c.Status = New
		}
	}
}

// JudgeAgain makes every call be judged again before it starts, because the rules have changed.
func (s *State) JudgeAgain() {
	for _, c := range s.Open {
		c.Judged = -1
	}
}

// Resume makes a sub-agent's call run again, since there are answers for it.
func (s *State) Resume(c *Call) {
	if c.Status == Nested { // unless it was refused since
		c.Status, c.Judged = Allowed, -1
	}
}

// End gives c its result, which is kept with the call until all calls have one: a crash must not lose the
// results so far.
func (c *Call) End(res *message.ToolResult) {
	if c.Edited {
		note := fmt.Sprintf("[The user changed the arguments of this call to %s.]", c.Input)
		res.Blocks = append(message.Blocks{&message.Text{Text: note}}, res.Blocks...)
	}
	c.Result, c.Status, c.Sub = res, Done, nil
}

func (c *Call) end(outcome message.Outcome, text string) { c.End(ResultOf(c, outcome, text)) }

// MayMoveToBackground reports whether a call may continue in the background: fewer than limit run there.
func (s *State) MayMoveToBackground(limit int) bool { return len(s.InBackground()) < limit }

// MoveToBackground makes a call continue in the background. Its result, which a history must have, says so; its
// outcome success only means that nothing has failed yet.
func (s *State) MoveToBackground(c *Call) {
	s.Background = append(s.Background, &BackgroundCall{ID: c.ID, Tool: c.Tool})
	c.end(message.OutcomeSuccess, fmt.Sprintf(continues, c.ID))
}

// ResultLost is the result of a background call whose run was cut off. The call is not repeated even if its tool allows
// that: nothing waits for it now, and the model can decide better what is still needed.
func ResultLost() *message.ToolResult {
	return &message.ToolResult{Outcome: message.OutcomeInterrupted, Blocks: message.Blocks{&message.Text{Text: OutcomeUnknown}}}
}

// RemoveEnded removes and returns the background calls that have ended, so that the caller adds their results to the conversation.
func (s *State) RemoveEnded() []*BackgroundCall {
	ended := slices.DeleteFunc(slices.Clone(s.Background), func(bg *BackgroundCall) bool { return bg.Result == nil })
	if len(ended) > 0 {
		s.Background = s.InBackground()
	}
	return ended
}

// Close closes the open calls, which have all ended, and returns the message with their results and the
// names of the tools that succeeded. Calls in the background are counted when they end.
func (s *State) Close() (m *message.Message, succeeded []string) {
	for _, c := range s.Open {
		inBackground := slices.ContainsFunc(s.Background, func(bg *BackgroundCall) bool { return bg.ID == c.ID })
		if c.Result.Outcome == message.OutcomeSuccess && !inBackground {
			succeeded = append(succeeded, c.Tool)
		}
	}
	m = Results(s.Open)
	s.Open = nil
	return m, succeeded
}

// Interrupt gives every open call that has not ended a result that says why, and returns those calls.
func (s *State) Interrupt(why string) (ended []*Call) {
	for _, c := range s.Open {
		if c.Status != Done {
			c.end(message.OutcomeInterrupted, why)
			ended = append(ended, c)
		}
	}
	return ended
}

// NewInput resets what was spent, for a new input.
func (s *State) NewInput(now time.Time) { s.Spent = Spent{Since: now} }

// The reasons why an answer is refused.
var (
	ErrNoCall     = errors.New("no such call is open")
	ErrNotWaiting = errors.New("the call does not wait for such an answer")
)

// Waiting returns the call that an answer is for. The error lists the calls that wait: hosts that show several
// conversations mix up ids.
func (s *State) Waiting(id string, want Status) (*Call, error) {
	c := s.Find(id)
	switch {
	case c == nil:
		var ids []string
		for _, c := range s.Open {
			if c.Status == want {
				ids = append(ids, c.ID)
			}
		}
		if len(ids) == 0 {
			return nil, fmt.Errorf("%w: %q; no call waits for such an answer, it may have been given already", ErrNoCall, id)
		}
		return nil, fmt.Errorf("%w: %q; these wait for such an answer: %q", ErrNoCall, id, ids)
	case c.Status != want:
		return nil, fmt.Errorf("%w: the status of call %q is %q, not %q", ErrNotWaiting, id, c.Status, want)
	}
	return c, nil
}

// Expired reports whether the question about c may no longer be answered, because what the user was shown may have
// changed. An answer is accepted within the given time, or always if it is 0.
func (c *Call) Expired(within time.Duration, now time.Time) bool {
	return within > 0 && now.Sub(c.Asked) > within
}

// CheckRules checks the rules that come with an answer about a call of a tool. A user who was asked about one
// tool must not be tricked into allowing another, by a UI or by a client of one. Ask rules would undo
// decisions of the policy's author.
func CheckRules(rules []permission.Rule, call, tool string) error {
	for _, rule := range rules {
		switch {
		case rule.Tool != tool:
			return fmt.Errorf("rule %s with the answer to call %q: it must be about the tool that was asked about, %s", rule, call, tool)
		case rule.Behavior != permission.Allow && rule.Behavior != permission.Deny:
			return fmt.Errorf("rule %s with the answer to call %q: its behavior is %q; it must be allow or deny", rule, call, rule.Behavior)
		}
	}
	return nil
}
