package mcpserver

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// A Record is what [Config.Audit] gets after a call: who called what, the decision and its reason,
// and the outcome.
type Record struct {
	Time       time.Time `json:"time"`                 // when the call was received
	Credential string    `json:"credential,omitempty"` // its name
	Session    string    `json:"session,omitempty"`    // a name of the session; not its id, with which a reader could use it
	Tool       string    `json:"tool"`                 // the tool that was judged, or else the name that was called; or, of a gateway, the method, such as "resources/read"

	Decision permission.Behavior `json:"decision,omitempty"` // before a person was asked; empty if there was none
	Rule     string              `json:"rule,omitempty"`     // that decided
	Reason   string              `json:"reason,omitempty"`   // of the decision

	Outcome  Outcome `json:"outcome"`
	Duration float64 `json:"duration_ms"` // including the time for a person's answer

	// Input is the arguments. They may contain secrets; the function decides whether to store them.
	Input json.RawMessage `json:"input,omitempty"`
}

// An Outcome is how a call ended.
type Outcome string

// The outcomes. With the first two the tool has run, or middleware in its place; with the third it
// may have run.
const (
	OutcomeSuccess   Outcome = "success"
	OutcomeError     Outcome = "error"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeInvalid   Outcome = "invalid" // there is no such tool, or the arguments do not fit
	OutcomeRefused   Outcome = "refused" // denied by the policy or the user, or the user could not be asked
	OutcomeAsked     Outcome = "asked"   // the client has to ask its user, and repeats the call with the answer
)

// maxLogged is how much of an unknown tool name is kept, in bytes.
const maxLogged = 128

// audited runs the call and passes its record on.
func (r *request) audited(ctx context.Context, p *callParams) (any, *rpcError) {
	r.rec = Record{Time: time.Now(), Tool: cut(p.Name, maxLogged), Outcome: OutcomeInvalid}
	defer r.closeRecord(ctx) // also if a tool panics
	return r.runTool(ctx, p)
}

// closeRecord completes the record and passes it on.
func (r *request) closeRecord(ctx context.Context) {
	if r.cred != nil {
		r.rec.Credential = r.cred.Name
	}
	if !r.shared {
		r.rec.Session = r.name
	}
	if ctx.Err() != nil && r.rec.Outcome != OutcomeSuccess {
		r.rec.Outcome = OutcomeCancelled
	}
	r.rec.Duration = float64(time.Since(r.rec.Time).Microseconds()) / 1000
	if r.srv.cfg.Audit != nil {
		r.srv.cfg.Audit(r.rec)
	}
}

// decided records a decision. The outcome is [OutcomeRefused] until the call has run.
func (r *Record) decided(c *permission.Call, d permission.Decision) {
	r.Tool, r.Input = c.Tool, c.Input
	r.Decision, r.Reason, r.Outcome = d.Behavior, d.Reason, OutcomeRefused
	if d.Rule != nil {
		r.Rule = d.Rule.String()
	}
}

// ran records how an allowed call has ended; res is nil if it was aborted.
func (r *Record) ran(res *message.ToolResult) {
	r.Outcome = OutcomeError
	if res != nil && res.Outcome == message.OutcomeSuccess {
		r.Outcome = OutcomeSuccess
	}
}
