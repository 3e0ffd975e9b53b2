package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool/host"
)

// capabilities are the questions that a client has declared to answer.
type capabilities struct{ Form, URL, Sampling, Roots bool }

// capabilitiesOf decodes the capabilities of a client. An empty elicitation capability means forms, the
// only mode before revision 2025-11-25.
func capabilitiesOf(declared json.RawMessage) (c capabilities) {
	var caps struct {
		Elicitation map[string]json.RawMessage `json:"elicitation"`
		Sampling    map[string]json.RawMessage `json:"sampling"`
		Roots       map[string]json.RawMessage `json:"roots"`
	}
	if strictjson.Unmarshal(declared, &caps) != nil {
		return c
	}
	_, c.Form = caps.Elicitation["form"]
	_, c.URL = caps.Elicitation["url"]
	c.Form = c.Form || caps.Elicitation != nil && len(caps.Elicitation) == 0
	c.Sampling, c.Roots = caps.Sampling != nil, caps.Roots != nil
	return c
}

// A clientHost is the [host.Host] of calls: it sends requests to the client. A session has one clientHost,
// because it has one user; without sessions each call has its own.
type clientHost struct {
	declared func() capabilities

	// ask sends a request to the client and waits for its answer. The key, which may be empty, identifies the question
	// within a call.
	ask func(ctx context.Context, key, method string, params any) (json.RawMessage, error)

	mu      sync.Mutex
	missing object // capabilities that a question needed but the client has not declared
}

// errCannotAsk is the error of a question if there is no connection to send it on.
var errCannotAsk = errors.New("the client cannot receive requests on this connection")

// Elicit asks the user of the client. If the client cannot ask, the answer is Cancel, as the Host interface requires.
func (h *clientHost) Elicit(ctx context.Context, q host.Elicitation) (host.Answer, error) {
	if err := q.Check(); err != nil {
		return host.Answer{}, err
	}
	q = q.Clean()
	declared, params := h.declared(), object{"message": q.Message}
	supported := declared.Form
	if q.Server != "" { // otherwise the client would attribute the question to this server
		params["message"] = fmt.Sprintf("[%s] %s", q.Server, q.Message)
	}
	if q.URL != "" {
		params["mode"], params["url"], params["elicitationId"] = "url", q.URL, q.ID
		supported = declared.URL
	} else {
		params["mode"], params["requestedSchema"] = "form", q.Schema
	}
	if !supported {
		return host.Answer{Action: host.ActionCancel}, nil
	}
	raw, err := h.ask(ctx, q.ID, string(mcp.MethodElicitationCreate), params)
	if errors.Is(err, errCannotAsk) || errors.Is(err, wire.ErrEnded) {
		return host.Answer{Action: host.ActionCancel}, nil
	}
	if err != nil {
		return host.Answer{}, err
	}
	var got struct {
		Action  host.Action    `json:"action"`
		Content map[string]any `json:"content"`
	}
	if err := strictjson.Unmarshal(raw, &got); err != nil {
		return host.Answer{}, fmt.Errorf("the client's answer to an elicitation: %w", err)
	}
	switch got.Action {
	case host.ActionAccept:
		return q.Accept(exactNumbers(raw, got.Content)) // checks the content against the form
	case host.ActionDecline:
		return host.Answer{Action: host.ActionDecline}, nil
	}
	return host.Answer{Action: host.ActionCancel}, nil // also for an unknown action
}

// exactNumbers returns the content of the answer raw, in which numbers that a float64 may not represent are replaced by
// [json.Number], so that an account number of seventeen digits does not change.
func exactNumbers(raw json.RawMessage, content map[string]any) map[string]any {
	var literal struct {
		Content map[string]any `json:"content"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&literal) != nil {
		return content
	}
	for name, v := range literal.Content {
		n, number := v.(json.Number)
		f, float := content[name].(float64)
		if number && float && math.Abs(f) >= 1<<53 {
			content[name] = n
		}
	}
	return content
}

// defaultTokens is the largest number of tokens of a sample if the request does not set a limit; MCP requires a limit.
const defaultTokens = 1024

// Sample requests a sample from the client's model. The client must have declared the capability sampling.
func (h *clientHost) Sample(ctx context.Context, req host.SampleRequest) (host.Sample, error) {
	if !h.declared().Sampling {
		return host.Sample{}, h.recordMissing("sampling")
	}
	var messages []object
	for _, m := range req.Messages {
		messages = append(messages, messagesOf(m)...)
	}
	params := object{"messages": messages, "maxTokens": cmp.Or(req.MaxTokens, defaultTokens)}
	if req.System != "" {
		params["systemPrompt"] = req.System
	}
	if req.Temperature != nil {
		params["temperature"] = *req.Temperature
	}
	if len(req.Stop) > 0 {
		params["stopSequences"] = req.Stop
	}
	if len(req.Hints) > 0 {
		hints := make([]object, len(req.Hints))
		for i, name := range req.Hints {
			hints[i] = object{"name": name}
		}
		params["modelPreferences"] = object{"hints": hints}
	}
	raw, err := h.ask(ctx, "", string(mcp.MethodSamplingCreateMessage), params)
	if err != nil {
		return host.Sample{}, fmt.Errorf("%w: %w", host.ErrRefused, err)
	}
	return sampleOf(raw)
}

// sampleOf decodes a client's answer. It joins the texts of several pieces of content, and ignores other content.
func sampleOf(raw json.RawMessage) (host.Sample, error) {
	var got struct {
		Content json.RawMessage `json:"content"`
		Model   string          `json:"model"`
		Stop    string          `json:"stopReason"`
	}
	type piece struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	var pieces []piece
	err := strictjson.Unmarshal(raw, &got)
	// The content is one piece or, from 2025-11-25 on, a list.
	if err == nil && strictjson.Unmarshal(got.Content, &pieces) != nil {
		pieces = make([]piece, 1)
		err = strictjson.Unmarshal(got.Content, &pieces[0])
	}
	if err != nil {
		return host.Sample{}, fmt.Errorf("the client's sample: %w", err)
	}
	s := host.Sample{Model: got.Model, StopReason: got.Stop}
	for _, p := range pieces {
		if p.Type == "text" {
			s.Text += p.Text
		}
	}
	return s, nil
}

// messagesOf converts a message to MCP messages, which have one piece of content each.
func messagesOf(m *message.Message) (out []object) {
	role := message.RoleUser // MCP only has user and assistant
	if m.Role == message.RoleAssistant {
		role = m.Role
	}
	for _, b := range m.Blocks {
		if c := contentOf(b); c != nil {
			out = append(out, object{"role": role, "content": c})
		}
	}
	return out
}

// roots requests the client's roots.
func (h *clientHost) roots(ctx context.Context) ([]string, error) {
	if !h.declared().Roots {
		return nil, h.recordMissing("roots")
	}
	raw, err := h.ask(ctx, "", string(mcp.MethodListRoots), object{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", host.ErrRefused, err)
	}
	var got struct {
		Roots []struct {
			URI string `json:"uri"`
		} `json:"roots"`
	}
	if err := strictjson.Unmarshal(raw, &got); err != nil {
		return nil, fmt.Errorf("the client's roots: %w", err)
	}
	uris := make([]string, len(got.Roots))
	for i, r := range got.Roots {
		uris[i] = r.URI
	}
	return uris, nil
}

// recordMissing records a capability that the client has not declared, for [request.capabilityError], and returns the error.
func (h *clientHost) recordMissing(capability string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.missing == nil {
		h.missing = object{}
	}
	h.missing[capability] = object{}
	return fmt.Errorf("%w: the client has not declared the capability %q", host.ErrRefused, capability)
}

// Roots returns the URIs of the client's working directories, for a tool that is called over MCP. The error
// wraps [host.ErrRefused] if the client does not declare roots, or if the call was not received over MCP.
func Roots(ctx context.Context) ([]string, error) {
	h, ok := host.From(ctx).(*clientHost)
	if !ok {
		return nil, fmt.Errorf("%w: the call was not received from an MCP client", host.ErrRefused)
	}
	return h.roots(ctx)
}

type (
	responderKey struct{}
	sessionKey   struct{}
)

// SessionDone returns a channel that is closed when the session of a call ends, for a tool that keeps data for
// a session. All calls of a session get the same channel, so it can be the key of a map. For clients without
// sessions, as from protocol 2026-07-28 on, it is closed when the call ends.
func SessionDone(ctx context.Context) <-chan struct{} {
	if s, ok := ctx.Value(sessionKey{}).(context.Context); ok {
		return s.Done()
	}
	return ctx.Done()
}
