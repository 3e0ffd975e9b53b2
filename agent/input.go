package agent

import (
	"encoding/json"

	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// An Input is what a run is given: what [Say] and [Tell] return, a [Confirm], a
// [Result] or an [Interrupt]. The set is closed.
type Input interface {
	// answers returns the call that an answer is for, and its status while it waits for one; "" for
	// what is no answer.
	answers() (call string, want decide.Status)
}

type say struct{ msg *message.Message }

// Say is a user's words.
func Say(text string) Input { return say{message.User(text)} }

// Tell is a user message with any blocks: text, pictures, files.
func Tell(blocks ...message.Block) Input {
	return say{&message.Message{Role: message.RoleUser, Blocks: blocks}}
}

// Confirm answers an [*Approval].
type Confirm struct {
	Call  string // the id of the call
	Allow bool

	// Input, if not nil, replaces the arguments of an allowed call. They are
	// validated and judged again; a call that has become more dangerous is
	// asked about again. The model reads what was changed.
	Input json.RawMessage

	// Rules are added to the conversation's policy. They must be about the same
	// tool, and allow or deny.
	Rules []permission.Rule

	// Reason is what the model reads with a refusal.
	Reason string
}

// Result delivers what became of a call that was handed out by an [*External].
type Result struct {
	Call       string
	Blocks     []message.Block // [*message.Text] and [*message.Data] only
	Structured json.RawMessage
	Failed     bool
}

// Interrupt ends what waits: every open call gets a result saying that a person
// interrupted it, and the run ends without another model call.
type Interrupt struct{}

func (say) answers() (string, decide.Status)        { return "", "" }
func (in Confirm) answers() (string, decide.Status) { return in.Call, decide.Asking }
func (in Result) answers() (string, decide.Status)  { return in.Call, decide.External }
func (Interrupt) answers() (string, decide.Status)  { return "", "" }
