package agent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/message"
)

// An Input is given to a run: the result of [Say], an [event.Confirm], an [event.Result], an
// [Interrupt] or a [Compact]. A run rejects inputs of other types.
type Input interface {
	// Answers returns the id of the call that the input answers, "" for other inputs.
	Answers() (call string)
}

type say struct {
	msg *message.Message
	id  string
}

// Say returns a message of the user, with text and optionally images or files. The text may be empty if there are blocks.
func Say(text string, blocks ...message.Block) Input {
	if text != "" || len(blocks) == 0 {
		blocks = slices.Insert(slices.Clone(blocks), 0, message.Block(&message.Text{Text: text}))
	}
	return say{msg: &message.Message{Role: message.RoleUser, Blocks: blocks}}
}

// Interrupt ends waiting calls: every open call gets a result saying that it was
// interrupted, and the run ends without another model call.
type Interrupt struct {
	ID string `json:"-"` // see [WithID]
}

// Compact replaces the conversation with a summary, as [Window.Compact] does when the window fills up. It keeps the
// user's last message and the model's newest answer with the results of its calls. If that makes the conversation
// shorter there is an [event.Compaction]. If the model gives no summary the run fails, and the conversation is
// unchanged. A run with no other input makes no other model call.
type Compact struct {
	ID string `json:"-"` // see [WithID]
}

// WithID returns in with an id, which a queue needs to deliver each input once: [Saving.Inputs] has the ids of the
// inputs that a saved State contains. A message in the State has the same ID as its input.
func WithID(id string, in Input) Input {
	in, _ = replaceID(in, id)
	return in
}

// replaceID returns in with another id, and the old id.
func replaceID(in Input, id string) (out Input, old string) {
	switch in := in.(type) {
	case say:
		old, in.id = in.id, id
		return in, old
	case event.Confirm:
		old, in.ID = in.ID, id
		return in, old
	case event.Result:
		old, in.ID = in.ID, id
		return in, old
	case Interrupt:
		return Interrupt{id}, in.ID
	case Compact:
		return Compact{id}, in.ID
	}
	return in, ""
}

// consume adds the id of an input, if it has one, to the ids whose effects the next save contains.
func (r *run) consume(in Input) {
	if _, id := replaceID(in, ""); id != "" {
		r.consumed = append(r.consumed, id)
	}
}

func (say) Answers() string { return "" }

// Message returns the message, for queues that store inputs: Say("", m.Blocks...) recreates the input.
func (s say) Message() *message.Message { return s.msg }

// Answers returns "".
func (Interrupt) Answers() string { return "" }

// Answers returns "".
func (Compact) Answers() string { return "" }

// answeredCall returns the id of the call that in answers, and the status that the call must have; both are "" if in is
// not an answer.
func answeredCall(in Input) (call string, want decide.Status) {
	switch in := in.(type) {
	case event.Confirm:
		return in.Call, decide.Asking
	case event.Result:
		return in.Call, decide.External
	}
	return "", ""
}

// ErrInput matches, by [errors.Is], the error of a run that has rejected its inputs.
var ErrInput = errors.New("the inputs were rejected")

// An inputError is an error with the secrets removed from its text: the error may quote an answer, and queues store the
// text with the input.
type inputError struct {
	error
	text string // without secrets
}

func (e inputError) Error() string        { return e.text }
func (e inputError) Is(target error) bool { return target == ErrInput }
func (e inputError) Unwrap() error        { return e.error }

// checkKind rejects types that are not inputs of a run.
func checkKind(i int, in Input) error {
	switch in.(type) {
	case say, event.Confirm, event.Result, Interrupt, Compact:
		return nil
	case nil:
		return fmt.Errorf("input %d is nil", i)
	}
	return fmt.Errorf("input %d is a %T; use the result of agent.Say, an event.Confirm, an event.Result, an agent.Interrupt or an agent.Compact, as a value", i, in)
}
