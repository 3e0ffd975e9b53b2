package mcpserver

import (
	"context"
	"errors"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
	"github.com/kitbag-go/kitbag/toolkit"
)

// changes is the set of changes that a client is notified of.
type changes uint8

const (
	toolsChanged changes = 1 << iota
	groupsChanged
	promptsChanged
	resourcesChanged
	resourceUpdated  // of the resources in session.watched that are due
	catalogueChanged // not sent to clients: a listener finds out which of its lists have changed
)

// groupsListChanged is the notification of MCP's proposal for primitive grouping.
const groupsListChanged = "notifications/groups/list_changed"

// listChanges are the lists that can change, each with its notification and its name in the filter of
// subscriptions/listen.
var listChanges = []struct {
	change         changes
	method, filter string
}{
	{toolsChanged, mcp.MethodNotificationToolsListChanged, "toolsListChanged"},
	{groupsChanged, groupsListChanged, "groupsListChanged"},
	{promptsChanged, mcp.MethodNotificationPromptsListChanged, "promptsListChanged"},
	{resourcesChanged, mcp.MethodNotificationResourcesListChanged, "resourcesListChanged"},
}

// changesOf returns the changes that the client is notified of when the toolkit changes. For prompts and
// resources that are not the toolkit's see visibleChanges.
func (c *session) changesOf(ev toolkit.Change) (m changes) {
	if ev.Tools {
		m |= toolsChanged
	}
	if ev.Groups {
		m |= groupsChanged
	}
	if ev.Skills && c.readsSkills() {
		m |= promptsChanged | resourcesChanged
	}
	return m
}

// visibleItems are the prompts and resources that a client sees: the configured ones, one byte each, and the
// version of those of upstream servers.
type visibleItems struct{ prompts, resources string }

// visibleItems returns what a client with this scope sees.
func (s *Server) visibleItems(tk *toolkit.Toolkit, scope *toolkit.Scope) visibleItems {
	reachable := tk.Reachable(scope)
	prompts, resources := make([]byte, len(s.cfg.Prompts)), make([]byte, len(s.resources))
	for i, p := range s.cfg.Prompts {
		if shows(reachable, p.Groups) {
			prompts[i] = 1
		}
	}
	for i, r := range s.resources {
		if shows(reachable, r.Groups) {
			resources[i] = 1
		}
	}
	seen := visibleItems{string(prompts), string(resources)}
	if o := s.cfg.upstream; o != nil {
		seen.prompts += o.Version(mcpupstream.KindPrompt, reachable)
		seen.resources += o.Version(mcpupstream.KindResource, reachable)
	}
	return seen
}

// visibleChanges returns which lists of prompts and resources have changed since the last call. They depend on
// the open groups, but not every group has prompts or resources.
func (c *session) visibleChanges(tk *toolkit.Toolkit) changes {
	for {
		c.mu.Lock()
		before := c.visibleVersion
		c.mu.Unlock()
		now := c.srv.visibleItems(tk, c.scope) // calls the upstream provider, so c.mu must not be locked
		if m, ok := c.setVisible(before, now); ok {
			return m
		}
	}
}

// setVisible stores what the client sees. ok is false if another goroutine has stored a newer value since
// version before.
func (c *session) setVisible(before int, now visibleItems) (m changes, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.visibleVersion != before {
		return 0, false
	}
	if now.prompts != c.visible.prompts {
		m |= promptsChanged
	}
	if now.resources != c.visible.resources {
		m |= resourcesChanged
	}
	c.visibleVersion, c.visible = c.visibleVersion+1, now
	return m, true
}

// flush sends the pending messages.
func (c *session) flush(out wire.Responder) error {
	if !out.Streams() {
		return nil
	}
	return errors.Join(c.log.flush(out), c.send(out, c.takePending(), nil))
}

// send sends the notifications of m. Each has the _meta meta unless that is nil.
func (c *session) send(out wire.Responder, m changes, meta object) (err error) {
	for _, n := range listChanges {
		if m&n.change != 0 {
			var params object
			if meta != nil {
				params = object{"_meta": meta}
			}
			err = errors.Join(err, out.Send(rpc.Notification(n.method, params)))
		}
	}
	if m&resourceUpdated != 0 {
		for _, uri := range c.takeUpdated() {
			params := object{"uri": uri}
			if meta != nil {
				params["_meta"] = meta
			}
			err = errors.Join(err, out.Send(rpc.Notification(mcp.MethodNotificationResourceUpdated, params)))
		}
	}
	return err
}

// listen handles subscriptions/listen: it sends the notifications that a client without sessions has subscribed
// to, until the client disconnects.
func (r *request) listen(ctx context.Context) (any, *rpc.Error) {
	var p struct {
		Filter map[string]any `json:"notifications"`
	}
	if err := r.msg.Decode(&p); err != nil {
		return nil, err
	}
	if !r.out.Streams() {
		return nil, rpc.Errorf(mcp.INVALID_REQUEST, "subscriptions/listen needs a client that accepts text/event-stream")
	}
	listener := r.srv.newSession(r.cred)
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
	r.srv.setListening(listener, true)
	defer r.srv.setListening(listener, false)
	defer r.srv.cfg.Toolkit.OnChange(func(ev toolkit.Change) {
		if ev.Scope == nil {
			listener.notify(listener.changesOf(ev)|catalogueChanged, true)
		}
	})()
	listener.visibleChanges(r.srv.static.pick(ctx, listener.scope))
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
			r.srv.static.renew(r.srv.cfg.Toolkit)
			m |= listener.visibleChanges(r.srv.static.pick(ctx, listener.scope))
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

// setListening adds a listener for updates of resources, or removes it.
func (s *Server) setListening(listener *session, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		s.listening[listener] = true
	} else {
		delete(s.listening, listener)
	}
}
