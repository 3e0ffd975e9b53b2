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
	Credential string    `json:"credential,omitempty"` // the name of the credential or identity
	Session    string    `json:"session,omitempty"`    // a name for the session; not its id, because anyone who has the id can use the session
	Tool       string    `json:"tool"`                 // the tool that was judged or, if there is none, the name that was called; for other requests that a gateway passes on, the method, such as "resources/read"

	Decision permission.Behavior `json:"decision,omitempty"` // before the user was asked; empty if the call was not judged
	Rule     string              `json:"rule,omitempty"`     // the rule that decided; empty if no rule did
	Reason   string              `json:"reason,omitempty"`   // of the decision

	Outcome  Outcome `json:"outcome"`
	Duration float64 `json:"duration_ms"` // including the wait for the user's answer

	// Input is the arguments. They may contain secrets; the audit function decides whether to store them.
	Input json.RawMessage `json:"input,omitempty"`
}

// An Outcome is how a call ended.
type Outcome string

// The outcomes. With success and error the tool, or middleware in its place, has run; with cancelled the tool may have run.
const (
	OutcomeSuccess   Outcome = "success"
	OutcomeError     Outcome = "error"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeInvalid   Outcome = "invalid" // there is no such tool, or the arguments are invalid
	OutcomeRefused   Outcome = "refused" // denied by the policy, a [Rate] or the user, or the user could not be asked
	OutcomeAsked     Outcome = "asked"   // the client was sent a question for its user, and repeats the call with the answer
)

// maxRecordedName is how many bytes of the name in a call are recorded if there is no such tool.
const maxRecordedName = 128

// recordDecision records a decision. The outcome is [OutcomeRefused] until the call has run.
func (r *Record) recordDecision(d permission.Decision) {
	r.Decision, r.Reason, r.Outcome = d.Behavior, d.Reason, OutcomeRefused
	if d.Rule != nil {
		r.Rule = d.Rule.String()
	}
}

// recordResult records how an allowed call has ended; res is nil if the call was aborted.
func (r *Record) recordResult(res *message.ToolResult) {
	r.Outcome = OutcomeError
	if res != nil && res.Outcome == message.OutcomeSuccess {
		r.Outcome = OutcomeSuccess
	}
}
