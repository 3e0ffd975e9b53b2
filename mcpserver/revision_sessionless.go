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

// handle handles a request whose _meta the caller has checked. It returns the same as [session.handle].
func (sl *sessionless) handle(ctx context.Context, c *client, m *rpc.Message, out wire.Responder) ([]byte, *rpc.Error) {
	r := &request{client: c, revision: sl, msg: m, out: out, scope: c.state.Scope.Sub(), notFoundCode: mcp.INVALID_PARAMS, anyStructured: true}
	r.tk = c.cat.static.pick(ctx, r.scope)
	return r.serve(ctx, r.addResultFields)
}

// addResultFields adds the fields that a result must have in these revisions.
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
	if _, has := o["_meta"]; !has { // but do not add to the _meta of a tool's result
		o["_meta"] = object{mcp.MetaKeyServerInfo: r.cat.serverInfo()}
	}
}

// method implements revision.
func (sl *sessionless) method(name string) handler {
	switch name {
	case "server/discover":
		return sl.discover
	case "subscriptions/listen":
		return sl.listen
	case "tasks/get", "tasks/update", "tasks/cancel":
		if sl.reg.cat.cfg.TaskAfter > 0 {
			return sl.task
		}
	}
	return nil
}

// discover handles server/discover. In these revisions a capability that is not in the specification is an extension.
func (sl *sessionless) discover(r *request, ctx context.Context) (any, *rpc.Error) {
	o := r.describeServer(ctx)
	o["supportedVersions"] = mcp.ValidProtocolVersions
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

// withHost implements revision. The host sends a question as the answer to the request, and the client sends the answer to the
// question with the next request; see package park.
func (sl *sessionless) withHost(ctx context.Context, r *request, do handler) (any, *rpc.Error) {
	var p struct {
		Answers map[string]json.RawMessage `json:"inputResponses"`
		State   string                     `json:"requestState"`
	}
	if err := r.msg.Decode(&p); err != nil {
		return nil, err
	}
	current := park.Request{Out: r.out, Token: r.msg.Meta.Progress, Answers: p.Answers}
	if p.State != "" {
		t, err := sl.lot.Verify(ctx, p.State)
		if err != nil {
			return nil, rpc.Errorf(mcp.INVALID_PARAMS, "%v", err)
		}
		if t.Parked != "" { // otherwise the ticket is that of askAbout, for a call that has not started
			return sl.lot.Resume(ctx, t.Nonce, r.digest(), current)
		}
	}
	level := r.msg.Meta.Level
	r.log = &Logger{credential: r.credential(), level: func() mcp.LoggingLevel { return level }, wake: func() {}}
	declared := capabilitiesOf(r.msg.Meta.Capabilities)
	h := &clientHost{declared: func() capabilities { return declared }}
	r.mayBecomeTask = r.msg.Method == "tools/call" && r.cat.cfg.TaskAfter > 0 && r.understandsTasks()
	if declared == (capabilities{}) && !r.mayBecomeTask { // the call ends with this request: the client cannot be asked
		result, err := r.withLogger(host.With(ctx, h), do)
		return r.capabilityError(h, result, err)
	}
	delete(p.Answers, askID) // and so from current.Answers: this answer is not for the host, but for askAbout
	req := *r                // a copy, because the call can outlive r
	return sl.lot.Start(ctx, r.ctx, &r.parked, r.digest(), current, func(ctx context.Context, call *park.Call) (any, *rpc.Error) {
		req.out, req.parkable, h.ask = call, call, call.Ask
		result, err := req.runRecovering(host.With(ctx, h), func(r *request, ctx context.Context) (any, *rpc.Error) { return r.withLogger(ctx, do) })
		return req.capabilityError(h, result, err)
	})
}

// capabilityError returns MCP's error for missing capabilities if the call has failed after a question that needed them, and
// otherwise result and err.
func (r *request) capabilityError(h *clientHost, result any, err *rpc.Error) (any, *rpc.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, _ := result.(object)
	if failed := err != nil || o["isError"] == true; failed && h.missing != nil {
		return nil, r.missingCapabilities(h.missing)
	}
	return result, err
}

// missingCapabilities returns MCP's error for capabilities that the client has not declared.
func (r *request) missingCapabilities(capabilities object) *rpc.Error {
	rpcErr := rpc.Errorf(mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, "%s needs a capability that the client has not declared; see requiredCapabilities", r.msg.Method)
	rpcErr.Data = object{"requiredCapabilities": capabilities}
	return rpcErr
}

// recordView implements revision: the list of a client without sessions does not change.
func (sl *sessionless) recordView(*toolkit.View, bool) {}

// afterCall implements revision: only listeners are notified of changes; see listen.
func (sl *sessionless) afterCall(context.Context, *request) *rpc.Error { return nil }

// askID is the key in inputRequests of the question whether a call may run.
const askID = "allow"

// askAbout implements revision. The server stores nothing between the question and the answer: the call has not
// started, and the ticket identifies it.
func (sl *sessionless) askAbout(ctx context.Context, r *request, p pendingCall) object {
	name, d := p.call.Tool, p.decision
	digest := r.callDigest(p)
	if p.params.State != "" {
		if err := sl.lot.Redeem(ctx, p.params.State, digest); err != nil {
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
		ticket, err = sl.lot.Issue(ctx, park.Ticket{Call: digest, Nonce: rand.Text()})
	}
	if err != nil {
		return askFailed(name, err)
	}
	r.rec.Outcome = OutcomeAsked
	return object{
		"resultType":    "input_required",
		"inputRequests": object{askID: object{"method": "elicitation/create", "params": question}},
		"requestState":  ticket,
	}
}

// callDigest identifies a call that the user is asked about, with its account and the judgement of the call. It depends on the
// exact bytes of the arguments: the call that the user allows runs with the arguments of the later request. It does not depend
// on the inodes of files, which change when a file is edited.
func (r *request) callDigest(p pendingCall) []byte {
	j := &p.decision.Judgement
	judged := []string{r.account.key, p.call.Tool, string(p.call.Input), j.Text, string(j.Profile), confinement(p.decision)}
	for _, f := range j.Files {
		judged = append(judged, f.Path)
	}
	sum := sha256.Sum256(rpc.Encode(slices.Concat(judged, j.Except, []string{""}, j.Keep))) // "" separates the two lists
	return sum[:]
}

// digest identifies the request and its account. It does not depend on the order of members or on white space, because a
// client may encode the arguments again; a parked call uses the arguments of its first request.
func (r *request) digest() []byte {
	var p struct {
		Name      string          `json:"name"`
		URI       string          `json:"uri"`
		Arguments json.RawMessage `json:"arguments"`
		Ref       json.RawMessage `json:"ref"` // this and the following fields are of completions
		Argument  json.RawMessage `json:"argument"`
		Context   json.RawMessage `json:"context"`
	}
	_ = strictjson.Unmarshal(r.msg.Params, &p) // the handler reports the error
	sum := sha256.Sum256(rpc.Encode([]string{r.account.key, r.msg.Method, p.Name, p.URI, string(strictjson.Canonical(p.Arguments)),
		string(strictjson.Canonical(p.Ref)), string(strictjson.Canonical(p.Argument)), string(strictjson.Canonical(p.Context))}))
	return sum[:]
}

// listen handles subscriptions/listen: it sends the notifications that a client without sessions has subscribed
// to, until the client disconnects.
func (sl *sessionless) listen(r *request, ctx context.Context) (any, *rpc.Error) {
	var p struct {
		Filter map[string]any `json:"notifications"`
	}
	if err := r.msg.Decode(&p); err != nil {
		return nil, err
	}
	if !r.out.Streams() {
		return nil, rpc.Errorf(mcp.INVALID_REQUEST, "subscriptions/listen needs a client that accepts text/event-stream")
	}
	listener := sl.reg.newSession(r.account)
	defer listener.cancel()
	meta := object{mcp.MetaKeySubscriptionID: r.msg.ID}
	accepted, subscribed := r.acceptFilter(ctx, p.Filter, listener)
	acknowledge := func() error {
		return r.out.Send(rpc.Notification(mcp.MethodNotificationSubscriptionsAcknowledged, object{"_meta": meta, "notifications": accepted}))
	}
	if subscribed == 0 {
		_ = acknowledge() // if it fails, writing the result fails too
		return object{"_meta": meta}, nil
	}
	// Register before the acknowledgement, so that no change after it is missed.
	sl.reg.setListening(listener, true)
	defer sl.reg.setListening(listener, false)
	defer r.cat.cfg.Toolkit.OnChange(func(ev toolkit.Change) {
		if ev.Scope == nil {
			listener.notify(listener.changesOf(ev)|catalogueChanged, true)
		}
	})()
	listener.takeVisibleChanges(r.cat.static.pick(ctx, listener.state.Scope)) // later changes are relative to these lists
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
			// Renew the lists before the notification, because the client then requests them.
			_ = r.cat.static.renew(r.cat.cfg.Toolkit)
			m |= listener.takeVisibleChanges(r.cat.static.pick(ctx, listener.state.Scope))
			err = listener.send(r.out, m&subscribed, meta)
		}
	}
	return nil, rpc.Errorf(mcp.INTERNAL_ERROR, "the client does not read its stream")
}

// subscribeTimeout is the time limit for all subscriptions of a listener or of a session that is taken over.
const subscribeTimeout = 30 * time.Second

// acceptFilter subscribes the listener to the notifications that filter requests, except those of resources that the client
// cannot see. accepted is the part of filter that the server accepts, subscribed are the changes of which it notifies.
func (r *request) acceptFilter(ctx context.Context, filter map[string]any, listener *session) (accepted object, subscribed changes) {
	accepted = object{}
	for _, n := range listChanges {
		if filter[n.filter] == true {
			accepted[n.filter] = true
			subscribed |= n.change
		}
	}
	uris, _ := filter["resourceSubscriptions"].([]any)
	watched := []string{}
	ctx, cancel := context.WithTimeout(ctx, subscribeTimeout) // upstream servers may be slow
	defer cancel()
	for _, u := range uris[:min(len(uris), maxSubscriptions)] { // limits the work for one request
		if uri, ok := u.(string); ok && r.watchResource(ctx, listener, uri) == nil {
			watched = append(watched, uri)
		}
	}
	if len(watched) > 0 {
		accepted["resourceSubscriptions"] = watched
		subscribed |= resourceUpdated
	}
	return accepted, subscribed
}

// Together runs functions of a call in parallel that each ask the client, by [host.Host] or [Roots]. It returns
// their joined errors, in the order of the functions. From protocol revision 2026-07-28 on, in which the client
// repeats its request with the answers, the questions are sent together: a question waits until every other
// function has asked a question or ended.
func Together(ctx context.Context, ask ...func(context.Context) error) error {
	return park.Together(ctx, ask...)
}
