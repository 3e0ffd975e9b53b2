package event

import (
	"encoding/json"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// Confirm answers an [*Approval]. [Approval.Allow] and [Approval.Deny] make it. It encodes to JSON, so that a
// browser or a queue can deliver it.
type Confirm struct {
	Call  string `json:"call"` // the id of the call
	Allow bool   `json:"allow"`

	// Question is [Approval.Question]; 0 means the latest. The answer is refused if a new question about the same call,
	// which the user has not seen, has replaced this question.
	Question int64 `json:"question,omitempty"`

	// Input, if not nil, replaces the arguments of an allowed call. The new arguments are validated and judged; if
	// the call has become more dangerous, the user is asked again. The model is informed of the change.
	Input json.RawMessage `json:"input,omitempty"`

	// Rules are added to the conversation's policy. They must be rules for the same tool, and allow or deny.
	Rules []permission.Rule `json:"rules,omitempty"`

	// Reason is given to the model when the call is refused.
	Reason string `json:"reason,omitempty"`

	// By is who has answered, such as the name of a person or of a program; "" means "the user". [ToolStart.Reason] and
	// [ToolResult.By] show it.
	By string `json:"by,omitempty"`

	ID string `json:"-"` // of the answer itself; see agent.WithID
}

// Allow returns the answer that allows the call, and adds rules to the conversation's policy: for example q.Suggest,
// so that the question is not asked again.
func (q *Approval) Allow(rules ...permission.Rule) Confirm {
	return Confirm{Call: q.Call, Question: q.Question, Allow: true, Rules: rules}
}

// Deny returns the answer that refuses the call. The reason, which may be empty, is given to the model.
func (q *Approval) Deny(reason string) Confirm {
	return Confirm{Call: q.Call, Question: q.Question, Reason: reason}
}

// Answers returns the id of the call that c answers.
func (c Confirm) Answers() (call string) { return c.Call }

// Result answers an [*External]: it is the result of the call. [External.Return] makes it. It encodes to JSON.
type Result struct {
	Call       string          `json:"call"`
	Blocks     message.Blocks  `json:"blocks,omitempty"` // [*message.Text] and [*message.Data] only
	Structured json.RawMessage `json:"structured,omitempty"`
	Failed     bool            `json:"failed,omitempty"`
	ID         string          `json:"-"` // of the answer itself; see agent.WithID
}

// Return returns the result of a call that succeeded, with blocks that are each a [*message.Text] or a [*message.Data].
func (e *External) Return(blocks ...message.Block) Result {
	return Result{Call: e.Call, Blocks: blocks}
}

// Answers returns the id of the call that r answers.
func (r Result) Answers() (call string) { return r.Call }
