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
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// resolve finds the tool for a call among those that the model was shown. Opening are groups that
// its answer opens.
func (r *run) resolve(name string, input json.RawMessage, opening ...string) (tool.Tool, json.RawMessage, error) {
	if r.final != nil && name == finalName {
		return r.final.tool, input, nil
	}
	if r.a.background != nil && name == backgroundName {
		return r.a.background, input, nil
	}
	v, err := r.currentView()
	if err != nil {
		return nil, nil, err
	}
	return v.Resolve(r.ctx, name, input, opening...)
}

// tool returns the tool that an open call would run. It is looked up each time and never kept:
// after a pause it may be another one, or gone.
func (r *run) tool(c *openCall) (tool.Tool, error) {
	t, _, err := r.resolve(c.Tool, c.Input)
	return t, err
}

// isFinal reports whether c gives the typed answer that is wanted.
func (r *run) isFinal(c *openCall) bool { return r.final != nil && c.Tool == finalName }

// judge asks the permission engine about c. Afterwards c is allowed, asked about, covered by
// another question, or done because it was denied, or would fail anyway.
func (r *run) judge(c *openCall) error {
	t, err := r.tool(c)
	if err != nil { // the list of tools has changed since
		return r.finish(c, decide.ResultOf(c, message.OutcomeError, err.Error()))
	}
	p := r.currentPolicy()
	pc := tool.PermissionCall(t, c.Input)
	d := r.decision(c, p, pc)
	switch r.st.loop.Judged(c, d) {
	case permission.Allow:
		return nil
	case permission.Deny:
		return r.finish(c, decide.ResultOf(c, message.OutcomeDenied, fmt.Sprintf("This call of %s was denied: %s.", c.Tool, d.Reason)))
	}
	if r.timeIsUp() { // nor about what would not start any more
		return r.notStarted(c)
	}
	// The preview is saved with the question: the person decides about what was there then.
	preview, err := tool.Preview(r.stateful(r.ctx), t, c.Input)
	if err != nil { // no one is asked about a call that would fail
		return r.finish(c, decide.ResultOf(c, message.OutcomeError, err.Error()))
	}
	if r.isCovered(p, pc, c) {
		c.Status = decide.Covered
		return nil
	}
	r.st.loop.Ask(c, preview, r.cfg.Now())
	_, err = r.approve(c)
	return err
}

// decision asks the permission engine about c, unless that was done early. If it is judged again
// something has happened.
func (r *run) decision(c *openCall, p *permission.Policy, pc *permission.Call) permission.Decision {
	if tc := r.early.find(c); tc != nil && tc.decision != nil {
		d := *tc.decision
		tc.decision = nil
		return d
	}
	return r.a.judge(r.stateful(r.ctx), p, pc)
}

// judgeAnew returns what decides about a call whose arguments middleware has changed, by what the policy is now. It is
// called by the call's goroutine. It asks no one: a person has agreed to other arguments.
func (r *run) judgeAnew() func(context.Context, tool.Tool, tool.Call) (*permission.Judgement, error) {
	p, judge := r.currentPolicy(), r.a.judge
	return func(ctx context.Context, t tool.Tool, c tool.Call) (*permission.Judgement, error) {
		d := judge(ctx, p, tool.PermissionCall(t, c.Input))
		if d.Behavior != permission.Allow {
			return nil, errors.New(d.Reason)
		}
		return &d.Judgement, nil
	}
}

// isCovered reports whether a rule suggested with an earlier question of this batch would answer
// the question about c too. Should the person accept no rule, c is asked about after all.
func (r *run) isCovered(p *permission.Policy, pc *permission.Call, c *openCall) bool {
	for _, rules := range r.st.loop.CoveringRules(c) {
		with := *p
		with.Rules = slices.Concat(p.Rules, rules)
		if r.a.judge(r.stateful(r.ctx), &with, pc).Behavior == permission.Allow {
			return true
		}
	}
	return false
}

// orElse returns what ask returns, which asks a tool about a call, or the safe answer if it panics.
func orElse[T any](safe T, ask func() T) (answer T) {
	defer func() {
		if recover() != nil {
			answer = safe
		}
	}()
	return ask()
}

// approve lets Config.Approve answer what calls, and sub-agents that work on them, ask a person, and
// reports whether that answered anything. A question that it was too slow for still waits, as if no
// one had been there to answer: what the person saw may not be true any more.
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
			case r.tooLate(q.Call) && r.ctx.Err() == nil:
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

// askApprove stores and emits a question about c, or about a call of the sub-agent that works on c,
// and puts it to Config.Approve, unless the run has been cancelled. The context ends when the question
// has expired.
func (r *run) askApprove(q event.Approval, c *openCall) (event.Confirm, error) {
	ev, seq := q, r.st.loop.Seq
	r.hold(&ev)
	c.Announced = decide.Announced{Seq: ev.Seq, Time: ev.Time}
	if err := r.save(); err != nil {
		r.consumer.forget(seq)
		return event.Confirm{}, err
	}
	if err := r.ctx.Err(); err != nil {
		return event.Confirm{}, err
	}
	ctx, pq := r.ctx, new(personQuestion)
	pq.task, pq.stage = pq, committed
	if due, _ := r.due(q.Call); due.IsZero() {
		ctx, pq.cancel = context.WithCancel(ctx)
	} else {
		ctx, pq.cancel = context.WithTimeout(ctx, due.Sub(r.cfg.Now())+1) // the last moment counts
	}
	asking, approve := r.people.asking, r.cfg.Approve
	var answer event.Confirm
	var err error
	r.fly(&pq.flight, func() {
		if !take(ctx, asking) {
			err = ctx.Err()
			return
		}
		defer func() { <-asking }()
		answer, err = approve(ctx, q)
	})
	r.awaitAnswer(&pq.flight)
	switch {
	case r.failed != nil: // the answer, or that there is none, does not count
		return event.Confirm{}, r.failed
	case err != nil:
		return event.Confirm{}, fmt.Errorf("approve call %s of %s: %w", q.Call, q.Name, err)
	}
	answer.Call, answer.Question = q.Call, q.Question
	return answer, nil
}

// A personQuestion is the flight of a question that Config.Approve answers. It is not in run.flights:
// no limit of time ends it.
type personQuestion struct{ flight }

func (*personQuestion) onReport(*run, report) error { return nil }
func (pq *personQuestion) onEnd(*run) error         { pq.repeat(); return nil }

// awaitAnswer deals with what calls report until a person has answered. Their events wait: a program
// that shows events and asks at one terminal never does both at a time.
func (r *run) awaitAnswer(f *flight) {
	r.consumer.paused = true
	defer func() { r.consumer.paused = false }()
	for !f.ended {
		r.receive()
		if r.failed != nil {
			f.end(context.Canceled)
		}
	}
	r.consumer.paused = false
	r.flush()
}

// take waits for a token of the run. It returns false if ctx ended first.
func take(ctx context.Context, token chan struct{}) bool {
	select {
	case token <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// isIdempotent reports whether t allows that a call is made again.
func isIdempotent(t tool.Tool, input json.RawMessage) bool {
	i, ok := tool.As[tool.IdempotentChecker](t)
	return ok && orElse(false, func() bool { return i.CheckIdempotent(input) })
}

// idempotencyKey returns the key of c, a call of the message named answer: the same in every
// process that continues this State, and another for any other call. The id of the message is in it
// because a model may use the id of a call again once a compaction has forgotten it; the arguments
// are since a service refuses a key that comes back with other ones, which a person may have given
// the call in the meantime.
func (r *run) idempotencyKey(c *openCall, answer string) string {
	h := sha256.New()
	for _, part := range []string{r.st.ID, r.st.loop.Run + "/" + answer + "/" + c.ID, string(c.Input)} {
		sum := sha256.Sum256([]byte(part)) // of each, so that no two lists of parts are one text
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// finish stores the result of a call and emits it, as each call ends.
func (r *run) finish(c *openCall, res *message.ToolResult) error {
	c.End(r.tidy(c.ID, c.Name, res))
	// An answer that failed to validate is an error result; the model tries again.
	if r.isFinal(c) && res.Outcome == message.OutcomeSuccess {
		r.final.value = c.Input
	}
	return r.store(newToolResult(c))
}

// tidy makes res fit to be stored, as the result of a call.
func (r *run) tidy(call, name string, res *message.ToolResult) *message.ToolResult {
	res.ID, res.Name, res.Blocks = call, name, withoutDamaged(res.Blocks)
	return r.clip(res)
}

// closeBatch adds the results of all open calls to the conversation, in call order, and lets the
// toolkit know which succeeded: once, after all, since the order in which calls ended must not
// matter.
func (r *run) closeBatch() error {
	v, err := r.currentView()
	if err != nil {
		return err
	}
	return r.addResults(v)
}

// closeOpen ends every open call, and adds the batch to the conversation: APIs refuse a history in
// which a call has no result, and such a conversation could never be continued. An error does not
// stop it, since what it leaves in memory must be whole even if no store takes it.
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

// addResults adds the results of the open calls to the conversation. v learns which succeeded, unless
// it is nil.
func (r *run) addResults(v *toolkit.View) error {
	id, now := r.cfg.NewID("msg"), r.cfg.Now() // first: if one panics the results are still with the calls
	path, handsOver := r.st.pathAfter(r.st.loop.Open)
	m, succeeded := r.st.loop.Close()
	m.ID, m.Created = id, now
	if v != nil {
		v.Advance(succeeded...)
	}
	r.shown.view = nil
	var err error
	if handsOver {
		err = r.handOver(path)
	}
	return join(err, r.addMessage(m, ""))
}
