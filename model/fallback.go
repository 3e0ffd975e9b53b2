package model

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// Fallback returns a model that asks the given models one after the other
// until one answers. The next one is asked if nothing of an answer was passed
// on yet and the failure is not the request's own fault: an invalid request, a
// conversation that is too long, an image that is refused and a context that has
// ended go up at once.
// [Finish.Model] tells who answered, and the last failure comes first in an
// error. Fallback panics if it is given no model.
//
// Combine it with [Retry] on the inside: Fallback(Retry(a, cfg), Retry(b, cfg)).
func Fallback(models ...Model) Model {
	if len(models) == 0 {
		panic("model.Fallback: it needs at least one model")
	}
	return fallback(models)
}

type fallback []Model

// Unwrap returns the first model, whose name the whole goes by.
func (f fallback) Unwrap() Model { return f[0] }

func (f fallback) retries() bool {
	return slices.ContainsFunc(f, func(m Model) bool {
		r, ok := As[retrying](m)
		return ok && r.retries()
	})
}

// ContextWindow returns the smallest of the models' known windows, so that
// whoever answers has room for the conversation; 0 if none is known.
func (f fallback) ContextWindow() int {
	least := 0
	for _, m := range f {
		w, ok := As[Windowed](m)
		if !ok {
			continue
		}
		if n := w.ContextWindow(); n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

func (f fallback) Generate(ctx context.Context, req *Request) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		var failed error
		p := &passage{yield: yield}
		for _, m := range f {
			err := p.take(m.Generate(ctx, req))
			if err == nil {
				return
			}
			if failed == nil {
				failed = err
			} else {
				failed = fmt.Errorf("%w (before that: %w)", err, failed)
			}
			if ctx.Err() != nil || !othersMayAnswer(err) {
				break
			}
		}
		yield(nil, failed)
	}
}

// othersMayAnswer reports whether another model may do better. One with a larger
// window might, with what is too long for this one; but the agent knows what to do
// about that, and keeps to the smallest window.
func othersMayAnswer(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	e, ok := errors.AsType[*Error](err)
	return !ok || (e.Kind != ErrInvalidRequest && e.Kind != ErrContextTooLong && e.Kind != ErrBadImage)
}
