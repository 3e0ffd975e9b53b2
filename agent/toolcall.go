package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/internal/mcpcontent"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
)

// newToolCall returns the flight for c, a call of the message named answer. Its calls in a run that
// works for another are named after the other's, joined with a slash.
func (r *run) newToolCall(c *openCall, t tool.Tool, answer string) *toolCall {
	tc := &toolCall{run: r, call: c, id: c.ID, above: callIn(r.ctx), tool: t, timeout: r.cfg.ToolTimeout, patience: r.patience(t, c),
		work: tool.Call{ID: c.ID, Name: c.Tool, Input: c.Input, Judgement: c.Judgement, Judge: r.judgeAnew()}}
	tc.task = tc
	if tc.above != nil {
		tc.id = tc.above.id + "/" + c.ID
	}
	if isIdempotent(t, c.Input) {
		tc.work.Key = r.idempotencyKey(c, answer)
	}
	if _, nested := tool.As[*subagent](t); nested {
		tc.timeout, tc.nest = -1, r.nestFor(tc)
	}
	return tc
}

// startToolCall starts the call.
func (r *run) startToolCall(tc *toolCall) {
	step, ctx := r.ctx, r.stateful(r.ctx)
	if tc.patience >= 0 {
		ctx = context.WithoutCancel(ctx)
	}
	if tc.timeout > 0 {
		ctx, tc.cancel = context.WithTimeoutCause(ctx, tc.timeout, errTooSlow)
	} else {
		ctx, tc.cancel = context.WithCancel(ctx)
	}
	release := func() {}
	if tc.patience >= 0 {
		release = tc.outlive(step, r.runCtx)
		tc.done, tc.clean = make(chan struct{}), r.cfg.Redact.Stream()
	}
	ctx = context.WithValue(host.With(ctx, r.host()), callKey{}, tc)
	if tc.nest != nil {
		ctx = context.WithValue(ctx, nestKey{}, tc.nest)
	}
	tools := r.a.tools
	r.launch(&tc.flight, func() {
		defer release()
		tc.execute(ctx, tools)
	})
}

// outlive has the call end with the run, and with the step until it is unbound from that: the context
// of a Middleware.Step may end with the step, when the call is in the background.
func (tc *toolCall) outlive(step, run context.Context) (release func()) {
	unbind := context.AfterFunc(step, func() { tc.end(context.Cause(step)) })
	unbindRun := context.AfterFunc(run, func() { tc.end(context.Cause(run)) })
	tc.unbind = unbind
	return func() { unbind(); unbindRun() }
}

// maxSaid is how much a call may say, in bytes, pictures and files included, before it is stopped
// with its next piece. Its result is kept in memory until it ends: one that says something for ever
// would take all there is. pieceCost is what a piece costs in addition to its text.
const (
	maxSaid   = 64 << 20
	pieceCost = 128
)

// lost is the result of a call whose goroutine middleware has ended, as t.FailNow of package
// testing does.
const lost = "The call failed: its goroutine was ended before it had returned."

// execute makes the call, on the flight's goroutine. What the tool had said before it was stopped,
// by a time-out or with the run, stays in the result: the model may have use for it.
func (tc *toolCall) execute(ctx context.Context, middleware []tool.Middleware) {
	all, size := tool.NewCollector(tc.work), 0
	var failure error
	// Called instead of ranged over: the body of a loop would be four allocations.
	tool.Run(ctx, tc.tool, tc.work, middleware...)(func(ch tool.Chunk, err error) bool {
		switch {
		case err != nil:
			failure = err
			return false
		case size > maxSaid:
			all.Add(tool.Failure(fmt.Sprintf("The call said more than %d MiB and was stopped.", maxSaid>>20)))
			return false
		}
		size += pieceCost + bytesOf(ch)
		all.Add(ch)
		return tc.run.inbox.put(report{from: &tc.flight, chunk: &ch})
	})
	outcome := message.Outcome("")
	switch cause := tc.why(); {
	case failure == nil:
	case errors.Is(failure, tool.ErrAbort):
		tc.err = failure
		all.Add(tool.Failure(failure.Error()))
	case cause == nil && context.Cause(ctx) == errTooSlow: // the model may try something else
		all.Add(tool.Failure(fmt.Sprintf("The call took longer than %v and was stopped.", tc.timeout)))
	case errors.Is(cause, errTimeUp):
		all.Add(tool.Failure("The call was stopped: " + cause.Error() + "."))
		outcome = message.OutcomeInterrupted
	default:
		all.Add(tool.Failure("The call was interrupted before it ended."))
		outcome = message.OutcomeInterrupted
	}
	tc.res = encodable(all.Result())
	if outcome != "" {
		tc.res.Outcome = outcome
	}
	if failure == nil {
		delete(tc.res.Meta, mcpcontent.Key) // which is for gateways: sessions would keep everything twice
	}
}

// encodable leaves out what is not JSON where it should be; the text stays. A State could not be
// encoded with it.
func encodable(res *message.ToolResult) *message.ToolResult {
	if !json.Valid(res.Structured) {
		res.Structured = nil
	}
	maps.DeleteFunc(res.Meta, func(_ string, v json.RawMessage) bool { return !json.Valid(v) })
	return res
}

// bytesOf returns how many bytes of content a chunk holds.
func bytesOf(ch tool.Chunk) int {
	switch b := ch.Block.(type) {
	case *message.Text:
		return len(b.Text)
	case *message.Data:
		return len(b.Bytes)
	}
	return 0
}

// onReport takes what the call says.
func (tc *toolCall) onReport(r *run, rep report) error {
	tc.note(*rep.chunk)
	if !tc.background {
		if ev := deltaOf(tc.call, *rep.chunk); ev != nil {
			r.emit(ev)
		}
	}
	return nil
}

// tailSize is how much of what a call says in the background can be looked at, in bytes.
const tailSize = 4000

// note keeps the end of what the call says, for a model that wants to know how far it is. The
// beginning of a log does not help there, and may be long.
func (tc *toolCall) note(ch tool.Chunk) {
	t, ok := ch.Block.(*message.Text)
	if !ok || ch.ForUser || tc.done == nil {
		return
	}
	tc.tail += tc.clean.Write(t.Text)
	if cut := len(tc.tail) - tailSize; cut > 0 {
		tc.tail = strings.ToValidUTF8(tc.tail[cut:], "")
	}
}

// onEnd records the result, unless the call is in the background: then that waits until the conversation can take it.
func (tc *toolCall) onEnd(r *run) error {
	if tc.panicked != nil {
		panic(tc.panicked)
	}
	if tc.res == nil {
		tc.res = decide.ResultOf(tc.call, message.OutcomeError, lost)
	}
	if tc.done != nil {
		close(tc.done)
	}
	if tc.timer != nil {
		tc.timer.Stop()
	}
	switch {
	case tc.background:
		return nil
	case tc.nest != nil && tc.nest.waits:
		tc.call.Status = decide.Nested
		return r.save()
	}
	return join(tc.err, r.finish(tc.call, tc.res))
}

// deltaOf returns the event for a chunk, nil if it has nothing to show. Bytes of pictures and files are left to the result: a UI
// can show nothing of them before they are whole.
func deltaOf(c *openCall, ch tool.Chunk) *event.ToolDelta {
	if ch.Block == nil && ch.Progress == nil {
		return nil
	}
	ev := &event.ToolDelta{Call: c.ID, Name: c.Tool, ForUser: ch.ForUser, Progress: ch.Progress}
	switch b := ch.Block.(type) {
	case *message.Text:
		ev.Text = b.Text
	case *message.Data:
		ev.Data = b.MediaType
	}
	return ev
}

// start has c run, unless it is not to, and returns its flight, which is yet to be committed. One
// that has started early is joined.
func (r *run) start(c *openCall) (*flight, error) {
	tc := r.early.find(c)
	early := tc != nil && tc.started()
	t, err := r.admit(c, early)
	if t == nil || err != nil {
		return nil, err
	}
	if !early {
		tc = r.newToolCall(c, t, r.st.Messages[len(r.st.Messages)-1].ID)
		r.startToolCall(tc)
	}
	if tc.patience == 0 { // without a look at whether it has ended
		err = r.leave(tc)
	} else if tc.patience > 0 {
		in := &r.inbox
		tc.timer = time.AfterFunc(tc.patience, func() { in.ask(&tc.flight, func() error { return r.leave(tc) }) })
	}
	return &tc.flight, err
}

// admit judges c again if anything has happened since it was allowed, and returns the tool that
// runs it, nil if none does: a call that ran meanwhile may have made this one dangerous, by writing
// the file that it executes. That it runs is stored before it does, or a crash would leave no trace
// of what it may have done.
func (r *run) admit(c *openCall, early bool) (tool.Tool, error) {
	for !early && c.Judged != r.st.loop.Ended() { // more than once when Config.Approve edits it
		if err := r.judge(c); err != nil || c.Status != decide.Allowed {
			return nil, err
		}
	}
	t, err := r.tool(c)
	if err != nil {
		return nil, r.finish(c, decide.ResultOf(c, message.OutcomeError, err.Error()))
	}
	if t.Info().External {
		c.Status = decide.External
		return nil, nil
	}
	if !early && !r.isFinal(c) && r.timeIsUp() {
		return nil, r.notStarted(c)
	}
	c.Status = decide.Running
	seq := r.st.loop.Seq
	r.hold(&event.ToolStart{Call: c.ID, Name: c.Tool, Reason: c.Why})
	if err := r.save(); err != nil {
		c.Status = decide.Allowed // nothing of it runs
		r.consumer.forget(seq)
		return nil, err
	}
	return t, nil
}

// notStarted ends a call whose turn came after Limits.Time had passed.
func (r *run) notStarted(c *openCall) error {
	text := "Not run: "
	if c.Sub != nil {
		text = "The agent was stopped: "
	}
	return r.finish(c, decide.ResultOf(c, message.OutcomeInterrupted, text+r.limits().TimeUp()+" was reached."))
}

// startAll starts calls, unless what started early is not to count: then it has to be asked again
// what may start. No result is taken before all have started, since that would have the others
// judged again.
func (r *run) startAll(calls []*openCall) error {
	same, err := r.countEarly()
	if !same {
		return err
	}
	var started [8]*flight
	flights := started[:0]
	for _, c := range calls {
		if err != nil || r.failed != nil || r.ctx.Err() != nil {
			break
		}
		var f *flight
		if f, err = r.start(c); f != nil {
			flights = append(flights, f)
		}
	}
	for _, f := range flights {
		err = join(err, r.commit(f))
	}
	return err
}
