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

// A Reply is how a run ended; see [Agent.Reply].
type Reply struct {
	// Message is the model's last message since the user's, with all of an answer that was continued
	// after it broke off; nil if there is none. It holds secrets that [Config.Redact] takes out of End.
	Message *message.Message

	Usage message.Usage // of this run
	End   *event.End    // says why the run ended; never nil
}

// Text returns the text of the Message, "" without one.
func (r *Reply) Text() string { return r.Message.Text() }

// Reply runs until the run ends and returns the model's answer. If the run ended otherwise than with
// an answer, the error is, or wraps, [ErrWaiting], [ErrInterrupted], [ErrLimit] or the failure. The
// Reply is there all the same, with the model's last words at a limit, for instance. Without inputs a
// conversation that has its answer returns that again.
func (a *Agent) Reply(ctx context.Context, st *State, inputs ...Input) (*Reply, error) {
	end, err := runToEnd(ctx, st, a.Run(ctx, st, inputs...))
	if end == nil {
		return &Reply{End: &event.End{Reason: event.EndError, Detail: err.Error()}}, err
	}
	return &Reply{Message: decide.AnswerOf(st.Messages), Usage: end.Usage, End: end}, err
}

// StreamText is [Agent.Reply] as a stream of text: it yields what the model says while it says it,
// what it says before tool calls too. What comes after such calls begins after an empty line. It ends
// with an error where Reply returns one. What sub-agents say is not in it.
//
// The sequence may be ranged once; breaking off cancels the run.
func (a *Agent) StreamText(ctx context.Context, st *State, inputs ...Input) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var text textStream
		stopped := false
		end, err := runToEnd(ctx, st, func(next func(event.Event, error) bool) {
			for ev, err := range a.Run(ctx, st, inputs...) {
				if piece := text.piece(ev); piece != "" {
					stopped = !yield(piece, nil)
				}
				if stopped || !next(ev, err) {
					return
				}
			}
		})
		switch {
		case stopped:
		case err != nil:
			yield("", err)
		case text.block == "" && end.Text != "": // of a conversation that has its answer
			yield(end.Text, nil)
		}
	}
}

// A textStream makes one text of the deltas of a run: what [message.Message.Text] and
// [decide.FullAnswer] would.
type textStream struct {
	block string // the one that the last delta was of
	gap   string // what separates the next one from it
}

// piece returns what ev adds to the text.
func (s *textStream) piece(ev event.Event) string {
	switch ev := ev.(type) {
	case *event.Message:
		switch {
		case ev.Message.Role != message.RoleAssistant:
		case ev.Finish == finishCutOff: // the next one continues it
			s.gap = ""
		default:
			s.gap = "\n\n"
		}
	case *event.TextDelta:
		if ev.Text == "" {
			return ""
		}
		gap := ""
		if s.block != "" && s.block != ev.Block {
			gap = s.gap
		}
		s.block, s.gap = ev.Block, "\n"
		return gap + ev.Text
	}
	return ""
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
	_, err = runToEnd(ctx, st, func(yield func(event.Event, error) bool) {
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

// runToEnd ranges over a run and returns its end, if there is one, and an error if that is not an answer.
func runToEnd(ctx context.Context, st *State, events iter.Seq2[event.Event, error]) (*event.End, error) {
	end, err := drain(events)
	if err == nil {
		err = st.failure(ctx, end)
	}
	return end, err
}

// failure returns the error that says why a run ended without an answer, nil if it has one.
func (st *State) failure(ctx context.Context, end *event.End) error {
	switch {
	case end.Reason == event.EndCompleted:
		return nil
	case end.Reason == event.EndWaiting:
		return st.waiting("answer with Confirm or Result, or have Config.Approve or a rule of Config.Policy answer")
	case end.Reason == event.EndLimit:
		return fmt.Errorf("%w: %s", ErrLimit, strings.TrimSpace(end.Detail))
	}
	err := ErrInterrupted
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	if end.Detail != "" {
		err = fmt.Errorf("%w (%s)", err, end.Detail)
	}
	return err
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

// drain returns the end of a run, nil if it has none, and the error that follows it.
func drain(events iter.Seq2[event.Event, error]) (end *event.End, err error) {
	for ev, err := range events {
		if err != nil {
			return end, err
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
