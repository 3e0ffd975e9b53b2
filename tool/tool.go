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
// answer may run side by side, and one tool may serve many conversations.
type Tool interface {
	// Info describes the tool: the same value every time.
	Info() Info

	// Call runs the tool and returns the pieces of its result, in order. The
	// sequence may be ranged once; the tool starts when it is. An error ends
	// it and becomes an error result. It should end soon after the context has, or
	// after yield returned false. Use [Run] rather than calling it: Run takes care of
	// panics, and of tools that do not end.
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
	Parallel bool `json:"parallel,omitempty"`  // may run beside other calls of the same answer
	External bool `json:"external,omitempty"`  // is run by the host, which is handed the call
	Control  bool `json:"control,omitempty"`   // only steers the agent; see [permission.Call]

	// Annotations is an object of MCP's annotations, as a server gave them, for
	// whoever serves the tool on. They are claims; nothing here looks at them.
	Annotations json.RawMessage `json:"annotations,omitempty"`
}

// A Call is one call of a tool. Input is valid against the tool's schema.
type Call struct {
	ID    string
	Name  string
	Input json.RawMessage

	// Judgement is what the permission engine decided about, that of the
	// [permission.Decision]. Right before the tool [Run] compares it with Name and
	// Input. With both Judgement and Judge nil nobody decides: the call runs as it is.
	Judgement *permission.Judgement

	// Judge decides anew about a call that middleware has changed, and returns an error
	// unless it may run. Without it such a call fails. Run may call it from another
	// goroutine.
	Judge JudgeFunc

	// Key is the idempotency key of the call, if an [IdempotentChecker] allows
	// to make it again. A function finds it with [IdempotencyKey].
	Key string
}

// A JudgeFunc decides about a call; see [Call.Judge].
type JudgeFunc func(context.Context, Tool, Call) (*permission.Judgement, error)

// A Chunk is a piece of a result: new text or data for the model, or facts
// about the result as a whole.
//
// Block is a [*message.Text] or a [*message.Data], or nil. Pieces with the same
// non-empty block id belong together: text is appended, data joined. ForUser
// sends the block to the person who watches, not to the model.
type Chunk struct {
	Block      message.Block
	ForUser    bool
	Failed     bool                       // the call failed; sticky
	Pinned     bool                       // the result must never be cut, as instructions must not; sticky
	Structured json.RawMessage            // the result as JSON; the last one counts
	Meta       map[string]json.RawMessage // merged, later keys win

	// Progress, unless nil, says how far the call is, in numbers, beside Block or alone.
	// It is no part of the result.
	Progress *Progress
}

// Progress is how far a call is, as MCP tells it: Done grows, Total is 0 if nobody
// knows.
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

// ErrAbort, wrapped by a tool's error, ends the whole run instead of becoming
// a result that the model reads: for what no other call can put right, such as an
// expired licence.
var ErrAbort = errors.New("abort the run")

// The capabilities. All of them are called with arguments that fit the schema, and, like
// a tool, from several goroutines. They must not panic on other arguments either, as a
// check that does judges nothing; package tooltest tries.

// A ReadOnlyChecker tells from its arguments whether a call changes anything.
// Without it Info.ReadOnly counts.
type ReadOnlyChecker interface {
	CheckReadOnly(input json.RawMessage) bool
}

// A PermissionChecker judges a call itself. Without it the tool has no opinion.
type PermissionChecker interface {
	CheckPermission(p *permission.Policy, input json.RawMessage) permission.Verdict
}

// A RuleMatcher understands rule patterns; see [permission.Call.Match].
// Without it only rules without a pattern cover the tool.
type RuleMatcher interface {
	MatchRule(p *permission.Policy, r permission.Rule, input json.RawMessage) (bool, error)
}

// A Resolver looks up what the judgement of a call depends on, such as where links lead,
// once for all of it: the capabilities of the tool that it returns are asked about this
// call in place of its own. Without it each answer may be about another moment.
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

// An IdempotentChecker tells whether a call may be made again when nobody knows
// whether it had its effect: the program was stopped meanwhile. The second time
// must then add nothing to the first, because of what the tool does or because it
// hands [Call.Key] to a service that sees to it. Without it a call is never made
// again.
type IdempotentChecker interface {
	CheckIdempotent(input json.RawMessage) bool
}

// A Backgrounder says after how long a call may go on in the background, while
// the model goes on too, where whoever runs it can do that: 0 for at once,
// negative for never. Without it that is up to whoever runs it.
type Backgrounder interface {
	Background(input json.RawMessage) time.Duration
}

// A Previewer shows a person, who is asked to allow a call, what it would do:
// a text such as a unified diff. It changes nothing. Without it, or if it
// fails, they see the arguments.
type Previewer interface {
	Preview(ctx context.Context, input json.RawMessage) (string, error)
}

// A Preparer says, before a person is asked about a call, whether it must fail anyway:
// nobody should agree to what cannot be done. It changes nothing, and its error is what
// the call would fail with; it must tell the model no more than the model knows already,
// as nobody has allowed the call. Without it calls are taken to succeed.
type Preparer interface {
	Prepare(ctx context.Context, input json.RawMessage) error
}

// Prepare asks t's [Preparer]. One that panics has nothing against the call.
func Prepare(ctx context.Context, t Tool, input json.RawMessage) error {
	p, ok := As[Preparer](t)
	if !ok {
		return nil
	}
	return careful(nil, func() error { return p.Prepare(ctx, input) })
}

// A Reminder has something that the model should be told again when the part of
// the conversation in which it learned of it is summarised: the open tasks, for
// instance. The context carries the [State]. An empty text is nothing to tell.
type Reminder interface {
	Remind(ctx context.Context) string
}

// A CallExplainer tells apart the pieces of a call that it judges one by one;
// see [permission.Call.Parts]. Without it a call is one piece.
type CallExplainer interface {
	ExplainCall(p *permission.Policy, input json.RawMessage) []permission.Part
}

// As returns the first tool that implements C in the chain that starts at t
// and goes on through Unwrap() Tool methods, like errors.As.
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
// be what [Arguments] returned. A capability that panics gives the careful
// answer: not read-only, a safety ask, a rule that cannot be read.
func PermissionCall(t Tool, input json.RawMessage) *permission.Call {
	info := t.Info()
	c := &permission.Call{Tool: info.Name, Input: input, Control: info.Control, ReadOnly: info.ReadOnly}
	var fixed Tool
	if r, ok := As[Resolver](t); ok {
		if fixed = careful(nil, r.Resolve); fixed == nil {
			c.Check = func(*permission.Policy) permission.Verdict { return cannotJudge }
			return c
		}
	}
	if ro, ok := resolved[ReadOnlyChecker](t, fixed); ok {
		c.ReadOnly = careful(false, func() bool { return ro.CheckReadOnly(input) })
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
			err = careful(errCannotMatch, func() error {
				var err error
				matched, err = rm.MatchRule(p, r, input)
				return err
			})
			return matched, err
		}
	}
	if rb, ok := resolved[RuleBorrower](t, fixed); ok {
		known := careful(false, func() bool { c.Borrows = rb.BorrowsRules(); return true })
		if !known { // which rules hold: none may be passed over
			c.Check = func(*permission.Policy) permission.Verdict { return cannotJudge }
		}
	}
	if rs, ok := resolved[RuleSuggester](t, fixed); ok {
		c.Suggest = func(p *permission.Policy) []permission.Rule {
			return careful(nil, func() []permission.Rule { return rs.SuggestRules(p, input) })
		}
	}
	if ex, ok := resolved[CallExplainer](t, fixed); ok {
		c.Parts = func(p *permission.Policy) []permission.Part {
			return careful(nil, func() []permission.Part { return ex.ExplainCall(p, input) })
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

// resolved is As for the judgement of one call: at the [Resolver] in the chain it continues with
// the tool that this returned, so that what is wrapped around it still comes first.
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

// What is answered for a capability that panics. No allow rule silences a safety ask.
var cannotJudge = permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: "the tool cannot judge this call"}

var errCannotMatch = errors.New("the tool cannot match the rule")

// careful returns what fn does, or the careful answer if it panics: a bug in a check must
// not let a call through, nor end the program.
func careful[T any](answer T, fn func() T) (result T) {
	defer func() {
		if recover() != nil {
			result = answer
		}
	}()
	return fn()
}
