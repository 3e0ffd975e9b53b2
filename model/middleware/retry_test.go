package middleware_test

import (
	"context"
	"errors"
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

func failure(kind model.ErrorKind, retryAfter time.Duration) scripted.Turn {
	return scripted.Fail(&model.Error{Kind: kind, Message: "no", RetryAfter: retryAfter})
}

func TestRetry(t *testing.T) {
	done := scripted.Say("done")
	for _, row := range []struct {
		why    string
		cfg    middleware.RetryConfig
		turns  []scripted.Turn
		text   string
		err    model.ErrorKind
		waited time.Duration
	}{
		{"nothing fails", middleware.RetryConfig{}, []scripted.Turn{done}, "done", "", 0},
		{"it doubles", middleware.RetryConfig{}, []scripted.Turn{failure(model.KindUpstream, 0), failure(model.KindConnection, 0), failure(model.KindRateLimit, 0), done},
			"done", "", (1 + 2 + 4) * time.Second},
		{"it gives up", middleware.RetryConfig{Retries: 1}, []scripted.Turn{failure(model.KindUpstream, 0), failure(model.KindUpstream, 0)},
			"", model.KindUpstream, time.Second},
		{"no retries", middleware.RetryConfig{Retries: -1}, []scripted.Turn{failure(model.KindUpstream, 0)}, "", model.KindUpstream, 0},
		{"the server's Retry-After is respected", middleware.RetryConfig{}, []scripted.Turn{failure(model.KindRateLimit, 20*time.Second), done}, "done", "", 20 * time.Second},
		{"a short Retry-After does not shorten our wait", middleware.RetryConfig{Base: 3 * time.Second}, []scripted.Turn{failure(model.KindRateLimit, time.Second), done}, "done", "", 3 * time.Second},
		{"a Retry-After that is too long", middleware.RetryConfig{}, []scripted.Turn{failure(model.KindRateLimit, 2*time.Minute)}, "", model.KindRateLimit, 0},
		{"waits are limited", middleware.RetryConfig{Retries: 4, MaxWait: 2 * time.Second},
			[]scripted.Turn{failure(model.KindUpstream, 0), failure(model.KindUpstream, 0), failure(model.KindUpstream, 0), done}, "done", "", 5 * time.Second},
		{"an error that is not retryable", middleware.RetryConfig{}, []scripted.Turn{failure(model.KindInvalidRequest, 0)}, "", model.KindInvalidRequest, 0},
		{"a wrong key", middleware.RetryConfig{}, []scripted.Turn{failure(model.KindAuthentication, 0)}, "", model.KindAuthentication, 0},
		{"no retry after the first chunk", middleware.RetryConfig{}, []scripted.Turn{scripted.Say("half").And(failure(model.KindConnection, 0))}, "half", model.KindConnection, 0},
		{"an error of unknown kind", middleware.RetryConfig{}, []scripted.Turn{scripted.Fail(errors.New("who knows"))}, "", "?", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			row.cfg.Random = func() float64 { return 0 }
			m := scripted.New(row.turns...)
			start := time.Now()
			msg, _, err := model.Collect(middleware.Retry(m, row.cfg).Generate(t.Context(), &model.Request{}))
			if waited := time.Since(start); waited != row.waited {
				t.Errorf("%s: waited %v, want %v", row.why, waited, row.waited)
			}
			if msg.Text() != row.text || m.Remaining() != 0 {
				t.Errorf("%s: text %q, %d turns left", row.why, msg.Text(), m.Remaining())
			}
			e, known := errors.AsType[*model.Error](err)
			if (err == nil) != (row.err == "") || (known && e.Kind != row.err) {
				t.Errorf("%s: error %v, want %q", row.why, err, row.err)
			}
		})
	}
}

func TestRetrySpread(t *testing.T) {
	for random, want := range map[float64]time.Duration{0: 4 * time.Second, 0.5: 3 * time.Second, 0.999999: 2 * time.Second} {
		var waits []time.Duration
		m := middleware.Retry(scripted.New(failure(model.KindUpstream, 0), scripted.Say("x")), middleware.RetryConfig{
			Base:   4 * time.Second,
			Random: func() float64 { return random },
			Sleep: func(_ context.Context, d time.Duration) error {
				waits = append(waits, d.Round(time.Millisecond))
				return nil
			},
		})
		if _, _, err := model.Collect(m.Generate(t.Context(), &model.Request{})); err != nil || !slices.Equal(waits, []time.Duration{want}) {
			t.Errorf("random %v: waits %v, want %v (%v)", random, waits, want, err)
		}
	}
}

func TestRetryStopsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		start := time.Now()
		m := scripted.New(scripted.Repeat(failure(model.KindUpstream, 0)))
		_, _, err := model.Collect(middleware.Retry(m, middleware.RetryConfig{}).Generate(ctx, &model.Request{}))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 500*time.Millisecond || len(m.Requests()) != 1 {
			t.Errorf("after %v and %d requests: %v", time.Since(start), len(m.Requests()), err)
		}
	})
}

// TestRetryBreak : a reader that stops gets no more chunks.
func TestRetryBreak(t *testing.T) {
	m := scripted.New(scripted.Say("a long answer in many pieces"))
	n := 0
	for range middleware.Retry(m, middleware.RetryConfig{}).Generate(t.Context(), &model.Request{}) {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d pieces", n)
	}
}

func TestFallback(t *testing.T) {
	second := scripted.Say("from the second")
	for _, row := range []struct {
		why   string
		first scripted.Turn
		text  string
		err   string
	}{
		{"the first answers", scripted.Say("from the first"), "from the first", ""},
		{"a wrong key", failure(model.KindAuthentication, 0), "from the second", ""},
		{"no permission", failure(model.KindPermission, 0), "from the second", ""},
		{"rate limit", failure(model.KindRateLimit, time.Hour), "from the second", ""},
		{"upstream", failure(model.KindUpstream, 0), "from the second", ""},
		{"connection", failure(model.KindConnection, 0), "from the second", ""},
		{"an error of unknown kind", scripted.Fail(errors.New("who knows")), "from the second", ""},
		{"an invalid request", failure(model.KindInvalidRequest, 0), "", "invalid_request"},
		{"too long", failure(model.KindContextTooLong, 0), "", "context_too_long"},
		{"a refused image", failure(model.KindBadImage, 0), "", "bad_image"},
		{"cancelled", scripted.Fail(context.Canceled), "", "canceled"},
		{"no fallback after the first chunk", scripted.Say("half").And(failure(model.KindUpstream, 0)), "half", "upstream"},
	} {
		m := middleware.Fallback([]model.Model{scripted.New(row.first), scripted.New(second)}, middleware.FallbackConfig{})
		msg, _, err := model.Collect(m.Generate(t.Context(), &model.Request{}))
		if msg.Text() != row.text || (err == nil) != (row.err == "") || (err != nil && !strings.Contains(err.Error(), row.err)) {
			t.Errorf("%s: %q, %v", row.why, msg.Text(), err)
		}
	}
}

// TestFallbackReturnsTheLastError: the caller must see if the conversation is too long for the last
// model.
func TestFallbackReturnsTheLastError(t *testing.T) {
	m := middleware.Fallback([]model.Model{scripted.New(failure(model.KindUpstream, 0)), scripted.New(failure(model.KindContextTooLong, 0))}, middleware.FallbackConfig{})
	_, _, err := model.Collect(m.Generate(t.Context(), &model.Request{}))
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Kind != model.KindContextTooLong || !strings.Contains(err.Error(), "upstream") {
		t.Errorf("got %v", err)
	}
}

type sized struct {
	*scripted.Model
	window int
}

func (s sized) ContextWindow() int { return s.window }

func (s sized) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return s.Model.Generate(ctx, req)
}

func TestAs(t *testing.T) {
	window := func(m model.Model) int {
		w, ok := model.As[model.Windowed](m)
		if !ok {
			return -1
		}
		return w.ContextWindow()
	}
	small, large, unknown := sized{scripted.New(), 1000}, sized{scripted.New(), 2000}, scripted.New()
	for _, row := range []struct {
		why  string
		m    model.Model
		want int
	}{
		{"itself", small, 1000},
		{"below a decorator", middleware.Retry(small, middleware.RetryConfig{}), 1000},
		{"below two", middleware.Retry(middleware.Retry(small, middleware.RetryConfig{}), middleware.RetryConfig{}), 1000},
		{"the smallest", middleware.Fallback([]model.Model{large, unknown, middleware.Retry(small, middleware.RetryConfig{})}, middleware.FallbackConfig{}), 1000},
		{"unknown", middleware.Fallback([]model.Model{unknown, unknown}, middleware.FallbackConfig{}), 0},
		{"not implemented", unknown, -1},
		{"no model", nil, -1},
	} {
		if got := window(row.m); got != row.want {
			t.Errorf("%s: window %d, want %d", row.why, got, row.want)
		}
	}
	n, ok := model.As[model.Named](middleware.Fallback([]model.Model{middleware.Retry(unknown, middleware.RetryConfig{}), small}, middleware.FallbackConfig{}))
	if !ok || n.Name() != "scripted" {
		t.Errorf("name %v, %v", n, ok)
	}
}
