package model

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

// RetryConfig says how [Retry] repeats failed calls. Its zero value is a good
// start.
type RetryConfig struct {
	Retries int           // after the first try; 0 means 3, less means none
	Base    time.Duration // the wait before the first retry, doubled for each further one; 0 means 1 s
	MaxWait time.Duration // no wait is longer; 0 means 60 s

	// Sleep waits, or returns the context's error. Random returns a number in
	// [0, 1). Both have plain defaults; a durable engine and a test supply
	// their own, so that a run can be replayed.
	Sleep  func(context.Context, time.Duration) error
	Random func() float64

	// OnRetry, if not nil, is told of each failed try, counted from 1, before
	// the wait that follows it.
	OnRetry func(try int, wait time.Duration, err error)
}

// Retry returns m with failed calls repeated. A call is repeated if its error
// is [Error.Retryable] and nothing of the answer was passed on yet, be it that
// the stream had started. The wait grows exponentially, is spread by up to
// half of it so that many clients do not come back together, and is never
// shorter than the server's Retry-After. If the server asks for more than
// MaxWait the error is returned at once: it says for how long.
func Retry(m Model, cfg RetryConfig) Model {
	if cfg.Retries == 0 {
		cfg.Retries = 3
	}
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
	return &retrier{m, cfg}
}

type retrier struct {
	model Model
	cfg   RetryConfig
}

// Unwrap returns the model that is called, for [As].
func (r *retrier) Unwrap() Model { return r.model }

func (r *retrier) Generate(ctx context.Context, req *Request) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		p := &passage{yield: yield}
		for try := 0; ; try++ {
			err := p.take(r.model.Generate(ctx, req))
			if err == nil {
				return
			}
			wait, again := r.wait(err, try)
			if !again {
				if try > 0 {
					err = fmt.Errorf("%w (tried %d times)", err, try+1)
				}
				yield(nil, err)
				return
			}
			if r.cfg.OnRetry != nil {
				r.cfg.OnRetry(try+1, wait, err)
			}
			if err := r.cfg.Sleep(ctx, wait); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// wait says whether to try again after the failure number try, and when.
func (r *retrier) wait(err error, try int) (time.Duration, bool) {
	e, ok := errors.AsType[*Error](err)
	if !ok || !e.Retryable() || try >= r.cfg.Retries || e.RetryAfter > r.cfg.MaxWait {
		return 0, false
	}
	d := r.cfg.Base
	for range try { // no shift: it would overflow after some thirty tries
		d = min(2*d, r.cfg.MaxWait)
	}
	d -= time.Duration(r.cfg.Random() * float64(d) / 2)
	return min(max(d, e.RetryAfter), r.cfg.MaxWait), true
}

// A passage yields what comes. An error that comes before anything else is kept
// back: until then another try is possible.
type passage struct {
	yield   func(Chunk, error) bool
	started bool
	ended   bool
	early   error
}

// take passes chunks on. It returns the error that it kept back.
func (p *passage) take(chunks iter.Seq2[Chunk, error]) error {
	p.ended, p.early = false, nil
	chunks(p.pass) // the body of a loop would be two allocations more
	return p.early
}

func (p *passage) pass(chunk Chunk, err error) bool {
	switch {
	case p.ended: // and the model was told
		return false
	case err != nil && !p.started:
		p.early = err
	default:
		p.started = true
		p.ended = !p.yield(chunk, err)
	}
	p.ended = p.ended || err != nil
	return !p.ended
}

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
