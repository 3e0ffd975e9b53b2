package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestUnanswered has runs that end during a model call, but not because of the model: the End and
// the error of Reply describe the state of that call.
func TestUnanswered(t *testing.T) {
	const waited = "the request waited 1s and was not sent: client-side limit of 1 requests a minute reached"
	busy := &model.Error{Kind: model.KindRateLimit, Status: 429, Message: "slow down", RetryAfter: 30 * time.Second}
	wrongKey := &model.Error{Kind: model.KindAuthentication, Message: "wrong key"}
	first := func(m model.Model) model.Model { // the limit is used up
		m = middleware.Limit(m, middleware.LimitConfig{Requests: 1})
		if _, _, err := model.Collect(m.Generate(t.Context(), &model.Request{})); err != nil {
			t.Error(err)
		}
		return m
	}
	for name, row := range map[string]struct {
		model  func() model.Model
		limits Limits
		after  time.Duration // until the context ends; 0 for never
		err    error
		detail string // of the End; the error has it
	}{
		"a limiter, until the deadline": {func() model.Model { return first(scripted.New(scripted.Say("one"))) }, Limits{}, time.Second,
			ErrInterrupted, waited + ": context deadline exceeded"},
		"a limiter below a decorator that retries": {func() model.Model {
			return middleware.Retry(first(scripted.New(scripted.Say("one"))), middleware.RetryConfig{FirstChunk: time.Second / 2, Retries: -1})
		}, Limits{}, time.Hour, nil, "no part of the answer arrived within 500ms: the request waited 500ms and was not sent: client-side limit of 1 requests"},
		"a limiter, until the time is up": {func() model.Model { return first(scripted.New(scripted.Say("one"))) }, Limits{Time: time.Second}, 0,
			ErrLimit, "of 1s; the model gave no answer: the request waited"},
		"a busy server, until the deadline": {func() model.Model { return scripted.New(scripted.Repeat(scripted.Fail(busy))) }, Limits{}, time.Second,
			ErrInterrupted, "model call: rate_limit (HTTP 429): slow down (the next try was due after 30s): context deadline exceeded"},
		"a request that is under way": {func() model.Model { return &turnModel{turns: []turn{{block: true}}} }, Limits{}, time.Second,
			ErrInterrupted, ""},
		"the last answer fails": {func() model.Model {
			return scripted.New(scripted.Call("lost", pathArg{}), scripted.Fail(wrongKey))
		}, Limits{Steps: 1}, 0, ErrLimit, "; the model gave no answer: model call: authentication: wrong key"},
		"the last answer comes": {func() model.Model {
			return scripted.New(scripted.Call("lost", pathArg{}), scripted.Say("That was all."))
		}, Limits{Steps: 1}, 0, ErrLimit, "of 1 step"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, err := New(Config{Model: row.model(), Toolkit: toolkit.Of(), Limits: row.limits})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if row.after > 0 {
					ctx, cancel = context.WithTimeout(ctx, row.after)
				}
				defer cancel()
				reply, err := a.Reply(ctx, new(State), Say("go"))
				if row.err != nil && !errors.Is(err, row.err) || row.err == ErrInterrupted && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				detail := reply.End.Detail
				if !strings.Contains(detail, row.detail) || err == nil || !strings.Contains(err.Error(), detail) || (detail == "") != (row.detail == "") ||
					strings.Contains(row.detail, "no answer") != strings.Contains(detail, "no answer") {
					t.Errorf("the End says %q, the error %v; want %q", detail, err, row.detail)
				}
			})
		})
	}
}

// TestUnansweredBelow has a sub-agent end while it waits: the result of its call says so.
func TestUnansweredBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := middleware.Limit(scripted.New(scripted.Say("one"), scripted.Say("two")), middleware.LimitConfig{Requests: 1})
		sub, err := New(Config{Model: m, Toolkit: toolkit.Of()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sub.Reply(t.Context(), new(State), Say("go")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = sub.delegate(ctx, "go", nil, nil)
		if !errors.Is(err, ErrInterrupted) || !strings.Contains(err.Error(), "client-side limit of 1 requests") {
			t.Error(err)
		}
	})
}

// TestExtraThatIsNoJSON: such an Extra fails the run, as a State with it could never be saved.
func TestExtraThatIsNoJSON(t *testing.T) {
	for _, ch := range []model.Chunk{&model.ThinkingDelta{Text: "hm", Extra: json.RawMessage(`{"a"`)}, &model.ToolCallDelta{ID: "c", Name: "x", Extra: json.RawMessage(`{"a"`)}} {
		a, _ := newAgent(t, Config{}, turn{chunks: []model.Chunk{ch, finish(model.FinishStop)}}, says("done"))
		st := new(State)
		if _, err := play(t, a, st, Say("go")); err == nil || !strings.Contains(err.Error(), "Extra") {
			t.Errorf("%T: %v", ch, err)
		}
		if _, err := play(t, a, st, Say("again")); err != nil {
			t.Errorf("%T: %v", ch, err)
		}
	}
}

// TestChunkAfterFinish checks that a model that does not end its answer with the Finish is reported, and not asked again.
func TestChunkAfterFinish(t *testing.T) {
	for name, more := range map[string]model.Chunk{"text": &model.TextDelta{Text: "more"}, "another Finish": finish(model.FinishStop)} {
		w := &turnModel{turns: []turn{{chunks: append(says("Hello.").chunks, more)}, says("again")}}
		a, err := New(Config{Model: w, Toolkit: toolkit.Of()})
		if err != nil {
			t.Fatal(err)
		}
		r, err := a.Reply(t.Context(), new(State), Say("go"))
		want := "after its Finish, which must be the last chunk"
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "*agent.turnModel") || r.End.Reason != event.EndError || len(w.reqs) != 1 {
			t.Errorf("%s: %+v, %v after %d requests", name, r.End, err, len(w.reqs))
		}
		if _, fin, err := model.Collect((&turnModel{turns: []turn{{chunks: append(says("Hello.").chunks, more)}}}).Generate(t.Context(), &model.Request{})); err == nil ||
			!strings.Contains(err.Error(), want) || fin != nil {
			t.Errorf("%s: Collect returns %v", name, err)
		}
	}
}
