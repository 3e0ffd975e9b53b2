package tool

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// grace is how long a tool may take to end once it was told to.
const grace = 200 * time.Millisecond

// isolated calls a tool on a goroutine of its own, so that neither a panic nor
// a function that ignores its context can hold the caller. It is the innermost
// handler.
//
// The two sides take turns: the tool goes on only when the consumer asks for
// the next chunk, as if it were ranged over directly.
func isolated(ctx context.Context, t Tool, call Call) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		if ctx.Err() != nil {
			yield(Chunk{}, fmt.Errorf("not started: %w", context.Cause(ctx)))
			return
		}
		toolCtx, cancel := context.WithCancel(ctx)
		b := &bridge{out: make(chan piece), next: make(chan struct{}), left: make(chan struct{}), done: make(chan struct{})}
		go b.run(toolCtx, t, call)
		abandoned := false
		defer func() { b.leave(cancel, abandoned) }()

		ended, late := ctx.Done(), (<-chan time.Time)(nil)
		for {
			select {
			case p := <-b.out:
				if !yield(p.chunk, p.err) || p.err != nil {
					return
				}
				select {
				case b.next <- struct{}{}:
				case <-b.done:
				}
			case <-b.done:
				return
			case <-ended:
				ended, late = nil, time.After(grace)
			case <-late:
				abandoned = true
				yield(Chunk{}, fmt.Errorf("%w; the tool did not stop when told to and may still be running", context.Cause(ctx)))
				return
			}
		}
	}
}

type piece struct {
	chunk Chunk
	err   error
}

// A bridge carries chunks from the goroutine of a tool to its consumer.
type bridge struct {
	out  chan piece
	next chan struct{} // the consumer asks for more
	left chan struct{} // closed by the consumer: nobody listens any more
	done chan struct{} // closed by the tool's goroutine
}

func (b *bridge) run(ctx context.Context, t Tool, call Call) {
	defer close(b.done)
	returned := false
	defer func() {
		if r := recover(); r != nil {
			b.yield(Chunk{}, panicked(ctx, call, r))
		} else if !returned {
			b.yield(Chunk{}, errors.New("the tool ended its goroutine instead of returning"))
		}
	}()
	t.Call(ctx, call)(b.yield)
	returned = true
}

// yield may be called by a tool at any time, even late and from elsewhere.
func (b *bridge) yield(c Chunk, err error) bool {
	select {
	case b.out <- piece{c, err}:
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

// leave ends the tool and, unless that was tried, waits for it a while.
func (b *bridge) leave(cancel context.CancelFunc, abandoned bool) {
	cancel()
	close(b.left)
	if abandoned {
		return
	}
	select {
	case <-b.done:
		return
	default:
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-b.done:
	case <-timer.C:
	}
}
