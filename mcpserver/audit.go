package mcpserver

import (
	"encoding/json"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// A Record describes a call for [Config.Audit]: the caller, the decision and its reason, and the outcome.
type Record struct {
	Time       time.Time `json:"time"`                 // when the call was received
	Credential string    `json:"credential,omitempty"` // its name
	Session    string    `json:"session,omitempty"`    // a name for the session; not its id, because anyone who has the id can use the session
	Tool       string    `json:"tool"`                 // the tool that was judged, or the name that was called if there is none; for a request that a gateway passes on, the method, such as "resources/read"

	Decision permission.Behavior `json:"decision,omitempty"` // before the user was asked; empty if none was made
	Rule     string              `json:"rule,omitempty"`     // the rule that decided
	Reason   string              `json:"reason,omitempty"`   // of the decision

	Outcome  Outcome `json:"outcome"`
	Duration float64 `json:"duration_ms"` // including the wait for the user's answer

	// Input is the arguments. They may contain secrets; the audit function decides whether to store them.
	Input json.RawMessage `json:"input,omitempty"`
}

// An Outcome is how a call ended.
type Outcome string

// The outcomes. With success and error the tool has run, or middleware has replaced it; with cancelled it may
// have run.
const (
	OutcomeSuccess   Outcome = "success"
	OutcomeError     Outcome = "error"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeInvalid   Outcome = "invalid" // there is no such tool, or the arguments are invalid
	OutcomeRefused   Outcome = "refused" // denied by the policy or the user, or the user could not be asked
	OutcomeAsked     Outcome = "asked"   // the client was sent a question for its user, and repeats the call with the answer
)

// maxLogged is how many bytes of an unknown tool name are recorded.
const maxLogged = 128

// decided records a decision. The outcome is [OutcomeRefused] until the call has run.
func (r *Record) decided(d permission.Decision) {
	r.Decision, r.Reason, r.Outcome = d.Behavior, d.Reason, OutcomeRefused
	if d.Rule != nil {
		r.Rule = d.Rule.String()
	}
}

// ran records how an allowed call has ended; res is nil if the call was aborted.
func (r *Record) ran(res *message.ToolResult) {
	r.Outcome = OutcomeError
	if res != nil && res.Outcome == message.OutcomeSuccess {
		r.Outcome = OutcomeSuccess
	}
}
