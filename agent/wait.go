package agent

import (
	"context"
	"errors"

	"github.com/kitbag-go/kitbag/internal/callctx"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
)

// isWaitedFor reports whether the run's own goroutine may wait for c, instead of a
// worker that reports to it: nothing runs beside c, and nothing that could wait
// elsewhere stands between.
func (r *run) isWaitedFor(c *openCall) bool {
	if c.early != nil || r.jobs != nil || r.cfg.Step != nil || len(r.a.tools) > 0 {
		return false
	}
	t, err := r.tool(c)
	if err != nil {
		return false
	}
	w, ok := t.(callctx.Waiter)
	return ok && w.Waits()
}

// wait runs c and waits for it. What its tool asks of the run comes in turns.
func (r *run) wait(c *openCall) error {
	t, err := r.admit(c)
	if t == nil {
		return err
	}
	ctx := r.stateful(r.ctx)
	done := make(chan struct{})
	defer close(done)
	in := &callContext{Context: ctx, id: idIn(ctx, c)}
	in.waiting.Turns = make(chan func())
	in.host = callHost{r: r, outer: host.From(ctx), turns: in.waiting.Turns, done: done}
	w := r.workOf(t, c, r.lastID())
	res, err := r.a.runToolNow(in, &w, func(ch tool.Chunk) { r.emit(deltaOf(c, ch)) })
	return errors.Join(err, r.turned, r.finish(c, res))
}

// A callContext is the context of a call that the run waits for.
type callContext struct {
	context.Context
	id      *string
	host    callHost
	waiting callctx.Waiting
}

func (c *callContext) Value(key any) any {
	switch key.(type) {
	case callKey:
		return c.id
	case callctx.Host:
		return &c.host
	case callctx.Turns:
		return &c.waiting
	}
	return c.Context.Value(key)
}

// inTurn has the run's goroutine call fn, and returns what fn does.
func (h *callHost) inTurn(fn func() error) error {
	heard := make(chan error, 1)
	turn := func() {
		err := fn()
		if err != nil {
			h.r.turned = err
			h.r.cancel()
		}
		heard <- err
	}
	return handOver(h.turns, turn, heard, h.done)
}
