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
	"time"
)

const (
	// maxWatched is how many resources of a server are watched at a time.
	maxWatched = 10_000

	// listenAtOnce is how many of them one subscriptions/listen names: servers may take
	// no more than a thousand.
	listenAtOnce = 500

	// maxUpdated is how long the URI of an update may be, in bytes.
	maxUpdated = 8 << 10
)

// ErrNotWatched says that a server does not tell of updates of resources, or is not told
// apart from others long enough to do so.
var ErrNotWatched = errors.New("the server does not tell when a resource is updated")

// WatchResource has fn called when the server says that the resource, or a part of it, was
// updated, until stop is called; calls are collected for a moment, and for longer while the
// server goes on. A connection that is lost is asked anew when there is another one, and fn
// called then, since nobody knows what has happened in between; so it is, in the stateless
// revisions, when the subscription stands, which WatchResource does not wait for. fn must not
// call the client, should return soon, and may be called by two goroutines at a time. The
// error wraps [ErrNotWatched] if the server cannot do it.
func (c *Client) WatchResource(ctx context.Context, uri string, fn func()) (stop func(), err error) {
	if c.cfg.Stateless {
		return nil, fmt.Errorf("%w: MCP server %q has no lasting connection", ErrNotWatched, c.cfg.name)
	}
	w, err := c.watches.join(c.cfg.name, uri, &fn)
	if err != nil {
		return nil, err
	}
	err = c.run(ctx, &job{what: "subscription to " + strconv.Quote(clip(uri, maxNameBytes)), again: true,
		do: func(ctx context.Context, cn *conn, _ string) error { return cn.watchNow(ctx, c.watches, w) }}, make(chan progress, 1))
	stop = sync.OnceFunc(func() { c.unwatch(w, &fn) })
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// unwatch takes a listener away, and tells the server if it was the last.
func (c *Client) unwatch(w *watch, fn *func()) {
	if c.watches.leave(w, fn) {
		return
	}
	c.mu.Lock()
	cn := c.conn
	c.mu.Unlock()
	if cn == nil || !cn.work(func() { cn.unwatchNow(c.watches, w) }) {
		c.watches.drop(w)
	}
}

// watches are the resources of a server that somebody watches.
type watches struct {
	poke chan struct{} // holds one element when they are others, for those who listen to all at once

	mu  sync.Mutex
	all map[string]*watch
}

// A watch is one of them.
type watch struct {
	uri  string
	turn chan struct{} // holds a token while the server is told

	// These belong to watches.mu.
	told *conn // that knows of it
	fns  []*func()
	due  bool
}

func newWatches() *watches { return &watches{poke: make(chan struct{}, 1), all: map[string]*watch{}} }

func (ws *watches) join(server, uri string, fn *func()) (*watch, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.all[uri]
	if w == nil {
		if len(ws.all) >= maxWatched {
			return nil, fmt.Errorf("MCP server %q: %d of its resources are watched; try again when some no longer are", server, maxWatched)
		}
		w = &watch{uri: uri, turn: make(chan struct{}, 1)}
		ws.all[uri] = w
	}
	w.fns = append(w.fns, fn)
	return w, nil
}

// leave reports whether others still listen.
func (ws *watches) leave(w *watch, fn *func()) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.fns = slices.DeleteFunc(w.fns, func(o *func()) bool { return o == fn })
	return len(w.fns) > 0
}

// forget notes that the server was told that nobody listens. Whoever has come meanwhile
// waits for the turn, and tells it otherwise.
func (ws *watches) forget(w *watch) {
	ws.mu.Lock()
	w.told = nil
	ws.mu.Unlock()
	ws.drop(w)
}

// drop forgets a watch that nobody listens to, and reports whether it did.
func (ws *watches) drop(w *watch) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(w.fns) > 0 || ws.all[w.uri] != w {
		return false
	}
	delete(ws.all, w.uri)
	return true
}

// stands reports whether the server of a connection knows of a watch, and whether anybody
// listens.
func (ws *watches) stands(w *watch, c *conn) (told, watched bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return w.told == c, len(w.fns) > 0
}

// knows notes that the server of a connection does. What has happened since the one before
// it was lost nobody knows: that counts as an update.
func (ws *watches) knows(w *watch, c *conn) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.due = w.due || w.told != nil && w.told != c
	w.told = c
}

// list returns those that somebody listens to, by URI.
func (ws *watches) list() (out []*watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, uri := range slices.Sorted(maps.Keys(ws.all)) {
		if w := ws.all[uri]; len(w.fns) > 0 {
			out = append(out, w)
		}
	}
	return out
}

// updated notes that a resource was updated, for all that it is a part of, too, and
// reports whether anybody listens. It runs on the goroutine that reads.
func (ws *watches) updated(uri string) (any bool) {
	if len(uri) > maxUpdated {
		return false
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	mark := func(name string) {
		if w := ws.all[name]; w != nil {
			w.due, any = true, true
		}
	}
	mark(uri)
	mark(uri + "/")
	for at := strings.LastIndexByte(uri, '/'); at >= 0; at = strings.LastIndexByte(uri[:at], '/') {
		mark(uri[:at])
		mark(uri[:at+1])
	}
	return any
}

// missed has an update of all of them due: nobody knows what has happened to them.
func (ws *watches) missed(all ...*watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range all {
		w.due = true
	}
}

// tell calls those who listen to what is due.
func (ws *watches) tell() {
	for _, w := range ws.list() {
		for _, fn := range ws.take(w) {
			(*fn)()
		}
	}
}

// take returns who is to be told of a watch, who counts as told then.
func (ws *watches) take(w *watch) []*func() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if !w.due {
		return nil
	}
	w.due = false
	return slices.Clone(w.fns)
}

// pokeAll has who listens to all of them begin anew.
func (ws *watches) pokeAll() {
	signal(ws.poke)
}

// tellsUpdates reports whether the server says that resources can be subscribed to.
func (h *hello) tellsUpdates() bool {
	var c struct {
		Subscribe bool `json:"subscribe"`
	}
	return json.Unmarshal(h.Capabilities["resources"], &c) == nil && c.Subscribe
}

// watchNow has the server of this connection tell of a resource, unless it does.
func (c *conn) watchNow(ctx context.Context, ws *watches, w *watch) error {
	if !c.hello.tellsUpdates() {
		return fmt.Errorf("%w: MCP server %q", ErrNotWatched, c.cfg.name)
	}
	if c.modern() {
		ws.pokeAll()
		return nil
	}
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if told, watched := ws.stands(w, c); told || !watched {
		return nil
	}
	if _, err := c.request(ctx, "resources/subscribe", map[string]any{"uri": w.uri}, nil); err != nil {
		return err
	}
	ws.knows(w, c)
	return nil
}

// unwatchNow tells the server that nobody listens any more, if that is so.
func (c *conn) unwatchNow(ws *watches, w *watch) {
	if c.modern() {
		if ws.drop(w) {
			ws.pokeAll()
		}
		return
	}
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-c.life.Done():
		ws.drop(w)
		return
	}
	told, watched := ws.stands(w, c)
	if watched {
		return // by somebody who has come meanwhile
	}
	if told {
		ctx, cancel := context.WithTimeout(c.life, 5*time.Second)
		defer cancel()
		// One that does not listen tells of what nobody wants to know.
		_, _ = c.request(ctx, "resources/unsubscribe", map[string]any{"uri": w.uri}, nil)
	}
	ws.forget(w)
}

// watchOn has a server that was connected to anew tell what the one before told.
func (c *conn) watchOn(ws *watches) {
	if c.modern() {
		c.listenToAll(ws)
		return
	}
	for _, w := range ws.list() {
		ctx, cancel := context.WithTimeout(c.life, c.cfg.Timeouts.Idle)
		if err := c.watchNow(ctx, ws, w); err != nil {
			ws.missed(w) // the last that is told of it: who looks sees why
		}
		cancel()
	}
	ws.tell()
}

// listenToAll keeps subscriptions to all that are watched open, as the stateless revisions
// have it. When they are others it asks anew, and hears by the old request until the new
// one stands.
func (c *conn) listenToAll(ws *watches) {
	over := func() {}
	defer func() { over() }()
	for wait := time.Second; !c.dead(); {
		all := ws.list()
		uris := make([]string, len(all))
		for i, w := range all {
			uris[i] = w.uri
			if told, _ := ws.stands(w, c); !told {
				ws.missed(w) // what has happened since somebody wanted to watch it
			}
			ws.knows(w, c)
		}
		ctx, cancel := context.WithCancel(c.life)
		ended := make(chan struct{}, 1)
		for part := range slices.Chunk(uris, listenAtOnce) {
			c.listenTo(ctx, part, ended)
		}
		over()
		over = cancel
		ws.tell()
		select {
		case <-ws.poke:
			pause(c.life, debounce) // more may come
		case <-ended:
			pause(c.life, wait)
			wait = min(2*wait, longestWait)
			ws.missed(all...)
			continue
		case <-c.life.Done():
		}
		wait = time.Second
	}
}

// listenTo asks the server to tell of the resources until ctx ends, and returns when it does
// or will not. If it refuses it is asked for each half, so that one resource that it does not
// have costs nobody else what they watch. Ended gets an element when it tells no more.
func (c *conn) listenTo(ctx context.Context, uris []string, ended chan<- struct{}) {
	early, late := make(chan error), make(chan struct{})
	defer close(late)
	c.work(func() {
		_, err := c.request(ctx, "subscriptions/listen", map[string]any{"notifications": map[string]any{"resourceSubscriptions": uris}}, nil)
		select {
		case early <- err:
		case <-late:
			signal(ended)
		}
	})
	select {
	case <-c.standing:
	case err := <-early:
		switch _, refused := errors.AsType[*CallError](err); {
		case !refused:
			signal(ended)
		case len(uris) > 1 && !hasCode(err, codeMethodNotFound):
			half := len(uris) / 2
			c.listenTo(ctx, uris[:half], ended)
			c.listenTo(ctx, uris[half:], ended)
		}
	case <-time.After(patience): // it may not say so
	case <-c.life.Done():
	}
}

// signal puts an element into a channel that has room for one, unless there is one.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}
