package tool

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/kitbag-go/kitbag/internal/callctx"
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
		if f, ok := t.(*function); ok && !f.streams {
			for _, p := range finish(ctx, f, call) {
				if !yield(p.chunk, p.err) || p.err != nil {
					return
				}
			}
			return
		}
		if ctx.Err() != nil {
			yield(Chunk{}, notStarted(ctx))
			return
		}
		w := callctx.NewWatch(ctx, grace)
		toolCtx, cancel := context.WithCancel(ctx)
		b := &bridge{out: make(chan piece), next: make(chan struct{}), left: make(chan struct{}), done: make(chan struct{})}
		go b.run(toolCtx, t, call)
		abandoned := false
		defer func() {
			b.leave(cancel, &w, abandoned)
			w.Close()
		}()
		// Beside the tool, this goroutine serves the run that the call belongs to, which has
		// no other: see package callctx.
		for {
			select {
			case p := <-b.out:
				if !yield(p.chunk, p.err) || p.err != nil {
					return
				}
				select {
				case b.next <- struct{}{}:
				case <-b.done: // the chunk came from another goroutine, which the tool left behind
				}
			case <-b.done:
				return
			case turn := <-w.Turns:
				turn()
			case <-w.Ended:
				w.Tell()
			case <-w.Late:
				if w.IsOver() {
					abandoned = true
					yield(Chunk{}, notStopped(ctx))
					return
				}
			}
		}
	}
}

// notStarted is the error for a context that had ended before the call.
func notStarted(ctx context.Context) error {
	return fmt.Errorf("not started: %w", context.Cause(ctx))
}

// notStopped is the error for a tool that is abandoned. The model, and whoever reads the
// log, must know that it may still have effects.
func notStopped(ctx context.Context) error {
	return fmt.Errorf("%w; the tool did not stop when told to and may still be running", context.Cause(ctx))
}

// A piece is what a tool yields at once.
type piece struct {
	chunk Chunk
	err   error
}

// checked returns a piece that others can do something with: they do so on goroutines of
// theirs, where nobody recovers from what a nil block or one of another kind leads to.
func checked(c Chunk, err error) piece {
	switch b := c.Block.(type) {
	case nil:
		return piece{c, err}
	case *message.Text:
		if b != nil {
			return piece{c, err}
		}
	case *message.Data:
		if b != nil {
			return piece{c, err}
		}
	}
	return piece{err: errors.Join(err, fmt.Errorf("the tool gave a block that is nil or no text or data (%T)", c.Block))}
}

// finish is isolated for a tool whose chunks all come when it has returned, so
// that there are no turns to take: it is waited for once. It needs no context of its own
// either: a consumer cannot stop before there is something to consume.
func finish(ctx context.Context, f *function, call Call) []piece {
	if ctx.Err() != nil {
		return []piece{{err: notStarted(ctx)}}
	}
	w := callctx.NewWatch(ctx, grace)
	defer w.Close()
	// A tool that is abandoned goes on writing to o, which then nobody reads.
	o := &outcome{done: make(chan struct{})}
	go o.run(ctx, f, call)
	for {
		select {
		case <-o.done:
			return o.pieces
		case turn := <-w.Turns:
			turn()
		case <-w.Ended:
			w.Tell()
		case <-w.Late:
			if w.IsOver() {
				return []piece{{err: notStopped(ctx)}}
			}
		}
	}
}

// An outcome is what came of a call. It belongs to the tool's goroutine until
// done is closed.
type outcome struct {
	pieces   []piece
	first    [1]piece // memory for pieces, which are mostly one
	returned bool     // false at the end means that the goroutine panicked or ended
	done     chan struct{}
}

// recover puts a call that did not return into words. It is deferred itself: only then
// does the built-in recover see the panic.
func (o *outcome) recover(ctx context.Context, call Call) {
	if r := recover(); r != nil {
		o.add(Chunk{}, panicked(ctx, call, r))
	} else if !o.returned {
		o.add(Chunk{}, errNoReturn)
	}
}

// run is the tool's goroutine.
func (o *outcome) run(ctx context.Context, f *function, call Call) {
	defer close(o.done)
	o.pieces = o.first[:0]
	defer o.recover(ctx, call)
	f.run(ctx, call, o.add)
	o.returned = true
}

func (o *outcome) add(c Chunk, err error) bool {
	o.pieces = append(o.pieces, checked(c, err))
	return true
}

// errNoReturn is for runtime.Goexit, which t.FailNow of package testing calls too: there
// is no panic to recover then, and the deferred functions are all that still runs.
var errNoReturn = errors.New("the tool ended its goroutine instead of returning")

// A bridge carries chunks from the goroutine of a tool to its consumer.
type bridge struct {
	out  chan piece
	next chan struct{} // the consumer asks for more
	left chan struct{} // closed by the consumer: nobody listens any more
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
	select {
	case b.out <- checked(c, err):
	case <-b.left:
		return false
	case <-b.done:
		return false
	}
	select {
	case <-b.next:
		return true
	case <-b.left:
		return false
	}
}

// leave ends the tool and, unless that was tried, waits for it a while: a tool that obeys
// has ended when the call has, and holds no file or lock any more.
func (b *bridge) leave(cancel context.CancelFunc, w *callctx.Watch, abandoned bool) {
	cancel()      // for a tool that looks at its context
	close(b.left) // for one that yields
	if abandoned {
		return
	}
	select {
	case <-b.done:
		return
	default:
	}
	late := time.After(grace) // only now: most have ended already, and a timer costs
	for {
		select {
		case <-b.done:
			return
		case <-late:
			return
		case turn := <-w.Turns:
			turn()
		}
	}
}
