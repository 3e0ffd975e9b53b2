package mcpserver

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// A Record is what [Config.Audit] is told of a call when it has ended: who called
// what, what was decided and why, and what came of it.
type Record struct {
	Time       time.Time `json:"time"`                 // when the call came
	Credential string    `json:"credential,omitempty"` // its name
	Session    string    `json:"session,omitempty"`    // tells sessions apart; not the id, which would let a reader in
	Tool       string    `json:"tool"`                 // the tool that was decided about, or else the name that was called; or the method, such as "resources/read", of what is done with [Config.Offers]

	Decision permission.Behavior `json:"decision,omitempty"` // before a person was asked; empty if it did not come to one
	Rule     string              `json:"rule,omitempty"`     // that decided
	Reason   string              `json:"reason,omitempty"`   // of the decision

	Outcome  Outcome `json:"outcome"`
	Duration float64 `json:"duration_ms"` // with the time that a person took to answer

	// Input is what the tool was called with. It may hold what should not be
	// kept: whoever writes records down decides about it.
	Input json.RawMessage `json:"input,omitempty"`
}

// An Outcome is what came of a call.
type Outcome string

// The outcomes. The tool, or what middleware did in its place, has run in the first
// two only, and may have in the third.
const (
	Succeeded Outcome = "success"
	Failed    Outcome = "error"
	Cancelled Outcome = "cancelled"
	Invalid   Outcome = "invalid" // there is no such tool, or the arguments do not fit
	Refused   Outcome = "refused" // denied, or a person said no, or nobody could be asked
	Asked     Outcome = "asked"   // the client has to ask somebody, and calls again with the answer
)

// maxLogged is how much of a name that a client made up is kept, in bytes.
const maxLogged = 128

// audited runs the call and hands over the record of it.
func (r *request) audited(ctx context.Context, p *callParams) (any, *rpcError) {
	r.rec = Record{Time: time.Now(), Tool: cut(p.Name, maxLogged), Outcome: Invalid}
	defer r.closeRecord(ctx) // also if code of the toolkit's owner panics
	return r.runTool(ctx, p)
}

// closeRecord hands the record over when what it is of has ended.
func (r *request) closeRecord(ctx context.Context) {
	if r.cred != nil {
		r.rec.Credential = r.cred.Name
	}
	if !r.shared {
		r.rec.Session = r.name
	}
	if ctx.Err() != nil && r.rec.Outcome != Succeeded {
		r.rec.Outcome = Cancelled
	}
	r.rec.Duration = float64(time.Since(r.rec.Time).Microseconds()) / 1000
	if r.srv.cfg.Audit != nil {
		r.srv.cfg.Audit(r.rec)
	}
}

// decided notes a decision. Until more is known the call is refused.
func (r *Record) decided(c *permission.Call, d permission.Decision) {
	r.Tool, r.Input = c.Tool, c.Input
	r.Decision, r.Reason, r.Outcome = d.Behavior, d.Reason, Refused
	if d.Rule != nil {
		r.Rule = d.Rule.String()
	}
}

// ran notes how a call that was allowed has ended; res is nil if it was aborted.
func (r *Record) ran(res *message.ToolResult) {
	r.Outcome = Failed
	if res != nil && res.Outcome == message.OutcomeSuccess {
		r.Outcome = Succeeded
	}
}
