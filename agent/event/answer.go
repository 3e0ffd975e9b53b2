package event

import (
	"encoding/json"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

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

// Answers returns the id of the call.
func (c Confirm) Answers() (call string) { return c.Call }

// Answers returns the id of the call.
func (r Result) Answers() (call string) { return r.Call }
