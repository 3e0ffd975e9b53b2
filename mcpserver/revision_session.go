package mcpserver

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// This file has the revisions of the protocol before 2026-07-28, in which clients have sessions.

// newRequest returns a request of the session; out may be nil if nothing is sent before the answer.
func (c *session) newRequest(m *rpc.Message, out wire.Responder) *request {
	return &request{client: c.client, revision: c, msg: m, out: out, tk: c.cat.cfg.Toolkit, scope: c.state.Scope, log: c.log,
		notFoundCode: mcp.RESOURCE_NOT_FOUND}
}

// handle handles a message. For a request that was not cancelled it returns the answer, and the error in the answer, if any;
// otherwise nil.
func (c *session) handle(ctx context.Context, m *rpc.Message, out wire.Responder) ([]byte, *rpc.Error) {
	switch {
	case m.Method == "": // the client's answer to a question; an answer to no question is dropped
		if reply := c.questions.take(string(m.ID)); reply != nil {
			reply <- m
		}
		return nil, nil
	case m.ID == nil:
		c.handleNotification(m)
		return nil, nil
	case m.Method == string(mcp.MethodPing): // exempt from the limits, so that a busy server does not seem dead
		c.touch()
		return rpc.Answer(m.ID, object{}, nil), nil
	}
	return c.newRequest(m, out).serve(ctx, nil)
}

// handleNotification handles a notification. All except notifications/cancelled are ignored.
func (c *session) handleNotification(m *rpc.Message) {
	if m.Method != string(mcp.MethodNotificationCancelled) {
		return
	}
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	if m.Decode(&p) == nil {
		c.cancelRequest(string(p.ID))
	}
}

// method implements revision.
func (c *session) method(name string) handler {
	switch name {
	case "initialize":
		return c.initialize
	case "server/discover":
		return (*request).discover
	case "logging/setLevel":
		return c.setLevel
	case "resources/subscribe", "resources/unsubscribe":
		if c.cat.hasSubscriptions() {
			return c.subscribe
		}
	}
	return nil
}

// initialize selects the client's protocol revision if the server supports it, and otherwise the latest revision with a
// handshake.
func (c *session) initialize(r *request, ctx context.Context) (any, *rpc.Error) {
	var p struct {
		Version      string          `json:"protocolVersion"`
		Capabilities json.RawMessage `json:"capabilities"`
	}
	if err := r.msg.Decode(&p); err != nil {
		return nil, err
	}
	if p.Version == "" {
		return nil, rpc.Errorf(mcp.INVALID_PARAMS, "initialize: protocolVersion is missing")
	}
	if !slices.Contains(mcp.ValidProtocolVersions, p.Version) || mcp.IsModernProtocol(p.Version) {
		p.Version = mcp.LATEST_LEGACY_PROTOCOL_VERSION
	}
	c.mu.Lock()
	c.state.Capabilities, c.state.Version = capabilitiesOf(p.Capabilities), p.Version
	c.mu.Unlock()
	o := r.describeServer(ctx)
	o["protocolVersion"], o["serverInfo"] = p.Version, c.cat.serverInfo()
	return o, nil
}

// setLevel handles logging/setLevel.
func (c *session) setLevel(r *request, _ context.Context) (any, *rpc.Error) {
	var p struct {
		Level mcp.LoggingLevel `json:"level"`
	}
	if err := r.msg.Decode(&p); err != nil {
		return nil, err
	}
	if !slices.Contains(levels, p.Level) {
		names, _ := json.Marshal(levels)
		return nil, rpc.Errorf(mcp.INVALID_PARAMS, "logging/setLevel: level must be one of %s; it is %q", names, p.Level)
	}
	c.mu.Lock()
	c.state.Level = p.Level
	c.mu.Unlock()
	c.log.levelChanged()
	return object{}, nil
}

// subscribe handles resources/subscribe and resources/unsubscribe; see [Server.ResourceUpdated].
func (c *session) subscribe(r *request, ctx context.Context) (any, *rpc.Error) {
	uri, rpcErr := r.uri()
	if rpcErr != nil {
		return nil, rpcErr
	}
	if r.msg.Method == "resources/unsubscribe" {
		if stop := c.unwatch(uri); stop != nil {
			stop()
		}
		return object{}, nil
	}
	if rpcErr := r.watchResource(ctx, c, uri); rpcErr != nil {
		return nil, rpcErr
	}
	return object{}, nil
}

// withHost implements revision. The host sends its questions on the stream of the request.
func (c *session) withHost(ctx context.Context, r *request, do handler) (any, *rpc.Error) {
	ctx = context.WithValue(context.WithValue(ctx, sessionKey{}, c.ctx), responderKey{}, r.out)
	return r.withLogger(host.With(ctx, c.host), do)
}

// recordView implements revision. A client that has not requested a list is taken to know the tools of its first call.
func (c *session) recordView(v *toolkit.View, listed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if listed || c.state.Tools == "" {
		c.state.Tools = v.Digest()
	}
}

// afterCall implements revision: it notifies the client of changes that the call has made.
func (c *session) afterCall(ctx context.Context, r *request) *rpc.Error {
	changed := c.takeToolsChange(ctx)
	if c.cat.cfg.upstream != nil { // the call may have started an upstream server that has prompts or resources
		changed |= c.takeVisibleChanges(c.cat.cfg.Toolkit)
	}
	c.notify(changed, false)
	if err := c.flush(r.out); err != nil {
		return rpc.Errorf(mcp.INTERNAL_ERROR, "the client does not read: %v", err)
	}
	return nil
}

// askAbout implements revision.
func (c *session) askAbout(ctx context.Context, r *request, p pendingCall) object {
	name, d := p.call.Tool, p.decision
	if !c.snapshot().Capabilities.Form || !r.out.Streams() {
		return cannotAsk(name, d)
	}
	question, err := questionFor(p, true)
	var raw json.RawMessage
	if err == nil {
		raw, err = c.ask(ctx, r.out, "elicitation/create", question)
	}
	if err != nil {
		return askFailed(name, err)
	}
	remember, refused := readReply(name, d, raw)
	if remember {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.state.Rules = append(c.state.Rules, d.Suggest...)
	}
	return refused
}
