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

	// Call returns the pieces of the result, in order. The tool starts when the sequence is ranged over, which may be
	// done once. An error ends the sequence and becomes an error result. The sequence should end soon after the context
	// ended or yield returned false. Use [Run] instead of Call: Run recovers from panics and abandons tools that do not end.
	Call(ctx context.Context, call Call) iter.Seq2[Chunk, error]
}

// Info describes a tool.
type Info struct {
	Name        string          `json:"name"` // 1-64 letters, digits, "_", "-" and "."
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"input_schema"`            // JSON Schema of an object
	Output      json.RawMessage `json:"output_schema,omitempty"` // JSON Schema of the structured result, if there is one

	ReadOnly bool `json:"read_only,omitempty"` // claims to change nothing, with any arguments
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

	// Judgement is from the [permission.Decision] that allowed the call. Right before the tool runs, [Run]
	// checks that it is about Name and Input. If both Judgement and Judge are nil the call runs without a check.
	Judgement *permission.Judgement

	// Judge decides again about a call that middleware has changed, and returns an error unless it may run.
	// Without it such a call fails. Run may call it from another goroutine.
	Judge func(context.Context, Tool, Call) (*permission.Judgement, error)

	// Key is the idempotency key of the call, if its [IdempotentChecker] says that it may be repeated. It is the
	// same each time the call is made, and differs between any two calls. A function gets it with [CallFrom].
	Key string
}

// A Chunk is a piece of a result: new text or data for the model, or facts about the result as a whole.
//
// Block is a [*message.Text] or a [*message.Data], or nil. Pieces with the same non-empty block id belong
// together: text is appended, data joined. ForUser sends the block to the user, not to the model.
type Chunk struct {
	Block      message.Block
	ForUser    bool
	Failed     bool                       // the call failed; sticky
	Pinned     bool                       // the result must never be cut, as instructions must not; sticky
	Structured json.RawMessage            // the result as JSON; the last one counts
	Meta       map[string]json.RawMessage // merged, later keys win

	// Progress, unless nil, reports the progress of the call, with or without a Block. It is not part of the result.
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
// those of an MCP server. Tools may take long; callers cache its result.
type Source interface {
	Tools(ctx context.Context) ([]Tool, error)
}

// ErrAbort, wrapped by a tool's error, ends the whole run instead of becoming a result for the model: for failures
// that no other call can fix, such as an expired licence.
var ErrAbort = errors.New("abort the run")

// The capabilities. All of them are called with arguments that fit the schema, and, like a tool, from several
// goroutines. They must not panic on other arguments either; package tooltest checks that.

// A Judge describes its calls to the permission engine. It may set ReadOnly, Borrows and
// Checker of c, which has been filled from [Info] and, for a wrapper, by the Judges of the
// tools inside. A wrapper that adds a check embeds the Checker that it finds in its own:
//
//	func (w guarded) Judge(c *permission.Call) { c.Checker = guard{c.Checker} }
//
// A tool whose answer depends on the outside world, such as the targets of links, must
// check it once, so that all answers about the call are about the same state. Without a Judge only
// rules without a pattern, Info.ReadOnly and the mode decide.
type Judge interface {
	Judge(c *permission.Call)
}

// An IdempotentChecker reports whether a call may be repeated if it is unknown whether it took effect, because the
// program was stopped in the meantime. The second call must then have no further effect, by its nature or because
// a service deduplicates by [Call.Key]. Without it a call is never repeated.
type IdempotentChecker interface {
	CheckIdempotent(input json.RawMessage) bool
}

// A Backgrounder says after how long a call may move to the background while the model continues, if the agent
// supports that: 0 for at once, negative for never. Without it the agent decides.
type Backgrounder interface {
	Background(input json.RawMessage) time.Duration
}

// A Previewer inspects a call before the user is asked to allow it, and changes nothing. It returns what the call
// would do, such as a unified diff; if that is empty, or without a Previewer, the user sees the arguments. An error
// means that the call would fail: the user is not asked. The model gets the error although the call was not allowed,
// so the error must not reveal anything new.
type Previewer interface {
	Preview(ctx context.Context, input json.RawMessage) (string, error)
}

// Preview calls t's [Previewer], if it has one. A panic counts as no text and no error.
func Preview(ctx context.Context, t Tool, input json.RawMessage) (text string, err error) {
	p, ok := As[Previewer](t)
	if !ok {
		return "", nil
	}
	defer func() {
		if recover() != nil {
			text, err = "", nil
		}
	}()
	return p.Preview(ctx, input)
}

// A Reminder returns a text that the model should read again after compaction removed
// it from the conversation, such as the open tasks. The context carries the state, see
// package [github.com/kitbag-go/kitbag/tool/toolstate]. An empty text adds nothing.
type Reminder interface {
	Remind(ctx context.Context) string
}

// As returns the first tool that implements C in the chain that starts at t
// and continues through Unwrap() Tool methods, like errors.As. It checks at most 100 tools.
func As[C any](t Tool) (C, bool) {
	for range maxWraps {
		if c, ok := t.(C); ok {
			return c, true
		}
		u, ok := t.(unwrapper)
		if !ok {
			break
		}
		t = u.Unwrap()
	}
	var none C
	return none, false
}

// PermissionCall describes a call of t for [permission.Decide]. The input must be what [Arguments] returned. If a
// [Judge] panics, the call counts as not read-only and needs a safety ask.
func PermissionCall(t Tool, input json.RawMessage) (c *permission.Call) {
	info := t.Info()
	c = &permission.Call{Tool: info.Name, Input: input, Control: info.Control, ReadOnly: info.ReadOnly, Checker: permission.BaseChecker{}}
	defer func() {
		if recover() != nil {
			c.ReadOnly, c.Checker = false, unjudged{}
		}
		c.Tool, c.Input, c.Control = info.Name, input, info.Control
	}()
	judge(t, c, 1)
	return c
}

// judge calls every Judge in the chain of t, the innermost first. It panics if the chain is too long, since
// there may be another Judge further in.
func judge(t Tool, c *permission.Call, depth int) {
	if depth > maxWraps {
		panic("a tool that unwraps to itself")
	}
	if u, ok := t.(unwrapper); ok {
		judge(u.Unwrap(), c, depth+1)
	}
	if j, ok := t.(Judge); ok {
		j.Judge(c)
	}
}

// unjudged is the Checker of a call whose Judge panicked. Allow rules do not override a
// safety ask, and deny rules with a pattern cover the call.
type unjudged struct{ permission.BaseChecker }

func (unjudged) Check(*permission.Policy) permission.Verdict {
	return permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: "the tool cannot judge this call"}
}

// AnyCall describes an example of a call of t, for [permission.Policy.Check]: its arguments
// fit the schema. If no example is known, patterns are not read.
func AnyCall(t Tool) *permission.Call {
	info := t.Info()
	v := validators.get(info.Input)
	input, err := json.RawMessage(nil), v.err
	if err == nil {
		args, why := v.arguments(info.Name, json.RawMessage(v.example())) // no example is read as {}, which may fit
		input, err = args.JSON, why
	}
	c := PermissionCall(t, input)
	if err != nil {
		c.Checker = anyInput{c.Checker}
	}
	return c
}

// anyInput is the Checker of a call whose arguments are not known.
type anyInput struct{ permission.Checker }

func (a anyInput) Match(p *permission.Policy, r permission.Rule) (bool, error) {
	if _, err := a.Checker.Match(p, r); errors.Is(err, permission.ErrNoPatterns) {
		return false, err
	}
	return false, nil
}
