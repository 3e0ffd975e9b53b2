package model

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// Fallback returns a model that calls the given models in order until one answers.
// It calls the next one if nothing of an answer was passed on yet and the request is
// not to blame: an invalid request, a conversation that is too long, a rejected image
// and an ended context are returned at once. [Finish.Model] names the model that
// answered. An error lists the last failure first. Fallback panics without a model.
//
// Retry each model, not the fallback: Fallback(Retry(a, cfg), Retry(b, cfg)).
func Fallback(models ...Model) Model {
	if len(models) == 0 {
		panic("model.Fallback: it needs at least one model")
	}
	return fallback(models)
}

type fallback []Model

// Unwrap returns the first model, whose name the fallback has.
func (f fallback) Unwrap() Model { return f[0] }

func (f fallback) retries() bool {
	return slices.ContainsFunc(f, func(m Model) bool {
		r, ok := As[retrying](m)
		return ok && r.retries()
	})
}

// ContextWindow returns the smallest of the models' known windows, so that
// the conversation fits any of them; 0 if none is known.
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
		p := &delivery{yield: yield}
		for _, m := range f {
			err := p.drain(m.Generate(ctx, req))
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

// othersMayAnswer reports whether another model may succeed. A conversation that is too
// long is left to the agent, which compacts it, even if another model's window is larger.
func othersMayAnswer(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	e, ok := errors.AsType[*Error](err)
	return !ok || (e.Kind != KindInvalidRequest && e.Kind != KindContextTooLong && e.Kind != KindBadImage)
}
