package agent

import (
	"context"
	"errors"
	"sync"

	"github.com/kitbag-go/kitbag/internal/callctx"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
)

// isWaitedFor reports whether the run's own goroutine may wait for c and nothing else,
// instead of hearing the workers of a batch. Not if the run may have to do something else meanwhile,
// or if the call may be made elsewhere. Nor when there is a host for all calls of the
// run: a server that still asks for an early one that was stopped is to find no other.
func (r *run) isWaitedFor(c *openCall) bool {
	if c.early != nil || r.jobs != nil || r.host != nil || r.cfg.Step != nil {
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
	in := &waited{Context: callctx.Context{Context: ctx}, run: r, call: c, id: idIn(ctx, c), work: r.workOf(t, c, r.lastID())}
	in.host = callHost{r: r, outer: host.From(ctx), waited: in}
	if in.work.timeout > 0 {
		if r.clock == nil {
			r.clock = new(callctx.Clock)
		}
		in.Limit(r.clock, in.work.timeout)
	}
	defer in.end()
	if len(r.a.tools) == 0 {
		in.Turns = r.turns // for package tool, on this goroutine
		in.hearing.to = in
		in.listen()
	} else {
		// Middleware may do anything, and ask something of the run itself: it is
		// given a goroutine, beside which this one takes turns.
		in.hearing.to = (*beside)(in)
		r.cfg.Go((*beside)(in).listen)
		for turn := <-r.turns; turn != nil; turn = <-r.turns {
			turn()
		}
		if in.res == nil {
			in.res = failed(c, message.OutcomeError, lost)
		}
	}
	return errors.Join(in.err, r.turned, r.finish(c, in.res))
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
	work    work
	hearing hearing

	mu   sync.Mutex    // for what asks something of the run
	over bool          // the run's goroutine says so, and may look without mu
	gone chan struct{} // closed then; made by the first that asks

	// What came of it.
	res *message.ToolResult
	err error
}

func (w *waited) listen() {
	w.res, w.err = w.run.a.listen(w.Context.Context, w, &w.work, &w.hearing)
}

func (w *waited) end() {
	w.mu.Lock()
	w.over = true
	if w.gone != nil {
		close(w.gone)
	}
	w.mu.Unlock()
	w.End(context.Canceled)
	if w.work.timeout > 0 {
		w.run.clock = w.Clock()
	}
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

// do has the run's goroutine call fn, and returns what fn does. What has outlasted its call is told
// at once and not at the run's next turn, which may be far: it may hold what others wait for.
func (w *waited) do(fn func() error) error {
	w.mu.Lock()
	if w.gone == nil && !w.over {
		w.gone = make(chan struct{})
	}
	over, gone := w.over, w.gone
	w.mu.Unlock()
	if over {
		return ErrInterrupted
	}
	heard := make(chan error, 1)
	turn := func() {
		err := ErrInterrupted // if the consumer panics: the tool is to end, and waits for this
		defer func() { heard <- err }()
		if w.over { // since it was handed over
			return
		}
		if err = fn(); err != nil {
			w.run.turned = err
			w.run.cancel()
		}
	}
	return handOver(w.run.turns, turn, heard, gone)
}

// A beside is a waited call on a goroutine of its own.
type beside waited

// listen runs the call, and then says so with a turn that is nil, also if middleware ends
// the goroutine instead of returning.
func (b *beside) listen() {
	defer b.pass(nil)
	(*waited)(b).listen()
}

// said has the run tell of what the tool says.
func (b *beside) said(ch tool.Chunk) {
	b.pass(func() {
		if !b.over {
			(*waited)(b).said(ch)
		}
	})
}

// pass has the run's goroutine take a turn, unless the run has ended.
func (b *beside) pass(turn func()) {
	select {
	case b.run.turns <- turn:
	case <-b.run.over:
	}
}
