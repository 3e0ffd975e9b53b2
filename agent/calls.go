package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/internal/denial"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// resolve returns the tool that a call runs, among those that the model was shown, and the arguments for that tool; see
// [toolkit.View.Resolve].
func (r *run) resolve(name string, input json.RawMessage, opening ...string) (tool.Tool, json.RawMessage, error) {
	if r.final != nil && name == finalName {
		return r.final.tool, input, nil
	}
	if r.agent.background != nil && name == backgroundName {
		return r.agent.background, input, nil
	}
	v, err := r.currentView()
	if err != nil {
		return nil, nil, err
	}
	t, input, err := v.Resolve(r.ctx, name, input, opening...)
	if err != nil {
		err = denial.Hidden(r.currentPolicy(), name, err)
	}
	return t, input, err
}

// notRun returns the result of a call that cannot run because of err. A rule may deny a tool that is hidden or does not
// exist: then the outcome is denied, and notRun sets c.Tool to that tool, since c.Name may be call_tool.
func notRun(c *openCall, err error) *message.ToolResult {
	outcome := message.OutcomeError
	if denied, ok := errors.AsType[*denial.Error](err); ok {
		c.Tool, outcome = denied.Tool, message.OutcomeDenied
	}
	return decide.ResultOf(c, outcome, err.Error())
}

// tool returns the tool that an open call would run. It is looked up each time, since
// the toolkit may have changed during a pause.
func (r *run) tool(c *openCall) (tool.Tool, error) {
	if c.Tool != c.Name { // the model has called call_tool: its arguments name the tool
		t, _, err := r.resolve(c.Name, r.sentInput(c.ID))
		if err != nil || t.Info().Name == c.Tool { // in a forged State they may name different tools; c.Tool counts
			return t, err
		}
	}
	t, _, err := r.resolve(c.Tool, c.Input)
	return t, err
}

// sentInput returns the arguments of a call as the model sent them.
func (r *run) sentInput(id string) json.RawMessage {
	for _, m := range slices.Backward(r.st.Messages) {
		for _, c := range m.ToolCalls() {
			if c.ID == id {
				return c.Input
			}
		}
	}
	return nil
}

func (r *run) isFinal(c *openCall) bool { return r.final != nil && c.Tool == finalName }

// judge asks the permission engine about c. Afterwards c is allowed, waits for the user's answer about c or about a
// similar call, or is done because it is denied or would fail.
func (r *run) judge(c *openCall) error {
	t, err := r.tool(c)
	if err != nil { // the list of tools has changed
		return r.recordResult(c, notRun(c, err))
	}
	p := r.currentPolicy()
	pc := tool.PermissionCall(t, c.Input)
	d := r.agent.judge(r.withToolState(r.ctx), p, pc)
	switch r.st.loop.ApplyDecision(c, d) {
	case permission.Allow:
		return nil
	case permission.Deny:
		return r.recordResult(c, decide.ResultOf(c, message.OutcomeDenied, denial.Denied(c.Tool, d.Reason)))
	}
	if r.timeIsUp() { // do not ask about a call that would not start
		return r.notStarted(c)
	}
	// The preview is saved with the question, as it is what the user decides about.
	preview, err := tool.Preview(r.withToolState(r.ctx), t, c.Input)
	if err != nil { // do not ask about a call that would fail
		return r.recordResult(c, notRun(c, err))
	}
	if r.isCovered(p, pc, c) {
		c.Status = decide.Covered
		return nil
	}
	r.st.loop.Ask(c, preview, r.cfg.Now())
	_, err = r.approve(c)
	return err
}

// changedInputJudge returns a function that judges, by the current policy, a call whose arguments middleware has changed.
// The function is called on the call's goroutine, and returns an error where the policy asks: the user has approved other
// arguments, and cannot be asked while the call runs.
func (r *run) changedInputJudge() func(context.Context, tool.Tool, tool.Call) (*permission.Judgement, error) {
	p, judge := r.currentPolicy(), r.agent.judge
	return func(ctx context.Context, t tool.Tool, c tool.Call) (*permission.Judgement, error) {
		d := judge(ctx, p, tool.PermissionCall(t, c.Input))
		if d.Behavior != permission.Allow {
			return nil, errors.New(d.Reason)
		}
		return &d.Judgement, nil
	}
}

// isCovered reports whether a rule that an earlier open question suggests would also answer the question about c. If the
// user accepts no such rule, the user is asked about c later.
func (r *run) isCovered(p *permission.Policy, pc *permission.Call, c *openCall) bool {
	for _, rules := range r.st.loop.CoveringRules(c) {
		extended := *p
		extended.Rules = slices.Concat(p.Rules, rules)
		if r.agent.judge(r.withToolState(r.ctx), &extended, pc).Behavior == permission.Allow {
			return true
		}
	}
	return false
}

// orElse returns the result of call, which calls a method of a tool, or safe if the method panics.
func orElse[T any](safe T, call func() T) (answer T) {
	defer func() {
		if recover() != nil {
			answer = safe
		}
	}()
	return call()
}

// approve lets Config.Approve answer the questions about calls and about the calls of their sub-agents, and reports
// whether any question was answered. A question that was answered too late stays open, as the preview that the user saw
// may be outdated.
func (r *run) approve(calls ...*openCall) (answered bool, err error) {
	if r.cfg.Approve == nil {
		return false, nil
	}
	var answers []Input
	for _, c := range calls {
		for _, ev := range pendingOf(c, r.st.loop.Run) {
			q, ok := ev.(*event.Approval)
			if !ok || r.tooLate(q.Call) {
				continue
			}
			answer, err := r.askApprove(*q, c)
			switch {
			case r.tooLate(q.Call) && r.ctx.Err() == nil: // the question stays open
			case err != nil:
				return false, err
			default:
				answers = append(answers, answer)
			}
		}
	}
	// While one question was answered, others may have expired.
	answers = slices.DeleteFunc(answers, func(in Input) bool { return r.tooLate(in.(event.Confirm).Call) })
	if err := r.checkInputs(answers); err != nil || len(answers) == 0 {
		return false, err
	}
	_, err = r.apply(answers)
	return true, err
}

// askApprove saves and emits a question about c, or about a call of the sub-agent that works on c, and calls
// Config.Approve with it, unless the run has been cancelled. The context ends when the question expires.
func (r *run) askApprove(q event.Approval, c *openCall) (event.Confirm, error) {
	ev, seqBefore := q, r.st.loop.Seq
	r.emitAfterSave(&ev)
	c.Announced = decide.Announced{Seq: ev.Seq, Time: ev.Time}
	if err := r.save(); err != nil {
		r.consumer.discardAfter(seqBefore)
		return event.Confirm{}, err
	}
	if err := r.ctx.Err(); err != nil {
		return event.Confirm{}, err
	}
	ctx, uq := r.ctx, new(userQuestion)
	uq.task = uq
	if deadline, _ := r.answerDeadline(q.Call); deadline.IsZero() {
		ctx, uq.cancel = context.WithCancel(ctx)
	} else {
		ctx, uq.cancel = context.WithTimeout(ctx, deadline.Sub(r.cfg.Now())+1) // an answer at the deadline itself is accepted
	}
	asking, approve := r.questions.asking, r.cfg.Approve
	var answer event.Confirm
	var err error
	r.startGoroutine(&uq.flight, func() {
		if !acquire(ctx, asking) {
			err = ctx.Err()
			return
		}
		defer func() { <-asking }()
		answer, err = approve(ctx, q)
	})
	r.awaitAnswer(&uq.flight)
	switch {
	case r.failed != nil: // an answer no longer counts
		return event.Confirm{}, r.failed
	case err != nil:
		return event.Confirm{}, fmt.Errorf("approve call %s of %s: %w", q.Call, q.Name, err)
	}
	answer.Call, answer.Question = q.Call, q.Question
	return answer, nil
}

// A userQuestion is the flight of a question that Config.Approve answers. It is not in run.flights:
// no time limit ends it.
type userQuestion struct{ flight }

func (*userQuestion) onReport(*run, report) error { return nil }
func (uq *userQuestion) onEnd(*run) error         { uq.repanic(); return nil }

// awaitAnswer receives reports of calls until the user has answered. The events of the calls wait: a program that shows
// events and questions on one terminal must not do both at a time.
func (r *run) awaitAnswer(f *flight) {
	r.consumer.paused = true
	defer func() { r.consumer.paused = false }() // if receive panics
	for !f.ended {
		r.receive()
		if r.failed != nil {
			f.cancelWith(context.Canceled)
		}
	}
	r.consumer.paused = false
	r.flush()
}

// acquire waits for a token of the run. It returns false if ctx ended first.
func acquire(ctx context.Context, token chan struct{}) bool {
	select {
	case token <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func isIdempotent(t tool.Tool, input json.RawMessage) bool {
	i, ok := tool.As[tool.IdempotentChecker](t)
	return ok && orElse(false, func() bool { return i.CheckIdempotent(input) })
}

// idempotencyKey returns the key of c, a call of the last message: the same key in every process that
// continues this State, and another key for any other call. The key depends on the id of the message because a model may
// reuse a call id that a compaction has removed; and on the arguments because the user may edit them, and services
// reject a key that is reused with other arguments.
func (r *run) idempotencyKey(c *openCall) string {
	answerID := r.st.Messages[len(r.st.Messages)-1].ID
	h := sha256.New()
	for _, part := range []string{r.st.ID, r.st.loop.Run + "/" + answerID + "/" + c.ID, string(c.Input)} {
		sum := sha256.Sum256([]byte(part)) // hash each part, so that different lists cannot be joined to the same text
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// recordResult saves and emits the result of a call.
func (r *run) recordResult(c *openCall, res *message.ToolResult) error {
	c.End(r.cleanResult(c.ID, c.Name, res))
	if r.isFinal(c) && res.Outcome == message.OutcomeSuccess { // else its arguments were invalid, and the model tries again
		r.final.value = c.Input
	}
	return r.store(newToolResult(c))
}

// cleanResult prepares res to be stored as the result of a call: damaged images are replaced, long texts shortened.
func (r *run) cleanResult(call, name string, res *message.ToolResult) *message.ToolResult {
	res.ID, res.Name, res.Blocks = call, name, withoutDamaged(res.Blocks)
	if limit := r.cfg.Window.MaxResult; limit >= 0 {
		return window.Shorten(res, limit, r.storeWhole)
	}
	return res
}

// closeOpen ends every open call with a result that says why, and adds the results to the conversation: APIs reject a
// history with a call without a result. It continues after an error, so that the State in memory is consistent even if
// it cannot be saved.
func (r *run) closeOpen(why string) (err error) {
	if len(r.st.loop.Open) == 0 {
		return nil
	}
	var ended []event.Event
	for _, c := range r.st.loop.Interrupt(why) {
		ended = append(ended, newToolResult(c))
	}
	if len(ended) > 0 {
		err = r.store(ended...)
	}
	return join(err, r.addResults(nil))
}

// addResults adds the results of the open calls, which have all ended, to the conversation, in call order. Unless v is
// nil, it tells v which calls succeeded: at once, so that the order in which they ended does not matter.
func (r *run) addResults(v *toolkit.View) error {
	id, now := r.cfg.NewID("msg"), r.cfg.Now() // before Close, as these functions may panic: then no result is lost
	path, handsOver := r.st.handoffPathAfter(r.st.loop.Open)
	m, succeeded := r.st.loop.Close()
	m.ID, m.Created = id, now
	if v != nil {
		v.Advance(succeeded...)
	}
	r.cache.view = nil
	var err error
	if handsOver {
		err = r.handOver(path)
	}
	return join(err, r.addMessage(m, ""))
}
