package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// tool returns the tool that an open call would run. It is looked up each time and
// never kept: after a pause it may be another one, or gone.
func (r *run) tool(c *openCall) (tool.Tool, error) {
	t, _, err := r.resolve(c.Tool, c.Input)
	return t, err
}

// stateful returns ctx with the State of tools, which a run puts into the context
// of every step; a middleware may pass on another.
func (r *run) stateful(ctx context.Context) context.Context {
	if tool.StateFrom(ctx) == &r.st.Tools {
		return ctx
	}
	return tool.WithState(ctx, &r.st.Tools)
}

// judgeAll decides about every call that has not been judged. All are judged before
// any runs, so that a person gets the questions of an answer together.
func (r *run) judgeAll() error {
	for _, c := range r.st.open {
		if c.Status != statusNew {
			continue
		}
		if err := r.judge(c); err != nil {
			return err
		}
	}
	return nil
}

// judge asks the permission engine about c. Afterwards c is allowed, asked
// about, covered by another question, or done because it was denied.
func (r *run) judge(c *openCall) error {
	t, err := r.tool(c)
	if err != nil { // the list of tools has changed since
		return r.finish(c, failed(c, message.OutcomeError, err.Error()))
	}
	p := r.currentPolicy()
	pc := tool.PermissionCall(t, c.Input)
	d := r.decide(c, p, pc)
	switch {
	case d.Behavior == permission.Allow, c.mayRun(d):
		c.Status, c.Judged = statusAllowed, r.st.doneCalls()
		if !c.Approved {
			c.Why = d.Reason
		}
		return nil
	case d.Behavior == permission.Ask:
		c.Approved = false
		c.Why, c.Safety, c.Suggest, c.Danger = d.Reason, d.Safety, d.Suggest, ""
		if d.Safety {
			c.Danger = d.Reason
		}
		if !d.Safety && r.isCovered(p, pc, c) {
			c.Status = statusCovered
			return nil
		}
		c.Status, c.Preview, c.Asked = statusAsking, preview(r.ctx, t, c.Input), r.cfg.Now()
		if r.cfg.Approve != nil {
			return r.approve(c)
		}
		return nil
	default:
		return r.finish(c, failed(c, message.OutcomeDenied, fmt.Sprintf("This call of %s was denied: %s.", c.Tool, d.Reason)))
	}
}

// mayRun reports whether a person's approval answers the question that the
// decision asks. A call that has become dangerous since, by an edit or by what
// ran before it, or is so for another reason than the person read, is asked
// about again.
func (c *openCall) mayRun(d permission.Decision) bool {
	return c.Approved && d.Behavior == permission.Ask && (!d.Safety || c.Safety && d.Reason == c.Danger)
}

// isCovered reports whether a rule suggested with an earlier question of this
// batch would answer the question about c too. Ten reads of one folder are then one
// question; should the person accept no rule, the others are asked about after all.
// Safety questions cover nothing, since no rule can answer them.
func (r *run) isCovered(p *permission.Policy, pc *permission.Call, c *openCall) bool {
	for _, other := range r.st.open {
		if other == c || other.Status != statusAsking || other.Safety || other.Tool != c.Tool {
			continue
		}
		with := *p
		with.Rules = append(append([]permission.Rule(nil), p.Rules...), other.Suggest...)
		if r.a.judge(r.stateful(r.ctx), &with, pc).Behavior == permission.Allow {
			return true
		}
	}
	return false
}

// preview returns what t shows of a call to a person, "" if it has nothing. It is
// made once, when the question comes up, and saved with it: the person is to decide
// about what stood there then.
func preview(ctx context.Context, t tool.Tool, input json.RawMessage) (text string) {
	p, ok := tool.As[tool.Previewer](t)
	if !ok {
		return ""
	}
	defer func() {
		if recover() != nil {
			text = "" // the person sees the arguments
		}
	}()
	text, err := p.Preview(ctx, input)
	if err != nil {
		return ""
	}
	return text
}

// approve lets Config.Approve answer the question about c. When that takes
// longer than the question stands, the call waits as if nobody had been there to
// answer: what the person saw may not be true any more.
func (r *run) approve(c *openCall) error {
	q := Approval{Call: c.ID, Name: c.Tool, Input: c.Input, Reason: c.Why, Safety: c.Safety, Suggest: c.Suggest, Preview: c.Preview}
	if err := r.save(); err != nil {
		return err
	}
	answer, err := r.askApprove(q)
	if r.expired(c) && r.ctx.Err() == nil {
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.checkConfirm(answer, map[string]bool{}); err != nil {
		return err
	}
	return r.confirm(c, answer)
}

// askApprove tells of a question and puts it to Config.Approve, unless the run
// has been cancelled. The context ends when the question has expired.
func (r *run) askApprove(q Approval) (Confirm, error) {
	ev := q
	r.emit(&ev)
	if r.ctx.Err() != nil || !take(r.ctx, r.asking) {
		return Confirm{}, r.ctx.Err()
	}
	defer func() { <-r.asking }()
	ctx := r.ctx
	if due := r.due(q.Call); !due.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, due.Sub(r.cfg.Now())+1) // the last moment counts
		defer cancel()
	}
	answer, err := r.cfg.Approve(ctx, q)
	if err != nil {
		return Confirm{}, fmt.Errorf("approve call %s of %s: %w", q.Call, q.Name, err)
	}
	answer.Call = q.Call
	return answer, nil
}

// report is what a worker tells the run: a chunk, something to do for it, or that
// its call has ended.
type report struct {
	call  *openCall
	chunk tool.Chunk

	do    func() error // is run on the run's goroutine, which owns the State; an error ends the run
	heard chan error   // gets what do returned

	leaves bool // the call goes on in the background

	done bool
	res  *message.ToolResult
	err  error // wraps tool.ErrAbort
	nest *nest // of a sub-agent
}

// onRun has the run's goroutine call fn, and returns what fn does. done is closed
// when nobody listens any more. That can be in the middle of fn: what it tells the
// consumer of may make that one panic, or end its goroutine as t.Fatal does.
func onRun(reports chan<- report, done <-chan struct{}, fn func() error) error {
	heard := make(chan error, 1)
	return handOver(reports, report{do: fn, heard: heard}, heard, done)
}

// handOver sends what the receiver is to do, and returns what came of it.
func handOver[T any](to chan<- T, what T, heard <-chan error, done <-chan struct{}) error {
	select {
	case to <- what:
	case <-done:
		return ErrInterrupted
	}
	select {
	case err := <-heard:
		return err
	case <-done:
		return ErrInterrupted
	}
}

// call runs the given calls side by side, at most Config.MaxParallel at a time,
// and returns when all have ended.
func (r *run) call(calls []*openCall) error {
	defer r.dropEarly() // what an error keeps from being followed
	if same, err := r.countEarly(); !same {
		return err
	}
	if len(calls) == 1 && r.isWaitedFor(calls[0]) {
		return r.wait(calls[0])
	}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel() // one that aborts the run stops the others
	reports, done := make(chan report), make(chan struct{})
	defer close(done)
	ctx = r.hosting(ctx, reports, done)
	running, started := 0, 0
	r.room = r.cfg.MaxParallel - len(r.st.away)
	var abort error
	for started < len(calls) || running > 0 {
		for started < len(calls) && running < r.cfg.MaxParallel && abort == nil && r.ctx.Err() == nil {
			c := calls[started]
			started++
			ok, err := r.start(ctx, c, reports, done)
			if err != nil {
				abort = errors.Join(abort, err)
				cancel()
			}
			if ok {
				running++
			}
		}
		if running == 0 {
			break
		}
		rep := r.nextReport(reports)
		if rep.done || rep.leaves {
			running--
		}
		if err := r.hearReport(rep); err != nil {
			abort = errors.Join(abort, err)
			cancel()
		}
	}
	return abort
}

// nextReport waits for what a worker of this batch tells, or something that is told
// to the whole run.
func (r *run) nextReport(reports <-chan report) report {
	if r.reports == nil {
		return <-reports
	}
	select {
	case rep := <-reports:
		return rep
	case rep := <-r.reports:
		return rep
	}
}

// hearReport deals with what a worker tells.
func (r *run) hearReport(rep report) error {
	switch {
	case rep.do != nil:
		err := rep.do()
		rep.heard <- err
		return err
	case rep.leaves:
		return r.leave(rep.call)
	case !rep.done && rep.call.Status == statusDone: // it has left
	case !rep.done:
		r.emit(deltaOf(rep.call, rep.chunk))
	case rep.nest != nil && rep.nest.waiting != nil:
		rep.call.Sub, rep.call.Status = rep.nest.waiting, statusNested
		return r.save()
	default:
		if r.jobs != nil {
			r.jobs.put(rep.call.ID, nil)
		}
		rep.call.Sub = nil
		return errors.Join(rep.err, r.finish(rep.call, rep.res))
	}
	return nil
}

// start hands c to a worker, unless it is not to run. It reports whether a worker
// runs.
func (r *run) start(ctx context.Context, c *openCall, reports chan<- report, done <-chan struct{}) (bool, error) {
	t, err := r.admit(c)
	if t == nil {
		return false, err
	}
	ctx = inCall(r.stateful(ctx), c)
	if r.jobs != nil {
		ctx = context.WithValue(ctx, jobsKey{}, r.jobs)
	}
	w := &worker{call: c, reports: reports, done: done, work: r.workOf(t, c, r.lastID())}
	if _, ok := tool.As[*subagent](t); ok {
		ctx, w.nest = r.nest(ctx, c, reports, done)
		w.work.timeout = -1
	}
	if c.early != nil {
		c.early.followed = true
	}
	if limit := r.patience(t, c); limit >= 0 {
		r.startJob(ctx, c, w.work, limit)
		return true, nil
	}
	w.start(ctx, r.a)
	return true, nil
}

// admit judges c again if anything has happened since it was allowed, and returns
// the tool that runs it, nil if nothing does: a call that ran meanwhile may have
// made this one dangerous, by writing the file that it executes. That it runs is
// stored before it does, or a crash would leave no trace of what it may have done.
func (r *run) admit(c *openCall) (tool.Tool, error) {
	for c.early == nil && c.Judged != r.st.doneCalls() { // more than once when Config.Approve edits it
		if err := r.judge(c); err != nil || c.Status != statusAllowed {
			return nil, err
		}
	}
	t, err := r.tool(c)
	if err != nil {
		return nil, r.finish(c, failed(c, message.OutcomeError, err.Error()))
	}
	if t.Info().External {
		c.Status = statusExternal
		return nil, nil
	}
	c.Status = statusRunning
	if err := r.save(); err != nil {
		return nil, err
	}
	r.emit(&ToolStart{Call: c.ID, Name: c.Tool, Reason: c.Why})
	return t, nil
}

// lastID returns the id of the last message, which is the answer whose calls are
// open.
func (r *run) lastID() string { return r.st.Messages[len(r.st.Messages)-1].ID }

// workOf returns what is to be done for c, a call of the message named answer.
func (r *run) workOf(t tool.Tool, c *openCall, answer string) work {
	w := work{tool: t, call: tool.Call{ID: c.ID, Name: c.Tool, Input: c.Input}, timeout: r.cfg.ToolTimeout}
	if isIdempotent(t, c.Input) {
		w.call.Key = r.idempotencyKey(c, answer)
	}
	if r.cfg.Step != nil {
		w.step = r.stepID(c, answer)
	}
	return w
}

// stepID names the step that runs c, as nothing else in this State. The id of the
// message is in it because a model may use the id of a call again once a compaction
// has forgotten it.
func (r *run) stepID(c *openCall, answer string) string {
	return r.st.run + "/" + answer + "/" + c.ID
}

// finish stores the result of a call and tells of it. It does so for each call as it
// ends, although they enter the history together: a crash must not lose the results
// that are there.
func (r *run) finish(c *openCall, res *message.ToolResult) error {
	res = r.tidy(c.ID, c.Name, res)
	if c.Edited {
		note := fmt.Sprintf("[A person changed the arguments of this call to %s.]", c.Input)
		res.Blocks = append(message.Blocks{&message.Text{Text: note}}, res.Blocks...)
	}
	c.Result, c.Status = res, statusDone
	// An answer that failed to validate is an error result; the model tries again.
	if r.isFinal(c) && res.Outcome == message.OutcomeSuccess {
		r.final.value = c.Input
	}
	return r.store(c.resultEvent())
}

// tidy makes res fit to be stored, as the result of a call.
func (r *run) tidy(call, name string, res *message.ToolResult) *message.ToolResult {
	res.ID, res.Name, res.Blocks = call, name, withoutDamaged(res.Blocks)
	return r.clip(res)
}

func (c *openCall) resultEvent() *ToolResult {
	return &ToolResult{Call: c.ID, Name: c.Tool, Outcome: c.Result.Outcome, Text: c.Result.Text(), Result: c.Result}
}

func failed(c *openCall, outcome message.Outcome, text string) *message.ToolResult {
	return &message.ToolResult{ID: c.ID, Name: c.Name, Outcome: outcome, Blocks: message.Blocks{&message.Text{Text: text}}}
}

// closeBatch adds the results of all open calls to the conversation, in call
// order, and lets the toolkit know which succeeded.
func (r *run) closeBatch() error {
	v, err := r.currentView()
	if err != nil {
		return err
	}
	m := closing(r.st.open)
	m.ID, m.Created = r.cfg.NewID("msg"), r.cfg.Now()
	var succeeded []string
	for _, c := range r.st.open {
		if c.Result.Outcome == message.OutcomeSuccess && !r.st.isAway(c.ID) {
			succeeded = append(succeeded, c.Tool)
		}
	}
	v.Advance(succeeded...) // once, after all: the order in which calls ended must not matter
	r.view, r.st.open = nil, nil
	return r.addMessage(m, "")
}

// closeOpen gives every open call without a result an interrupted one, and adds
// the batch to the conversation: APIs refuse a history in which a call has none, and
// such a conversation could never go on. It goes on after an error, since what it
// leaves in memory must be whole even if no store takes it.
func (r *run) closeOpen(why string) error {
	if len(r.st.open) == 0 {
		return nil
	}
	var errs []error
	for _, c := range r.st.open {
		if c.Status != statusDone {
			errs = append(errs, r.finish(c, failed(c, message.OutcomeInterrupted, why)))
		}
	}
	m := closing(r.st.open)
	m.ID, m.Created = r.cfg.NewID("msg"), r.cfg.Now()
	r.view, r.st.open = nil, nil
	return errors.Join(append(errs, r.addMessage(m, ""))...)
}
