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

// OutcomeUnknown is the result of a call that was running when the program was stopped.
const OutcomeUnknown = "Outcome unknown: the program was stopped while this call ran. " +
	"It may or may not have had its effect: check before you call it again."

// continuesText is the result of a call that continues in the background.
const continuesText = "This call continues in the background, as %s. Continue with what does not depend on it. " +
	"You will get its result when it ends."

// crashGap is how many event numbers are skipped after a crash: more than any run uses between two saves.
const crashGap = 1_000_000

// Begin begins a run with the given id, or resumes the run that has not ended.
func (s *State) Begin(id string) (resumed bool) {
	if s.Running { // after a crash: events may have got numbers after the last save
		s.Seq += crashGap
	}
	s.Running = true
	if s.Run != "" {
		return true
	}
	s.Run = id
	return false
}

// End ends a run. If the run waits for an answer, the next run continues it under the same id.
func (s *State) End(waiting bool) {
	s.Running = false
	if !waiting {
		s.Run = ""
	}
}

// A Recovery is what the decision about a call that an earlier run left open depends on.
type Recovery struct {
	Idempotent bool // the tool allows repeating the call
	Stuck      bool // the call's sub-agent waits for something that nothing can answer
	Expired    bool // the question about the call has expired
}

// Recover decides about an open call of an earlier run, perhaps of another program. A call that must not run again ends
// with the result OutcomeUnknown, and unknown is true. No earlier decision about the call counts: the policy
// and the tools may be different now, and the State may have been changed.
func (c *Call) Recover(in Recovery) (unknown bool) {
	c.Judged = judgeAgain
	if c.Edited && c.Judgement == nil { // the program stopped before the arguments of the user were judged
		c.Approved = false
	}
	switch {
	case c.Status == Running && c.Sub == nil && (c.Again || !in.Idempotent):
		c.endWithText(message.OutcomeInterrupted, OutcomeUnknown)
		return true
	case c.Status == Running && c.Sub == nil:
		c.Status, c.Again = Allowed, true // repeated only once: the call itself may be what stops the program
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
// it does not look like an interrupted one.
func (s *State) AddCall(c *Call, o Opening) {
	switch {
	case c.Status == Done: // rejected, with a result that says why
	case o.CutOff: // "/tmp/a" may be the beginning of "/tmp/a/b"
		c.endWithText(message.OutcomeError, "Not run: your answer was cut off by the limit on its length, and the arguments with it. Make a shorter call.")
	case o.LimitReached != "" && !o.Final:
		c.endWithText(message.OutcomeError, "Not run: "+o.LimitReached+" was reached.")
	}
	s.Open = append(s.Open, c)
}

// ApplyDecision applies the policy's decision about c, and returns what follows: Allow, Ask or Deny. A decision to ask
// becomes Allow if the user has already approved the call. After Deny the caller ends the call.
func (s *State) ApplyDecision(c *Call, d permission.Decision) permission.Behavior {
	switch {
	case d.Behavior == permission.Allow, c.stillApproved(d):
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

// stillApproved reports whether the user's earlier approval of c answers the question of the decision. It does not if the
// call is now dangerous for a reason that the user was not shown, would do something else, would no longer run in a
// sandbox, or would leave the sandbox although only an unsealed State says that the user agreed.
func (c *Call) stillApproved(d permission.Decision) bool {
	if !c.Approved || d.Behavior != permission.Ask || d.Safety && !(c.Safety && d.Reason == c.Danger) {
		return false
	}
	if c.Confined && !d.Confined {
		return false
	}
	if c.Unverified && d.Confined && d.Judgement.Profile == permission.ProfileOpen { // the call would leave the sandbox
		return false
	}
	if c.Judgement == nil { // the user has just edited the arguments, or the program that asked stored no judgement
		return c.Edited || d.Judgement.IsZero()
	}
	return c.Judgement.Same(&d.Judgement)
}

// CoveringRules returns the suggested rules of each open question about the same tool. If the user accepts one that also
// allows c, no question about c is needed: ten reads of a folder need one question. No rule can answer a safety question.
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
	c.Status, c.Preview, c.Asked, c.Question = Asking, preview, now, s.Seq+1 // the next event is the question
}

// Allow records that the user whose name is by allowed c, with edited arguments unless these are nil. The call is judged
// again before it starts, since deny rules apply even then.
func (s *State) Allow(c *Call, by string, edited json.RawMessage) {
	s.uncover()
	c.Approved, c.Status, c.Why, c.Judged = true, Allowed, "allowed by "+by, judgeAgain
	c.Unverified = c.Unverified && c.Sub != nil // the user has not approved what a sub-agent's State claims
	if edited != nil {                          // judge now: if the arguments mean something else when the call starts, the user is asked again
		c.Input, c.Edited, c.Judgement, c.Status = edited, true, nil, New
	}
}

// Refuse records that the user refused c; text is for the model.
func (s *State) Refuse(c *Call, text string) {
	s.uncover()
	c.endWithText(message.OutcomeDenied, text)
}

// uncover has the covered calls judged again: a rule of the user's answer may allow them.
func (s *State) uncover() {
	for _, c := range s.Open {
		if c.Status == Covered {
			c.Status = New
		}
	}
}

// JudgeAgain has every call judged again before it starts, because the rules have changed.
func (s *State) JudgeAgain() {
	for _, c := range s.Open {
		c.Judged = judgeAgain
	}
}

// Resume makes c, the call that a sub-agent works on, run again, since there are answers for the sub-agent.
func (s *State) Resume(c *Call) {
	if c.Status == Nested { // not if another input has ended c
		c.Status, c.Judged = Allowed, judgeAgain
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

func (c *Call) endWithText(outcome message.Outcome, text string) { c.End(ResultOf(c, outcome, text)) }

// MoveToBackground makes a call continue in the background. The call gets a result that says so, since a history must have
// one, with the outcome success, since nothing has failed yet.
func (s *State) MoveToBackground(c *Call) {
	s.Background = append(s.Background, &BackgroundCall{ID: c.ID, Tool: c.Tool})
	c.endWithText(message.OutcomeSuccess, fmt.Sprintf(continuesText, c.ID))
}

// LostResult returns the result of a background call that was running when the program was stopped. The call is not
// repeated, even if the tool is idempotent: the model can decide better what is still needed.
func LostResult() *message.ToolResult {
	return &message.ToolResult{Outcome: message.OutcomeInterrupted, Blocks: message.Blocks{&message.Text{Text: OutcomeUnknown}}}
}

// RemoveEnded removes and returns the background calls that have ended. The caller adds their results to the conversation.
func (s *State) RemoveEnded() []*BackgroundCall {
	ended := slices.DeleteFunc(slices.Clone(s.Background), func(bg *BackgroundCall) bool { return bg.Result == nil })
	if len(ended) > 0 {
		s.Background = s.InBackground()
	}
	return ended
}

// Close removes the open calls, which have all ended, and returns the message with their results and the names of the tools
// that succeeded. A call that continues in the background has not succeeded yet.
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
			c.endWithText(message.OutcomeInterrupted, why)
			ended = append(ended, c)
		}
	}
	return ended
}

// NewInput resets what was spent, for an input that starts new work.
func (s *State) NewInput(now time.Time) { s.Spent = Spent{Since: now} }

// The reasons why an answer is refused.
var (
	ErrNoCall     = errors.New("no such call is open")
	ErrNotWaiting = errors.New("the call does not wait for such an answer")
)

// Waiting returns the call that an answer is for: the open call with the given id, which must have the status want. The error
// lists the calls that wait for such an answer, since hosts that show several conversations mix up ids.
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
			return nil, fmt.Errorf("%w: %q; no call waits for such an answer; perhaps it was given before", ErrNoCall, id)
		}
		return nil, fmt.Errorf("%w: %q; the calls %q wait for such an answer", ErrNoCall, id, ids)
	case c.Status != want:
		return nil, fmt.Errorf("%w: the status of call %q is %q, not %q", ErrNotWaiting, id, c.Status, want)
	}
	return c, nil
}

// Expired reports whether the question about c may no longer be answered, because what the user was shown may have
// changed since. If limit, the time for an answer, is 0, a question does not expire.
func (c *Call) Expired(limit time.Duration, now time.Time) bool {
	return limit > 0 && now.Sub(c.Asked) > limit
}

// CheckRules checks the rules that come with an answer about a call of tool. A UI must not be able to turn the user's
// answer about one tool into a rule for another. An ask rule would override the allow rules of the policy's author.
func CheckRules(rules []permission.Rule, call, tool string) error {
	for _, rule := range rules {
		switch {
		case rule.Tool != tool:
			return fmt.Errorf("rule %s with the answer to call %q: the rule must be about the tool of that call, %s", rule, call, tool)
		case rule.Behavior != permission.Allow && rule.Behavior != permission.Deny:
			return fmt.Errorf("rule %s with the answer to call %q: the behavior of the rule is %q; it must be allow or deny", rule, call, rule.Behavior)
		}
	}
	return nil
}
