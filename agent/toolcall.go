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
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
)

// A toolCall is the flight of a call of a tool.
type toolCall struct {
	flight
	run    *run // the call's goroutine uses only the inbox
	call   *openCall
	id     string    // in a sub-agent, begins with the ids of the outer calls: call_1/call_2
	parent *toolCall // the outer call if run is the run of a sub-agent, or nil

	tool    tool.Tool
	req     tool.Call
	timeout time.Duration // not positive: none
	link    *subLink      // to the sub-agent that the tool is; nil for other tools

	backgroundAfter time.Duration // after this time the call continues in the background; negative for never

	// Only if the call may run in the background:
	timer    *time.Timer    // fires after backgroundAfter; nil if backgroundAfter is 0
	unbind   func() bool    // makes the end of the step no longer cancel the call
	done     chan struct{}  // closed when the call is finished
	tail     string         // the end of the output, without secrets
	redactor *redact.Stream // removes secrets from tail

	// Written by the flight's goroutine before the last report:
	res *message.ToolResult
	err error // wraps tool.ErrAbort, which ends the run; else nil
}

type callKey struct{}

// callIn returns the call that ctx was created for, nil if ctx is not that of a call.
func callIn(ctx context.Context) *toolCall {
	tc, _ := ctx.Value(callKey{}).(*toolCall)
	return tc
}

func (r *run) newToolCall(c *openCall, t tool.Tool) *toolCall {
	tc := &toolCall{run: r, call: c, id: c.ID, parent: callIn(r.ctx), tool: t, timeout: r.cfg.ToolTimeout, backgroundAfter: r.backgroundAfter(t, c),
		req: tool.Call{ID: c.ID, Name: c.Tool, Input: c.Input, Judgement: c.Judgement, Judge: r.changedInputJudge()}}
	tc.task = tc
	if tc.parent != nil {
		tc.id = tc.parent.id + "/" + c.ID
	}
	if isIdempotent(t, c.Input) {
		tc.req.Key = r.idempotencyKey(c)
	}
	if _, nested := tool.As[*subagent](t); nested {
		tc.timeout, tc.link = -1, r.subLinkFor(tc)
	}
	return tc
}

// startToolCall starts the goroutine of tc.
func (r *run) startToolCall(tc *toolCall) {
	stepCtx, ctx := r.ctx, r.withToolState(r.ctx)
	if tc.backgroundAfter >= 0 { // cancelWithRun cancels the call instead of ctx
		ctx = context.WithoutCancel(ctx)
	}
	if tc.timeout > 0 {
		ctx, tc.cancel = context.WithTimeoutCause(ctx, tc.timeout, errTooSlow)
	} else {
		ctx, tc.cancel = context.WithCancel(ctx)
	}
	release := func() {}
	if tc.backgroundAfter >= 0 {
		release = tc.cancelWithRun(stepCtx, r.runCtx)
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

// cancelWithRun makes the end of the run cancel the call, and until tc.unbind is called also the end of the step: a
// background call may run longer than its step. The caller must call release when the call has ended.
func (tc *toolCall) cancelWithRun(stepCtx, runCtx context.Context) (release func()) {
	unbind := context.AfterFunc(stepCtx, func() { tc.cancelWith(context.Cause(stepCtx)) })
	unbindRun := context.AfterFunc(runCtx, func() { tc.cancelWith(context.Cause(runCtx)) })
	tc.unbind = unbind
	return func() { unbind(); unbindRun() }
}

// The output of a call is kept in memory until the call ends. A call with more output is stopped at its next chunk.
const (
	maxOutput     = 64 << 20 // in bytes, images and files included
	chunkOverhead = 128      // bytes of memory that a chunk takes besides its content
)

// noReturn is the result of a call whose goroutine was ended by middleware, for example by t.FailNow of package
// testing.
const noReturn = "The call failed: its goroutine ended before it returned. It may have had an effect: check before you call it again."

// The results of calls that were stopped. Their effect is not known.
const (
	tooSlow         = "The call took longer than %v and was stopped. It may have had an effect: check, then ask for less at a time."
	interruptedCall = "The call was interrupted before it ended. It may have had an effect: check before you call it again."
)

// execute makes the call, on the flight's goroutine. The result of a tool that was stopped contains its output until then.
func (tc *toolCall) execute(ctx context.Context, middleware []tool.Middleware) {
	output, size := tool.NewCollector(tc.req), 0
	var failure error
	// Not a range statement: the variables that its body changes would be four allocations.
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
	interrupted := false
	switch cause := tc.cancelCause(); {
	case failure == nil:
	case errors.Is(failure, tool.ErrAbort):
		tc.err = failure
		output.Add(tool.Failure(failure.Error()))
	case cause == nil && context.Cause(ctx) == errTooSlow: // not an interruption: the run continues
		output.Add(tool.Failure(fmt.Sprintf(tooSlow, tc.timeout)))
	case errors.Is(cause, errTimeUp):
		output.Add(tool.Failure("The call was stopped: " + cause.Error() + ". It may have had an effect: check before you call it again."))
		interrupted = true
	default:
		output.Add(tool.Failure(interruptedCall))
		interrupted = true
	}
	tc.res = encodable(output.Result())
	if interrupted {
		tc.res.Outcome = message.OutcomeInterrupted
	}
	if failure == nil {
		delete(tc.res.Meta, mcpcontent.Key) // only for gateways, and as large as the blocks
	}
}

// encodable removes what is not valid JSON from the structured content and the metadata: the State could not be encoded.
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

// keepTail adds a chunk to the end of the output, which shows the model the progress of a background call.
func (tc *toolCall) keepTail(ch tool.Chunk) {
	t, ok := ch.Block.(*message.Text)
	if !ok || ch.ForUser || tc.done == nil { // done is nil for calls that cannot run in the background
		return
	}
	tc.tail += tc.redactor.Write(t.Text)
	if cut := len(tc.tail) - tailSize; cut > 0 {
		tc.tail = strings.ToValidUTF8(tc.tail[cut:], "")
	}
}

// onEnd records the result. That of a background call is recorded by keepBackgroundResults.
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
	case tc.link != nil && tc.link.waits: // the sub-agent waits for the user's answer
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

// start starts c, unless it must not run.
func (r *run) start(c *openCall) error {
	t, err := r.admit(c)
	if t == nil || err != nil {
		return err
	}
	tc := r.newToolCall(c, t)
	r.startToolCall(tc)
	switch {
	case tc.backgroundAfter == 0:
		return r.moveToBackground(tc)
	case tc.backgroundAfter > 0:
		in := &r.inbox
		tc.timer = time.AfterFunc(tc.backgroundAfter, func() { in.ask(&tc.flight, func() error { return r.moveToBackground(tc) }) })
	}
	return nil
}

// admit returns the tool that runs c, or nil if c must not run. It judges c again if another call has ended since c was
// allowed: that call may have written the file that c executes. admit saves that c is running before c starts: after a
// crash, the next run must know that c may have had an effect.
func (r *run) admit(c *openCall) (tool.Tool, error) {
	for c.Judged != r.st.loop.EndedCalls() { // more than once if Config.Approve edits c, or a call ends meanwhile
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
	if !r.isFinal(c) && r.timeIsUp() {
		return nil, r.notStarted(c)
	}
	c.Status = decide.Running
	seqBefore := r.st.loop.Seq
	r.emitAfterSave(&event.ToolStart{Call: c.ID, Name: c.Tool, Reason: c.Why})
	if err := r.save(); err != nil {
		c.Status = decide.Allowed // c does not start
		r.consumer.discardAfter(seqBefore)
		return nil, err
	}
	return t, nil
}

// notStarted ends a call that may not start, since Limits.Time has passed.
func (r *run) notStarted(c *openCall) error {
	text := "Not run: "
	if c.Sub != nil { // the sub-agent has worked before, and would continue
		text = "The agent was stopped: "
	}
	return r.recordResult(c, decide.ResultOf(c, message.OutcomeInterrupted, text+r.limits().TimeLimit()+" was reached."))
}

// startAll starts calls, until the run fails or is cancelled.
func (r *run) startAll(calls []*openCall) error {
	for _, c := range calls {
		if r.failed != nil || r.ctx.Err() != nil {
			break
		}
		if err := r.start(c); err != nil {
			return err
		}
	}
	return nil
}
