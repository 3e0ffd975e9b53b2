// Package permission decides whether a tool call may run.
//
// A [Policy] contains decisions that users made in advance: a mode and a list of rules.
//
//	policy := &permission.Policy{TrustReadOnly: true, Rules: []permission.Rule{
//		{Tool: "delete_*", Behavior: permission.Deny},
//		{Tool: "Bash", Pattern: "go test:*", Behavior: permission.Allow},
//	}}
//	d := permission.Decide(policy, tool.PermissionCall(bash, input))
//	fmt.Println(d.Behavior, d.Reason) // ask: the user has to decide
//
// An agent and a server do this for each call. A call needs approval unless a rule allows it or it is known to be
// harmless.
//
// Decide is a pure function of a policy and a [Call]; the first step that has an answer wins:
//
//	deny rules → the tool's own deny → (explore: what is not read-only is denied)
//	→ the tool's safety ask → ask rules → read-only → the tool's own allow
//	→ allow rules → the mode
//
// Deny rules come first, so that neither a tool nor a mode overrides them. A control tool
// is allowed right after the tool's own deny.
//
// If in doubt, Decide denies or asks. An unknown mode denies, and so does a rule with an unknown behavior. A deny or ask
// rule with an invalid pattern covers every call of its tool; an allow rule with an invalid pattern covers none.
// [Explain] returns the same decision with all its steps.
//
// A decision is about what the call does, which its tool determines, and not about the arguments as written. What the
// tool has determined is the [Judgement], which is passed to the tool with the call.
//
// Policies are stored as the "permissions" member of a settings file, which [ParseSettings] reads. [Policy.Check]
// finds rules that cannot work before they are needed.
//
// # The network
//
// A confined call can use the network only if a rule or a user allows that. The allow rule Network allows it for every
// call. An allow rule for a call, or a user who allows the call, also allows the network if the call is known to use it.
// No mode allows the network. With the deny rule Network no confined call can use it.
//
// # What is and what is not a boundary
//
// A decision is a boundary between the model and the tool: no call runs without one. It is not a sandbox: once
// allowed, a tool does what its code does. A tool's description of itself, and an MCP server's annotations, are
// claims; see [Policy.TrustReadOnly].
package permission

import (
	"encoding/json"
	"errors"
)

// Mode decides about a call that no rule covers.
type Mode string

// The modes. The zero Mode is ModeDefault.
const (
	ModeDefault     Mode = "default"      // ask
	ModeAcceptEdits Mode = "accept-edits" // allow read-only calls and edits below the working directories, ask about the rest
	ModeSandboxed   Mode = "sandboxed"    // like accept-edits, and allow calls that are confined to the working directories
	ModeExplore     Mode = "explore"      // allow read-only calls, deny the rest
	ModeBypass      Mode = "bypass"       // allow every call except by a deny or ask rule, or the tool's own deny; skip safety asks
	ModeDontAsk     Mode = "dont-ask"     // allow edits as accept-edits does, deny every call that would need approval
)

// Behavior is the effect of a rule or a decision.
type Behavior string

// The behaviors. BehaviorNone is the zero value, which only the verdict of a tool and a [Step] may have.
const (
	BehaviorNone Behavior = ""
	Allow        Behavior = "allow"
	Ask          Behavior = "ask"
	Deny         Behavior = "deny"
)

// A Policy contains the mode and rules of decisions. The zero Policy asks about every call, unless the tool itself
// allows it. A Policy may be shared while no one changes it.
type Policy struct {
	Mode  Mode   `json:"mode,omitempty"`
	Rules []Rule `json:"rules,omitempty"`

	// Dirs are the working directories, absolute or with "~/" for the home directory; [Policy.Check] reports
	// all other forms. Files below them may be read without approval, and edited in accept-edits. Relative patterns of
	// file rules are relative to the first directory.
	Dirs []string `json:"dirs,omitempty"`

	// TrustReadOnly allows calls of tools that claim to be read-only in the modes default and dont-ask, which would
	// otherwise ask about such calls, or deny them. Nothing checks the claim. The claim of an MCP server's tool
	// counts only if mcpclient.Options.TrustReadOnly is also set for the server.
	TrustReadOnly bool `json:"trust_read_only,omitempty"`
}

// A Verdict is a tool's own judgement of a call, from its arguments. No allow rule overrides an Ask with Safety.
type Verdict struct {
	Behavior Behavior
	Safety   bool
	Reason   string

	// Found is what the call does, as far as the tool knows. [Decide] seals it and returns it as the Judgement.
	// Found.Network says that the call is known to use the network.
	Found Judgement

	// Confined says that the tool runs the call in a sandbox with Found.Profile.
	Confined bool
}

// A Call is a description of a tool call for Decide. tool.PermissionCall makes one for any tool.
type Call struct {
	Tool  string
	Input json.RawMessage // validated arguments, a JSON object

	// Control marks a tool that only steers the agent itself (reset_tools, the task list). Its calls are allowed in
	// every mode, unless a deny rule or the tool itself denies them.
	Control bool

	// ReadOnly says that the call changes nothing outside the agent, as far as the tool knows.
	ReadOnly bool

	// Borrows names tools whose deny and ask rules with a pattern also apply to this call: the rules of Read apply to
	// a search, for example. Checker.Match gets such a rule with the other tool's name as its Tool.
	Borrows []string

	// Checker is the tool's own knowledge of the call; nil means [BaseChecker].
	Checker Checker
}

// A Checker is a tool's knowledge of one of its calls. A tool that implements only some of the methods embeds
// [BaseChecker]. The methods must not change anything. If a method panics, the safe answer is assumed: a safety ask, an
// invalid pattern, no suggestion, no parts.
type Checker interface {
	// Check returns the tool's own verdict under p.
	Check(p *Policy) Verdict

	// Match reports whether the pattern of r, which is not empty, covers the call: for an allow rule the whole call,
	// for a deny or ask rule any part of the call. An error means that the pattern is invalid, and wraps
	// [ErrNoPatterns] if the tool takes no patterns.
	Match(p *Policy, r Rule) (bool, error)

	// Suggest returns rules that would have allowed the call. A rule without a Tool is for the call's tool.
	Suggest(p *Policy) []Rule

	// Parts returns the pieces of the call that are judged one by one, for [Explain]; nil if the call is judged as a
	// whole.
	Parts(p *Policy) []Part
}

// A BaseChecker has no verdict, takes no patterns and suggests a rule for the whole tool. Embed it in a [Checker]
// for the methods that it does not implement.
type BaseChecker struct{}

// Check implements [Checker].
func (BaseChecker) Check(*Policy) Verdict { return Verdict{} }

// Match implements [Checker].
func (BaseChecker) Match(*Policy, Rule) (bool, error) { return false, ErrNoPatterns }

// Suggest implements [Checker].
func (BaseChecker) Suggest(*Policy) []Rule { return []Rule{{Behavior: Allow, Source: "suggested"}} }

// Parts implements [Checker].
func (BaseChecker) Parts(*Policy) []Part { return nil }

// ErrNoPatterns is returned by [Checker.Match] of a tool whose rules have no patterns.
var ErrNoPatterns = errors.New("the tool takes no patterns")

// A Decision is the answer to "may this call run?".
type Decision struct {
	Behavior Behavior `json:"behavior"`            // Allow, Ask or Deny
	Safety   bool     `json:"safety,omitempty"`    // for Ask: no allow rule can answer
	ReadOnly bool     `json:"read_only,omitempty"` // see [Call]
	Reason   string   `json:"reason"`              // for the user, and for the model when denied
	Rule     *Rule    `json:"rule,omitempty"`      // the rule that decided; nil if none did
	Suggest  []Rule   `json:"suggest,omitempty"`   // rules that would have allowed the call, for Ask; none if no rule can

	// Confined says that the tool enforces Judgement.Profile. Otherwise the profile only says what the call needs.
	Confined bool `json:"confined,omitempty"`

	// Judgement is what the decision is based on, and what runs; empty if the call is denied.
	Judgement Judgement `json:"judgement,omitzero"`
}
