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
	// ended or yield returned false. To run a tool use [Run], which recovers from panics and abandons tools that do not end.
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
	External bool `json:"external,omitempty"`  // is run by the host program, which gets the call
	Control  bool `json:"control,omitempty"`   // only steers the agent; see [permission.Call]

	// Annotations is the JSON object of MCP annotations that a server sent, to pass on when the tool is served again. They
	// are unverified and have no other use here.
	Annotations json.RawMessage `json:"annotations,omitempty"`
}

// A Call is one call of a tool. Input is valid against the tool's schema.
type Call struct {
	ID    string
	Name  string
	Input json.RawMessage

	// Judgement is from the [permission.Decision] that allowed the call. Right before the tool runs, [Run] checks that the
	// Judgement is about Name and Input. If both Judgement and Judge are nil the call runs without a check.
	Judgement *permission.Judgement

	// Judge decides again about a call that middleware has changed, and returns an error unless the call may run. If Judge
	// is nil a changed call fails. Run may call Judge from another goroutine.
	Judge func(context.Context, Tool, Call) (*permission.Judgement, error)

	// Key is the idempotency key of a call that may be repeated, as the tool's [IdempotentChecker] says, else empty. A
	// repetition has the same key, and any two other calls have different keys. A function gets it with [CallFrom].
	Key string
}

// A Chunk is a piece of a result: new text or data for the model, or facts about the result as a whole.
//
// Block is a [*message.Text] or a [*message.Data], or nil. Pieces with the same non-empty block id belong
// together: text is appended, data joined. ForUser sends the block to the user, not to the model.
type Chunk struct {
	Block      message.Block
	ForUser    bool
	Failed     bool                       // the call failed, if any chunk says so
	Pinned     bool                       // the result must never be cut, such as instructions, if any chunk says so
	Structured json.RawMessage            // the result as JSON; the last chunk with Structured counts
	Meta       map[string]json.RawMessage // merged; a later chunk overrides a key

	// Progress, unless nil, reports the progress of the call, with or without a Block. It is not part of the result.
	Progress *Progress
}

// Progress is the progress of a call, as in MCP: Done increases from chunk to chunk, Total is 0 if unknown.
type Progress struct {
	Done    float64 `json:"done"`
	Total   float64 `json:"total,omitempty"`
	Message string  `json:"message,omitempty"`
}

// Text returns a chunk of text for the model.
func Text(s string) Chunk { return Chunk{Block: &message.Text{Text: s}} }

// A Source lists tools that are not known when the program is built, such as
// the tools of an MCP server. Listing may take long; callers cache the list.
type Source interface {
	Tools(ctx context.Context) ([]Tool, error)
}

// ErrAbort is wrapped by a tool's error to end the whole run: for failures that no other call can fix, such as an expired
// licence. Other errors become results for the model.
var ErrAbort = errors.New("abort the run")

// The capabilities, which a tool may also implement. Their methods get arguments that fit the schema, and are called
// from several goroutines. They must not panic on other arguments either; package tooltest checks that.

// A Judge describes calls of its tool to the permission engine. It may set ReadOnly, Borrows and Checker of c. The other
// fields come from [Info]. The Judge of a wrapper gets c after the Judges of the tools inside. If it adds a check, its
// Checker embeds the Checker that c has:
//
//	func (w guarded) Judge(c *permission.Call) { c.Checker = guard{c.Checker} }
//
// A Judge that depends on the outside world, such as the targets of links, must read that state once, so that all methods
// of the Checker use the same state. Without a Judge only rules without a pattern, Info.ReadOnly and the mode decide.
type Judge interface {
	Judge(c *permission.Call)
}

// An IdempotentChecker reports whether a call may be repeated after the program stopped while the call ran. A repetition
// must have no further effect, by its nature or because a service deduplicates by [Call.Key]. Calls of a tool without
// an IdempotentChecker are never repeated.
type IdempotentChecker interface {
	CheckIdempotent(input json.RawMessage) bool
}

// A Backgrounder says after how long a call may move to the background while the model continues, if the agent
// supports that: 0 for at once, negative for never. Without a Backgrounder the agent decides.
type Backgrounder interface {
	Background(input json.RawMessage) time.Duration
}

// A Previewer returns what a call would do, such as a unified diff, before the user is asked to allow the call. It changes
// nothing. If the text is empty, or without a Previewer, the user sees the arguments. An error means that the call
// would fail: the user is not asked. The model gets the error although the call was not allowed, so the error must
// not reveal anything new.
type Previewer interface {
	Preview(ctx context.Context, input json.RawMessage) (string, error)
}

// Preview calls the [Previewer] of t. Without a Previewer, or if it panics, Preview returns no text and no error.
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
	text, err = p.Preview(ctx, input)
	if err != nil {
		_ = err.Error() // may panic, as for a nil pointer
	}
	return text, err
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
	return *new(C), false
}

// PermissionCall describes a call of t for [permission.Decide]. The input must be what [Arguments] returned. If a
// [Judge] panics, the call counts as not read-only, and the user must be asked whatever the allow rules say.
func PermissionCall(t Tool, input json.RawMessage) (c *permission.Call) {
	info := t.Info()
	c = &permission.Call{Tool: info.Name, Input: input, Control: info.Control, ReadOnly: info.ReadOnly, Checker: permission.BaseChecker{}}
	defer func() {
		if recover() != nil {
			c.ReadOnly, c.Checker = false, panickedChecker{}
		}
		c.Tool, c.Input, c.Control = info.Name, input, info.Control // a Judge may not change these
	}()
	judge(t, c, 1)
	return c
}

// judge calls every Judge in the chain of t, the innermost first. It panics if the chain is too long: skipping the
// innermost Judges could allow the call.
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

// panickedChecker is the Checker of a call whose Judge panicked. The user must be asked, as allow rules do not override a
// safety ask. Deny rules with a pattern cover the call.
type panickedChecker struct{ permission.BaseChecker }

func (panickedChecker) Check(*permission.Policy) permission.Verdict {
	return permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: "the tool cannot judge this call"}
}

// AnyCall describes an example of a call of t, for [permission.Policy.Check]. The arguments fit the schema, or are nil if
// no such arguments are found; then the call matches no pattern.
func AnyCall(t Tool) *permission.Call {
	info := t.Info()
	v := validators.get(info.Input)
	var args Args
	err := v.err
	if err == nil {
		args, err = v.arguments(info.Name, json.RawMessage(v.example())) // an empty example is read as {}, which may fit
	}
	c := PermissionCall(t, args.JSON)
	if err != nil {
		c.Checker = unknownInputChecker{c.Checker}
	}
	return c
}

// unknownInputChecker is the Checker of a call whose arguments are not known. Its Match only tells whether the tool takes
// patterns.
type unknownInputChecker struct{ permission.Checker }

func (u unknownInputChecker) Match(p *permission.Policy, r permission.Rule) (bool, error) {
	if _, err := u.Checker.Match(p, r); errors.Is(err, permission.ErrNoPatterns) {
		return false, err
	}
	return false, nil
}
