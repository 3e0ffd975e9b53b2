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

// handle handles a message and returns its answer, and the error in the answer, if any. The answer is nil for
// notifications and answers, and for cancelled requests.
func (c *session) handle(ctx context.Context, m *rpc.Message, out wire.Responder) ([]byte, *rpc.Error) {
	switch {
	case m.Method == "": // an answer; one that is not expected is dropped
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
	r := &request{client: c.client, revision: c, msg: m, out: out, tk: c.cat.cfg.Toolkit, scope: c.state.Scope, log: c.log,
		notFoundCode: mcp.RESOURCE_NOT_FOUND}
	return r.serve(ctx, nil)
}

// handleNotification handles a notification. Unknown ones are ignored.
func (c *session) handleNotification(m *rpc.Message) {
	if m.Method != string(mcp.MethodNotificationCancelled) {
		return
	}
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	if m.Decode(&p) == nil {
		c.cancelCall(string(p.ID))
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

// initialize handles initialize. It selects the client's protocol revision if the server supports it, and
// otherwise the server's latest revision that has a handshake.
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

// setLevel handles logging/setLevel. A session that has set no level gets no log messages.
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
	uri, bad := r.uri()
	if bad != nil {
		return nil, bad
	}
	if r.msg.Method == "resources/unsubscribe" {
		if stop := c.unwatch(uri); stop != nil {
			stop()
		}
		return object{}, nil
	}
	if bad := r.watchFor(ctx, c, uri); bad != nil {
		return nil, bad
	}
	return object{}, nil
}

// withHost implements revision. The host asks on the stream of the request.
func (c *session) withHost(ctx context.Context, r *request, do handler) (any, *rpc.Error) {
	ctx = context.WithValue(context.WithValue(ctx, sessionKey{}, c.ctx), responderKey{}, r.out)
	return r.withLogger(host.With(ctx, c.host), do)
}

// viewed implements revision. If the client only calls a tool, the list that it has stays.
func (c *session) viewed(v *toolkit.View, listed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if listed || c.state.Tools == "" {
		c.state.Tools = v.Digest()
	}
}

// called implements revision.
func (c *session) called(ctx context.Context, r *request) *rpc.Error {
	changed := c.toolsChange(ctx)
	if c.cat.cfg.upstream != nil { // the call may have started a server that has prompts or resources
		changed |= c.visibleChanges(c.cat.cfg.Toolkit)
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
		return couldNotAsk(name, err)
	}
	remember, refused := readReply(name, d, raw)
	if remember {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.state.Rules = append(c.state.Rules, d.Suggest...)
	}
	return refused
}
