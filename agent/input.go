package agent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/message"
)

// An Input is what a run is given: what [Say] returns, an [event.Confirm], an [event.Result] or an
// [Interrupt]. A run refuses any other.
type Input interface {
	// Answers returns the id of the call that the input is an answer for, "" if it is none.
	Answers() (call string)
}

type say struct {
	msg *message.Message
	id  string
}

// Say is a user's words, and pictures or files with them. The text may be empty if there are blocks.
func Say(text string, blocks ...message.Block) Input {
	if text != "" || len(blocks) == 0 {
		blocks = slices.Insert(slices.Clone(blocks), 0, message.Block(&message.Text{Text: text}))
	}
	return say{msg: &message.Message{Role: message.RoleUser, Blocks: blocks}}
}

// Interrupt ends what waits: every open call gets a result saying that a person
// interrupted it, and the run ends without another model call.
type Interrupt struct {
	ID string `json:"-"` // see [WithID]
}

// WithID returns in with an id, by which a save says that the State holds what the input did:
// [Saving.Inputs]. A queue that delivers inputs knows by that which of them not to deliver again.
func WithID(id string, in Input) Input {
	switch v := in.(type) {
	case say:
		v.id = id
		return v
	case event.Confirm:
		v.ID = id
		return v
	case event.Result:
		v.ID = id
		return v
	case Interrupt:
		v.ID = id
		return v
	}
	return in
}

// take notes that the next save holds what an input did.
func (r *run) take(in Input) {
	var id string
	switch in := in.(type) {
	case say:
		id = in.id
	case event.Confirm:
		id = in.ID
	case event.Result:
		id = in.ID
	case Interrupt:
		id = in.ID
	}
	if id != "" {
		r.took = append(r.took, id)
	}
}

func (say) Answers() string { return "" }

// Message returns what is said, for those who keep inputs in a queue: Say("", m.Blocks...) makes it again.
func (s say) Message() *message.Message { return s.msg }

// Answers returns "".
func (Interrupt) Answers() string { return "" }

// answered returns the call that in answers, and the status that the call must have; both are "" for
// an input that is not an answer.
func answered(in Input) (call string, want decide.Status) {
	switch in := in.(type) {
	case event.Confirm:
		return in.Call, decide.Asking
	case event.Result:
		return in.Call, decide.External
	}
	return "", ""
}

// ErrInput is what the error of a run is, by [errors.Is], that has refused its inputs.
var ErrInput = errors.New("the inputs were refused")

// An inputError is without secrets: it may quote an answer, and who keeps inputs keeps it with them.
type inputError struct {
	error
	text string
}

func (e inputError) Error() string        { return e.text }
func (e inputError) Is(target error) bool { return target == ErrInput }
func (e inputError) Unwrap() error        { return e.error }

// checkKind refuses what is not an input of a run.
func checkKind(i int, in Input) error {
	switch in.(type) {
	case say, event.Confirm, event.Result, Interrupt:
		return nil
	case nil:
		return fmt.Errorf("input %d is nil", i)
	}
	return fmt.Errorf("input %d is a %T; it may be what agent.Say returns, an event.Confirm, an event.Result or an agent.Interrupt, each as a value", i, in)
}
