package host

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/kitbag-go/kitbag/message"
)

// A Host is whoever runs a call and answers what comes up during it. It must be
// safe for concurrent use, and comparable, as pointers are: equal hosts act for
// the same person in the same conversation. Where it cannot be told which of
// several calls a question belongs to, it is asked only if all of them have the
// same host, so that nobody sees the questions of somebody else.
type Host interface {
	// Elicit puts a question to the person for whom the call runs, and returns
	// what they did about it. It waits for them as long as ctx lives. Where
	// nobody can be asked the answer is [Cancel], without an error.
	Elicit(ctx context.Context, q Elicitation) (Answer, error)

	// Sample has the host's model answer. The error wraps [ErrRefused] if a
	// person, a rule or a budget is against it.
	Sample(ctx context.Context, r SampleRequest) (Sample, error)
}

// ErrRefused says that the host does not want to do what it was asked for.
var ErrRefused = errors.New("refused by the host")

type hostKey struct{}

// With returns a context for a call that h runs.
func With(ctx context.Context, h Host) context.Context {
	return context.WithValue(ctx, hostKey{}, h)
}

// From returns the host that runs the call, the innermost if there are several,
// or nil.
func From(ctx context.Context) Host {
	h, _ := ctx.Value(hostKey{}).(Host)
	return h
}

// An Elicitation is a server's question to the person: a form to fill in, or a
// page to visit.
type Elicitation struct {
	Server  string          // who asks
	Message string          // plain text of the server's
	Schema  json.RawMessage // JSON Schema of the form, an object of flat fields; nil for a page
	URL     string          // the page; empty for a form
	ID      string          // of a page: what the server calls it; may be empty
}

// An Action is what a person did about a question.
type Action string

// The actions.
const (
	Accept  Action = "accept"
	Decline Action = "decline"
	Cancel  Action = "cancel" // neither: the question was closed, or nobody was there
)

// An Answer answers an [Elicitation]. Content is the filled form, with Accept
// only; a number in it is a float64, or a [json.Number] if that would not be exact,
// from 2^53 on. To accept a page is to agree to visit it, not to have done so.
type Answer struct {
	Action  Action
	Content map[string]any
}

// A SampleRequest is a server's wish to use the host's model.
type SampleRequest struct {
	Server      string
	Messages    []*message.Message
	System      string   // the system prompt that the server would like
	MaxTokens   int      // of the answer; 0 is up to the host
	Temperature *float64 // nil is up to the host
	Stop        []string
	Hints       []string // model names that the server would like, best first
}

// A Sample is what the model said. StopReason is "endTurn", "maxTokens" or
// "stopSequence"; empty is "endTurn".
type Sample struct {
	Model      string
	Text       string
	StopReason string
}
