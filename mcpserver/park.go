package mcpserver

import (
	"context"
	"crypto/sha256"
	"encoding/json"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/mcpserver/internal/park"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/tool/host"
)

// runWithHost runs do with a host that asks the client.
func (r *request) runWithHost(ctx context.Context, do func(*request, context.Context) (any, *rpc.Error)) (any, *rpc.Error) {
	run := func(r *request, ctx context.Context) (any, *rpc.Error) { return r.logging(ctx, do) }
	if !r.sessionless {
		return run(r, r.withSessionHost(ctx))
	}
	var p struct {
		Answers map[string]json.RawMessage `json:"inputResponses"`
		State   string                     `json:"requestState"`
	}
	if err := r.msg.Decode(&p); err != nil {
		return nil, err
	}
	request := park.Request{Out: r.out, Token: r.meta.Progress, Answers: p.Answers}
	if p.State != "" {
		t, err := r.srv.lot.Verify(p.State)
		if err != nil {
			return nil, rpc.Errorf(mcp.INVALID_PARAMS, "%v", err)
		}
		if t.Parked { // the other kind of ticket gives permission for a call; see askSessionless
			return r.srv.lot.Resume(ctx, t.Nonce, r.digest(), request)
		}
	}
	can := abilitiesOf(r.meta.Capabilities)
	h := &clientHost{can: func() abilities { return can }}
	// A client that declares no capabilities cannot be asked, so the call does not need a separate goroutine.
	if can == (abilities{}) {
		result, err := run(r, host.With(ctx, h))
		return r.capabilityError(h, result, err)
	}
	delete(p.Answers, askID) // it is for permission to call; see askSessionless
	req := *r                // the call outlives r
	return r.srv.lot.Start(ctx, r.session.ctx, &r.session.parked, r.digest(), request, func(ctx context.Context, call *park.Call) (any, *rpc.Error) {
		req.out, req.parkedCall, h.ask = call, call, call.Ask
		result, err := req.recovered(host.With(ctx, h), func(ctx context.Context) (any, *rpc.Error) { return run(&req, ctx) })
		return req.capabilityError(h, result, err)
	})
}

// digest identifies the request and its credential. It does not depend on the order of members or on white
// space, because a client may encode the arguments again; the call uses the arguments of the first request.
func (r *request) digest() []byte {
	var p struct {
		Name      string          `json:"name"`
		URI       string          `json:"uri"`
		Arguments json.RawMessage `json:"arguments"`
		Ref       json.RawMessage `json:"ref"` // this and the following fields are of completions
		Argument  json.RawMessage `json:"argument"`
		Context   json.RawMessage `json:"context"`
	}
	_ = strictjson.Unmarshal(r.msg.Params, &p) // no error, because dispatch has decoded it
	credName := ""
	if r.cred != nil {
		credName = r.cred.Name
	}
	sum := sha256.Sum256(rpc.Encode([]string{credName, r.msg.Method, p.Name, p.URI, string(strictjson.Canonical(p.Arguments)),
		string(strictjson.Canonical(p.Ref)), string(strictjson.Canonical(p.Argument)), string(strictjson.Canonical(p.Context))}))
	return sum[:]
}

// capabilityError returns MCP's error for missing capabilities if the call failed because of them, and
// otherwise result and err.
func (r *request) capabilityError(h *clientHost, result any, err *rpc.Error) (any, *rpc.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o, _ := result.(object); h.missing == nil || err == nil && o["isError"] != true {
		return result, err
	}
	e := rpc.Errorf(mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, "%s needs a capability that the client has not declared; see requiredCapabilities", r.msg.Method)
	e.Data = object{"requiredCapabilities": h.missing}
	return nil, e
}

// isObject reports whether raw is a JSON object.
func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// progress returns the progress token of the current request.
func (r *request) progress() json.RawMessage {
	if r.parkedCall == nil {
		return r.meta.Progress
	}
	return r.parkedCall.Token()
}

// Together runs functions of a call in parallel that each ask the client, by [host.Host] or [Roots], and
// returns their joined errors, in the order of the functions. From protocol revision 2026-07-28 on, in which
// the client repeats its request with the answers, their questions are sent together: a question waits until
// every other function has asked a question or ended.
func Together(ctx context.Context, ask ...func(context.Context) error) error {
	return park.Together(ctx, ask...)
}
