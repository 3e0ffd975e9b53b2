package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/model/scripted"
)

// A meteredModel is a model that records its calls and reports a usage, or fails with err.
type meteredModel struct {
	mu    sync.Mutex
	usage []message.Usage // of the requests in order; the last one is used for all further requests
	err   error
	calls []time.Time
}

func (m *meteredModel) Generate(context.Context, *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		m.mu.Lock()
		m.calls = append(m.calls, time.Now())
		var usage message.Usage
		if n := len(m.usage); n > 0 {
			usage = m.usage[min(len(m.calls), n)-1]
		}
		m.mu.Unlock()
		if m.err != nil {
			yield(nil, m.err)
			return
		}
		yield(&model.Finish{Reason: model.FinishStop, Usage: usage}, nil)
	}
}

// request returns a request of about n tokens.
func request(n int) *model.Request {
	return &model.Request{Messages: []*message.Message{message.User(strings.Repeat("four", n))}}
}

// TestLimit makes requests one after the other and checks when each is sent.
func TestLimit(t *testing.T) {
	usage := func(tokens ...int) (list []message.Usage) {
		for _, n := range tokens {
			list = append(list, message.Usage{Input: n - 1, Output: 1})
		}
		return list
	}
	const s = time.Second
	for _, row := range []struct {
		why   string
		cfg   middleware.LimitConfig
		size  []int // of the requests, in tokens
		model *meteredModel
		sent  []time.Duration
	}{
		{"no limit", middleware.LimitConfig{}, []int{1, 1, 1}, &meteredModel{}, []time.Duration{0, 0, 0}},
		{"negative is no limit", middleware.LimitConfig{Requests: -1, Tokens: -1}, []int{1, 1}, &meteredModel{}, []time.Duration{0, 0}},
		{"one negative", middleware.LimitConfig{Requests: 1, Tokens: -1}, []int{1, 1}, &meteredModel{}, []time.Duration{0, 60 * s}},
		{"requests", middleware.LimitConfig{Requests: 2}, []int{1, 1, 1, 1, 1}, &meteredModel{}, []time.Duration{0, 0, 60 * s, 60 * s, 120 * s}},
		{"tokens", middleware.LimitConfig{Tokens: 100}, []int{50, 50, 1, 99, 1}, &meteredModel{}, []time.Duration{0, 0, 60 * s, 60 * s, 120 * s}},
		{"both", middleware.LimitConfig{Requests: 2, Tokens: 100}, []int{90, 90, 5, 5}, &meteredModel{}, []time.Duration{0, 60 * s, 60 * s, 120 * s}},
		{"a request that is larger than the limit", middleware.LimitConfig{Tokens: 100}, []int{10, 500, 10}, &meteredModel{}, []time.Duration{0, 60 * s, 120 * s}},
		{"the server reports more than was estimated", middleware.LimitConfig{Tokens: 100}, []int{10, 10}, &meteredModel{usage: usage(95)}, []time.Duration{0, 60 * s}},
		{"the server reports less", middleware.LimitConfig{Tokens: 100}, []int{90, 90, 90}, &meteredModel{usage: usage(5)}, []time.Duration{0, 0, 0}},
		{"a rejected request uses no tokens", middleware.LimitConfig{Tokens: 100}, []int{90, 90}, &meteredModel{err: errors.New("no")}, []time.Duration{0, 0}},
		{"a rejected request counts as a request", middleware.LimitConfig{Requests: 1}, []int{90, 90}, &meteredModel{err: errors.New("no")}, []time.Duration{0, 60 * s}},
	} {
		synctest.Test(t, func(t *testing.T) {
			start, m := time.Now(), row.model
			limited := middleware.Limit(m, row.cfg)
			for _, size := range row.size {
				_, _, err := model.Collect(limited.Generate(t.Context(), request(size)))
				if !errors.Is(err, m.err) {
					t.Errorf("%s: %v", row.why, err)
				}
			}
			var sent []time.Duration
			for _, at := range m.calls {
				sent = append(sent, at.Sub(start))
			}
			if !slices.Equal(sent, row.sent) {
				t.Errorf("%s: sent after %v, want %v", row.why, sent, row.sent)
			}
		})
	}
}

// TestLimitHolds makes requests at random times and cancels some: in any 60 seconds they are within
// the limits, and they are sent in the order in which they arrive.
func TestLimitHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := middleware.LimitConfig{Requests: rapid.IntRange(1, 5).Draw(rt, "requests"), Tokens: rapid.IntRange(1, 200).Draw(rt, "tokens")}
		type arrival struct {
			after   time.Duration
			tokens  int
			cancels bool // after 30 seconds
			sent    time.Time
			arrived time.Time
		}
		arrivals := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) *arrival {
			return &arrival{
				after:   time.Duration(rapid.IntRange(0, 40).Draw(rt, "after")) * time.Second,
				tokens:  rapid.IntRange(1, cfg.Tokens).Draw(rt, "size"),
				cancels: rapid.IntRange(0, 4).Draw(rt, "cancels") == 0,
			}
		}), 1, 12).Draw(rt, "arrivals")
		synctest.Test(t, func(t *testing.T) {
			m := middleware.Limit(modelFunc(func(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
				return func(yield func(model.Chunk, error) bool) {
					arrivals[int(*req.Temperature)].sent = time.Now()
					yield(&model.Finish{Reason: model.FinishStop}, nil)
				}
			}), cfg)
			var all sync.WaitGroup
			for i, a := range arrivals {
				time.Sleep(a.after)
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if a.cancels {
					ctx, cancel = context.WithTimeout(ctx, 30*time.Second)
				}
				a.arrived = time.Now()
				all.Go(func() {
					defer cancel()
					req, number := request(a.tokens), float64(i)
					req.Temperature = &number
					_, _, err := model.Collect(m.Generate(ctx, req))
					if err != nil && !a.cancels {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			all.Wait()
		})
		var sent []*arrival
		for _, a := range arrivals {
			if a.sent.IsZero() {
				if !a.cancels {
					rt.Fatal("a request was never sent")
				}
				continue
			}
			if n := len(sent); n > 0 && a.sent.Before(sent[n-1].sent) {
				rt.Fatalf("a later request was sent earlier")
			}
			sent = append(sent, a)
			requests, tokens := 0, 0
			for _, before := range sent {
				if a.sent.Sub(before.sent) < time.Minute {
					requests++
					tokens += before.tokens
				}
			}
			if requests > cfg.Requests || tokens > cfg.Tokens {
				rt.Fatalf("%d requests and %d tokens in a minute, more than %+v", requests, tokens, cfg)
			}
		}
	})
}

type modelFunc func(context.Context, *model.Request) iter.Seq2[model.Chunk, error]

func (f modelFunc) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return f(ctx, req)
}

// TestLimitIsReported: a wait is reported to OnWait and to the OnRetry of every outer model.
func TestLimitIsReported(t *testing.T) {
	for name, around := range map[string]func(model.Model, middleware.RetryConfig) model.Model{
		"retry": middleware.Retry,
		"retry of a model that retries": func(m model.Model, cfg middleware.RetryConfig) model.Model {
			return middleware.Retry(middleware.Retry(m, middleware.RetryConfig{}), cfg)
		},
		"retry of the second of a fallback": func(m model.Model, cfg middleware.RetryConfig) model.Model {
			down := scripted.New(scripted.Repeat(failure(model.KindAuthentication, 0)))
			return middleware.Retry(middleware.Fallback([]model.Model{down, m}, middleware.FallbackConfig{}), cfg)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var reported []string
			limited := middleware.Limit(&meteredModel{}, middleware.LimitConfig{Requests: 1, OnWait: func(_ context.Context, wait time.Duration) {
				reported = append(reported, fmt.Sprint("wait ", wait))
			}})
			m := around(limited, middleware.RetryConfig{OnRetry: func(try int, wait time.Duration, err error) {
				reported = append(reported, fmt.Sprint("retry ", try, " ", wait, " ", err))
			}})
			for range 2 {
				if _, _, err := model.Collect(m.Generate(t.Context(), request(1))); err != nil {
					t.Error(name, err)
				}
			}
			if want := []string{"wait 1m0s", "retry 0 1m0s client-side limit of 1 requests a minute reached"}; !slices.Equal(reported, want) {
				t.Errorf("%s: %q, want %q", name, reported, want)
			}
		})
	}
}

// TestLimitWaits has requests that wait while others end.
func TestLimitWaits(t *testing.T) {
	const s = time.Second
	type arrival struct {
		at     time.Duration
		tokens int
		cancel time.Duration // after its arrival; 0 means never
		takes  time.Duration // the answer takes this long
		used   int           // tokens; 0 for not reported
		sent   time.Duration // -1 for never
	}
	for _, row := range []struct {
		why      string
		cfg      middleware.LimitConfig
		arrivals []arrival
	}{
		{"a cancelled request is not counted", middleware.LimitConfig{Requests: 1}, []arrival{{sent: 0}, {at: s, cancel: 30 * s, sent: -1}, {at: 40 * s, sent: 60 * s}}},
		{"a request that uses more than estimated delays waiting ones", middleware.LimitConfig{Tokens: 100},
			[]arrival{{tokens: 40}, {at: 20 * s, tokens: 40, takes: 10 * s, used: 90, sent: 20 * s}, {at: 25 * s, tokens: 50, sent: 80 * s}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			start, sent := time.Now(), make([]time.Duration, len(row.arrivals))
			m := middleware.Limit(modelFunc(func(_ context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
				return func(yield func(model.Chunk, error) bool) {
					a := row.arrivals[req.MaxTokens]
					sent[req.MaxTokens] = time.Since(start)
					time.Sleep(a.takes)
					yield(&model.Finish{Reason: model.FinishStop, Usage: message.Usage{Output: a.used}}, nil)
				}
			}), row.cfg)
			for i, a := range row.arrivals {
				time.Sleep(time.Until(start.Add(a.at)))
				sent[i] = -1
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if a.cancel > 0 {
					ctx, cancel = context.WithTimeout(ctx, a.cancel)
				}
				go func() {
					defer cancel()
					req := request(a.tokens)
					req.MaxTokens = i
					if _, _, err := model.Collect(m.Generate(ctx, req)); (err != nil) != (a.cancel > 0) {
						t.Error(row.why, err)
					}
				}()
				synctest.Wait()
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			for i, a := range row.arrivals {
				if sent[i] != a.sent {
					t.Errorf("%s: request %d was sent after %v, want %v", row.why, i+1, sent[i], a.sent)
				}
			}
		})
	}
}

// TestLimitUntilDeadline: the error of a request whose context ends while it waits names the limit.
func TestLimitUntilDeadline(t *testing.T) {
	gone := errors.New("the page was closed")
	for _, row := range []struct {
		end  func(context.Context) (context.Context, context.CancelFunc)
		is   error
		want string
	}{
		{func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		},
			context.DeadlineExceeded, "the request waited 1s and was not sent: client-side limit of 1 requests a minute reached: context deadline exceeded"},
		{func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Second, gone)
		},
			context.DeadlineExceeded, "the request waited 1s and was not sent: client-side limit of 1 requests a minute reached: context deadline exceeded"},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := middleware.Limit(&meteredModel{}, middleware.LimitConfig{Requests: 1})
			if _, _, err := model.Collect(m.Generate(t.Context(), request(1))); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := row.end(t.Context())
			defer cancel()
			if _, _, err := model.Collect(m.Generate(ctx, request(1))); !errors.Is(err, row.is) || err.Error() != row.want {
				t.Errorf("%v, want %s", err, row.want)
			}
		})
	}
}
