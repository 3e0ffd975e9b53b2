package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/kitbag-go/kitbag/internal/mcpcontent"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// work is what a worker is to do.
type work struct {
	tool    tool.Tool
	call    tool.Call
	timeout time.Duration
	step    string // for Config.Step; empty without
}

// limit returns the context of the call itself.
func (w *work) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, w.timeout)
}

// lost is the result of a call whose goroutine middleware has ended, as t.FailNow of package
// testing does. The run waits for what nobody else would tell it.
const lost = "The call failed: its goroutine was ended before it had returned."

// A worker does its work on a goroutine of its own, and reports to the run.
type worker struct {
	call    *openCall
	work    work
	nest    *nest // of a sub-agent
	reports chan<- report
	done    <-chan struct{} // nobody listens to reports any more
}

func (w *worker) start(ctx context.Context, a *Agent) {
	a.cfg.Go(func() {
		rep := report{done: true, nest: w.nest}
		defer func() {
			if rep.res == nil {
				rep.res = failed(w.call, message.OutcomeError, lost)
			}
			w.tell(rep)
		}()
		if w.nest != nil { // its steps are those of the sub-agent, which may wait in between
			rep.res, rep.err = a.runToolNow(ctx, &w.work, w.send)
		} else {
			rep.res, rep.err = a.runCall(ctx, w.call, &w.work, w.send)
		}
	})
}

func (w *worker) send(ch tool.Chunk) { w.tell(report{chunk: ch}) }

func (w *worker) tell(rep report) {
	rep.call = w.call
	select {
	case w.reports <- rep:
	case <-w.done: // the consumer panicked
	}
}

// runCall runs c to its end, from where it is if it started early.
func (a *Agent) runCall(ctx context.Context, c *openCall, w *work, send func(tool.Chunk)) (*message.ToolResult, error) {
	if c.early != nil {
		return c.early.follow(ctx, send)
	}
	return a.runTool(ctx, w, send)
}

// runTool runs a call to its end, on a worker's goroutine, through
// Config.Step. The error wraps [tool.ErrAbort]; the result is never nil.
func (a *Agent) runTool(ctx context.Context, w *work, send func(tool.Chunk)) (*message.ToolResult, error) {
	if a.cfg.Step == nil {
		return a.runToolNow(ctx, w, send)
	}
	var aborted *message.ToolResult
	var abort error
	raw, err := a.cfg.Step(ctx, w.step, func(ctx context.Context) (json.RawMessage, error) {
		var res *message.ToolResult
		if res, abort = a.runToolNow(ctx, w, send); abort != nil {
			aborted = res
			return nil, abort
		}
		return json.Marshal(res)
	})
	if err != nil && abort != nil {
		return aborted, abort // with what the tool had said
	}
	res := new(message.ToolResult)
	if err == nil {
		err = json.Unmarshal(raw, res)
	}
	if err != nil {
		*res = message.ToolResult{ID: w.call.ID, Name: w.call.Name, Outcome: message.OutcomeError,
			Blocks: message.Blocks{&message.Text{Text: err.Error()}}}
		// The engine's failure, not the tool's: whether the call ran is its to say.
		if ctx.Err() == nil {
			abort = fmt.Errorf("%w: step %s: %w", tool.ErrAbort, w.step, err)
		}
	}
	return res, abort
}

// maxSaid is how much a call may say, in bytes, pictures and files included, before it
// is stopped with its next piece. Its result is kept in memory until it ends: one that says something for
// ever would take all there is. pieceCost is what a piece costs beside its text.
const (
	maxSaid   = 64 << 20
	pieceCost = 128
)

// runToolNow runs a call.
func (a *Agent) runToolNow(ctx context.Context, w *work, send func(tool.Chunk)) (*message.ToolResult, error) {
	callCtx, cancel := w.limit(ctx)
	defer cancel()
	return a.listen(ctx, callCtx, w, &hearing{to: sender(send)})
}

// listen runs a call in a context of its own, which ends before outer when its time
// is up. What the tool had said before it was stopped, by a time-out or with the
// run, stays in the result: the model may have use for it.
func (a *Agent) listen(outer, ctx context.Context, w *work, h *hearing) (*message.ToolResult, error) {
	h.Collector = tool.NewCollector(w.call)
	// Called instead of ranged over: the body of a loop would be four allocations.
	tool.Run(ctx, w.tool, w.call, a.tools...)(h.take)
	switch {
	case h.err == nil:
		res := h.result()
		delete(res.Meta, mcpcontent.Key) // which is for gateways: sessions would keep everything twice
		return res, nil
	case errors.Is(h.err, tool.ErrAbort):
		h.Add(tool.Failure(h.err.Error()))
		return h.result(), h.err
	// Its own time-out, and not the end of the run: the model may try something else.
	case outer.Err() == nil && ctx.Err() != nil:
		h.Add(tool.Failure(fmt.Sprintf("The call took longer than %v and was stopped.", w.timeout)))
		return h.result(), nil
	}
	h.Add(tool.Failure("The call was interrupted before it ended."))
	res := h.result()
	res.Outcome = message.OutcomeInterrupted
	return res, nil
}

// result returns what was taken in. What is not JSON where it should be is left out; the
// text stays. Neither a State nor a record of a step could be encoded with it.
func (h *hearing) result() *message.ToolResult {
	res := h.Result()
	if !json.Valid(res.Structured) {
		res.Structured = nil
	}
	maps.DeleteFunc(res.Meta, func(_ string, v json.RawMessage) bool { return !json.Valid(v) })
	return res
}

type (
	listener interface{ said(tool.Chunk) }
	sender   func(tool.Chunk)
)

func (s sender) said(ch tool.Chunk) { s(ch) }

// A hearing takes in what a tool says, and passes it on.
type hearing struct {
	*tool.Collector
	to    listener
	bytes int
	err   error
}

func (h *hearing) take(ch tool.Chunk, err error) bool {
	switch {
	case err != nil:
		h.err = err
		return false
	case h.bytes > maxSaid:
		h.Add(tool.Failure(fmt.Sprintf("The call said more than %d MiB and was stopped.", maxSaid>>20)))
		return false
	}
	h.bytes += pieceCost + bytesOf(ch)
	h.Add(ch)
	h.to.said(ch)
	return true
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

// deltaOf returns the event for a chunk. Bytes of pictures and files are left to
// the result: a UI can show nothing of them before they are whole.
func deltaOf(c *openCall, ch tool.Chunk) *ToolDelta {
	ev := &ToolDelta{Call: c.ID, Name: c.Tool, ForUser: ch.ForUser}
	switch b := ch.Block.(type) {
	case *message.Text:
		ev.Text = b.Text
	case *message.Data:
		ev.Data = b.MediaType
	}
	return ev
}
