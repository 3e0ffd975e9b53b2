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
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
)

// A toolCall is the flight of a call of a tool.
type toolCall struct {
	flight
	run    *run // the call's goroutine uses only the inbox
	call   *openCall
	id     string    // in a sub-agent, the ids of the outer calls come before the call's own: call_1/call_2
	parent *toolCall // the outer call that the sub-agent works for; nil if there is none

	tool    tool.Tool
	req     tool.Call
	timeout time.Duration
	link    *subLink // to the sub-agent; nil for other tools

	// Only for an early call; see earlyCalls:
	raw      string               // the arguments, as the model sent them
	begun    time.Time            // when the call started
	decision *permission.Decision // nil after decideCall has used it

	backgroundAfter time.Duration // after this time the call continues in the background; negative for never

	// Only if the call may run in the background:
	timer    *time.Timer    // fires after backgroundAfter; nil if that is 0
	unbind   func() bool    // detaches the call from the step's context
	done     chan struct{}  // closed when the call is finished
	tail     string         // the end of the output
	redactor *redact.Stream // of tail

	// The result, written before the last report:
	res *message.ToolResult
	err error // wraps tool.ErrAbort
}

type callKey struct{}

// callIn returns the call that ctx was created for, nil if it was not created for a single call.
func callIn(ctx context.Context) *toolCall {
	tc, _ := ctx.Value(callKey{}).(*toolCall)
	return tc
}

// newToolCall returns the flight for c, a call of the message with the id answerID.
func (r *run) newToolCall(c *openCall, t tool.Tool, answerID string) *toolCall {
	tc := &toolCall{run: r, call: c, id: c.ID, parent: callIn(r.ctx), tool: t, timeout: r.cfg.ToolTimeout, backgroundAfter: r.backgroundAfter(t, c),
		req: tool.Call{ID: c.ID, Name: c.Tool, Input: c.Input, Judgement: c.Judgement, Judge: r.changedInputJudge()}}
	tc.task = tc
	if tc.parent != nil {
		tc.id = tc.parent.id + "/" + c.ID
	}
	if isIdempotent(t, c.Input) {
		tc.req.Key = r.idempotencyKey(c, answerID)
	}
	if _, nested := tool.As[*subagent](t); nested {
		tc.timeout, tc.link = -1, r.subLinkFor(tc)
	}
	return tc
}

func (r *run) startToolCall(tc *toolCall) {
	step, ctx := r.ctx, r.withToolState(r.ctx)
	if tc.backgroundAfter >= 0 { // cancelWithRun cancels it instead
		ctx = context.WithoutCancel(ctx)
	}
	if tc.timeout > 0 {
		ctx, tc.cancel = context.WithTimeoutCause(ctx, tc.timeout, errTooSlow)
	} else {
		ctx, tc.cancel = context.WithCancel(ctx)
	}
	release := func() {}
	if tc.backgroundAfter >= 0 {
		release = tc.cancelWithRun(step, r.runCtx)
		tc.done, tc.redactor = make(chan struct{}), r.cfg.Redact.Stream()
	}
	ctx = context.WithValue(host.With(ctx, r.host()), callKey{}, tc)
	if tc.link != nil {
		ctx = context.WithValue(ctx, subLinkKey{}, tc.link)
	}
	middleware := r.agent.toolMiddleware // read here: a hand-off changes r.agent
	r.launch(&tc.flight, func() {
		defer release()
		tc.execute(ctx, middleware)
	})
}

// cancelWithRun cancels the call when the run ends. Until tc.unbind is called it also cancels the call when the step ends:
// a call in the background runs longer than its step.
func (tc *toolCall) cancelWithRun(step, run context.Context) (release func()) {
	unbind := context.AfterFunc(step, func() { tc.cancelWith(context.Cause(step)) })
	unbindRun := context.AfterFunc(run, func() { tc.cancelWith(context.Cause(run)) })
	tc.unbind = unbind
	return func() { unbind(); unbindRun() }
}

// maxOutput is the maximum output of a call in bytes, images and files included; when it is exceeded, the call
// is stopped at its next chunk. The result is kept in memory until the call ends, so endless output would
// use all memory. Each chunk counts as chunkOverhead bytes more than its content.
const (
	maxOutput     = 64 << 20
	chunkOverhead = 128
)

// noReturn is the result of a call whose goroutine was ended by middleware, for example by t.FailNow of package
// testing.
const noReturn = "The call failed: its goroutine ended before it returned. It may have had an effect: check before you call it again."

// The results of calls that were stopped. Their effect is not known.
const (
	tooSlow         = "The call took longer than %v and was stopped. It may have had an effect: check, then ask for less at a time."
	interruptedCall = "The call was interrupted before it ended. It may have had an effect: check before you call it again."
)

// execute makes the call, on the flight's goroutine. The output of a tool that was stopped, by a timeout or
// with the run, stays in the result: it may be useful to the model.
func (tc *toolCall) execute(ctx context.Context, middleware []tool.Middleware) {
	output, size := tool.NewCollector(tc.req), 0
	var failure error
	// Called instead of ranged over: the body of a loop would be four allocations.
	tool.Run(ctx, tc.tool, tc.req, middleware...)(func(ch tool.Chunk, err error) bool {
		switch {
		case err != nil:
			failure = err
			return false
		case size > maxOutput:
			output.Add(tool.Failure(fmt.Sprintf("The call returned more than %d MiB and was stopped; ask for less at a time.", maxOutput>>20)))
			return false
		}
		size += chunkOverhead + bytesOf(ch)
		output.Add(ch)
		return tc.run.inbox.put(report{from: &tc.flight, chunk: &ch})
	})
	outcome := message.Outcome("")
	switch cause := tc.cancelCause(); {
	case failure == nil:
	case errors.Is(failure, tool.ErrAbort):
		tc.err = failure
		output.Add(tool.Failure(failure.Error()))
	case cause == nil && context.Cause(ctx) == errTooSlow: // a failure like any other: only this call was stopped, and the model may try something else
		output.Add(tool.Failure(fmt.Sprintf(tooSlow, tc.timeout)))
	case errors.Is(cause, errTimeUp):
		output.Add(tool.Failure("The call was stopped: " + cause.Error() + ". It may have had an effect: check before you call it again."))
		outcome = message.OutcomeInterrupted
	default:
		output.Add(tool.Failure(interruptedCall))
		outcome = message.OutcomeInterrupted
	}
	tc.res = encodable(output.Result())
	if outcome != "" {
		tc.res.Outcome = outcome
	}
	if failure == nil {
		delete(tc.res.Meta, mcpcontent.Key) // it repeats the blocks for gateways, and would be stored with the State
	}
}

// encodable removes invalid JSON, with which the State could not be encoded. The text stays.
func encodable(res *message.ToolResult) *message.ToolResult {
	if !json.Valid(res.Structured) {
		res.Structured = nil
	}
	maps.DeleteFunc(res.Meta, func(_ string, v json.RawMessage) bool { return !json.Valid(v) })
	return res
}

// bytesOf returns how many bytes of content a chunk contains.
func bytesOf(ch tool.Chunk) int {
	switch b := ch.Block.(type) {
	case *message.Text:
		return len(b.Text)
	case *message.Data:
		return len(b.Bytes)
	}
	return 0
}

func (tc *toolCall) onReport(r *run, rep report) error {
	tc.keepTail(*rep.chunk)
	if !tc.background {
		if ev := deltaOf(tc.call, *rep.chunk); ev != nil {
			r.emit(ev)
		}
	}
	return nil
}

// tailSize is how much of the output of a call in the background the model can see, in bytes.
const tailSize = 4000

// keepTail keeps the end of the call's output, for a model that wants to know the progress of a call in the
// background. The beginning of a log does not help with that, and may be long.
func (tc *toolCall) keepTail(ch tool.Chunk) {
	t, ok := ch.Block.(*message.Text)
	if !ok || ch.ForUser || tc.done == nil { // without done it is never in the background
		return
	}
	tc.tail += tc.redactor.Write(t.Text)
	if cut := len(tc.tail) - tailSize; cut > 0 {
		tc.tail = strings.ToValidUTF8(tc.tail[cut:], "")
	}
}

// onEnd records the result, unless the call is in the background: then the result waits until it can be added to the conversation.
func (tc *toolCall) onEnd(r *run) error {
	if tc.panicked != nil {
		panic(tc.panicked)
	}
	if tc.res == nil {
		tc.res = decide.ResultOf(tc.call, message.OutcomeError, noReturn)
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
	case tc.link != nil && tc.link.waits: // the sub-agent has no result yet, but waits for an answer
		tc.call.Status = decide.Nested
		return r.save()
	}
	return join(tc.err, r.recordResult(tc.call, tc.res))
}

// deltaOf returns the event for a chunk, nil if it has nothing to show. The bytes of images and files are
// only in the result: a UI cannot show them before they are complete.
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

func newToolResult(c *openCall) *event.ToolResult {
	return &event.ToolResult{Call: c.ID, Name: c.Tool, Outcome: c.Result.Outcome, Text: c.Result.Text(), Result: c.Result}
}

// start runs c, unless it must not run, and returns its flight, with which the caller must call commit. If c
// was started before the model's answer was complete, it returns that flight.
func (r *run) start(c *openCall) (*flight, error) {
	tc := r.early.find(c)
	early := tc != nil && tc.started()
	var begun time.Time
	if early {
		begun = tc.begun
	}
	t, err := r.admit(c, begun)
	if t == nil || err != nil {
		return nil, err
	}
	if !early {
		tc = r.newToolCall(c, t, r.st.Messages[len(r.st.Messages)-1].ID)
		r.startToolCall(tc)
	}
	if tc.backgroundAfter == 0 { // even if it has already ended
		err = r.moveToBackground(tc)
	} else if tc.backgroundAfter > 0 {
		in := &r.inbox
		tc.timer = time.AfterFunc(tc.backgroundAfter, func() { in.ask(&tc.flight, func() error { return r.moveToBackground(tc) }) })
	}
	return &tc.flight, err
}

// admit returns the tool that runs c, or nil if c must not run. It judges c again if another call has ended since c was
// allowed: that call may have written the file that c executes. begun is when c started early, or zero. admit saves the
// start of c before c starts: otherwise a crash would leave no trace of what c may have done.
func (r *run) admit(c *openCall, begun time.Time) (tool.Tool, error) {
	early := !begun.IsZero()
	for !early && c.Judged != r.st.loop.EndedCalls() { // more than once if Config.Approve edits c
		if err := r.judge(c); err != nil || c.Status != decide.Allowed {
			return nil, err
		}
	}
	t, err := r.tool(c)
	if err != nil {
		return nil, r.recordResult(c, notRun(c, err))
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
	r.emitAfterSave(&event.ToolStart{Call: c.ID, Name: c.Tool, Reason: c.Why, Begun: begun})
	if err := r.save(); err != nil {
		c.Status = decide.Allowed // it has not started
		r.consumer.discardAfter(seq)
		return nil, err
	}
	return t, nil
}

// notStarted ends a call that would have started after Limits.Time had passed.
func (r *run) notStarted(c *openCall) error {
	text := "Not run: "
	if c.Sub != nil {
		text = "The agent was stopped: "
	}
	return r.recordResult(c, decide.ResultOf(c, message.OutcomeInterrupted, text+r.limits().TimeLimit()+" was reached."))
}

// startAll starts calls, unless acceptEarly has changed which calls may start: then the caller must call decide.Next
// again. It commits no result before all have started, because otherwise the other calls would be judged again.
func (r *run) startAll(calls []*openCall) error {
	same, err := r.acceptEarly()
	if !same {
		return err
	}
	var started [8]*flight // enough for the default MaxParallel
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
