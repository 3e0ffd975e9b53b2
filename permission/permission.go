// Package permission decides whether a tool call may run.
//
// A [Policy] is what people have decided beforehand: a mode and a list of rules.
//
//	policy := &permission.Policy{TrustReadOnly: true, Rules: []permission.Rule{
//		{Tool: "delete_*", Behavior: permission.Deny},
//		{Tool: "Bash", Pattern: "go test:*", Behavior: permission.Allow},
//	}}
//	d := permission.Decide(policy, tool.PermissionCall(bash, input))
//	fmt.Println(d.Behavior, d.Reason) // ask: a person has to decide
//
// An agent and a server do this for each call. What no rule allows, and what cannot be shown
// to be harmless, is asked about.
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
// It fails closed. An unknown mode denies, and so does a rule of an unknown
// behavior; a deny or ask rule that cannot be read matches, an allow rule that
// cannot be read does not. [Explain] returns the same decision with every step
// that led to it.
//
// A decision is not about the arguments as written but about what the tool has found the
// call to do. That is its [Judgement], which is handed to the tool with the call.
//
// # The network
//
// A confined call has access to the network only if a rule or a person grants it. An allow
// rule Network grants it to every call. An allow rule for a call, or a person who allows it,
// grants it to that call if it is known to use the network. No mode grants it. With a deny
// rule Network no confined call has access.
//
// Policies are kept as the "permissions" member of a settings file, which
// [ParseSettings] reads. [Policy.Check] finds rules that cannot work before
// they are needed.
//
// # What is and what is not a boundary
//
// A decision is a boundary between the model and the tool: no call runs
// without one. It is not a sandbox: once allowed, a tool does what its code
// does. A tool's description of itself, and an MCP server's annotations, are
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
	ModeAcceptEdits Mode = "accept-edits" // allow what is read-only and edits below the working directories, ask for the rest
	ModeSandboxed   Mode = "sandboxed"    // as accept-edits, and allow what runs confined to the working directories
	ModeExplore     Mode = "explore"      // allow what is read-only, deny the rest
	ModeBypass      Mode = "bypass"       // allow what no deny or ask rule, and no tool, stops
	ModeDontAsk     Mode = "dont-ask"     // deny what would be asked
)

// Behavior is what a rule or a decision says.
type Behavior string

// The behaviors. BehaviorNone is the zero value, which only the verdict of a tool and a
// [Step] may have.
const (
	BehaviorNone Behavior = ""
	Allow        Behavior = "allow"
	Ask          Behavior = "ask"
	Deny         Behavior = "deny"
)

// A Policy is what decides. The zero Policy asks about everything that is not
// a control tool. It is plain data: it may be shared if it is not changed.
type Policy struct {
	Mode  Mode   `json:"mode,omitempty"`
	Rules []Rule `json:"rules,omitempty"`

	// Dirs are the working directories, absolute or with "~/" for the home
	// directory; [Policy.Check] reports others. Below them files may be read
	// without a question, and edited in accept-edits. The first is the one that
	// relative patterns of file rules count from.
	Dirs []string `json:"dirs,omitempty"`

	// TrustReadOnly lets a tool that merely claims to be read-only run without
	// a question in the modes default and dont-ask. Claims of MCP servers count.
	TrustReadOnly bool `json:"trust_read_only,omitempty"`
}

// A Verdict is a tool's own judgement of a call, from its arguments. A Safety
// ask cannot be silenced by an allow rule.
type Verdict struct {
	Behavior Behavior
	Safety   bool
	Reason   string

	// Found is what the tool found the call to be: [Decide] seals it and hands it on.
	// Found.Network says that the call is known to use the network.
	Found Judgement

	// Confined says that the tool holds the call to Found.Profile, whatever it does.
	Confined bool
}

// A Call is what Decide needs to know of a tool call. [tool.PermissionCall]
// makes one of any tool.
type Call struct {
	Tool  string
	Input json.RawMessage // validated arguments, a JSON object

	// Control marks a tool that only steers the agent itself (reset_tools, the
	// task list): allowed in every mode unless a deny rule names it.
	Control bool

	// ReadOnly says that the call changes nothing outside the agent, as far as
	// the tool knows.
	ReadOnly bool

	// Borrows names tools whose deny and ask rules hold for this one too, if they have
	// a pattern: those of Read for a search. Checker.Match is then given the rule with the
	// name of that tool.
	Borrows []string

	// Checker is what the tool itself knows of the call; nil is a [BaseChecker].
	Checker Checker
}

// A Checker is what a tool knows of one of its calls. A tool that answers only some of the
// questions embeds [BaseChecker]. The methods must not change anything. If one panics, the
// safe answer is assumed: a safety ask, a pattern that cannot be read, no suggestion.
type Checker interface {
	// Check returns the tool's own verdict under p.
	Check(p *Policy) Verdict

	// Match reports whether the pattern of r, which is not empty, covers the call: for an
	// allow rule all of it, for a deny or ask rule any part of it. An error means that the
	// pattern cannot be read; it wraps [ErrNoPatterns] if the tool takes none.
	Match(p *Policy, r Rule) (bool, error)

	// Suggest returns rules that would have allowed the call. One without a Tool is for the
	// tool of the call.
	Suggest(p *Policy) []Rule

	// Parts returns the pieces of the call that are judged one by one, for [Explain]; nil
	// if the call is judged as a whole.
	Parts(p *Policy) []Part
}

// A BaseChecker has no opinion, takes no patterns and suggests a rule for the tool as a
// whole. Embed it in a [Checker] for the methods that it does not have.
type BaseChecker struct{}

// Check implements [Checker].
func (BaseChecker) Check(*Policy) Verdict { return Verdict{} }

// Match implements [Checker].
func (BaseChecker) Match(*Policy, Rule) (bool, error) { return false, ErrNoPatterns }

// Suggest implements [Checker].
func (BaseChecker) Suggest(*Policy) []Rule { return []Rule{{Behavior: Allow, Source: "suggested"}} }

// Parts implements [Checker].
func (BaseChecker) Parts(*Policy) []Part { return nil }

// ErrNoPatterns is returned by [Checker.Match] of a tool that takes no patterns in rules.
var ErrNoPatterns = errors.New("the tool takes no patterns")

// A Decision is the answer to "may this call run?".
type Decision struct {
	Behavior Behavior `json:"behavior"` // Allow, Ask or Deny
	Safety   bool     `json:"safety,omitempty"`
	ReadOnly bool     `json:"read_only,omitempty"`
	Reason   string   `json:"reason"`            // for people, and for the model when denied
	Rule     *Rule    `json:"rule,omitempty"`    // the rule that decided
	Suggest  []Rule   `json:"suggest,omitempty"` // rules that would have allowed the call, when asked; none where no rule can

	// Confined says that the tool holds the call to Judgement.Profile. Without it the profile
	// says what the call needs, and nothing keeps it from reaching further.
	Confined bool `json:"confined,omitempty"`

	// Judgement is what the answer is about, and what runs; empty if the call is denied.
	Judgement Judgement `json:"judgement,omitzero"`
}
