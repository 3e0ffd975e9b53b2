package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/model/scripted"
)

// decorated is a decorator of a program.
type decorated struct{ model.Model }

func (d decorated) Unwrap() model.Model { return d.Model }

// TestOneLayerOfRetries: a model that retries at any depth is not retried again by
// an outer Retry, but the outer OnRetry is called for each retry.
func TestOneLayerOfRetries(t *testing.T) {
	down := func() *scripted.Model { return scripted.New(scripted.Repeat(failure(model.KindUpstream, 0))) }
	retry := func(m model.Model) model.Model { return middleware.Retry(m, middleware.RetryConfig{}) }
	for _, row := range []struct {
		why      string
		model    func(a, b model.Model) model.Model
		requests int
		reported int
	}{
		{"nothing retries", func(a, b model.Model) model.Model { return a }, 4, 3},
		{"the model retries", func(a, b model.Model) model.Model { return retry(a) }, 4, 3},
		{"twice", func(a, b model.Model) model.Model { return retry(retry(a)) }, 4, 3},
		{"each of a fallback", func(a, b model.Model) model.Model {
			return middleware.Fallback([]model.Model{retry(a), retry(b)}, middleware.FallbackConfig{})
		}, 8, 6},
		{"the second of a fallback", func(a, b model.Model) model.Model {
			return middleware.Fallback([]model.Model{a, retry(b)}, middleware.FallbackConfig{})
		}, 5, 3},
		{"none of a fallback", func(a, b model.Model) model.Model {
			return middleware.Fallback([]model.Model{a, b}, middleware.FallbackConfig{})
		}, 8, 3},
		{"below decorators", func(a, b model.Model) model.Model {
			return decorated{decorated{middleware.Fallback([]model.Model{decorated{retry(a)}, decorated{retry(b)}}, middleware.FallbackConfig{})}}
		}, 8, 6},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b := down(), down()
			var tries []int
			top := middleware.Retry(row.model(a, b), middleware.RetryConfig{OnRetry: func(try int, wait time.Duration, err error) {
				if wait <= 0 || err == nil {
					t.Errorf("%s: reported wait %v and error %v", row.why, wait, err)
				}
				tries = append(tries, try)
			}})
			_, _, err := model.Collect(top.Generate(t.Context(), &model.Request{}))
			if n := len(a.Requests()) + len(b.Requests()); err == nil || n != row.requests || len(tries) != row.reported {
				t.Errorf("%s: %d requests, reported %v, %v; want %d and %d", row.why, n, tries, err, row.requests, row.reported)
			}
			slices.Sort(tries)
			if slices.Max(tries) != 3 || tries[0] != 1 {
				t.Errorf("%s: tries %v", row.why, tries)
			}
		})
	}
}

// A silentModel sends nothing, or an answer after a time.
type silentModel struct {
	after    time.Duration // 0 for never
	requests int
}

func (s *silentModel) Generate(ctx context.Context, _ *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		s.requests++
		var answer <-chan time.Time
		if s.after > 0 {
			answer = time.After(s.after)
		}
		select {
		case <-answer:
			_ = yield(&model.TextDelta{Text: "late"}, nil) && yield(&model.Finish{Reason: model.FinishStop}, nil)
		case <-ctx.Done():
			yield(nil, &model.Error{Kind: model.KindConnection, Message: "the request was cancelled", Err: ctx.Err()})
		}
	}
}

func TestFirstChunk(t *testing.T) {
	const limit = 10 * time.Second
	for _, row := range []struct {
		after    time.Duration
		requests int
		reported int
		took     time.Duration
		err      string
	}{
		{after: 0, requests: 3, reported: 2, took: 33 * time.Second, err: "model call: connection: no part of the answer arrived within 10s (tried 3 times)"},
		{after: limit - 1, requests: 1, took: limit - 1},
		{after: limit + 1, requests: 3, reported: 2, took: 33 * time.Second, err: "within 10s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, reported, start := &silentModel{after: row.after}, 0, time.Now()
			retry := middleware.RetryConfig{Retries: 2, FirstChunk: limit, Random: func() float64 { return 0 }, OnRetry: func(int, time.Duration, error) { reported++ }}
			msg, _, err := model.Collect(middleware.Retry(m, retry).Generate(t.Context(), &model.Request{}))
			if time.Since(start) != row.took || m.requests != row.requests || reported != row.reported || (err == nil) != (row.err == "") ||
				err == nil && msg.Text() != "late" || err != nil && !strings.Contains(err.Error(), row.err) {
				t.Errorf("answers after %v: %d requests in %v, %d reported retries: %q, %v", row.after, m.requests, time.Since(start), reported, msg.Text(), err)
			}
		})
	}
}

// TestTheContextEndsEverything ends the context at different times while decorators call
// a silent or failing server: they end at once with its error, and make no more requests.
func TestTheContextEndsEverything(t *testing.T) {
	retry := func(m model.Model) model.Model {
		return middleware.Retry(m, middleware.RetryConfig{FirstChunk: 700 * time.Millisecond})
	}
	for name, decorate := range map[string]func(a, b model.Model) model.Model{
		"retry": func(a, b model.Model) model.Model { return retry(a) },
		"fallback": func(a, b model.Model) model.Model {
			return middleware.Fallback([]model.Model{a, b}, middleware.FallbackConfig{})
		},
		"limit": func(a, b model.Model) model.Model { return middleware.Limit(a, middleware.LimitConfig{Requests: 1}) },
		"fallback of retry": func(a, b model.Model) model.Model {
			return middleware.Fallback([]model.Model{retry(a), retry(b)}, middleware.FallbackConfig{})
		},
	} {
		for _, after := range []time.Duration{1, 699 * time.Millisecond, 701 * time.Millisecond, 2 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), after)
				defer cancel()
				start := time.Now()
				m := middleware.Retry(decorate(new(silentModel), new(silentModel)), middleware.RetryConfig{OnRetry: func(int, time.Duration, error) {
					if ctx.Err() != nil {
						t.Errorf("%s after %v: a retry that never comes was reported", name, after)
					}
				}})
				_, _, err := model.Collect(m.Generate(ctx, &model.Request{}))
				if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != after {
					t.Errorf("%s: the context ended after %v, the call after %v: %v", name, after, took, fmt.Sprint(err))
				}
			})
		}
	}
}
