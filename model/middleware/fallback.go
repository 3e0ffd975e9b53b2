package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/model"
)

// FallbackConfig configures [Fallback]. The zero value has the defaults below.
type FallbackConfig struct {
	// A model that has failed After times in a row is skipped for the time For, or for the server's Retry-After if that
	// is longer. After that time one request tries the model again, while others still skip it.
	After int           // number of failures; 0 means 3, and with a negative number no model is skipped
	For   time.Duration // 0 means a minute
}

// Fallback returns a model that calls the given models in order until one answers. It calls the next one if nothing
// of an answer was yielded yet and the request is not to blame: for an invalid request, a conversation that is too
// long, a rejected image or an ended context it returns the error. [model.Finish.Model] names the model that
// answered. Fallback panics without a model.
//
// The text of an error has the failures in the order of the calls, each with the position and the
// name of its model. [errors.As] and errors.AsType find the most relevant [*model.Error]: the error of a
// request that is to blame, else the retryable one with the shortest Retry-After, else the first.
//
// So that a model that is down does not delay every request, it is skipped after some failures; see [FallbackConfig].
// A skipped model is still called if all others have failed.
//
// Use Retry for each model, not for the fallback.
func Fallback(models []model.Model, cfg FallbackConfig) model.Model {
	if len(models) == 0 {
		panic("middleware.Fallback: no models; it needs at least one")
	}
	cfg.After = cmp.Or(cfg.After, 3)
	if cfg.For <= 0 {
		cfg.For = time.Minute
	}
	return &fallback{slices.Clone(models), cfg, make([]breaker, len(models))}
}

type fallback struct {
	models   []model.Model
	cfg      FallbackConfig
	breakers []breaker
}

func (f *fallback) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		var failed failures
		answer := &delivery{yield: yield}
		// call calls the i-th model. done means that no other model should be called.
		call := func(i int) (done bool) {
			err := answer.drain(f.models[i].Generate(ctx, req))
			f.breakers[i].record(ctx, &f.cfg, err)
			if err == nil {
				failed = nil
				return true
			}
			failed = append(failed, f.failure(i, err))
			return ctx.Err() != nil || !othersMayAnswer(err)
		}
		done := false
		var skipped []int
		for i := 0; i < len(f.models) && !done; i++ {
			if f.breakers[i].allows(&f.cfg) {
				done = call(i)
			} else {
				skipped = append(skipped, i)
			}
		}
		for i := 0; i < len(skipped) && !done; i++ {
			done = call(skipped[i])
		}
		if failed != nil {
			yield(nil, failed)
		}
	}
}

// failures are the errors of several models, in the order of their calls.
type failures []error

func (f failures) Error() string {
	var texts []string
	for _, err := range f {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors, the most relevant for the caller first.
func (f failures) Unwrap() []error {
	return slices.SortedStableFunc(slices.Values(f), func(a, b error) int {
		rankA, waitA := relevance(a)
		rankB, waitB := relevance(b)
		return cmp.Or(cmp.Compare(rankA, rankB), cmp.Compare(waitA, waitB))
	})
}

// relevance ranks an error, the most relevant first: errors for which the request is to blame, retryable errors by their
// wait, all others.
func relevance(err error) (rank int, wait time.Duration) {
	e, ok := errors.AsType[*model.Error](err)
	switch {
	case !othersMayAnswer(err):
		return 0, 0
	case ok && e.Retryable():
		return 1, e.RetryAfter
	}
	return 2, 0
}

// A breaker counts the failures of a model, over all requests.
type breaker struct {
	mu       sync.Mutex
	failures int       // since the last answer
	until    time.Time // skip the model until then; zero means do not skip it
}

// allows reports whether the model should be called. When the time until has come, one request is allowed; others still
// skip the model, for cfg.For or until that request is answered.
func (b *breaker) allows(cfg *FallbackConfig) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Before(b.until) {
		return false
	}
	if !b.until.IsZero() {
		b.until = now.Add(cfg.For)
	}
	return true
}

// record counts the result of a call, unless the context has ended. An error that other models would return too does not
// mean that the model is down.
func (b *breaker) record(ctx context.Context, cfg *FallbackConfig, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil || !othersMayAnswer(err) {
		b.failures, b.until = 0, time.Time{}
		return
	}
	if b.failures++; cfg.After < 0 || b.failures < cfg.After {
		return
	}
	wait := cfg.For
	if e, ok := errors.AsType[*model.Error](err); ok {
		wait = max(wait, e.RetryAfter)
	}
	b.until = time.Now().Add(wait)
}

// Unwrap returns the first model, which provides the name.
func (f *fallback) Unwrap() model.Model { return f.models[0] }

// failure adds the position and the name of the model to its error.
func (f *fallback) failure(i int, err error) error {
	if len(f.models) == 1 {
		return err
	}
	var names []string
	if n, ok := model.As[model.Named](f.models[i]); ok && n.Name() != "" {
		names = append(names, n.Name())
	}
	if srv, ok := model.As[model.Served](f.models[i]); ok {
		if host, _ := srv.Server(); host != "" {
			names = append(names, host)
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("model %d: %w", i+1, err)
	}
	return fmt.Errorf("model %d (%s): %w", i+1, strings.Join(names, ", "), err)
}

// retries reports whether one of the models retries; see retrying.
func (f *fallback) retries() bool {
	return slices.ContainsFunc(f.models, func(m model.Model) bool {
		r, ok := model.As[retrying](m)
		return ok && r.retries()
	})
}

// Reveals reports whether one of the models reads Request.Reveal. The others send Request.Tools.
func (f *fallback) Reveals() bool {
	return slices.ContainsFunc(f.models, func(m model.Model) bool {
		r, ok := model.As[model.Revealer](m)
		return ok && r.Reveals()
	})
}

// ContextWindow returns the smallest of the models' known windows, so that
// the conversation fits any of them; 0 if none is known.
func (f *fallback) ContextWindow() int {
	least := 0
	for _, m := range f.models {
		w, ok := model.As[model.Windowed](m)
		if !ok {
			continue
		}
		if n := w.ContextWindow(); n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// othersMayAnswer reports whether another model may succeed. A conversation that is too
// long is left to the agent, which compacts it, even if another model's window is larger.
func othersMayAnswer(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	e, ok := errors.AsType[*model.Error](err)
	return !ok || (e.Kind != model.KindInvalidRequest && e.Kind != model.KindContextTooLong && e.Kind != model.KindBadImage)
}
