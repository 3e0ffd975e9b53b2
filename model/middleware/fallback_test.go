package middleware_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/model/scripted"
)

// switched is a model that answers, or fails with err, after some time. It records its calls.
type switched struct {
	name  string
	err   error
	after time.Duration
	calls *callLog
}

// A callLog records the names of the models that were called; it is safe for concurrent use.
type callLog struct {
	mu    sync.Mutex
	names strings.Builder
}

func (l *callLog) add(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names.WriteString(name)
}

func (l *callLog) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names.Reset()
}

func (l *callLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names.String()
}

func (s *switched) Generate(ctx context.Context, _ *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		s.calls.add(s.name)
		select {
		case <-time.After(s.after):
		case <-ctx.Done():
			yield(nil, ctx.Err())
			return
		}
		if s.err != nil {
			yield(nil, s.err)
			return
		}
		_ = yield(&model.TextDelta{Text: s.name}, nil) && yield(&model.Finish{Reason: model.FinishStop}, nil)
	}
}

// TestFallbackSkips makes requests while models a and b are up or down, and checks which are called.
func TestFallbackSkips(t *testing.T) {
	down := &model.Error{Kind: model.KindUpstream}
	busy := &model.Error{Kind: model.KindRateLimit, RetryAfter: 5 * time.Minute}
	bad := &model.Error{Kind: model.KindInvalidRequest}
	type request struct {
		wait  time.Duration // before it
		a, b  error         // nil for an answer
		calls string
	}
	for _, row := range []struct {
		why      string
		cfg      middleware.FallbackConfig
		requests []request
	}{
		{"a model that is down is skipped after three failures, and tried after a minute", middleware.FallbackConfig{}, []request{
			{0, down, nil, "ab"}, {0, down, nil, "ab"}, {0, down, nil, "ab"}, {0, down, nil, "b"}, {time.Minute - 1, down, nil, "b"},
			{1, down, nil, "ab"}, {time.Minute - 1, nil, nil, "b"}, {1, nil, nil, "a"}, {0, nil, nil, "a"},
		}},
		{"an answer in between resets the count", middleware.FallbackConfig{}, []request{
			{0, down, nil, "ab"}, {0, down, nil, "ab"}, {0, nil, nil, "a"}, {0, down, nil, "ab"}, {0, down, nil, "ab"}, {0, down, nil, "ab"}, {0, down, nil, "b"},
		}},
		{"a refused request resets the count", middleware.FallbackConfig{}, []request{
			{0, down, nil, "ab"}, {0, down, nil, "ab"}, {0, bad, nil, "a"}, {0, down, nil, "ab"}, {0, down, nil, "ab"},
		}},
		{"configured limits", middleware.FallbackConfig{After: 1, For: time.Second}, []request{
			{0, down, nil, "ab"}, {0, nil, nil, "b"}, {time.Second, nil, nil, "a"},
		}},
		{"a longer Retry-After takes precedence", middleware.FallbackConfig{After: 1, For: time.Second}, []request{
			{0, busy, nil, "ab"}, {5*time.Minute - 1, nil, nil, "b"}, {1, nil, nil, "a"},
		}},
		{"none is skipped", middleware.FallbackConfig{After: -1}, []request{
			{0, down, nil, "ab"}, {0, down, nil, "ab"}, {0, down, nil, "ab"}, {0, down, nil, "ab"}, {0, down, nil, "ab"},
		}},
		{"a skipped model is called if all others fail", middleware.FallbackConfig{After: 1}, []request{
			{0, down, nil, "ab"}, {0, nil, down, "ba"}, {0, nil, nil, "a"}, {0, down, down, "ab"}, {0, down, down, "ab"}, {0, down, nil, "ab"}, {0, nil, nil, "b"},
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var calls callLog
			a, b := &switched{name: "a", calls: &calls}, &switched{name: "b", calls: &calls}
			m := middleware.Fallback([]model.Model{a, b}, row.cfg)
			for i, r := range row.requests {
				time.Sleep(r.wait)
				calls.Reset()
				a.err, b.err = r.a, r.b
				_, _, err := model.Collect(m.Generate(t.Context(), &model.Request{}))
				failed := r.calls == "a" && r.a != nil || r.a != nil && r.b != nil
				if calls.String() != r.calls || (err != nil) != failed {
					t.Errorf("%s: request %d: called %s, want %s; error %v", row.why, i+1, &calls, r.calls, err)
				}
			}
		})
	}
}

// TestFallbackProbe makes ten concurrent requests when a skipped model may be tried again: one of them does.
func TestFallbackProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls callLog
		a := &switched{name: "a", calls: &calls, after: 10 * time.Second, err: &model.Error{Kind: model.KindConnection}}
		b := &switched{name: "b", calls: &calls}
		m := middleware.Fallback([]model.Model{a, b}, middleware.FallbackConfig{After: 1})
		ask := func(ctx context.Context) error {
			_, _, err := model.Collect(m.Generate(ctx, &model.Request{}))
			return err
		}
		if err := ask(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		calls.Reset()
		for range 10 {
			go func() {
				if err := ask(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		if calls.String() != "abbbbbbbbb" {
			t.Errorf("during the probe: %s", &calls)
		}
		// A cancelled probe means nothing; the next is a minute later.
		time.Sleep(2 * time.Minute)
		synctest.Wait() // until the probe has ended
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		calls.Reset()
		if err := ask(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		a.err, a.after = nil, 0
		for range 2 {
			if err := ask(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
		}
		if calls.String() != "aba" {
			t.Errorf("after a cancelled probe: %s", &calls)
		}
	})
}

// TestFallbackKeepsItsModels: a change of the caller's slice has no effect.
func TestFallbackKeepsItsModels(t *testing.T) {
	list := []model.Model{scripted.New(scripted.Say("first"))}
	m := middleware.Fallback(list, middleware.FallbackConfig{})
	list[0] = scripted.New()
	if msg, _, err := model.Collect(m.Generate(t.Context(), &model.Request{})); err != nil || msg.Text() != "first" {
		t.Errorf("%q, %v", msg.Text(), err)
	}
}

// A listed model has a name and a server.
type listed struct {
	modelFunc
	name, host string
}

func (l listed) Name() string          { return l.name }
func (l listed) Server() (string, int) { return l.host, 443 }

// TestFailuresName checks that the error of several models says how each failed, and that errors.As finds the
// most important failure.
func TestFailuresName(t *testing.T) {
	busy := &model.Error{Kind: model.KindRateLimit, RetryAfter: time.Minute, Message: "slow down"}
	down := &model.Error{Kind: model.KindUpstream, Message: "out of order"}
	key := &model.Error{Kind: model.KindAuthentication, Message: "wrong key"}
	long := &model.Error{Kind: model.KindContextTooLong, Message: "too long"}
	odd := errors.New("odd")
	of := func(m listed, err error) model.Model {
		m.modelFunc = func(context.Context, *model.Request) iter.Seq2[model.Chunk, error] {
			return func(yield func(model.Chunk, error) bool) { yield(nil, err) }
		}
		return m
	}
	one, two, three := listed{name: "gpt-5", host: "api.example.com"}, listed{name: "local"}, listed{}
	for _, row := range []struct {
		errs    []error
		decides *model.Error
		text    string
	}{
		{[]error{down}, down, "model call: upstream: out of order"},
		{[]error{down, key}, down, "model 1 (gpt-5, api.example.com): model call: upstream: out of order; model 2 (local): model call: authentication: wrong key"},
		{[]error{key, down}, down, "model 1 (gpt-5, api.example.com): model call: authentication: wrong key; model 2 (local): model call: upstream: out of order"},
		{[]error{busy, down, key}, down, "; model 3: model call: authentication: wrong key"},
		{[]error{busy, long}, long, "; model 2 (local): model call: context_too_long: too long"},
		{[]error{long, busy}, long, "model 1 (gpt-5, api.example.com): model call: context_too_long: too long"},
		{[]error{odd, key}, key, "model 1 (gpt-5, api.example.com): odd; "},
	} {
		synctest.Test(t, func(t *testing.T) {
			var models []model.Model
			for i, err := range row.errs {
				models = append(models, of([]listed{one, two, three}[i], err))
			}
			_, _, err := model.Collect(middleware.Fallback(models, middleware.FallbackConfig{}).Generate(t.Context(), &model.Request{}))
			got, _ := errors.AsType[*model.Error](err)
			if got != row.decides || !strings.Contains(err.Error(), row.text) {
				t.Errorf("Fallback of %v: %v, which is a %v", row.errs, err, got)
			}
			for _, each := range row.errs {
				if row.decides != long && !errors.Is(err, each) {
					t.Errorf("Fallback of %v: %v is not in it", row.errs, each)
				}
			}
		})
	}
}
