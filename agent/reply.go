package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/message"
)

// A Reply is how a run ended; see [Agent.Reply].
type Reply struct {
	// Message is the model's last message after the user's last message, nil if there is none. An answer that broke off
	// and was continued is one Message. Message keeps the secrets that [Config.Redact] removes from End.
	Message *message.Message

	Usage message.Usage // of this run
	End   *event.End    // says why the run ended; never nil
}

// Text returns the text of the Message, "" without one.
func (r *Reply) Text() string { return r.Message.Text() }

// Reply runs until the run ends and returns the model's answer. If the run ended without an answer, the
// error is, or wraps, [ErrWaiting], [ErrInterrupted], [ErrLimit] or the failure. The Reply is returned
// with an error too: at a limit, for example, it contains the model's last text. Without inputs, a
// conversation that is done returns its answer again.
func (a *Agent) Reply(ctx context.Context, st *State, inputs ...Input) (*Reply, error) {
	end, err := runToEnd(ctx, st, a.Run(ctx, st, inputs...))
	if end == nil {
		return &Reply{End: &event.End{Reason: event.EndError, Detail: err.Error()}}, err
	}
	return &Reply{Message: decide.AnswerOf(st.Messages), Usage: end.Usage, End: end}, err
}

// StreamText is [Agent.Reply] as a stream of text: it yields the model's text while it is generated,
// including the text before tool calls. Text after such calls starts after an empty line. The stream ends
// with an error if Reply would return one. The text of sub-agents is not included.
//
// The sequence may be ranged once; breaking off cancels the run.
func (a *Agent) StreamText(ctx context.Context, st *State, inputs ...Input) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var text textStream
		stopped := false
		end, err := runToEnd(ctx, st, func(yieldEvent func(event.Event, error) bool) {
			for ev, err := range a.Run(ctx, st, inputs...) {
				if piece := text.add(ev); piece != "" {
					stopped = !yield(piece, nil)
				}
				if stopped || !yieldEvent(ev, err) {
					return
				}
			}
		})
		switch {
		case stopped:
		case err != nil:
			yield("", err)
		case text.lastBlock == "" && end.Text != "": // no deltas: the conversation already had its answer
			yield(end.Text, nil)
		}
	}
}

// A textStream joins the deltas of a run into one text, as [message.Message.Text] and [decide.FullAnswer] do.
type textStream struct {
	lastBlock string // id of the block of the last delta; "" before the first
	separator string // goes between that block and the next one
}

// add returns the text that ev adds to the stream, with a separator before it if needed.
func (s *textStream) add(ev event.Event) string {
	switch ev := ev.(type) {
	case *event.Message:
		switch {
		case ev.Message.Role != message.RoleAssistant:
		case ev.Finish == finishCutOff: // the model's next message continues this one
			s.separator = ""
		default:
			s.separator = "\n\n"
		}
	case *event.TextDelta:
		if ev.Text == "" {
			return ""
		}
		piece := ev.Text
		if s.lastBlock != "" && s.lastBlock != ev.Block {
			piece = s.separator + piece
		}
		s.lastBlock, s.separator = ev.Block, "\n"
		return piece
	}
	return ""
}

// ReplyAs is [Agent.Reply] for an answer of type T: the model answers by calling the tool final_answer, whose argument
// is a T and is checked like the arguments of every call. A model that does not call final_answer is first reminded,
// then forced to. T should be a struct with descriptions; any type that encodes to JSON works. The other tools can still
// be called; none of them may be named final_answer. The answer is accepted even when no more tool calls are allowed.
//
// When the run waits for a user, call ReplyAs again with the answers
// and the same T. [StreamAs] shows the answer while it is generated.
func ReplyAs[T any](ctx context.Context, a *Agent, st *State, inputs ...Input) (T, error) {
	return replyAs[T](ctx, a, st, inputs, func(*event.ToolCallDelta) bool { return true })
}

// StreamAs is [ReplyAs] as a stream. While the answer is generated, StreamAs yields values of T decoded from
// the part that has arrived: strings grow, and a number or a field appears when it is complete. These
// values are not checked, and a value may contain less than the previous value if the model starts its answer
// again. The last value, after which the sequence ends without an error, is the checked answer.
//
// Of an answer of more than a few kilobytes, a value is yielded only when the answer has grown by a sixteenth, so that
// the cost stays proportional to its length. The sequence may be ranged once; breaking off cancels the run.
func StreamAs[T any](ctx context.Context, a *Agent, st *State, inputs ...Input) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var p partialJSON
		stopped := false
		answer, err := replyAs[T](ctx, a, st, inputs, func(ev *event.ToolCallDelta) bool {
			var v T
			isNew := p.add(ev, func(raw json.RawMessage) (err error) {
				v, err = decodeFinal[T](raw)
				return err
			})
			stopped = isNew && !yield(v, nil)
			return !stopped
		})
		if !stopped {
			yield(answer, err)
		}
	}
}

// replyAs runs to the typed answer. show receives the deltas of the arguments of all calls, and returns false to stop
// the run.
func replyAs[T any](ctx context.Context, a *Agent, st *State, inputs []Input, show func(*event.ToolCallDelta) bool) (T, error) {
	var none T
	f, err := newFinal[T]()
	if err != nil {
		return none, fmt.Errorf("agent: make the tool for an answer of type %T: %w", none, err)
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

// runToEnd ranges over the events of a run. It returns the End, nil if there is none, and an error if the run has no answer.
func runToEnd(ctx context.Context, st *State, events iter.Seq2[event.Event, error]) (*event.End, error) {
	end, err := drain(events)
	if err == nil {
		err = st.failure(ctx, end)
	}
	return end, err
}

// failure returns the error for a run without an answer, nil if the run has one. A run that failed returns its own error
// after End, so every reason that is not handled first is an interruption.
func (st *State) failure(ctx context.Context, end *event.End) error {
	switch end.Reason {
	case event.EndCompleted:
		return nil
	case event.EndWaiting:
		return st.waiting("answer with Confirm or Result, or have Config.Approve or a rule of Config.Policy answer")
	case event.EndLimit:
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

// maxNamedCalls is how many waiting calls an error names.
const maxNamedCalls = 3

// waiting returns the error that lists the calls that wait, and says what to do.
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
	if n := len(calls) - maxNamedCalls; n > 0 {
		calls = append(calls[:maxNamedCalls], fmt.Sprintf("and for %d more", n))
	}
	return fmt.Errorf("%w %s; %s", ErrWaiting, strings.Join(calls, ", "), remedy)
}

// drain ranges over the events of a run. It returns the End, and the error that ended the run: before or after the End.
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
		return nil, errors.New("agent: the run ended without an End event; a Middleware.Run must pass on all events")
	}
	return end, nil
}
