// Package model is the interface to a language model.
//
// A [Model] answers a [Request] with a stream of chunks: deltas of text,
// thinking and tool calls, then one [*Finish]. [Collect] joins a stream into a
// message:
//
//	msg, fin, err := model.Collect(m.Generate(ctx, &model.Request{
//		Messages: []*message.Message{message.User("Hello")},
//	}))
//
// Package openai speaks to real models; package scripted plays written turns,
// for tests and for running offline.
//
// # Failures
//
// A model reports a failed call as an [*Error] and does not retry it; the error's kind
// says whether that may help. It may be wrapped: errors.AsType[*model.Error](err) finds it. Package middleware has models that call others: again, after a
// failure, another one in its place, or later. Use [As] to find the name and the window of a
// model that is wrapped.
//
// # A model of one's own
//
// A model is one method. The example of [Model] speaks to a server: it yields the pieces of an answer
// and a Finish with the usage, and reports failures with package httperror. Package modeltest tests
// what is said at [Model].
//
// # Tools that are told late
//
// A request has a list of tools, which changes when an agent opens a group. A model that can be
// told of the change at the end of the conversation, where it does not cost the provider's prompt
// cache, is a [Revealer]: see [Reveal].
package model

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// A Model answers requests. It must be safe for concurrent use.
type Model interface {
	// Generate answers a request. The sequence may be ranged once; the request
	// is sent when it is. It yields deltas and then exactly one [*Finish], or
	// ends with an error, which is an [*Error] if the cause is known. Nothing follows
	// either: callers take a chunk after the Finish for a fault of the model, and fail.
	// Breaking out of the loop, or ending the context, cancels the request.
	Generate(ctx context.Context, req *Request) iter.Seq2[Chunk, error]
}

// Named is implemented by models that have a name, such as "gpt-5".
type Named interface{ Name() string }

// Served is implemented by models behind a server: the name or address of its host, and the port.
type Served interface {
	Server() (host string, port int)
}

// Windowed is implemented by models that know the size of their context
// window, in tokens; 0 if it is not configured. Without it the agent assumes its
// own default.
type Windowed interface{ ContextWindow() int }

// A Request is one call of a model. A model must not change it, nor what it points to.
type Request struct {
	System   string             // the system prompt; empty for none
	Messages []*message.Message // immutable; a later request of the same conversation repeats the pointers

	// Tools are what the model may call. Digest identifies the list: equal
	// digests mean equal lists, so that a client may keep the bytes it encoded.
	Tools  []tool.Info
	Digest string

	// Reveal says how the list came about, for a [Revealer]; nil if nothing was changed.
	Reveal *Reveal

	Choice      ToolChoice // the zero value leaves it to the model
	MaxTokens   int        // of the answer; 0 means the model's own limit
	Temperature *float64   // nil means the model's own default

	// Output asks for an answer that is JSON of this schema; nil for free text.
	Output *OutputSchema

	// Extra holds further members of the request's JSON object, for parameters that
	// this type lacks. They override its fields; null removes a member.
	Extra map[string]json.RawMessage
}

// OutputSchema names a JSON Schema for the model's answer.
type OutputSchema struct {
	Name   string
	Schema json.RawMessage
	Strict bool
}

// ToolChoice says whether the model must call a tool.
type ToolChoice struct {
	Mode ChoiceMode
	Name string // with ChoiceNamed: the tool it must call
}

// ChoiceMode is the kind of a ToolChoice.
type ChoiceMode string

// The choices.
const (
	ChoiceAuto     ChoiceMode = ""         // the model decides
	ChoiceNone     ChoiceMode = "none"     // no tool
	ChoiceRequired ChoiceMode = "required" // some tool
	ChoiceNamed    ChoiceMode = "named"    // the tool called Name
)

// A Chunk is a piece of an answer: a [*TextDelta], [*ThinkingDelta],
// [*ToolCallDelta], [*DataBlock] or [*Finish]. The set is closed.
type Chunk interface{ chunk() }

// TextDelta is more text.
type TextDelta struct{ Text string }

// ThinkingDelta is more reasoning. Extra, where not nil, is a JSON object that
// must be sent back with it; later members replace earlier ones. A delta of
// Extra alone belongs to the last thinking of the answer, even if text or calls
// followed it.
type ThinkingDelta struct {
	Text  string
	Extra json.RawMessage
}

// ToolCallDelta is a piece of a tool call. Pieces of parallel calls may
// interleave: Index identifies the call, counted from 0 in order of appearance.
// ID and Name come complete, once each, in the first piece that has them; Args is
// the next part of the arguments' JSON text.
type ToolCallDelta struct {
	Index int
	ID    string
	Name  string
	Args  string
	Extra json.RawMessage // must be sent back with the call
}

// DataBlock is a complete picture or other file that the model made.
type DataBlock struct{ Data *message.Data }

// Finish ends an answer.
type Finish struct {
	Reason FinishReason
	Usage  message.Usage
	Model  string // the server's name of the model that answered
	ID     string // the server's id of the answer
}

func (*TextDelta) chunk()     {}
func (*ThinkingDelta) chunk() {}
func (*ToolCallDelta) chunk() {}
func (*DataBlock) chunk()     {}
func (*Finish) chunk()        {}

// FinishReason says why an answer ended.
type FinishReason string

// The reasons. A server's other reasons are kept as they are.
const (
	FinishStop      FinishReason = "stop"
	FinishToolCalls FinishReason = "tool_calls"
	FinishLength    FinishReason = "length"         // the answer was cut off
	FinishFilter    FinishReason = "content_filter" // the server withheld the rest
)
