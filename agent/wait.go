package agent

import (
	"context"
	"errors"

	"github.com/kitbag-go/kitbag/internal/callctx"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
)

// isWaitedFor reports whether the run's own goroutine may wait for c, instead of a
// worker that reports to it. Not if the run may have to do something else meanwhile,
// or if the call may be made elsewhere. Nor through middleware, which may ask something
// of the run itself, when nobody takes turns. Nor when there is a host for all calls of the
// run: a server that still asks for an early one that was stopped is to find no other.
func (r *run) isWaitedFor(c *openCall) bool {
	if c.early != nil || r.jobs != nil || r.host != nil || r.cfg.Step != nil || len(r.a.tools) > 0 {
		return false
	}
	t, err := r.tool(c)
	if err != nil {
		return false
	}
	_, nested := tool.As[*subagent](t)
	return !nested
}

// wait runs c and waits for it. What its tool asks of the run comes in turns.
func (r *run) wait(c *openCall) error {
	t, err := r.admit(c)
	if t == nil {
		return err
	}
	if r.turns == nil {
		r.turns, r.over = make(chan func()), make(chan struct{})
	}
	ctx := r.stateful(r.ctx)
	in := &waited{Context: callctx.Context{Context: ctx, Turns: r.turns}, run: r, call: c, id: idIn(ctx, c)}
	in.hearing.to = in
	in.host = callHost{r: r, outer: host.From(ctx), waited: in}
	defer in.end()
	w := r.workOf(t, c, r.lastID())
	if w.timeout > 0 {
		in.Limit(&r.clock, w.timeout)
	}
	res, err := r.a.listen(ctx, in, &w, &in.hearing)
	return errors.Join(err, r.turned, r.finish(c, res))
}

// stopWaiting is for the end of the run.
func (r *run) stopWaiting() {
	if r.over != nil {
		close(r.over)
	}
	r.clock.Stop()
}

// A waited is a call that the run waits for, and its context.
type waited struct {
	callctx.Context
	run     *run
	call    *openCall
	id      *string
	host    callHost
	hearing hearing
	over    bool // for the run's goroutine
}

func (w *waited) end() {
	w.over = true
	w.End(context.Canceled)
}

// Value is for [context.Context].
func (w *waited) Value(key any) any {
	switch key.(type) {
	case callKey:
		return w.id
	case callctx.Host:
		return &w.host
	}
	return w.Context.Value(key)
}

// said tells of what the tool says.
func (w *waited) said(ch tool.Chunk) { w.run.emit(deltaOf(w.call, ch)) }

// do has the run's goroutine call fn, and returns what fn does.
func (w *waited) do(fn func() error) error {
	heard := make(chan error, 1)
	turn := func() {
		if w.over { // what asks has outlasted its call
			heard <- ErrInterrupted
			return
		}
		err := fn()
		if err != nil {
			w.run.turned = err
			w.run.cancel()
		}
		heard <- err
	}
	return handOver(w.Turns, turn, heard, w.run.over)
}
