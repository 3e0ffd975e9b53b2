package host

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/kitbag-go/kitbag/message"
)

// A Host answers the requests that a tool makes during a call. It must be safe for concurrent use, and comparable, as
// pointers are: equal hosts act for the same user in the same conversation. An MCP client that cannot tell to which of
// several calls a server's request belongs forwards it only if all of them have the same host, so that no user sees
// another user's questions.
type Host interface {
	// Elicit puts a question to the user for whom the call runs, and waits for the answer until ctx ends. If no user can
	// be asked the answer is [ActionCancel], without an error.
	Elicit(ctx context.Context, q Elicitation) (Answer, error)

	// Sample returns an answer of the host's model. The error wraps [ErrRefused] if
	// the user, a rule or a budget forbids it.
	Sample(ctx context.Context, r SampleRequest) (Sample, error)
}

// ErrRefused means that the host declined the request.
var ErrRefused = errors.New("refused by the host")

type hostKey struct{}

// With returns a context for a call that h runs.
func With(ctx context.Context, h Host) context.Context {
	return context.WithValue(ctx, hostKey{}, h)
}

// From returns the host in ctx, the innermost if there are several, or nil.
func From(ctx context.Context) Host {
	h, _ := ctx.Value(hostKey{}).(Host)
	return h
}

// An Elicitation is a server's question to the user: a form to fill in, or a page to visit.
type Elicitation struct {
	Server  string          // the server that asks
	Message string          // plain text, written by the server
	Schema  json.RawMessage // JSON Schema of the form, an object of flat fields; nil for a page
	URL     string          // the page; empty for a form
	ID      string          // MCP's elicitationId of a page; may be empty
}

// An Action is how the user reacted to a question.
type Action string

// The actions.
const (
	ActionAccept  Action = "accept"
	ActionDecline Action = "decline"
	ActionCancel  Action = "cancel" // neither: the question was closed, or there was no user to ask
)

// An Answer answers an [Elicitation]. Content is the filled form, with ActionAccept only. Its numbers are float64, or
// [json.Number] from 2^53 on, where a float64 is not exact. To accept a page is to agree to visit it.
type Answer struct {
	Action  Action
	Content map[string]any
}

// A SampleRequest is a server's request for an answer of the host's model.
type SampleRequest struct {
	Server      string
	Messages    []*message.Message
	System      string   // the system prompt that the server suggests
	MaxTokens   int      // of the answer; 0 leaves it to the host
	Temperature *float64 // nil leaves it to the host
	Stop        []string // sequences that end the answer
	Hints       []string // model names that the server prefers, best first
}

// A Sample is the model's answer. StopReason is "endTurn", "maxTokens" or "stopSequence"; empty is "endTurn".
type Sample struct {
	Model      string
	Text       string
	StopReason string
}
