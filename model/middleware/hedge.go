package middleware

import (
	"context"
	"iter"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/again"
)

// Hedge returns a model that calls first, and also second if first has yielded nothing after the given time. The model
// that yields a chunk first answers; the other's request is cancelled. Use Hedge for a server that is occasionally much slower
// than usual: if after is the 95th percentile of the time to its first chunk, Hedge makes about 5 % more requests. If
// after is 0 or less, both are called at once. first and second may be the same.
//
// If first fails before that time, its error is returned, as without Hedge: put [Retry] around or inside Hedge. After
// that time, an error is returned only if both have failed. This error wraps both errors, like an error of [Fallback].
//
// Both requests have ended when the sequence ends. The usage in [*model.Finish] is the sum of both requests' usage, as far
// as servers report it: most report none for a cancelled request, and some charge for it.
func Hedge(first, second model.Model, after time.Duration) model.Model {
	return &hedge{modelList{first, second}, after}
}

// A hedge has the name of the first model.
type hedge struct {
	modelList
	after time.Duration
}

func (h *hedge) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		first := start(ctx, h.modelList[0], req)
		defer first.end()
		timer := time.NewTimer(h.after)
		defer timer.Stop()
		for waiting := true; waiting; {
			select {
			case p, ok := <-first.pieces:
				if p.notify() { // first will be tried again and may still answer
					continue
				}
				if ok {
					first.pass(p, nil, yield)
				}
				return
			case <-timer.C:
				waiting = false
			}
		}
		second := start(ctx, h.modelList[1], req)
		defer second.end()
		h.race([2]*attempt{first, second}, yield)
	}
}

// race yields the answer of the attempt that yields first.
func (h *hedge) race(attempts [2]*attempt, yield func(model.Chunk, error) bool) {
	var failed failures
	pieces := [2]chan piece{attempts[0].pieces, attempts[1].pieces} // nil after a failure
	for len(failed) < 2 {
		var p piece
		var ok bool // false after the end of the stream
		i := 0
		select {
		case p, ok = <-pieces[0]:
		case p, ok = <-pieces[1]:
			i = 1
		}
		if p.notify() {
			continue
		}
		if ok && p.err == nil {
			other := attempts[1-i]
			other.cancel() // pass waits for its end, after the answer
			attempts[i].pass(p, other, yield)
			return
		}
		failed = append(failed, h.failure(i, p.failure(ok)))
		pieces[i] = nil
	}
	yield(nil, failed)
}

// An attempt is a request on its own goroutine, which blocks unless all pieces are read.
type attempt struct {
	pieces chan piece
	cancel context.CancelFunc
}

// A piece is a chunk, an error or a retry of an attempt: exactly one field is set.
type piece struct {
	chunk model.Chunk
	err   error
	retry func() // calls OnRetry
}

// notify reports whether p is a retry, and if so calls OnRetry. OnRetry runs on the goroutine that reads the answer, as
// it does without Hedge.
func (p piece) notify() bool {
	if p.retry != nil {
		p.retry()
	}
	return p.retry != nil
}

// failure returns the error of an attempt. ok is false if its stream has ended without p.
func (p piece) failure(ok bool) error {
	if !ok {
		return &model.Error{Kind: model.KindUpstream, Message: "the stream ended without a chunk"}
	}
	return p.err
}

// start sends a request. The caller must call attempt.end.
func start(ctx context.Context, m model.Model, req *model.Request) *attempt {
	ctx, cancel := context.WithCancel(ctx)
	a := &attempt{make(chan piece), cancel}
	if outer := again.From(ctx); outer != nil {
		ctx = again.With(ctx, func(try int, wait time.Duration, err error) {
			a.pieces <- piece{retry: func() { outer(try, wait, err) }}
		})
	}
	go func() {
		defer close(a.pieces)
		for chunk, err := range m.Generate(ctx, req) {
			a.pieces <- piece{chunk: chunk, err: err}
		}
	}()
	return a
}

// end cancels the request, waits until it has ended, and returns its usage if the server has reported it.
func (a *attempt) end() (usage message.Usage) {
	a.cancel()
	for p := range a.pieces {
		if f, ok := p.chunk.(*model.Finish); ok {
			usage.Add(f.Usage)
		}
	}
	return usage
}

// pass yields p and the pieces after it. It adds the usage of the other attempt, unless that is nil.
func (a *attempt) pass(p piece, other *attempt, yield func(model.Chunk, error) bool) {
	for ok := true; ok; p, ok = <-a.pieces {
		if p.notify() {
			continue
		}
		if f, isFinish := p.chunk.(*model.Finish); isFinish && other != nil {
			sum := *f
			sum.Usage.Add(other.end())
			p.chunk = &sum
		}
		if !yield(p.chunk, p.err) {
			return
		}
	}
}
