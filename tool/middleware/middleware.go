// Package middleware has common middleware for calls of tools: a log, a time-out, retries, limits and a cache.
//
// Each function returns a [tool.Middleware]. It can be installed for every tool
// of an agent, or for some with [tool.With]:
//
//	db := middleware.Limit(2) // one value, one limit
//	query = tool.With(query, db, middleware.Timeout(30*time.Second))
//	update = tool.With(update, db)
//
// The first middleware is the outermost: above, the time-out does not count the time that a call waits for its turn.
//
// A middleware sees a failure of the tool as an error of the sequence, or as a Failed chunk.
package middleware

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/tool"
)

// newMiddleware makes a middleware of a function that runs a call and yields its chunks.
func newMiddleware(run func(ctx context.Context, t tool.Tool, call tool.Call, next tool.Handler, yield func(tool.Chunk, error) bool)) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
			return func(yield func(tool.Chunk, error) bool) { run(ctx, t, call, next, yield) }
		}
	}
}

// Log logs the end of each call: at level Info its tool, id, duration, number of chunks and whether the consumer stopped
// it, at level Warn also the failure. Arguments and results, which may be confidential, are left out. A nil logger is
// slog.Default.
func Log(logger *slog.Logger) tool.Middleware {
	return newMiddleware(func(ctx context.Context, t tool.Tool, call tool.Call, next tool.Handler, yield func(tool.Chunk, error) bool) {
		l := logger
		if l == nil {
			l = slog.Default()
		}
		start, chunks, failure, stopped := time.Now(), 0, "", false
		defer func() {
			attrs := []slog.Attr{
				slog.String("tool", call.Name), slog.String("call", call.ID),
				slog.Duration("took", time.Since(start)), slog.Int("chunks", chunks), slog.Bool("stopped", stopped),
			}
			if failure != "" {
				l.LogAttrs(ctx, slog.LevelWarn, "tool call failed", append(attrs, slog.String("error", failure))...)
				return
			}
			l.LogAttrs(ctx, slog.LevelInfo, "tool call", attrs...)
		}()
		for c, err := range next(ctx, t, call) {
			chunks++
			if err != nil {
				failure = err.Error()
			} else if c.Failed {
				failure = "the tool reported a failure"
			}
			if !yield(c, err) {
				stopped = true
				return
			}
		}
	})
}

// Timeout cancels calls that take longer than d, including the time that their consumer takes. The model reads that the
// call timed out, and whether the tool may still be running. What the tool yields within 200 ms of being cancelled is
// kept.
func Timeout(d time.Duration) tool.Middleware {
	cause := fmt.Errorf("timed out after %v", d)
	return newMiddleware(func(ctx context.Context, t tool.Tool, call tool.Call, next tool.Handler, yield func(tool.Chunk, error) bool) {
		timedCtx, cancel := context.WithTimeoutCause(ctx, d, cause)
		defer cancel()
		for c, err := range next(timedCtx, t, call) {
			timedOut := timedCtx.Err() != nil && ctx.Err() == nil
			if err != nil && timedOut && !errors.Is(err, cause) && !errors.Is(err, tool.ErrAbort) {
				err = cause // the tool's error, such as context.Canceled, is only a consequence
			}
			if !yield(c, err) {
				return
			}
		}
	})
}

// Retries configures Retry.
type Retries struct {
	// Attempts is the maximum number of attempts; values below 2 mean 3.
	Attempts int

	// Wait is the pause before the second attempt; it doubles with each further attempt. Zero is one second.
	Wait time.Duration
}

// Retry repeats a call that failed with an error marked by [Retryable], or with an error that has a method Retryable()
// bool that returns true, unless a part of the result was passed on. It yields the last error.
func Retry(r Retries) tool.Middleware {
	if r.Attempts < 2 {
		r.Attempts = 3
	}
	if r.Wait <= 0 {
		r.Wait = time.Second
	}
	return newMiddleware(func(ctx context.Context, t tool.Tool, call tool.Call, next tool.Handler, yield func(tool.Chunk, error) bool) {
		for attempt := 1; ; attempt++ {
			retry, passedOn := false, false
			for c, err := range next(ctx, t, call) {
				if err != nil && !passedOn && attempt < r.Attempts && isRetryable(err) && ctx.Err() == nil {
					retry = true
					break
				}
				passedOn = true
				if !yield(c, err) {
					return
				}
			}
			if !retry {
				return
			}
			if err := pause(ctx, r.Wait<<(attempt-1)); err != nil {
				yield(tool.Chunk{}, err)
				return
			}
		}
	})
}

// Retryable marks an error of a tool as temporary, for [Retry].
func Retryable(err error) error {
	if err == nil {
		return nil
	}
	return retryableError{err}
}

type retryableError struct{ error }

func (e retryableError) Unwrap() error   { return e.error }
func (e retryableError) Retryable() bool { return true }

func isRetryable(err error) bool {
	var r interface{ Retryable() bool }
	return errors.As(err, &r) && r.Retryable() && !errors.Is(err, tool.ErrAbort)
}

// pause waits for d; if the context ends first, pause returns the context's cause.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// RateLimit starts at most n calls per period: after a quiet period n calls at once, then one every period/n. Other calls
// wait, in order. Tools that share the returned value share the limit. An n below 1 counts as 1.
func RateLimit(n int, period time.Duration) tool.Middleware {
	interval := period / time.Duration(max(n, 1))
	var mu sync.Mutex
	var nextStart time.Time // may be in the past, by up to n-1 intervals: each of these lets one more call start at once
	reserve := func(now time.Time) (wait time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if earliest := now.Add(interval - period); nextStart.Before(earliest) {
			nextStart = earliest
		}
		wait = nextStart.Sub(now)
		nextStart = nextStart.Add(interval)
		return wait
	}
	return newMiddleware(func(ctx context.Context, t tool.Tool, call tool.Call, next tool.Handler, yield func(tool.Chunk, error) bool) {
		if wait := reserve(time.Now()); wait > 0 {
			if err := pause(ctx, wait); err != nil {
				yield(tool.Chunk{}, err)
				return
			}
		}
		next(ctx, t, call)(yield)
	})
}

// Limit runs at most n calls at a time; other calls wait. Tools that share the returned value share the limit. Calls
// that were abandoned because they ignored their context do not count. An n below 1 counts as 1.
func Limit(n int) tool.Middleware {
	slots := make(chan struct{}, max(n, 1))
	return newMiddleware(func(ctx context.Context, t tool.Tool, call tool.Call, next tool.Handler, yield func(tool.Chunk, error) bool) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			yield(tool.Chunk{}, context.Cause(ctx))
			return
		}
		next(ctx, t, call)(yield)
	})
}

// Cache keeps the results of the last n calls that the tool declares read-only, each for at most maxAge, and returns them
// for calls with the same tool name and arguments. It does not keep failures. An n below 1 counts as 1. Do not share a
// Cache between users who may see different data.
func Cache(n int, maxAge time.Duration) tool.Middleware {
	c := &cache{maxEntries: max(n, 1), maxAge: maxAge, entries: map[string]entry{}}
	return newMiddleware(func(ctx context.Context, t tool.Tool, call tool.Call, next tool.Handler, yield func(tool.Chunk, error) bool) {
		if !tool.PermissionCall(t, call.Input).ReadOnly {
			next(ctx, t, call)(yield)
			return
		}
		key := call.Name + "\x00" + string(bytes.TrimSpace(call.Input))
		if chunks, ok := c.get(key); ok {
			for _, ch := range chunks {
				if !yield(ch, nil) {
					return
				}
			}
			return
		}
		var chunks []tool.Chunk
		failed := false
		for ch, err := range next(ctx, t, call) {
			chunks = append(chunks, ch)
			failed = failed || err != nil || ch.Failed
			if !yield(ch, err) {
				return
			}
		}
		if !failed && ctx.Err() == nil { // a cancelled call may have an incomplete result
			c.put(key, chunks)
		}
	})
}

type entry struct {
	chunks   []tool.Chunk
	storedAt time.Time
}

type cache struct {
	mu         sync.Mutex
	maxEntries int
	maxAge     time.Duration
	entries    map[string]entry
	order      []string // the keys of entries, oldest first
}

func (c *cache) get(key string) ([]tool.Chunk, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	return e.chunks, ok && time.Since(e.storedAt) < c.maxAge
}

func (c *cache) put(key string, chunks []tool.Chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.entries[key]; ok {
		c.order = slices.DeleteFunc(c.order, func(k string) bool { return k == key })
	} else if len(c.order) >= c.maxEntries {
		delete(c.entries, c.order[0])
		c.order = c.order[1:]
	}
	c.entries[key] = entry{chunks, time.Now()}
	c.order = append(c.order, key)
}
