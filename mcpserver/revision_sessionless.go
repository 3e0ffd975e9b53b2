package mcpserver

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/mcpcontent"
	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/mcpserver/internal/park"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// This file has the revisions of the protocol from 2026-07-28 on, in which clients have no sessions.

// sessionless is the revision of clients without sessions.
type sessionless struct {
	reg *registry
	lot *park.Lot
}

// handle handles a request of a client, whose _meta the caller has checked. It returns the answer as
// [session.handle] does.
func (e *sessionless) handle(ctx context.Context, c *client, m *rpc.Message, out wire.Responder) ([]byte, *rpc.Error) {
	r := &request{client: c, revision: e, msg: m, out: out, scope: c.state.Scope.Sub(), notFoundCode: mcp.INVALID_PARAMS, anyStructured: true}
	r.tk = c.cat.static.pick(ctx, r.scope)
	return r.serve(ctx, r.addResultFields)
}

// addResultFields adds the fields that results must have in these revisions.
func (r *request) addResultFields(o object) {
	if o["resultType"] == nil {
		o["resultType"] = "complete"
	}
	switch r.msg.Method {
	case "server/discover", "tools/list", "groups/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read", "skills/list", "skills/get":
		if o["resultType"] == "complete" {
			// Not to be cached: lists change with the toolkit, and depend on the credential.
			o["ttlMs"], o["cacheScope"] = 0, "private"
		}
	}
	if _, has := o["_meta"]; !has { // the _meta of a tool's result is left unchanged
		o["_meta"] = object{mcp.MetaKeyServerInfo: r.cat.serverInfo()}
	}
}

// method implements revision.
func (e *sessionless) method(name string) handler {
	switch name {
	case "server/discover":
		return e.discover
	case "subscriptions/listen":
		return e.listen
	case "tasks/get", "tasks/update", "tasks/cancel":
		if e.reg.cat.cfg.TaskAfter > 0 {
			return e.task
		}
	}
	return nil
}

// discover handles server/discover. In these revisions a capability that is not in the specification is an extension.
func (e *sessionless) discover(r *request, ctx context.Context) (any, *rpc.Error) {
	result, _ := r.discover(ctx)
	o := result.(object)
	caps := o["capabilities"].(object)
	declared, _ := caps["extensions"].(object)
	extensions := withMembers(object{}, declared)
	if caps["groups"] != nil {
		extensions[mcpcontent.GroupsKey] = object{}
	}
	if r.cat.cfg.TaskAfter > 0 {
		extensions[tasksExtension] = object{}
	}
	if len(extensions) > 0 {
		caps["extensions"] = extensions
	}
	return o, nil
}

// withHost implements revision. To ask, the host answers the request with the question; see package park.
func (e *sessionless) withHost(ctx context.Context, r *request, do handler) (any, *rpc.Error) {
	var p struct {
		Answers map[string]json.RawMessage `json:"inputResponses"`
		State   string                     `json:"requestState"`
	}
	if err := r.msg.Decode(&p); err != nil {
		return nil, err
	}
	current := park.Request{Out: r.out, Token: r.msg.Meta.Progress, Answers: p.Answers}
	if p.State != "" {
		t, err := e.lot.Verify(ctx, p.State)
		if err != nil {
			return nil, rpc.Errorf(mcp.INVALID_PARAMS, "%v", err)
		}
		if t.Parked != "" { // the other kind of ticket gives permission for a call; see askAbout
			return e.lot.Resume(ctx, t.Nonce, r.digest(), current)
		}
	}
	level := r.msg.Meta.Level
	r.log = &Logger{credential: r.credential(), level: func() mcp.LoggingLevel { return level }, wake: func() {}}
	can := capabilitiesOf(r.msg.Meta.Capabilities)
	h := &clientHost{declared: func() capabilities { return can }}
	// A client that declares no capabilities cannot be asked, so the call does not need a separate goroutine.
	r.tasks = r.msg.Method == "tools/call" && r.cat.cfg.TaskAfter > 0 && r.understandsTasks()
	if can == (capabilities{}) && !r.tasks {
		result, err := r.withLogger(host.With(ctx, h), do)
		return r.capabilityError(h, result, err)
	}
	delete(p.Answers, askID) // only askAbout uses this answer
	req := *r                // the call outlives r
	return e.lot.Start(ctx, r.ctx, &r.parked, r.digest(), current, func(ctx context.Context, call *park.Call) (any, *rpc.Error) {
		req.out, req.parkable, h.ask = call, call, call.Ask
		result, err := req.recovered(host.With(ctx, h), func(r *request, ctx context.Context) (any, *rpc.Error) { return r.withLogger(ctx, do) })
		return req.capabilityError(h, result, err)
	})
}

// capabilityError returns MCP's error for missing capabilities if the call failed because of them, and
// otherwise result and err.
func (r *request) capabilityError(h *clientHost, result any, err *rpc.Error) (any, *rpc.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o, _ := result.(object); h.missing == nil || err == nil && o["isError"] != true {
		return result, err
	}
	return nil, r.missing(h.missing)
}

// missing returns MCP's error for capabilities that the client has not declared.
func (r *request) missing(capabilities object) *rpc.Error {
	e := rpc.Errorf(mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, "%s needs a capability that the client has not declared; see requiredCapabilities", r.msg.Method)
	e.Data = object{"requiredCapabilities": capabilities}
	return e
}

// viewed implements revision: lists do not change.
func (e *sessionless) viewed(*toolkit.View, bool) {}

// called implements revision: listeners are notified.
func (e *sessionless) called(context.Context, *request) *rpc.Error { return nil }

// askID is the key of the question in the inputRequests that a client without sessions gets.
const askID = "allow"

// askAbout implements revision. The server stores nothing between the question and the answer: the call has not
// started, and the ticket identifies it.
func (e *sessionless) askAbout(ctx context.Context, r *request, p pendingCall) object {
	name, d := p.call.Tool, p.decision
	// Unlike digest this uses the exact bytes: these arguments will run, and a duplicate key must not be
	// interpreted in two ways. It includes what was judged, except what every edit of a file changes.
	judged := []string{r.account.key, name, string(p.call.Input), d.Judgement.Text, string(d.Judgement.Profile), confinement(d)}
	for _, f := range d.Judgement.Files {
		judged = append(judged, f.Path)
	}
	digest := sha256.Sum256(rpc.Encode(slices.Concat(judged, d.Judgement.Except, []string{""}, d.Judgement.Keep)))
	if p.params.State != "" {
		if err := e.lot.Redeem(ctx, p.params.State, digest[:]); err != nil {
			return failure(fmt.Sprintf("The answer to the question about this call of %s cannot be used: %v. Call it again to ask again.", name, err))
		}
		_, refused := readReply(name, d, p.params.Answers[askID])
		return refused
	}
	if !capabilitiesOf(r.msg.Meta.Capabilities).Form {
		return cannotAsk(name, d)
	}
	question, err := questionFor(p, false)
	var ticket string
	if err == nil {
		ticket, err = e.lot.Issue(ctx, park.Ticket{Call: digest[:], Nonce: rand.Text()})
	}
	if err != nil {
		return couldNotAsk(name, err)
	}
	r.rec.Outcome = OutcomeAsked
	return object{
		"resultType":    "input_required",
		"inputRequests": object{askID: object{"method": "elicitation/create", "params": question}},
		"requestState":  ticket,
	}
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
	sum := sha256.Sum256(rpc.Encode([]string{r.account.key, r.msg.Method, p.Name, p.URI, string(strictjson.Canonical(p.Arguments)),
		string(strictjson.Canonical(p.Ref)), string(strictjson.Canonical(p.Argument)), string(strictjson.Canonical(p.Context))}))
	return sum[:]
}

// listen handles subscriptions/listen: it sends the notifications that a client without sessions has subscribed
// to, until the client disconnects.
func (e *sessionless) listen(r *request, ctx context.Context) (any, *rpc.Error) {
	var p struct {
		Filter map[string]any `json:"notifications"`
	}
	if err := r.msg.Decode(&p); err != nil {
		return nil, err
	}
	if !r.out.Streams() {
		return nil, rpc.Errorf(mcp.INVALID_REQUEST, "subscriptions/listen needs a client that accepts text/event-stream")
	}
	listener := e.reg.newSession(r.account)
	defer listener.cancel()
	meta := object{mcp.MetaKeySubscriptionID: r.msg.ID}
	accepted, wanted := r.acceptFilter(ctx, p.Filter, listener)
	acknowledge := func() error {
		return r.out.Send(rpc.Notification(mcp.MethodNotificationSubscriptionsAcknowledged, object{"_meta": meta, "notifications": accepted}))
	}
	if wanted == 0 {
		_ = acknowledge() // if it fails, writing the result fails too
		return object{"_meta": meta}, nil
	}
	// Register before the acknowledgement, so that no change after it is missed.
	e.reg.setListening(listener, true)
	defer e.reg.setListening(listener, false)
	defer r.cat.cfg.Toolkit.OnChange(func(ev toolkit.Change) {
		if ev.Scope == nil {
			listener.notify(listener.changesOf(ev)|catalogueChanged, true)
		}
	})()
	listener.visibleChanges(r.cat.static.pick(ctx, listener.state.Scope))
	err := acknowledge()
	for err == nil {
		select {
		case <-r.inputEnded:
			return object{"_meta": meta}, nil
		case <-ctx.Done():
			return object{"_meta": meta}, nil
		case <-listener.ctx.Done(): // the server is drained
			return object{"_meta": meta}, nil
		case <-listener.wake:
			m := listener.takePending()
			// The lists must be up to date before the notification: the client requests them next.
			r.cat.static.renew(r.cat.cfg.Toolkit)
			m |= listener.visibleChanges(r.cat.static.pick(ctx, listener.state.Scope))
			err = listener.send(r.out, m&wanted, meta) // only what the acknowledgement lists
		}
	}
	return nil, rpc.Errorf(mcp.INTERNAL_ERROR, "the client does not read its stream")
}

// acceptTimeout is the time limit for all resource subscriptions of one request.
const acceptTimeout = 30 * time.Second

// acceptFilter returns which of the requested notifications the client will get, as the member of the
// acknowledgement and as a set. Resources that the client cannot see are left out.
func (r *request) acceptFilter(ctx context.Context, filter map[string]any, listener *session) (accepted object, m changes) {
	accepted = object{}
	for _, n := range listChanges {
		if filter[n.filter] == true {
			accepted[n.filter], m = true, m|n.change
		}
	}
	uris, _ := filter["resourceSubscriptions"].([]any)
	watched := []string{}
	ctx, cancel := context.WithTimeout(ctx, acceptTimeout) // upstream servers may be slow
	defer cancel()
	for _, u := range uris[:min(len(uris), maxSubscriptions)] {
		if uri, ok := u.(string); ok && r.watchFor(ctx, listener, uri) == nil {
			watched = append(watched, uri)
		}
	}
	if len(watched) > 0 {
		accepted["resourceSubscriptions"], m = watched, m|resourceUpdated
	}
	return accepted, m
}

// Together runs functions of a call in parallel that each ask the client, by [host.Host] or [Roots], and
// returns their joined errors, in the order of the functions. From protocol revision 2026-07-28 on, in which
// the client repeats its request with the answers, their questions are sent together: a question waits until
// every other function has asked a question or ended.
func Together(ctx context.Context, ask ...func(context.Context) error) error {
	return park.Together(ctx, ask...)
}
