package mcpserver

import (
	"context"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
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

// visibleItems are the prompts and resources that a client sees: the configured ones, one byte each, and the
// version of those of upstream servers.
type visibleItems struct{ Prompts, Resources string }

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

// visibleChanges returns which lists of prompts and resources have changed since the last call. They depend on
// the open groups, but not every group has prompts or resources.
func (c *session) visibleChanges(tk *toolkit.Toolkit) (m changes) {
	c.comparing.Lock() // so that the latest lists are stored last
	defer c.comparing.Unlock()
	now := c.cat.visible(tk, c.state.Scope) // calls the upstream provider, so c.mu must not be locked
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Prompts != c.state.Visible.Prompts {
		m |= promptsChanged
	}
	if now.Resources != c.state.Visible.Resources {
		m |= resourcesChanged
	}
	c.state.Visible = now
	return m
}

// maxSubscriptions is how many resources a client may subscribe to. maxWatched is the limit for all clients of
// a credential; with several credentials each has a quarter of it. It exists because a gateway's upstream
// server gets the subscriptions of all clients. maxWatchedURI is the largest URI, in bytes.
const (
	maxSubscriptions = 1000
	maxWatched       = 10_000
	maxWatchedURI    = 8 << 10
)

// errWatched is the error of a subscription beyond the limit.
var errWatched = rpc.Errorf(mcp.INVALID_REQUEST, "this client or its credential has subscribed to too many resources; unsubscribe from some")

// full reports whether a subscription to the resource would exceed the limit of the client or its credential.
func (c *session) full(uri string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, watched := c.state.Watched[uri]
	return !watched && (len(c.state.Watched) >= maxSubscriptions || c.owner.watched.Full())
}

// watch adds a subscription if the limits allow it. An existing subscription is kept, with an update that was
// not sent yet; before stops its earlier watch. stop, unless nil, ends the watch of [mcpupstream.Watcher].
func (c *session) watch(uri string, stop func()) (before func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, watched := c.state.Watched[uri]; !watched {
		if len(c.state.Watched) >= maxSubscriptions || !c.owner.watched.Take(1) {
			return nil, false
		}
		if c.state.Watched == nil {
			c.state.Watched, c.stops = map[string]bool{}, map[string]func(){}
			context.AfterFunc(c.ctx, c.unwatchAll)
		}
		c.state.Watched[uri] = false
	}
	before = c.stops[uri]
	c.stops[uri] = stop
	return before, true
}

// unwatch removes a subscription, and returns the function that stops its watch, or nil.
func (c *session) unwatch(uri string) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, watched := c.state.Watched[uri]; watched {
		stop = c.stops[uri]
		delete(c.state.Watched, uri)
		delete(c.stops, uri)
		c.owner.watched.Add(-1)
	}
	return stop
}

// unwatchAll removes the subscriptions of a session that has ended from the count of its credential.
func (c *session) unwatchAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner.watched.Add(-int64(len(c.state.Watched)))
	c.state.Watched, c.stops = nil, nil
}

// updated records that the client must be notified of an update of the resource.
func (c *session) updated(uri string) {
	c.mu.Lock()
	_, watched := c.state.Watched[uri]
	if watched {
		c.state.Watched[uri] = true
	}
	c.mu.Unlock()
	if watched {
		c.notify(resourceUpdated, true)
	}
}

// takeUpdated returns the updated resources, sorted, and marks them as sent.
func (c *session) takeUpdated() (uris []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uri, updated := range c.state.Watched {
		if updated {
			c.state.Watched[uri] = false
			uris = append(uris, uri)
		}
	}
	slices.Sort(uris)
	return uris
}
