package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/internal/mcpcontent"
	"github.com/kitbag-go/kitbag/message"
)

// An Elicitation is a server's question to the person: a form to fill in, or
// a page to visit.
type Elicitation struct {
	Server  string
	Message string
	Schema  json.RawMessage // JSON Schema of the form, a flat object; nil for a page
	URL     string          // the page; empty for a form
	ID      string          // of a page: what the server will call it
}

// An Action is what a person did about a question.
type Action string

// The actions.
const (
	Accept  Action = "accept"
	Decline Action = "decline"
	Cancel  Action = "cancel" // neither: the question was closed, or nobody was there
)

// An ElicitationAnswer answers an [Elicitation]. Content is the filled form,
// with Accept only; fields that are missing get the defaults of the schema.
type ElicitationAnswer struct {
	Action  Action
	Content map[string]any
}

// A SampleRequest is a server's wish to use the host's model.
type SampleRequest struct {
	Server      string
	Messages    []*message.Message
	System      string
	MaxTokens   int
	Temperature *float64
	Stop        []string
	Hints       []string // model names the server would like, best first
}

// A SampleAnswer is what the model said. StopReason is "endTurn", "maxTokens"
// or "stopSequence"; empty is "endTurn".
type SampleAnswer struct {
	Model      string
	Text       string
	StopReason string
}

// questionTimeout ends a question over legacy HTTP before mcp-go does: it gives
// up after 30 s without an answer, and then the server waits for ever.
const questionTimeout = 25 * time.Second

// A hub answers what servers ask of the client. There is one for each client,
// so that the budget for samples outlives a connection: a server cannot get
// another one by crashing.
type hub struct {
	cfg     *Config
	samples atomic.Int64
}

// capabilities returns what may be asked. Over SSE nothing: mcp-go has no way
// to answer there.
func (h *hub) capabilities(kind Transport) map[string]any {
	caps := map[string]any{}
	if kind == SSE {
		return caps
	}
	if h.cfg.Elicit != nil {
		caps["elicitation"] = map[string]any{"form": map[string]any{}, "url": map[string]any{}}
	}
	if h.cfg.Sample != nil {
		caps["sampling"] = map[string]any{}
	}
	if h.cfg.Roots != nil {
		caps["roots"] = map[string]any{}
	}
	return caps
}

// serve answers one request.
func (h *hub) serve(ctx context.Context, kind Transport, method string, params json.RawMessage) (json.RawMessage, error) {
	if kind == HTTP {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, questionTimeout)
		defer cancel()
	}
	answer, err := h.answer(ctx, method, params)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

func (h *hub) answer(ctx context.Context, method string, params json.RawMessage) (any, error) {
	switch {
	case method == "ping":
		return struct{}{}, nil
	case method == "elicitation/create" && h.cfg.Elicit != nil:
		return h.elicit(ctx, params)
	case method == "sampling/createMessage" && h.cfg.Sample != nil:
		return h.sample(ctx, params)
	case method == "roots/list" && h.cfg.Roots != nil:
		return h.roots()
	}
	return nil, &CallError{Server: h.cfg.Name, Method: method, Code: codeMethodNotFound, Message: "this client does not offer " + method}
}

func (h *hub) elicit(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		Message string          `json:"message"`
		Schema  json.RawMessage `json:"requestedSchema"`
		URL     string          `json:"url"`
		ID      string          `json:"elicitationId"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, fmt.Errorf("elicitation/create: %w", err)
	}
	q := Elicitation{Server: h.cfg.Name, Message: p.Message, Schema: p.Schema, URL: p.URL, ID: p.ID}
	if q.URL != "" {
		if u, err := url.Parse(q.URL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			return nil, fmt.Errorf("elicitation/create: %q is not a web page", q.URL)
		}
	}
	a, err := h.cfg.Elicit(ctx, q)
	if ctx.Err() != nil {
		return map[string]any{"action": Cancel}, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string]any{"action": a.Action}
	if a.Action == Accept && q.URL == "" {
		out["content"] = withDefaults(q.Schema, a.Content)
	}
	return out, nil
}

// withDefaults fills in what the person left out and the schema has a default
// for.
func withDefaults(schema json.RawMessage, content map[string]any) map[string]any {
	var s struct {
		Properties map[string]struct {
			Default any `json:"default"`
		} `json:"properties"`
	}
	out := map[string]any{}
	if json.Unmarshal(schema, &s) == nil {
		for name, p := range s.Properties {
			if p.Default != nil {
				out[name] = p.Default
			}
		}
	}
	for name, v := range content {
		out[name] = v
	}
	return out
}

func (h *hub) sample(ctx context.Context, params json.RawMessage) (any, error) {
	if h.samples.Add(1) > int64(h.cfg.MaxSamples) {
		return nil, fmt.Errorf("sampling/createMessage: the server has used its %d samples", h.cfg.MaxSamples)
	}
	var p struct {
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		System      string   `json:"systemPrompt"`
		MaxTokens   int      `json:"maxTokens"`
		Temperature *float64 `json:"temperature"`
		Stop        []string `json:"stopSequences"`
		Preferences struct {
			Hints []struct {
				Name string `json:"name"`
			} `json:"hints"`
		} `json:"modelPreferences"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, fmt.Errorf("sampling/createMessage: %w", err)
	}
	req := SampleRequest{Server: h.cfg.Name, System: p.System, MaxTokens: p.MaxTokens, Temperature: p.Temperature, Stop: p.Stop}
	for _, hint := range p.Preferences.Hints {
		req.Hints = append(req.Hints, hint.Name)
	}
	for _, m := range p.Messages {
		role := message.RoleUser
		if m.Role == "assistant" {
			role = message.RoleAssistant
		}
		req.Messages = append(req.Messages, &message.Message{Role: role, Blocks: blocks(m.Content)})
	}
	a, err := h.cfg.Sample(ctx, req)
	if err != nil {
		return nil, err
	}
	if a.StopReason == "" {
		a.StopReason = "endTurn"
	}
	return map[string]any{
		"role": "assistant", "model": a.Model, "stopReason": a.StopReason,
		"content": map[string]any{"type": "text", "text": a.Text},
	}, nil
}

// blocks reads one content object or a list of them.
func blocks(raw json.RawMessage) message.Blocks {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		list = []json.RawMessage{raw}
	}
	var out message.Blocks
	for _, item := range list {
		out = append(out, mcpcontent.Block(item))
	}
	return out
}

func (h *hub) roots() (any, error) {
	roots := []map[string]any{}
	for _, dir := range h.cfg.Roots {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, errors.New("roots/list: a working directory cannot be named")
		}
		u := url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}
		roots = append(roots, map[string]any{"uri": u.String(), "name": filepath.Base(abs)})
	}
	return map[string]any{"roots": roots}, nil
}
