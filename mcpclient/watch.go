package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	// maxWatched is how many resources of a server may be watched.
	maxWatched = 10_000

	// maxListenURIs is how many resources one subscriptions/listen names; servers may allow only a thousand.
	maxListenURIs = 500

	// maxUpdatedURI is the largest URI of an update, in bytes. Updates with longer ones are ignored.
	maxUpdatedURI = 8 << 10
)

// ErrNotWatched means that a server does not announce updates of resources, or that the client is stateless.
var ErrNotWatched = errors.New("the server does not announce updates of resources")

// WatchResource calls fn after updates of the resource, or of a part of it, until stop is called. Updates are
// collected for a moment, and for longer while the server continues to send them. After a lost connection the
// client subscribes again and calls fn, because it may have missed updates. In the revisions without sessions
// WatchResource does not wait until the server acknowledges the subscription; fn is called after that. fn must not
// call the client, should return soon, and may be called by two goroutines at a time. The error wraps
// [ErrNotWatched] if the server does not support subscriptions.
func (c *Client) WatchResource(ctx context.Context, uri string, fn func()) (stop func(), err error) {
	if c.cfg.Stateless {
		return nil, fmt.Errorf("%w: MCP server %q has no lasting connection", ErrNotWatched, c.cfg.name)
	}
	w, err := c.cat.watches.addListener(c.cfg.name, uri, &fn)
	if err != nil {
		return nil, err
	}
	err = c.runner.run(ctx, &job{what: "subscription to " + strconv.Quote(clip(uri, maxNameBytes)), repeatable: true,
		do: func(ctx context.Context, cn *conn, _ string) error { return cn.subscribe(ctx, c.cat.watches, w) }}, make(chan progress, 1))
	stop = sync.OnceFunc(func() { c.unwatch(w, &fn) })
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// unwatch removes a listener, and unsubscribes after the last listener.
func (c *Client) unwatch(w *watch, fn *func()) {
	if c.cat.watches.removeListener(w, fn) {
		return
	}
	cn := c.sup.current()
	if cn == nil || !cn.goWork(func() { cn.protocol.unsubscribe(c.cat.watches, w) }) {
		c.cat.watches.dropUnused(w)
	}
}

// A watchList is the watched resources of a server.
type watchList struct {
	wake chan struct{} // has one element when the list has changed, for resubscribe

	mu  sync.Mutex
	all map[string]*watch
}

// A watch is a watched resource.
type watch struct {
	uri  string
	busy ctxMutex // held by subscribe and unsubscribe

	// Guarded by watchList.mu.
	subscribedOn *conn // the connection that has the subscription
	listeners    []*func()
	due          bool // there was an update, and the listeners were not called since then
}

func (ws *watchList) addListener(server, uri string, fn *func()) (*watch, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.all[uri]
	if w == nil {
		if len(ws.all) >= maxWatched {
			return nil, fmt.Errorf("MCP server %q: too many resources are watched (%d); stop watching some", server, maxWatched)
		}
		w = &watch{uri: uri, busy: make(ctxMutex, 1)}
		ws.all[uri] = w
	}
	w.listeners = append(w.listeners, fn)
	return w, nil
}

// removeListener reports whether the watch still has listeners.
func (ws *watchList) removeListener(w *watch, fn *func()) (watched bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.listeners = slices.DeleteFunc(w.listeners, func(o *func()) bool { return o == fn })
	return len(w.listeners) > 0
}

// setUnsubscribed records that the server has no subscription. The caller holds w.busy, so a listener that was added in the
// meantime subscribes again later.
func (ws *watchList) setUnsubscribed(w *watch) {
	ws.mu.Lock()
	w.subscribedOn = nil
	ws.mu.Unlock()
	ws.dropUnused(w)
}

// dropUnused removes a watch without listeners, and reports whether it did.
func (ws *watchList) dropUnused(w *watch) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(w.listeners) > 0 || ws.all[w.uri] != w {
		return false
	}
	delete(ws.all, w.uri)
	return true
}

// status reports whether the connection has the subscription, and whether the watch has listeners.
func (ws *watchList) status(w *watch, c *conn) (subscribed, watched bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return w.subscribedOn == c, len(w.listeners) > 0
}

// setSubscribed records that the connection has the subscription. If another connection had the subscription before, an
// update may have been missed, so the listeners are due.
func (ws *watchList) setSubscribed(w *watch, c *conn) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.due = w.due || w.subscribedOn != nil && w.subscribedOn != c
	w.subscribedOn = c
}

// list returns the watches with listeners, by URI.
func (ws *watchList) list() (out []*watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, uri := range slices.Sorted(maps.Keys(ws.all)) {
		if w := ws.all[uri]; len(w.listeners) > 0 {
			out = append(out, w)
		}
	}
	return out
}

// markURIUpdated marks the watches of a resource, and of resources that contain it, as updated, and reports whether
// there are any. It runs on the reading goroutine.
func (ws *watchList) markURIUpdated(uri string) (watched bool) {
	if len(uri) > maxUpdatedURI {
		return false
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	mark := func(name string) {
		if w := ws.all[name]; w != nil {
			w.due, watched = true, true
		}
	}
	mark(uri)
	mark(uri + "/") // a directory may be watched with or without the slash
	for at := strings.LastIndexByte(uri, '/'); at >= 0; at = strings.LastIndexByte(uri[:at], '/') {
		mark(uri[:at])
		mark(uri[:at+1])
	}
	return watched
}

// markUpdated marks watches whose updates may have been missed.
func (ws *watchList) markUpdated(all ...*watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range all {
		w.due = true
	}
}

// callListeners calls the listeners of updated resources.
func (ws *watchList) callListeners() {
	for _, w := range ws.list() {
		var listeners []*func()
		ws.mu.Lock()
		if w.due {
			w.due, listeners = false, slices.Clone(w.listeners)
		}
		ws.mu.Unlock()
		for _, fn := range listeners {
			(*fn)()
		}
	}
}

// declaresSubscribe reports whether the server declares subscriptions to resources.
func (r *initResult) declaresSubscribe() bool {
	var c struct {
		Subscribe bool `json:"subscribe"`
	}
	return json.Unmarshal(r.Capabilities["resources"], &c) == nil && c.Subscribe
}

// subscribe subscribes to a resource on this connection, unless this connection has the subscription already.
func (c *conn) subscribe(ctx context.Context, ws *watchList, w *watch) error {
	if !c.server.declaresSubscribe() {
		return fmt.Errorf("%w: MCP server %q", ErrNotWatched, c.cfg.name)
	}
	return c.protocol.subscribe(ctx, ws, w)
}
