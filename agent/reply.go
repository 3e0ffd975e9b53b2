package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/message"
)

// Reply runs until the run ends and returns the model's last message, with all of an
// answer that was continued after it broke off. If the run ended otherwise than with
// an answer, the error is, or wraps, [ErrWaiting], [ErrInterrupted], [ErrLimit] or the
// failure. Without inputs a conversation that has its answer returns that again.
func (a *Agent) Reply(ctx context.Context, st *State, inputs ...Input) (*message.Message, error) {
	if err := complete(ctx, st, a.Run(ctx, st, inputs...)); err != nil {
		return nil, err
	}
	return decide.FullAnswer(st.Messages), nil
}

// ReplyAs is [Agent.Reply] for an answer of type T: the model gives it by calling a tool whose
// argument is a T, checked like every argument, and is reminded, then forced, if it does not. T is
// best a struct with descriptions; any type that encodes to JSON will do. Other tools stay usable
// meanwhile; none may be named final_answer. The answer is taken even when no more tool calls are
// allowed.
//
// When the run has to wait for a person, call ReplyAs again with the answers
// and the same T. [StreamAs] shows the answer while it comes.
func ReplyAs[T any](ctx context.Context, a *Agent, st *State, inputs ...Input) (T, error) {
	return replyAs[T](ctx, a, st, inputs, func(*event.ToolCallDelta) bool { return true })
}

// StreamAs is [ReplyAs] that shows the answer while it comes. It yields values
// of T decoded from what has come: the text of strings grows, and a number, or a
// field, is there when it has ended. These values are not checked, and one may
// hold less than the one before where the model begins its answer anew. The last
// value, after which the sequence ends without an error, is the answer, checked.
//
// Once an answer is longer than a few kilobytes a value is yielded only when it
// has grown by a sixteenth, so that the cost stays in proportion. The sequence
// may be ranged once; breaking off cancels the run.
func StreamAs[T any](ctx context.Context, a *Agent, st *State, inputs ...Input) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var p partial
		gone := false
		answer, err := replyAs[T](ctx, a, st, inputs, func(ev *event.ToolCallDelta) bool {
			var v T
			isNew := p.add(ev, func(raw json.RawMessage) (err error) {
				v, err = decodeFinal[T](raw)
				return err
			})
			gone = isNew && !yield(v, nil)
			return !gone
		})
		if !gone {
			yield(answer, err)
		}
	}
}

// replyAs runs to the typed answer. show gets the pieces of calls as they
// come, and returns false to break off.
func replyAs[T any](ctx context.Context, a *Agent, st *State, inputs []Input, show func(*event.ToolCallDelta) bool) (T, error) {
	var none T
	f, err := newFinal[T]()
	if err != nil {
		return none, fmt.Errorf("agent: an answer of type %T: %w", none, err)
	}
	err = complete(ctx, st, func(yield func(event.Event, error) bool) {
		for ev, err := range a.start(ctx, st, f, inputs) {
			if delta, ok := ev.(*event.ToolCallDelta); ok && !show(delta) || !yield(ev, err) {
				return
			}
		}
	})
	if err != nil {
		return none, err
	}
	return decodeFinal[T](f.value)
}

// complete ranges over a run, and fails if that ends otherwise than with an answer.
func complete(ctx context.Context, st *State, events iter.Seq2[event.Event, error]) error {
	end, err := drain(events)
	switch {
	case err != nil:
		return err
	case end.Reason == event.EndCompleted:
		return nil
	case end.Reason == event.EndWaiting:
		return st.waiting("answer with Confirm or Result, or have Config.Approve or a rule of Config.Policy answer")
	case end.Reason == event.EndLimit:
		return fmt.Errorf("%w: %s", ErrLimit, strings.TrimSpace(end.Detail))
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
	}
	return ErrInterrupted
}

// maxNamed is how many calls an error names.
const maxNamed = 3

// waiting returns the error that says what waits, and what to do.
func (st *State) waiting(remedy string) error {
	var calls []string
	for _, ev := range st.Pending() {
		switch ev := ev.(type) {
		case *event.Approval:
			calls = append(calls, fmt.Sprintf("for approval of %s (%s): %s", ev.Name, ev.Call, ev.Reason))
		case *event.External:
			calls = append(calls, fmt.Sprintf("for the result of %s (%s)", ev.Name, ev.Call))
		}
	}
	if n := len(calls) - maxNamed; n > 0 {
		calls = append(calls[:maxNamed], fmt.Sprintf("and for %d more", n))
	}
	return fmt.Errorf("%w %s; %s", ErrWaiting, strings.Join(calls, ", "), remedy)
}

// drain returns the end of a run.
func drain(events iter.Seq2[event.Event, error]) (end *event.End, err error) {
	for ev, err := range events {
		if err != nil {
			return nil, err
		}
		if e, ok := ev.(*event.End); ok {
			end = e
		}
	}
	if end == nil {
		return nil, errNoEnd
	}
	return end, nil
}
