// Package middleware has models that are made of other models: they retry, fall back, and stay
// below rate limits.
//
//	m := middleware.Fallback([]model.Model{
//		middleware.Retry(first, middleware.RetryConfig{}),
//		middleware.Retry(second, middleware.RetryConfig{}),
//	}, middleware.FallbackConfig{})
//
// [Retry] and [Fallback] start again only while nothing of the answer was yielded. [Limit] delays
// requests, of all agents that share the model, so that they stay below a server's limits. An agent
// retries by default; to configure its retries, set agent.Config.Retry, or give it a model that
// Retry has made.
package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/again"
)

// RetryConfig configures [Retry]. The zero value has the defaults below.
type RetryConfig struct {
	Retries int           // after the first try; 0 means 3, negative means none
	Base    time.Duration // the wait before the first retry, doubled for each further one; 0 means 1 s
	MaxWait time.Duration // the longest wait; 0 means 60 s

	// Sleep waits, or returns the context's error. Random returns a number in [0, 1). Nil means a timer and
	// math/rand; a durable engine and a test supply their own, so that a run can be replayed.
	Sleep  func(context.Context, time.Duration) error
	Random func() float64

	// FirstChunk limits the time until the first chunk of a try, for a server that
	// accepts a request and then sends nothing; 0 means no limit.
	FirstChunk time.Duration

	// OnRetry, if not nil, is called before the wait for the next try, with the number of the failed try, counted from 1,
	// on the goroutine that reads the answer. It is also called before a wait of [Limit], with the try 0.
	OnRetry func(try int, wait time.Duration, err error)
}

// Retry returns m with failed calls repeated. If m retries already, m keeps its configuration, and of cfg only OnRetry is
// used, for the retries of m. So a model that retries can also be given to an agent, which retries by itself. A model
// retries if Retry has made this model or a model that it calls, as those of [Fallback] and decorators do.
//
// A call is repeated if its error is [model.Error.Retryable] and no chunk was yielded yet. The wait grows
// exponentially, is shortened at random by up to half so that many clients do not retry at once, and is never shorter
// than the server's Retry-After. If that is longer than MaxWait the error is returned at once, with the RetryAfter.
func Retry(m model.Model, cfg RetryConfig) model.Model {
	cfg.Retries = cmp.Or(cfg.Retries, 3)
	if cfg.Base <= 0 {
		cfg.Base = time.Second
	}
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = time.Minute
	}
	if cfg.Sleep == nil {
		cfg.Sleep = sleep
	}
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	if r, ok := model.As[retrying](m); ok && r.retries() {
		if cfg.OnRetry == nil {
			return m
		}
		return &retryReporter{m, cfg.OnRetry}
	}
	return &retrier{m, cfg}
}

// retrying is implemented by the models of this package that call other models.
type retrying interface {
	retries() bool // reports whether the model, or one that it calls, retries
}

// A retryReporter calls onRetry for each retry of its Model.
type retryReporter struct {
	model.Model
	onRetry onRetry
}

func (r *retryReporter) Unwrap() model.Model { return r.Model }

func (r *retryReporter) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return r.Model.Generate(r.onRetry.within(ctx), req)
}

type onRetry again.Func

// within returns a context in which f is called for retries and waits, before the function in ctx.
func (f onRetry) within(ctx context.Context) context.Context {
	if f == nil {
		return ctx
	}
	return again.With(ctx, func(try int, wait time.Duration, err error) {
		f(try, wait, err)
		again.Notify(ctx, try, wait, err)
	})
}

type retrier struct {
	model model.Model
	cfg   RetryConfig
}

// Unwrap returns the model that is called, for [model.As].
func (r *retrier) Unwrap() model.Model { return r.model }

func (r *retrier) retries() bool { return true }

func (r *retrier) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		ctx := onRetry(r.cfg.OnRetry).within(ctx)
		answer := &delivery{yield: yield}
		for try := 0; ; try++ {
			err := r.callOnce(ctx, req, answer)
			if err == nil {
				return
			}
			if ctxErr := ctx.Err(); ctxErr != nil {
				if !errors.Is(err, ctxErr) {
					err = fmt.Errorf("%w: %w", err, ctxErr)
				}
				yield(nil, err)
				return
			}
			wait, retryable := r.backoff(err, try)
			if !retryable {
				if try > 0 {
					err = fmt.Errorf("%w (tried %d times)", err, try+1)
				}
				yield(nil, err)
				return
			}
			again.Notify(ctx, try+1, wait, err)
			if ctxErr := r.cfg.Sleep(ctx, wait); ctxErr != nil {
				yield(nil, fmt.Errorf("%w (the next try was due after %v): %w", err, wait, ctxErr))
				return
			}
		}
	}
}

// callOnce makes one try, and returns its error if another try is possible.
func (r *retrier) callOnce(ctx context.Context, req *model.Request, answer *delivery) error {
	if r.cfg.FirstChunk <= 0 {
		return answer.drain(r.model.Generate(ctx, req))
	}
	tryCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer.firstChunk = time.AfterFunc(r.cfg.FirstChunk, cancel)
	err := answer.drain(r.model.Generate(tryCtx, req))
	if timedOut := !answer.started && !answer.firstChunk.Stop(); timedOut && ctx.Err() == nil {
		text := fmt.Sprintf("no part of the answer arrived within %v", r.cfg.FirstChunk)
		if _, ok := errors.AsType[*waitError](err); ok { // Limit, not the server, caused the delay
			text += ": " + err.Error()
		}
		return &model.Error{Kind: model.KindConnection, Message: text, Err: err}
	}
	return err
}

// backoff returns how long to wait after the given try, counted from 0, and whether to try again.
func (r *retrier) backoff(err error, try int) (wait time.Duration, retryable bool) {
	e, ok := errors.AsType[*model.Error](err)
	if !ok || !e.Retryable() || try >= r.cfg.Retries || e.RetryAfter > r.cfg.MaxWait {
		return 0, false
	}
	d := r.cfg.Base
	for range try { // a shift would overflow after about thirty tries
		d = min(2*d, r.cfg.MaxWait)
	}
	d -= time.Duration(r.cfg.Random() * float64(d) / 2)
	return min(max(d, e.RetryAfter), r.cfg.MaxWait), true
}

// A delivery yields the chunks of one or several tries. It does not yield an error before the first chunk, but stores it:
// then another try is possible.
type delivery struct {
	yield      func(model.Chunk, error) bool
	started    bool        // a chunk was yielded
	ended      bool        // ignore further chunks of this try
	early      error       // an error before the first chunk
	firstChunk *time.Timer // cancels the try; stopped at the first chunk; nil for no limit
}

// drain yields chunks. It returns an error that came before the first chunk.
func (d *delivery) drain(chunks iter.Seq2[model.Chunk, error]) error {
	d.ended, d.early = false, nil
	chunks(d.pass) // a range loop would cost two more allocations
	return d.early
}

// pass yields or stores a chunk or an error, and reports whether the try should continue.
func (d *delivery) pass(chunk model.Chunk, err error) bool {
	switch {
	case d.ended:
		return false
	case err != nil && !d.started:
		d.early = err
	case !d.started && d.firstChunk != nil && !d.firstChunk.Stop():
		d.early, d.ended = context.DeadlineExceeded, true // the time is over, and the request is being cancelled
	default:
		d.started = true
		d.ended = !d.yield(chunk, err)
	}
	d.ended = d.ended || err != nil
	return !d.ended
}

// sleep waits, or returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
