package mcpserver

import (
	"context"
	"errors"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/toolkit"
)

// marks are what a client has to be told.
type marks uint8

const (
	toolsChanged marks = 1 << iota
	groupsChanged
	promptsChanged
	resourcesChanged
	resourceUpdated  // session.watched says which
	catalogueChanged // which has a listener look at what else is another list now
)

// groupsListChanged is the notification of the proposal for primitive grouping.
const groupsListChanged = "notifications/groups/list_changed"

// notices are the lists that change: the notification of it, and its name in the
// filter of subscriptions/listen.
var notices = []struct {
	mark           marks
	method, filter string
}{
	{toolsChanged, mcp.MethodNotificationToolsListChanged, "toolsListChanged"},
	{groupsChanged, groupsListChanged, "groupsListChanged"},
	{promptsChanged, mcp.MethodNotificationPromptsListChanged, "promptsListChanged"},
	{resourcesChanged, mcp.MethodNotificationResourcesListChanged, "resourcesListChanged"},
}

// marksOf returns what a change of the toolkit gives the client to be told. What is
// configured beside the toolkit depends on the groups only; see recount.
func (c *session) marksOf(ev toolkit.Change) (m marks) {
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

// visibleItems are the configured prompts and resources that a client sees, one byte each, and
// the version of those of upstream servers.
type visibleItems struct{ prompts, resources string }

// visibleItems returns what a client sees that reaches the groups of the scope.
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

// recount returns which lists of the configuration are others than when it was asked
// last: prompts and resources come and go with their groups, and a group that is opened
// need not show anything new.
func (c *session) recount(tk *toolkit.Toolkit) marks {
	for {
		c.mu.Lock()
		before := c.counts
		c.mu.Unlock()
		now := c.srv.visibleItems(tk, c.scope) // without the lock: what comes from elsewhere is somebody else's code
		if m, ok := c.counted(before, now); ok {
			return m
		}
	}
}

// counted notes what the client sees, unless somebody else has meanwhile, who may have
// looked later.
func (c *session) counted(before int, now visibleItems) (m marks, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts != before {
		return 0, false
	}
	if now.prompts != c.visible.prompts {
		m |= promptsChanged
	}
	if now.resources != c.visible.resources {
		m |= resourcesChanged
	}
	c.counts, c.visible = c.counts+1, now
	return m, true
}

// tell sends what is pending.
func (c *session) tell(out outlet) error {
	if !out.streams() {
		return nil
	}
	return errors.Join(c.log.flush(out), c.send(out, c.take(), nil))
}

// send sends notifications; about, unless nil, is the _meta of each.
func (c *session) send(out outlet, m marks, about object) (err error) {
	for _, n := range notices {
		if m&n.mark != 0 {
			var params object
			if about != nil {
				params = object{"_meta": about}
			}
			err = errors.Join(err, out.send(notification(n.method, params)))
		}
	}
	if m&resourceUpdated != 0 {
		for _, uri := range c.takeUpdated() {
			params := object{"uri": uri}
			if about != nil {
				params["_meta"] = about
			}
			err = errors.Join(err, out.send(notification(mcp.MethodNotificationResourceUpdated, params)))
		}
	}
	return err
}

// listen is how clients of the new era hear of changes: until they leave. The lists
// of such a client change with the catalogue only.
func (r *request) listen(ctx context.Context) (any, *rpcError) {
	var p struct {
		Want map[string]any `json:"notifications"`
	}
	if err := decode(r.msg, &p); err != nil {
		return nil, err
	}
	if !r.out.streams() {
		return nil, invalid(mcp.INVALID_REQUEST, "subscriptions/listen needs a client that accepts text/event-stream")
	}
	news := r.srv.newSession(r.cred)
	defer news.end()
	about := object{mcp.MetaKeySubscriptionID: r.msg.ID}
	agreed, wanted := r.agree(ctx, p.Want, news)
	if wanted == 0 {
		_ = r.out.send(notification(mcp.MethodNotificationSubscriptionsAcknowledged, object{"_meta": about, "notifications": agreed}))
		return object{"_meta": about}, nil
	}
	// First hear, then say so: nothing that happens after the acknowledgement is
	// missed.
	r.srv.attend(news, true)
	defer r.srv.attend(news, false)
	defer r.srv.cfg.Toolkit.OnChange(func(ev toolkit.Change) {
		if ev.Scope == nil {
			news.mark(news.marksOf(ev)|catalogueChanged, true)
		}
	})()
	news.recount(r.srv.static.pick(ctx, news.scope))
	err := r.out.send(notification(mcp.MethodNotificationSubscriptionsAcknowledged, object{"_meta": about, "notifications": agreed}))
	for err == nil {
		select {
		case <-r.silent: // and listens to nothing either, as far as stdio tells
			return object{"_meta": about}, nil
		case <-ctx.Done():
			return object{"_meta": about}, nil
		case <-news.wake:
			m := news.take()
			// What the client asks for next must be what it is told of now.
			r.srv.static.renew(r.srv.cfg.Toolkit)
			m |= news.recount(r.srv.static.pick(ctx, news.scope))
			// Nothing that was not agreed on may be sent.
			err = news.send(r.out, m&wanted, about)
		}
	}
	return nil, invalid(mcp.INTERNAL_ERROR, "the client does not read")
}

// agreeTime is how long subscriptions may take to be made that come with one request.
const agreeTime = 30 * time.Second

// agree returns which of the wanted notifications there are, in the form of the
// protocol and as marks. Resources that the client does not see are left out.
func (r *request) agree(ctx context.Context, want map[string]any, news *session) (agreed object, m marks) {
	agreed = object{}
	for _, n := range notices {
		if want[n.filter] == true {
			agreed[n.filter], m = true, m|n.mark
		}
	}
	uris, _ := want["resourceSubscriptions"].([]any)
	watched := []string{}
	ctx, cancel := context.WithTimeout(ctx, agreeTime) // for those that come from elsewhere
	defer cancel()
	for _, u := range uris[:min(len(uris), maxSubscriptions)] {
		if uri, ok := u.(string); ok && r.watchFor(ctx, news, uri) == nil {
			watched = append(watched, uri)
		}
	}
	if len(watched) > 0 {
		agreed["resourceSubscriptions"], m = watched, m|resourceUpdated
	}
	return agreed, m
}

// attend has the listener hear of updated resources, or no longer.
func (s *Server) attend(news *session, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		s.listening[news] = true
	} else {
		delete(s.listening, news)
	}
}
