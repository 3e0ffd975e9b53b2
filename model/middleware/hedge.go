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
// An error of first before that time is returned, as without Hedge: put [Retry] around or inside it. Later, an error
// is returned only if both have failed; like that of [Fallback] it wraps both errors.
//
// Both requests have ended when the sequence ends. The usage in [*model.Finish] is the sum of both, as far as servers
// report it: most report none for a cancelled request, and some charge for it.
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
				if p.notify() {
					continue
				}
				first.pass(p, ok, nil, yield)
				return
			case <-timer.C:
				waiting = false
			}
		}
		second := start(ctx, h.modelList[1], req)
		defer second.end()
		h.race(first, second, yield)
	}
}

// race yields the answer of the attempt that yields first.
func (h *hedge) race(first, second *attempt, yield func(model.Chunk, error) bool) {
	var failed failures
	firstPieces, secondPieces := first.pieces, second.pieces // nil after a failure
	for {
		var p piece
		var ok bool
		from, loser, i := first, second, 0
		select {
		case p, ok = <-firstPieces:
		case p, ok = <-secondPieces:
			from, loser, i = second, first, 1
		}
		if p.notify() {
			continue
		}
		if ok && p.err == nil {
			loser.cancel() // attempt.end waits for the loser, after the answer
			from.pass(p, ok, loser, yield)
			return
		}
		failed = append(failed, h.failure(i, p.failure(ok)))
		if len(failed) == 2 {
			yield(nil, failed)
			return
		}
		if from == first {
			firstPieces = nil
		} else {
			secondPieces = nil
		}
	}
}

// An attempt is a request on its own goroutine, which blocks unless all pieces are read.
type attempt struct {
	pieces chan piece
	cancel context.CancelFunc
}

type piece struct { // exactly one field is set
	chunk model.Chunk
	err   error
	retry func() // calls OnRetry
}

// notify calls OnRetry if p is a retry, and reports whether it is. It runs on the
// goroutine that reads the answer, like OnRetry without Hedge.
func (p piece) notify() bool {
	if p.retry != nil {
		p.retry()
	}
	return p.retry != nil
}

// failure returns why an attempt has no chunk. ok is false if its stream has ended.
func (p piece) failure(ok bool) error {
	if !ok {
		return &model.Error{Kind: model.KindUpstream, Message: "the stream ended without a chunk"}
	}
	return p.err
}

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

// end cancels the request, waits until it has ended, and returns its usage if it reports one.
func (a *attempt) end() (u message.Usage) {
	a.cancel()
	for p := range a.pieces {
		if f, ok := p.chunk.(*model.Finish); ok {
			u.Add(f.Usage)
		}
	}
	return u
}

// pass yields p and the following pieces, and adds the usage of the loser.
func (a *attempt) pass(p piece, ok bool, loser *attempt, yield func(model.Chunk, error) bool) {
	for ; ok; p, ok = <-a.pieces {
		if p.notify() {
			continue
		}
		if f, isFinish := p.chunk.(*model.Finish); isFinish && loser != nil {
			sum := *f
			sum.Usage.Add(loser.end())
			p.chunk = &sum
		}
		if !yield(p.chunk, p.err) {
			return
		}
	}
}
