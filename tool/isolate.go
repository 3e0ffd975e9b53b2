package tool

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/kitbag-go/kitbag/message"
)

// grace is how long a tool may take to end after it was cancelled: long enough to kill a process and report it,
// short for a waiting user.
const grace = 200 * time.Millisecond

// callIsolated calls a tool on its own goroutine, so that neither a panic nor a function that ignores its context affects
// the caller. It is the innermost [Handler].
//
// Only one of tool and consumer runs at a time: the tool continues when the consumer asks for the next chunk, as if the
// consumer ranged over the tool's sequence.
func callIsolated(ctx context.Context, t Tool, call Call) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		call, err := call.judgeIfChanged(ctx, t)
		if err != nil {
			yield(Chunk{}, err)
			return
		}
		if ctx.Err() != nil {
			yield(Chunk{}, fmt.Errorf("not started: %w", context.Cause(ctx)))
			return
		}
		toolCtx, cancel := context.WithCancel(ctx)
		b := &bridge{out: make(chan piece), stopped: make(chan struct{}), done: make(chan struct{})}
		go b.run(toolCtx, t, call)
		abandoned := false
		defer func() {
			cancel()         // ends a tool that checks its context
			close(b.stopped) // ends a tool that yields
			if !abandoned {
				b.wait()
			}
		}()
		ctxDone, deadline := ctx.Done(), (<-chan time.Time)(nil) // a nil channel is never ready
		for {
			select {
			case p := <-b.out:
				if !p.resume && (!yield(p.chunk, p.err) || p.err != nil) {
					return
				}
			case <-b.done:
				return
			case <-ctxDone:
				ctxDone, deadline = nil, time.After(grace)
			case <-deadline:
				abandoned = true
				// The model and the log must say that the call may still have effects.
				yield(Chunk{}, fmt.Errorf("%w; the tool did not stop when it was cancelled and may still be running", context.Cause(ctx)))
				return
			}
		}
	}
}

// A piece is what the tool's goroutine sends to the consumer: a chunk or an error that the tool yields, or resume alone.
// The consumer receives resume when it asks for the next chunk, which lets the tool continue.
type piece struct {
	chunk  Chunk
	err    error
	resume bool
}

// newPiece returns the piece for c and err. A block of a wrong type, or a typed nil, becomes an error: such a block could
// make a consumer panic on a goroutine that does not recover. An error whose method Error panics, such as a nil pointer
// of a type of errors, panics here for the same reason: the callers recover.
func newPiece(c Chunk, err error) piece {
	if err != nil {
		_ = err.Error()
	}
	if p := c.Progress; p != nil && !isFinite(p.Done+p.Total) { // JSON cannot express it
		c.Progress = nil
	}
	valid := false
	switch b := c.Block.(type) {
	case nil:
		valid = true
	case *message.Text:
		valid = b != nil
	case *message.Data:
		valid = b != nil
	}
	if !valid {
		return piece{err: errors.Join(err, fmt.Errorf("the tool yielded a block of type %T; it must be a *message.Text or *message.Data and not nil", c.Block))}
	}
	return piece{chunk: c, err: err}
}

func isFinite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// errNoReturn is the error of a tool that called runtime.Goexit, as t.FailNow of package testing does: there is no panic
// to recover.
var errNoReturn = errors.New("the tool ended its goroutine instead of returning")

// A bridge carries chunks from the goroutine of a tool to its consumer.
type bridge struct {
	out     chan piece
	stopped chan struct{} // closed when the consumer stops
	done    chan struct{} // closed when the tool's goroutine ends
}

// run is the tool's goroutine. It yields a panic as an error.
func (b *bridge) run(ctx context.Context, t Tool, call Call) {
	defer close(b.done)
	returned := false
	defer func() {
		if r := recover(); r != nil {
			b.yield(Chunk{}, logPanic(ctx, call, r))
		} else if !returned {
			b.yield(Chunk{}, errNoReturn)
		}
	}()
	t.Call(ctx, call)(b.yield)
	returned = true
}

// yield sends a chunk and waits until the consumer asks for more; it returns false when the tool must stop. It never
// blocks forever or panics, even if a tool calls it from another goroutine after the tool's end.
func (b *bridge) yield(c Chunk, err error) bool {
	return b.send(newPiece(c, err)) && b.send(piece{resume: true})
}

// send sends a piece and reports whether the consumer received it.
func (b *bridge) send(p piece) bool {
	select {
	case b.out <- p:
		return true
	case <-b.stopped:
		return false
	case <-b.done:
		return false
	}
}

// wait waits up to grace for the end of a cancelled tool, so that a tool that stops in time has no file or lock open
// after the call.
func (b *bridge) wait() {
	select {
	case <-b.done:
		return
	default: // the timer below is expensive, and most tools have ended already
	}
	select {
	case <-b.done:
	case <-time.After(grace):
	}
}
