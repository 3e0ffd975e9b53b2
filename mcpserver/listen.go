package mcpserver

import (
	"context"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/toolkit"
)

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
	listener := e.reg.newSession(r.cred)
	defer listener.end()
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
