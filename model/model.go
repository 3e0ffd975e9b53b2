// Package model is the interface to a language model.
//
// A [Model] answers a [Request] with a stream of chunks: deltas of text, thinking and tool calls, then one [*Finish].
// [Collect] joins a stream into a message:
//
//	msg, fin, err := model.Collect(m.Generate(ctx, &model.Request{
//		Messages: []*message.Message{message.User("Hello")},
//	}))
//
// Packages openai and anthropic call real models; package scripted plays prepared turns, for tests and for running
// offline.
//
// # Failures
//
// A model reports a failed call as an [*Error] and does not retry the call; the error's kind says whether a retry may
// help. The error may be wrapped: errors.AsType[*model.Error](err) finds it. Package middleware has models that call other models:
// they retry, fall back to another model, or wait. Use [As] to get the name and the window of a decorated model.
//
// # Writing a model
//
// A model is one method. The example of [Model] calls a server: it yields the pieces of an answer
// and a Finish with the usage, and reports failures with package httperror. Package modeltest tests
// the contract that [Model] documents.
//
// # Changing tools
//
// A request has a list of tools, which changes when an agent opens a group. The provider's prompt cache remains valid if
// the change is announced at the end of the conversation. A model for which this is possible is a [Revealer]: see [Reveal].
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
	// Generate answers a request. The sequence may be ranged once; ranging sends the request. It yields deltas and
	// then exactly one [*Finish], or ends with an error, which is an [*Error] if the cause is known. Nothing follows
	// either: callers treat a chunk after the Finish as an error of the model. Breaking out of the loop, or ending
	// the context, cancels the request.
	Generate(ctx context.Context, req *Request) iter.Seq2[Chunk, error]
}

// Named is implemented by models that have a name, such as "gpt-5".
type Named interface{ Name() string }

// Served is implemented by models behind a server. Server returns the name or address of its host, and the port.
type Served interface {
	Server() (host string, port int)
}

// Windowed is implemented by models that know the size of their context window, in tokens; 0 means unknown. Without
// it the agent assumes a default.
type Windowed interface{ ContextWindow() int }

// A Request is one call of a model. A model must not change it, nor what it points to.
type Request struct {
	System   string             // the system prompt; empty for none
	Messages []*message.Message // immutable; a later request of the same conversation repeats the pointers

	// Tools are the tools that the model may call. Digest identifies the list: equal
	// digests mean equal lists, so that a client may cache the encoded list.
	Tools  []tool.Info
	Digest string

	// Reveal describes how the list has changed, for a [Revealer]; nil if it has not.
	Reveal *Reveal

	Choice      ToolChoice // the zero value lets the model decide
	MaxTokens   int        // of the answer; 0 means the model's own limit
	Temperature *float64   // nil means the model's own default

	// Output requires an answer that is JSON of this schema; nil means free text.
	Output *OutputSchema

	// Extra has additional members of the request's JSON object, for parameters that
	// this type lacks. They override its fields; null removes a member.
	Extra map[string]json.RawMessage
}

// OutputSchema names a JSON Schema for the model's answer.
type OutputSchema struct {
	Name   string
	Schema json.RawMessage
	Strict bool // asks OpenAI to enforce the schema, which must then be in the part of JSON Schema that OpenAI enforces
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

// ThinkingDelta is more reasoning. Extra, if not nil, is a JSON object that must be sent back with the reasoning; later
// members replace earlier ones. A delta with only an Extra belongs to the last reasoning of the answer, even if text or
// calls follow that reasoning.
type ThinkingDelta struct {
	Text  string
	Extra json.RawMessage
}

// ToolCallDelta is a piece of a tool call. Pieces of parallel calls may interleave: Index identifies the call,
// counted from 0 in order of appearance. ID and Name come complete, once each, in the first piece that has them; Args
// is the next part of the arguments' JSON text.
type ToolCallDelta struct {
	Index int
	ID    string
	Name  string
	Args  string
	Extra json.RawMessage // must be sent back with the call
}

// DataBlock is a complete image or other file that the model made.
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
