package scripted

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kitbag-go/kitbag/model"
)

// A Turn is the model's answer to one request. [Say], [Call], [Think], [Fail], [Func] and [Repeat] create turns;
// [Turn.And] and [Turn.Expect] combine them. Turns are values and may be used more than once.
type Turn struct {
	parts  []part
	checks []func(*model.Request) error
	repeat bool
}

// A part is a piece of an answer; exactly one field is set.
type part struct {
	text, thinking *string
	call           *call
	err            error
	fn             func(*model.Request) (Turn, error)
}

// A call is a tool call to play.
type call struct {
	name string
	args json.RawMessage
}

// Say answers with text.
func Say(text string) Turn { return Turn{parts: []part{{text: &text}}} }

// Think answers with reasoning; combine it with text or calls.
func Think(text string) Turn { return Turn{parts: []part{{thinking: &text}}} }

// Call answers with a tool call. The arguments are encoded as JSON, nil as {}; a json.RawMessage is sent unchanged,
// even if it is not valid JSON, to play a model that makes mistakes. Call panics if the arguments cannot be encoded.
func Call(tool string, args any) Turn {
	var raw json.RawMessage
	switch args := args.(type) {
	case nil:
		raw = json.RawMessage("{}")
	case json.RawMessage:
		raw = args
	default:
		var err error
		if raw, err = json.Marshal(args); err != nil {
			panic(fmt.Sprintf("scripted.Call(%q): arguments: %v", tool, err))
		}
	}
	return Turn{parts: []part{{call: &call{tool, raw}}}}
}

// Fail ends the request with an error; after other parts, it fails in the middle of the
// answer. Use a [*model.Error] for a server's error.
func Fail(err error) Turn { return Turn{parts: []part{{err: err}}} }

// Func computes the turn from the request. An error fails the request.
func Func(fn func(*model.Request) (Turn, error)) Turn { return Turn{parts: []part{{fn: fn}}} }

// Repeat plays turn for every further request. It must come last.
func Repeat(turn Turn) Turn {
	turn.repeat = true
	return turn
}

// And returns t with the parts of the other turns after its own, all in one
// answer: Say("Both at once.").And(Call("a", nil), Call("b", nil)).
func (t Turn) And(others ...Turn) Turn {
	t.parts, t.checks = slices.Clone(t.parts), slices.Clone(t.checks)
	for _, o := range others {
		t.parts = append(t.parts, o.parts...)
		t.checks = append(t.checks, o.checks...)
	}
	return t
}

// Expect returns t with checks of the request. The first error fails the request, and the test of [Test].
// [LastContains] and [HasTools] are predefined checks.
func (t Turn) Expect(checks ...func(*model.Request) error) Turn {
	t.checks = append(slices.Clone(t.checks), checks...)
	return t
}
