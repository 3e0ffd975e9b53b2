package tool

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// A Tool is something a model may call. It must be safe for concurrent use: calls of one
// answer may run in parallel, and one tool may serve many conversations.
type Tool interface {
	// Info describes the tool: the same value every time.
	Info() Info

	// Call runs the tool and returns the pieces of its result, in order. The
	// sequence may be ranged once; the tool starts when it is. An error ends
	// it and becomes an error result. It should end soon after the context has, or
	// after yield returned false. Use [Run] rather than calling it: Run recovers from
	// panics and abandons tools that do not end.
	Call(ctx context.Context, call Call) iter.Seq2[Chunk, error]
}

// Info describes a tool.
type Info struct {
	Name        string          `json:"name"` // 1-64 letters, digits, "_", "-" and "."
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"input_schema"`            // JSON Schema of an object
	Output      json.RawMessage `json:"output_schema,omitempty"` // JSON Schema of the structured result, if there is one

	ReadOnly bool `json:"read_only,omitempty"` // claims to change nothing, whatever the arguments
	Parallel bool `json:"parallel,omitempty"`  // may run in parallel with other calls of the same answer
	External bool `json:"external,omitempty"`  // is run by the host, which gets the call
	Control  bool `json:"control,omitempty"`   // only steers the agent; see [permission.Call]

	// Annotations is the object of MCP's annotations that a server sent, to pass on when
	// the tool is served again. They are unverified and not used here.
	Annotations json.RawMessage `json:"annotations,omitempty"`
}

// A Call is one call of a tool. Input is valid against the tool's schema.
type Call struct {
	ID    string
	Name  string
	Input json.RawMessage

	// Judgement is that of the [permission.Decision] which allowed the call. Right before
	// the tool runs, [Run] checks that it is about Name and Input. If both Judgement and
	// Judge are nil the call runs without a check.
	Judgement *permission.Judgement

	// Judge decides again about a call that middleware has changed, and returns an error
	// unless it may run. Without it such a call fails. Run may call it from another
	// goroutine.
	Judge JudgeFunc

	// Key is the idempotency key of the call, if its [IdempotentChecker] says that it may
	// be repeated. A function gets it with [IdempotencyKey].
	Key string
}

// A JudgeFunc decides about a call; see [Call.Judge].
type JudgeFunc func(context.Context, Tool, Call) (*permission.Judgement, error)

// A Chunk is a piece of a result: new text or data for the model, or facts
// about the result as a whole.
//
// Block is a [*message.Text] or a [*message.Data], or nil. Pieces with the same
// non-empty block id belong together: text is appended, data joined. ForUser
// sends the block to the user, not to the model.
type Chunk struct {
	Block      message.Block
	ForUser    bool
	Failed     bool                       // the call failed; sticky
	Pinned     bool                       // the result must never be cut, as instructions must not; sticky
	Structured json.RawMessage            // the result as JSON; the last one counts
	Meta       map[string]json.RawMessage // merged, later keys win

	// Progress, unless nil, reports the progress of the call, with or without a Block. It
	// is not part of the result.
	Progress *Progress
}

// Progress is the progress of a call, as in MCP: Done increases, Total is 0 if unknown.
type Progress struct {
	Done    float64 `json:"done"`
	Total   float64 `json:"total,omitempty"`
	Message string  `json:"message,omitempty"`
}

// Text returns a chunk of text for the model.
func Text(s string) Chunk { return Chunk{Block: &message.Text{Text: s}} }

// A Source lists tools that are not known when the program is built, such as
// those of an MCP server. Tools may take long; callers cache what it returns.
type Source interface {
	Tools(ctx context.Context) ([]Tool, error)
}

// ErrAbort, wrapped by a tool's error, ends the whole run instead of becoming a result
// that the model reads: for failures that no other call can fix, such as an expired
// licence.
var ErrAbort = errors.New("abort the run")

// The capabilities. All of them are called with arguments that fit the schema, and, like
// a tool, from several goroutines. They must not panic on other arguments either; package
// tooltest tries.

// A ReadOnlyChecker reports by the arguments whether a call changes nothing.
// Without it Info.ReadOnly counts.
type ReadOnlyChecker interface {
	CheckReadOnly(input json.RawMessage) bool
}

// A PermissionChecker returns the tool's own verdict on a call. Without it only rules and
// the mode decide.
type PermissionChecker interface {
	CheckPermission(p *permission.Policy, input json.RawMessage) permission.Verdict
}

// A RuleMatcher understands rule patterns; see [permission.Call.Match].
// Without it only rules without a pattern cover the tool.
type RuleMatcher interface {
	MatchRule(p *permission.Policy, r permission.Rule, input json.RawMessage) (bool, error)
}

// A Resolver takes a snapshot of what the judgement of a call depends on, such as the
// targets of links: the capabilities of the tool that it returns are used for this call
// in place of its own. Without it the capabilities may see different states.
type Resolver interface {
	Resolve() Tool
}

// A RuleBorrower obeys the deny and ask rules of other tools too; see
// [permission.Call.Borrows]. Without it only rules that name the tool hold.
type RuleBorrower interface {
	BorrowsRules() []string
}

// A RuleSuggester names rules that would have allowed the call. Without it a
// rule for the whole tool is suggested.
type RuleSuggester interface {
	SuggestRules(p *permission.Policy, input json.RawMessage) []permission.Rule
}

// An IdempotentChecker reports whether a call may be repeated if it is unknown whether
// it took effect, because the program was stopped meanwhile. The second call must then
// have no further effect, by its nature or because a service deduplicates by
// [Call.Key]. Without it a call is never repeated.
type IdempotentChecker interface {
	CheckIdempotent(input json.RawMessage) bool
}

// A Backgrounder says after how long a call may move to the background while the model
// continues, if the agent supports that: 0 for at once, negative for never. Without it
// the agent decides.
type Backgrounder interface {
	Background(input json.RawMessage) time.Duration
}

// A Previewer describes what a call would do to the user who is asked to allow it: a
// text such as a unified diff. It must change nothing. Without it, or if it fails, the
// user sees the arguments.
type Previewer interface {
	Preview(ctx context.Context, input json.RawMessage) (string, error)
}

// A Preparer reports, before the user is asked to allow a call, whether the call would
// fail anyway. It must change nothing, and its error is that of the call. The model reads
// the error although the call was not allowed, so it must not reveal anything new.
// Without it the user is always asked.
type Preparer interface {
	Prepare(ctx context.Context, input json.RawMessage) error
}

// Prepare calls t's [Preparer], if it has one. A panic counts as no error.
func Prepare(ctx context.Context, t Tool, input json.RawMessage) error {
	p, ok := As[Preparer](t)
	if !ok {
		return nil
	}
	return recoverTo(nil, func() error { return p.Prepare(ctx, input) })
}

// A Reminder returns a text that the model should read again after compaction removed
// it from the conversation, such as the open tasks. The context carries the [State]. An
// empty text adds nothing.
type Reminder interface {
	Remind(ctx context.Context) string
}

// A CallExplainer splits a call into the parts that it judges one by one; see
// [permission.Call.Parts]. Without it a call is one part.
type CallExplainer interface {
	ExplainCall(p *permission.Policy, input json.RawMessage) []permission.Part
}

// As returns the first tool that implements C in the chain that starts at t
// and continues through Unwrap() Tool methods, like errors.As.
func As[C any](t Tool) (C, bool) {
	for t != nil {
		if c, ok := t.(C); ok {
			return c, true
		}
		u, ok := t.(interface{ Unwrap() Tool })
		if !ok {
			break
		}
		t = u.Unwrap()
	}
	var none C
	return none, false
}

// PermissionCall describes a call of t for [permission.Decide]. The input must
// be what [Arguments] returned. A capability that panics counts as the safe answer: not
// read-only, a safety ask, a rule that cannot be matched.
func PermissionCall(t Tool, input json.RawMessage) *permission.Call {
	info := t.Info()
	c := &permission.Call{Tool: info.Name, Input: input, Control: info.Control, ReadOnly: info.ReadOnly}
	var fixed Tool
	if r, ok := As[Resolver](t); ok {
		if fixed = recoverTo(nil, r.Resolve); fixed == nil {
			c.Check = func(*permission.Policy) permission.Verdict { return cannotJudge }
			return c
		}
	}
	if ro, ok := resolved[ReadOnlyChecker](t, fixed); ok {
		c.ReadOnly = recoverTo(false, func() bool { return ro.CheckReadOnly(input) })
	}
	if pc, ok := resolved[PermissionChecker](t, fixed); ok {
		c.Check = func(p *permission.Policy) (v permission.Verdict) { // a Verdict is large: it is copied once
			defer func() {
				if recover() != nil {
					v = cannotJudge
				}
			}()
			return pc.CheckPermission(p, input)
		}
	}
	if rm, ok := resolved[RuleMatcher](t, fixed); ok {
		c.Match = func(p *permission.Policy, r permission.Rule) (matched bool, err error) {
			err = recoverTo(errCannotMatch, func() error {
				var err error
				matched, err = rm.MatchRule(p, r, input)
				return err
			})
			return matched, err
		}
	}
	if rb, ok := resolved[RuleBorrower](t, fixed); ok {
		known := recoverTo(false, func() bool { c.Borrows = rb.BorrowsRules(); return true })
		if !known { // which rules apply, so that a deny rule may be missed
			c.Check = func(*permission.Policy) permission.Verdict { return cannotJudge }
		}
	}
	if rs, ok := resolved[RuleSuggester](t, fixed); ok {
		c.Suggest = func(p *permission.Policy) []permission.Rule {
			return recoverTo(nil, func() []permission.Rule { return rs.SuggestRules(p, input) })
		}
	}
	if ex, ok := resolved[CallExplainer](t, fixed); ok {
		c.Parts = func(p *permission.Policy) []permission.Part {
			return recoverTo(nil, func() []permission.Part { return ex.ExplainCall(p, input) })
		}
	}
	return c
}

// AnyCall describes a call of t that stands for all, for [permission.Policy.Check]: its arguments
// are an example that fits the schema. Where none is known, patterns are not read.
func AnyCall(t Tool) *permission.Call {
	info := t.Info()
	v := validators.get(info.Input)
	input, err := json.RawMessage(nil), v.usable()
	if err == nil {
		args, why := v.arguments(info.Name, json.RawMessage(v.example())) // none stands for {}, which may fit
		input, err = args.JSON, why
	}
	c := PermissionCall(t, input)
	if err != nil && c.Match != nil {
		c.Match = func(*permission.Policy, permission.Rule) (bool, error) { return false, nil }
	}
	return c
}

// resolved is As for the judgement of one call: it replaces the [Resolver] in the chain by
// fixed, the tool that it returned, and keeps the wrappers around it.
func resolved[C any](t, fixed Tool) (C, bool) {
	for fixed != nil {
		if _, ok := t.(Resolver); ok {
			t = fixed
			break
		}
		if c, ok := t.(C); ok {
			return c, true
		}
		t = t.(interface{ Unwrap() Tool }).Unwrap() // there is a Resolver further in
	}
	return As[C](t)
}

// cannotJudge is the verdict of a capability that panics. Allow rules do not override a
// safety ask.
var cannotJudge = permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: "the tool cannot judge this call"}

var errCannotMatch = errors.New("the tool cannot match the rule")

// recoverTo returns fn(), or safe if it panics: a bug in a check must neither let a call
// through nor end the program.
func recoverTo[T any](safe T, fn func() T) (result T) {
	defer func() {
		if recover() != nil {
			result = safe
		}
	}()
	return fn()
}
