package mcpserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/park"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A session is one client: a connection over stdio, or a session over HTTP. For clients without sessions it is
// all requests of a credential, which share only limits.
type session struct {
	srv  *Server
	id   string
	name string      // for audit records
	cred *Credential // nil if the server has no credentials

	owner *owner

	// shared is set if the session stands for all clients without sessions of a credential. Different clients may
	// use the same request ids.
	shared bool

	scope *toolkit.Scope
	state toolstate.State

	ctx context.Context
	end context.CancelFunc

	sse    *sseStream  // of a client of the transport HTTP+SSE; otherwise nil
	host   *clientHost // for clients that have a session
	log    *Logger     // for clients that have a session
	parked park.Owner  // of clients without sessions

	// If all requests share one stream, each holds a slot until its answer is written. If each request has its own
	// stream, slots is nil. There are more slots than calls, so a request only waits for a slot while the client
	// does not read.
	slots chan struct{}

	replay *wire.Replay // of a session over HTTP

	inputEnded <-chan struct{} // closed when the client can send nothing more; nil if the server cannot know that

	ended chan struct{} // buffers one signal that a request has ended

	mu             sync.Mutex
	can            abilities                    // the client's
	calls          map[string]call              // requests in flight, by id
	waiting        map[string]chan *rpc.Message // open questions to the client, by id
	asked          int                          // number of questions so far
	rules          []permission.Rule            // rules that the user has accepted for the session
	known          string                       // digest of the list of tools that the client has; empty before the client has requested one
	pending        changes                      // notifications to send
	visible        visibleItems                 // as of the last notification
	visibleVersion int                          // how often visible was computed
	watched        map[string]*watched          // subscriptions, by URI
	level          mcp.LoggingLevel             // the least severe level of log messages that are sent; if empty, none are sent
	used           time.Time
	served         uint64 // number of requests so far
	version        string // of the protocol, as negotiated; empty before initialize

	standalone int // connections of the standalone stream: one, or two while one replaces the other

	wake chan struct{} // buffers one signal that pending must be sent without a request
}

// An owner is all sessions of a credential, or all sessions without one. They share limits, so that one
// credential cannot use up what all clients share.
type owner struct {
	sessions int          // sessions over HTTP; guarded by Server.mu
	calls    atomic.Int64 // requests in flight
	watched  wire.Budget  // subscriptions of all its sessions
	kept     wire.Budget  // bytes of events that are kept for clients that reconnect
}

// newOwner returns an owner. Its limits depend on the number of credentials.
func newOwner(credentials int) *owner {
	o := &owner{}
	o.watched.Max, o.kept.Max = maxWatched, maxKeptTotal
	if credentials > 1 {
		o.watched.Max /= 4
		o.kept.Max /= 4
	}
	return o
}

// newSession returns a session that is not registered yet; see add and register. Records contain its name,
// because anyone who has the id can use the session.
func (s *Server) newSession(cred *Credential) *session {
	c := &session{
		srv: s, name: rand.Text()[:12], cred: cred, owner: s.owners[cred], scope: &toolkit.Scope{}, used: time.Now(), wake: make(chan struct{}, 1), ended: make(chan struct{}, 1),
		calls: map[string]call{}, waiting: map[string]chan *rpc.Message{},
	}
	c.parked.Max = sharedCalls * s.limits.Calls
	c.replay = wire.NewReplay(s.limits.Resume, &c.owner.kept)
	c.ctx, c.end = context.WithCancel(s.ctx)
	c.host = &clientHost{can: c.abilities, ask: c.askStream}
	c.log = &Logger{level: c.logLevel, wake: c.wakeUp}
	if cred != nil {
		c.log.credential = cred.Name
		c.scope.SetCeiling(cred.Ceiling)
	}
	c.visible = s.visibleItems(s.cfg.Toolkit, c.scope)
	return c
}

// useSlots makes requests of the session take slots.
func (c *session) useSlots() { c.slots = make(chan struct{}, 2*c.srv.limits.Calls) }

// add registers the session for changes of the toolkit.
func (s *Server) add(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scopes[c.scope] = c
}

// remove ends the session and removes it.
func (s *Server) remove(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(c)
}

// removeLocked is remove for a caller that holds s.mu.
func (s *Server) removeLocked(c *session) {
	c.end()
	delete(s.scopes, c.scope)
	if s.sessions[c.id] == c {
		delete(s.sessions, c.id)
		c.owner.sessions--
	}
}

// sharedCalls is how many times Limits.Calls all clients of a credential can have together.
const sharedCalls = 16

// A call is a request in flight.
type call struct {
	cancel context.CancelFunc
	out    wire.Responder
	began  uint64 // number of the request in the session
}

// maxBeginWait is how long a request waits until others end before it is rejected. Thanks to it a burst of
// quick requests is served.
const maxBeginWait = 100 * time.Millisecond

// errFull is the error of a request beyond the limit.
var errFull = rpc.Errorf(mcp.INVALID_REQUEST, "too many requests in flight; wait until one has ended")

// begin registers a request, so that it counts towards the limits and can be cancelled. It returns the key for
// finish.
func (c *session) begin(ctx context.Context, id string, out wire.Responder) (context.Context, string, *rpc.Error) {
	in, key, err := c.tryBegin(ctx, id, out)
	if err != errFull {
		return in, key, err
	}
	timeout := time.NewTimer(maxBeginWait)
	defer timeout.Stop()
	for {
		select {
		case <-c.ended:
			if in, key, err = c.tryBegin(ctx, id, out); err != errFull {
				return in, key, err
			}
		case <-timeout.C: // another request may have received the signal
			return c.tryBegin(ctx, id, out)
		case <-ctx.Done():
			return nil, "", err
		}
	}
}

// tryBegin is begin without waiting.
func (c *session) tryBegin(ctx context.Context, id string, out wire.Responder) (context.Context, string, *rpc.Error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ctx, cancel)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = time.Now()
	if c.served++; c.shared { // ids are not unique, and clients cannot cancel by id
		id = fmt.Sprint("request ", c.served)
	}
	limit := c.srv.limits.Calls
	if c.shared {
		limit *= sharedCalls
	}
	_, duplicate := c.calls[id]
	full := c.owner.calls.Add(1) > int64(sharedCalls*c.srv.limits.Calls)
	if duplicate || full || len(c.calls) >= limit {
		c.owner.calls.Add(-1)
		stop()
		cancel()
		if duplicate {
			return nil, "", rpc.Errorf(mcp.INVALID_REQUEST, "the id %s is in use by a request in flight; use another id", id)
		}
		return nil, "", errFull
	}
	c.calls[id] = call{func() { stop(); cancel() }, out, c.served}
	return ctx, id, nil
}

// finish removes a request that begin has registered.
func (c *session) finish(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[id].cancel()
	delete(c.calls, id)
	c.owner.calls.Add(-1)
	select {
	case c.ended <- struct{}{}:
	default:
	}
	c.used = time.Now()
	if c.pending != 0 && len(c.calls) == 0 {
		c.wakeLocked()
	}
}

// touch records that the session is in use; see Limits.Idle.
func (c *session) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = time.Now()
}

// cancelCall ends a request of this session.
func (c *session) cancelCall(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.calls[id]; ok {
		at.cancel()
	}
}

// initialized reports whether the client has initialized the session.
func (c *session) initialized() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version != ""
}

// abilities returns the abilities that the client declared when it initialized the session.
func (c *session) abilities() abilities {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.can
}

// notify records changes to notify the client of. While a call is in flight the notifications are sent on the
// call's stream before its result, unless now is set.
func (c *session) notify(m changes, now bool) {
	if m == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending |= m
	if now || len(c.calls) == 0 {
		c.wakeLocked()
	}
}

// wakeLocked wakes pump, which sends all pending messages. The caller holds c.mu.
func (c *session) wakeLocked() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// toolsChange returns toolsChanged if the client's list is out of date, and records the new list as known.
func (c *session) toolsChange(ctx context.Context) changes {
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	if known == "" { // the client has never requested a list
		return 0
	}
	v, err := c.srv.cfg.Toolkit.View(ctx, c.scope)
	if err != nil {
		return 0 // the session or the call has ended
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// The client may have requested the list in the meantime, or another call may have noticed the change.
	if c.known != known || v.Digest() == known {
		return 0
	}
	c.known = v.Digest()
	return toolsChanged
}

// setKnown records which list the client has.
func (c *session) setKnown(digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = digest
}

// takePending returns the pending changes and clears them.
func (c *session) takePending() changes {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.pending
	c.pending = 0
	return m
}

// pump sends notifications that belong to no request, until ctx ends or the client does not read. It calls beat
// every interval, unless beat is nil.
func (c *session) pump(ctx context.Context, out wire.Responder, interval time.Duration, beat func() error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		var err error
		select {
		case <-c.wake:
			err = c.flush(out)
		case <-ticker.C:
			if beat != nil {
				err = beat()
			}
		case <-ctx.Done():
			return
		case <-c.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// ask sends a request to the client and waits for its answer.
func (c *session) ask(ctx context.Context, out wire.Responder, method string, params any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.srv.limits.Ask, fmt.Errorf("no answer within %v", c.srv.limits.Ask))
	defer cancel()
	reply := make(chan *rpc.Message, 1) // buffered, so that handleAnswer never blocks
	c.mu.Lock()
	c.asked++
	id := fmt.Sprintf(`"ask-%d"`, c.asked)
	c.waiting[id] = reply
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, id)
	}()
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
		case m := <-reply: // the answer may have arrived just before the end
			return m.Result, m.Failure()
		default:
			return nil, errCannotAsk
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// handleAnswer handles an answer of the client. An unexpected one is dropped.
func (c *session) handleAnswer(m *rpc.Message) {
	c.mu.Lock()
	reply := c.waiting[string(m.ID)]
	delete(c.waiting, string(m.ID))
	c.mu.Unlock()
	if reply != nil {
		reply <- m
	}
}

// primes reports whether the client understands events without data. Clients of older revisions parse the data of
// every event as JSON.
func (c *session) primes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version >= mcp.LATEST_LEGACY_PROTOCOL_VERSION
}

// policy returns the policy for the session's calls.
func (c *session) policy() *permission.Policy {
	p := c.srv.cfg.Policy
	if c.cred != nil && c.cred.Policy != nil {
		p = c.cred.Policy
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.rules) == 0 {
		return p
	}
	// The user's rules come after the owner's, so that a deny rule of the owner still wins.
	with := *p
	with.Rules = slices.Concat(p.Rules, c.rules)
	return &with
}
