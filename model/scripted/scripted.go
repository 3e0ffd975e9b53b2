// Package scripted is a model whose answers are written in Go: for tests of
// programs that use kitbag, and for running them offline.
//
//	m := scripted.New(
//		scripted.Say("Let me add them.").And(scripted.Call("add", map[string]int{"a": 2, "b": 3})),
//		scripted.Say("It is 5.").Expect(scripted.LastContains("5")),
//	)
//
// Each request plays the next [Turn]. The answer streams in small deltas, like a real model's, to exercise the
// reader. Call ids ("call_1", "call_2", …) continue those in the request's messages: the same script and conversation
// give the same answer, even in another process. Usage is an estimate of four bytes per token.
//
// In a test use [Test], which fails the test when turns are left over or missing.
package scripted

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/kitbag-go/kitbag/model"
)

// A Model plays turns. It is safe for concurrent use; turns are assigned in the order in which requests arrive.
type Model struct {
	mu       sync.Mutex
	turns    []Turn
	next     int // index of the next turn
	requests []*model.Request
	report   func(error) // called for a failed check or a missing turn; may be nil
}

// New returns a model that plays the given turns. A request after the last one
// fails. It panics if a [Repeat] is not the last turn.
func New(turns ...Turn) *Model {
	for i, t := range turns {
		if t.repeat && i < len(turns)-1 {
			panic(fmt.Sprintf("scripted.New: turn %d repeats, so turn %d is never played", i+1, i+2))
		}
	}
	return &Model{turns: slices.Clone(turns)}
}

// A T is the part of *testing.T that [Test] uses.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Cleanup(func())
}

// Test is New for a test: t fails if turns are left over at its end, if a
// request comes after the last turn, and if a check fails.
func Test(t T, turns ...Turn) *Model {
	t.Helper()
	m := New(turns...)
	m.report = func(err error) { t.Errorf("%v", err) }
	t.Cleanup(func() {
		t.Helper()
		if n := m.Remaining(); n > 0 {
			t.Errorf("scripted model: %d of %d turns were not played", n, len(turns))
		}
	})
	return m
}

// Name returns "scripted".
func (m *Model) Name() string { return "scripted" }

// Requests returns the requests so far, in order. They must not be changed.
func (m *Model) Requests() []*model.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Remaining returns the number of turns that were not played yet. A turn that repeats
// counts until it was played once.
func (m *Model) Remaining() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(0, len(m.turns)-m.next)
}

// Generate plays the next turn each time that the sequence is ranged. It fails with the error of the context, of
// [Fail] or of a [Func], and with a [*model.Error] if the script has no turn for the request or a check of [Turn.Expect] fails.
func (m *Model) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(nil, err)
			return
		}
		turn, err := m.nextTurn(req)
		if err != nil {
			yield(nil, err)
			return
		}
		a := answer{ctx: ctx, req: req, yield: yield, nextCall: nextCallNumber(req)}
		if err := a.play(turn); err != nil && !errors.Is(err, errStopped) {
			yield(nil, err)
		}
	}
}

// nextTurn records a request and returns its turn, with functions resolved. The list of
// messages is copied, since the caller appends to it.
func (m *Model) nextTurn(req *model.Request) (Turn, error) {
	m.mu.Lock()
	snapshot := *req
	snapshot.Messages = slices.Clone(req.Messages)
	m.requests = append(m.requests, &snapshot)
	n := len(m.requests)
	i := m.next
	m.next++ // may exceed the end; see Remaining
	if last := len(m.turns) - 1; last >= 0 && m.turns[last].repeat {
		i = min(i, last)
	}
	m.mu.Unlock()
	if i >= len(m.turns) {
		return Turn{}, m.failed(fmt.Errorf("scripted model: the script has %d turns and this is request %d; add a turn", len(m.turns), n))
	}
	return m.resolve(m.turns[i], req, n)
}

// resolve runs a turn's checks on request n, and replaces its functions with the turns that they return.
func (m *Model) resolve(t Turn, req *model.Request, n int) (Turn, error) {
	for _, check := range t.checks {
		if err := check(req); err != nil {
			return Turn{}, m.failed(fmt.Errorf("scripted model: request %d failed a check: %w", n, err))
		}
	}
	var out Turn
	for _, p := range t.parts {
		if p.fn == nil {
			out.parts = append(out.parts, p)
			continue
		}
		made, err := p.fn(req)
		if err != nil {
			return Turn{}, err
		}
		if made, err = m.resolve(made, req, n); err != nil {
			return Turn{}, err
		}
		out.parts = append(out.parts, made.parts...)
	}
	return out, nil
}

// failed reports err to the test, if there is one, and returns it as an error that is not retried.
func (m *Model) failed(err error) error {
	if m.report != nil {
		m.report(err)
	}
	return &model.Error{Kind: model.KindInvalidRequest, Message: err.Error(), Err: err}
}
