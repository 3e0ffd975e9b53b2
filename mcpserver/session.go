package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A session is a client over stdio, a session over HTTP, or a listener: the client of a request subscriptions/listen.
type session struct {
	*client
	id        string // empty unless over HTTP
	host      *clientHost
	log       *Logger
	questions questions
	replay    *wire.Replay // the streams of streamable HTTP
	sse       *sseStream   // the stream of HTTP+SSE; nil for other transports
	saved     savedRecord  // used only with replicas

	stops     map[string]func() // end the watches of [mcpupstream.Watcher], by URI; nil for other subscriptions
	comparing sync.Mutex        // held by takeVisibleChanges
}

// questions are the requests to a client that wait for its answer.
type questions struct {
	mu      sync.Mutex
	asked   int                          // number of questions so far
	waiting map[string]chan *rpc.Message // by id
}

// newSession returns a session of a client.
func newSession(c *client) *session {
	s := &session{client: c, replay: wire.NewReplay(c.cat.limits.Resume, &c.budgets.events)}
	s.host = &clientHost{declared: func() capabilities { return c.snapshot().Capabilities }, ask: s.askOnStream}
	s.log = &Logger{credential: c.credential(), level: func() mcp.LoggingLevel { return c.snapshot().Level }, wake: c.wakeUp}
	c.state.Visible = c.cat.visible(c.cat.cfg.Toolkit, c.state.Scope)
	return s
}

// readsEmptyEvents reports whether the client understands events without data: clients of older revisions parse the
// data of every event as JSON. See [wire.Replay.New].
func (c *session) readsEmptyEvents() bool {
	return c.snapshot().Version >= mcp.LATEST_LEGACY_PROTOCOL_VERSION
}

// takeToolsChange returns toolsChanged if the client's list of tools is out of date, and records the new list as known to the
// client.
func (c *session) takeToolsChange(ctx context.Context) changes {
	c.mu.Lock()
	known := c.state.Tools
	c.mu.Unlock()
	if known == "" { // the client knows no tools yet
		return 0
	}
	v, err := c.cat.cfg.Toolkit.View(ctx, c.state.Scope)
	if err != nil {
		return 0 // the session or the call has ended
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// The client may have requested the list in the meantime, or another call may have noticed the change.
	if c.state.Tools != known || v.Digest() == known {
		return 0
	}
	c.state.Tools = v.Digest()
	return toolsChanged
}

// pump sends the notifications that belong to no request, until ctx or the session ends, or the client does not read.
func (c *session) pump(ctx context.Context, out wire.Responder) {
	for {
		select {
		case <-c.wake:
			if c.flush(out) != nil {
				return
			}
		case <-ctx.Done():
			return
		case <-c.ctx.Done():
			return
		}
	}
}

// flush sends the pending log messages and notifications of changes.
func (c *session) flush(out wire.Responder) error {
	if !out.Streams() {
		return nil
	}
	return errors.Join(c.log.flush(out), c.send(out, c.takePending(), nil))
}

// send sends the notifications of the changes m, with meta as _meta unless meta is nil.
func (c *session) send(out wire.Responder, m changes, meta object) (err error) {
	notify := func(method string, params object) {
		if meta != nil {
			params["_meta"] = meta
		}
		err = errors.Join(err, out.Send(rpc.Notification(method, params)))
	}
	for _, n := range listChanges {
		if m&n.change != 0 {
			notify(n.method, object{})
		}
	}
	if m&resourceUpdated != 0 {
		for _, uri := range c.takeUpdated() {
			notify(mcp.MethodNotificationResourceUpdated, object{"uri": uri})
		}
	}
	return err
}

// ask sends a request to the client and waits for its answer.
func (c *session) ask(ctx context.Context, out wire.Responder, method string, params any) (json.RawMessage, error) {
	limit := c.cat.limits.Ask
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	id, reply := c.questions.add()
	defer c.questions.take(id)
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	if err := out.Send(rpc.Encode(&rpc.Message{Version: mcp.JSONRPC_VERSION, ID: json.RawMessage(id), Method: method, Params: raw})); err != nil {
		return nil, err
	}
	select {
	case m := <-reply:
		return m.Result, m.Failure()
	case <-c.inputEnded:
		select {
		case m := <-reply: // the answer may have arrived just before the end of the input
			return m.Result, m.Failure()
		default:
			return nil, errCannotAsk
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// add adds a question, and returns its id and the channel for its answer.
func (q *questions) add() (id string, reply <-chan *rpc.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == nil {
		q.waiting = map[string]chan *rpc.Message{}
	}
	q.asked++
	id = fmt.Sprintf(`"ask-%d"`, q.asked)
	q.waiting[id] = make(chan *rpc.Message, 1) // buffered, so that the answer's sender never blocks
	return id, q.waiting[id]
}

// take removes and returns the channel of a question; nil if there is no such question.
func (q *questions) take(id string) chan<- *rpc.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	reply := q.waiting[id]
	delete(q.waiting, id)
	return reply
}

// askOnStream is clientHost.ask. If ctx is not the context of a call, as for a question of an upstream server with one
// connection for all calls, the question is sent on the stream of the latest call.
func (c *session) askOnStream(ctx context.Context, _, method string, params any) (json.RawMessage, error) {
	out, _ := ctx.Value(responderKey{}).(wire.Responder)
	if out == nil {
		out = c.latest()
	}
	if out == nil || !out.Streams() {
		return nil, errCannotAsk
	}
	return c.ask(ctx, out, method, params)
}

// changesOf returns the changes that the client is notified of after a change of the toolkit. Configured prompts and resources
// are not in the toolkit; see takeVisibleChanges.
func (c *session) changesOf(ev toolkit.Change) (m changes) {
	if ev.Tools {
		m |= toolsChanged
	}
	if ev.Groups {
		m |= groupsChanged
	}
	if ev.Skills && c.mayReadSkills() {
		m |= resourcesChanged
	}
	return m
}

// takeVisibleChanges returns which lists of prompts and resources have changed since takeVisibleChanges was last called. A
// change of the open groups need not change these lists.
func (c *session) takeVisibleChanges(tk *toolkit.Toolkit) (m changes) {
	c.comparing.Lock() // concurrent calls must not store older lists after newer lists
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

// watchLimitReached reports whether a subscription to the resource would exceed the limit of the client or the account. It
// saves asking an upstream server in vain; watch checks the limits again.
func (c *session) watchLimitReached(uri string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, watched := c.state.Watched[uri]
	return !watched && (len(c.state.Watched) >= maxSubscriptions || c.budgets.watched.Full())
}

// watch adds a subscription if the limits allow it. stop, unless nil, ends the watch of [mcpupstream.Watcher]. If there is
// such a subscription already, watch replaces only its stop, and returns oldStop for the caller to call, unless it is nil.
func (c *session) watch(uri string, stop func()) (oldStop func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, watched := c.state.Watched[uri]; !watched {
		if len(c.state.Watched) >= maxSubscriptions || !c.budgets.watched.Take(1) {
			return nil, false
		}
		if c.state.Watched == nil {
			c.state.Watched, c.stops = map[string]bool{}, map[string]func(){}
			context.AfterFunc(c.ctx, c.unwatchAll)
		}
		c.state.Watched[uri] = false
	}
	oldStop = c.stops[uri]
	c.stops[uri] = stop
	return oldStop, true
}

// unwatch removes a subscription. It returns the subscription's stop for the caller to call, unless it is nil.
func (c *session) unwatch(uri string) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, watched := c.state.Watched[uri]; watched {
		stop = c.stops[uri]
		delete(c.state.Watched, uri)
		delete(c.stops, uri)
		c.budgets.watched.Add(-1)
	}
	return stop
}

// unwatchAll removes the subscriptions of a session that has ended. The end of c.ctx also calls their stops; see stopOnce.
func (c *session) unwatchAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budgets.watched.Add(-int64(len(c.state.Watched)))
	c.state.Watched, c.stops = nil, nil
}

// markUpdated records that the client must be notified of an update of the resource.
func (c *session) markUpdated(uri string) {
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

// takeUpdated returns the sorted URIs of the updated resources, and marks the resources as not updated.
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
