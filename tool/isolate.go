package tool

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/kitbag-go/kitbag/message"
)

// grace is how long a tool may take to end once it was told to: long enough to kill a
// process and say so, short for a person who waits.
const grace = 200 * time.Millisecond

// isolated calls a tool on a goroutine of its own, so that neither a panic nor
// a function that ignores its context can hold the caller. It is the innermost
// handler.
//
// The two sides take turns: the tool goes on only when the consumer asks for
// the next chunk, as if it were ranged over directly.
func isolated(ctx context.Context, t Tool, call Call) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		call, err := call.judged(ctx, t)
		if err != nil {
			yield(Chunk{}, err)
			return
		}
		if ctx.Err() != nil {
			yield(Chunk{}, fmt.Errorf("not started: %w", context.Cause(ctx)))
			return
		}
		toolCtx, cancel := context.WithCancel(ctx)
		b := &bridge{out: make(chan piece), left: make(chan struct{}), done: make(chan struct{})}
		go b.run(toolCtx, t, call)
		abandoned := false
		defer func() {
			cancel()      // for a tool that looks at its context
			close(b.left) // for one that yields
			if !abandoned {
				b.wait()
			}
		}()
		ended, late := ctx.Done(), (<-chan time.Time)(nil)
		for {
			select {
			case p := <-b.out:
				if !p.asks && (!yield(p.chunk, p.err) || p.err != nil) {
					return
				}
			case <-b.done:
				return
			case <-ended:
				ended, late = nil, time.After(grace)
			case <-late:
				abandoned = true
				// The model, and whoever reads the log, must know that it may still have effects.
				yield(Chunk{}, fmt.Errorf("%w; the tool did not stop when told to and may still be running", context.Cause(ctx)))
				return
			}
		}
	}
}

// A piece is what a tool yields at once. One that has neither chunk nor error only asks whether the
// consumer wants more: who takes it does.
type piece struct {
	chunk Chunk
	err   error
	asks  bool
}

// checked returns a piece that others can do something with: they do so on goroutines of
// theirs, where nobody recovers from what a nil block or one of another kind leads to.
func checked(c Chunk, err error) piece {
	ok := false
	switch b := c.Block.(type) {
	case nil:
		ok = true
	case *message.Text:
		ok = b != nil
	case *message.Data:
		ok = b != nil
	}
	if !ok {
		return piece{err: errors.Join(err, fmt.Errorf("the tool gave a block that is nil or no text or data (%T)", c.Block))}
	}
	return piece{chunk: c, err: err}
}

// errNoReturn is for runtime.Goexit, which t.FailNow of package testing calls too: there
// is no panic to recover then, and the deferred functions are all that still runs.
var errNoReturn = errors.New("the tool ended its goroutine instead of returning")

// A bridge carries chunks from the goroutine of a tool to its consumer.
type bridge struct {
	out  chan piece
	left chan struct{} // closed by the consumer: it wants none
	done chan struct{} // closed by the tool's goroutine
}

// run is the tool's goroutine. What it says of a panic goes the way of the chunks.
func (b *bridge) run(ctx context.Context, t Tool, call Call) {
	defer close(b.done)
	returned := false
	defer func() {
		if r := recover(); r != nil {
			b.yield(Chunk{}, panicked(ctx, call, r))
		} else if !returned {
			b.yield(Chunk{}, errNoReturn)
		}
	}()
	t.Call(ctx, call)(b.yield)
	returned = true
}

// yield hands a chunk over and waits until the consumer asks for more; false tells the
// tool to stop. It may be called by a tool at any time, even late and from elsewhere: it
// never blocks for ever and never panics.
func (b *bridge) yield(c Chunk, err error) bool {
	return b.send(checked(c, err)) && b.send(piece{asks: true})
}

// send hands a piece over; false says that no one takes it.
func (b *bridge) send(p piece) bool {
	select {
	case b.out <- p:
		return true
	case <-b.left:
		return false
	case <-b.done:
		return false
	}
}

// wait gives a tool that was told to end a while to do so: one that obeys has ended when the
// call has, and holds no file or lock any more.
func (b *bridge) wait() {
	select {
	case <-b.done:
		return
	default: // only now, since most have ended already and a timer costs
	}
	select {
	case <-b.done:
	case <-time.After(grace):
	}
}
