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

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A responder sends the messages of a request, or those that belong to no request.
type responder interface {
	// send writes a message. It blocks while the client does not read, and fails if that takes
	// too long.
	send(message []byte) error
	// streams reports whether more than one answer can be sent.
	streams() bool
}

// A session is one client: a connection on stdio, or a session over HTTP. For clients without
// sessions it is all requests of a credential, which share nothing but limits.
type session struct {
	srv  *Server
	id   string
	name string      // for records
	cred *Credential // nil without credentials

	owner *owner

	// shared is set for all clients without sessions of one credential: their ids may be
	// equal.
	shared bool

	scope *toolkit.Scope
	state toolstate.State

	ctx context.Context
	end context.CancelFunc

	sse    *sseStream  // of a client of the transport HTTP+SSE; else nil
	host   *clientHost // of clients that have a session
	log    *Logger     // of clients that have a session
	parked int         // calls that wait for a client without sessions; guarded by Server.mu

	// slots are held by requests until their answers are written, if all share one stream; nil
	// if each has a stream of its own. There are more slots than calls, so that a request that
	// waits for a slot waits only for the client to read.
	slots chan struct{}

	inputEnded <-chan struct{} // closed when the client can send nothing more; nil if that is unknown

	room chan struct{} // holds one element when a request has ended

	mu             sync.Mutex
	can            abilities                   // of the client
	calls          map[string]call             // requests in flight, by id
	waiting        map[string]chan *rpcMessage // open questions to the client, by id
	asked          int                         // number of questions so far
	rules          []permission.Rule           // that the user has accepted for the session
	known          string                      // digest of the list that the client has; empty before it requested one
	pending        changes                     // notifications to send
	visible        visibleItems                // as of the last notification
	visibleVersion int                         // how often visible was computed
	watched        map[string]*watched         // resources subscribed to
	level          mcp.LoggingLevel            // the least severe log messages that are sent; empty is none
	used           time.Time
	served         uint64
	version        string // of the protocol, as negotiated

	standalone int       // streams for messages that belong to no request: one, or two while one replaces another
	streams    []*stream // that can be resumed, the oldest first
	kept       int       // bytes of their events

	wake chan struct{} // holds one element when pending is to be sent without a request
}

// An owner is all sessions of a credential, or all without one. They share limits, so that a
// credential cannot use up what there is for all.
type owner struct {
	sessions int          // over HTTP; guarded by Server.mu
	calls    atomic.Int64 // in flight
	watched  atomic.Int64 // resources, of all its sessions together
	kept     atomic.Int64 // bytes of events for clients that reconnect

	maxWatched, maxKept int64
}

// newOwner returns an owner with the limits of one of so many credentials.
func newOwner(credentials int) *owner {
	o := &owner{maxWatched: maxWatched, maxKept: maxKeptTotal}
	if credentials > 1 {
		o.maxWatched /= 4
		o.maxKept /= 4
	}
	return o
}

// newSession returns a session that is not registered yet; see add and register. Its name is for
// records: with the id a reader could use the session.
func (s *Server) newSession(cred *Credential) *session {
	c := &session{
		srv: s, name: rand.Text()[:12], cred: cred, owner: s.owners[cred], scope: &toolkit.Scope{}, used: time.Now(), wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
		calls: map[string]call{}, waiting: map[string]chan *rpcMessage{},
	}
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

// removeLocked is remove while s.mu is held.
func (s *Server) removeLocked(c *session) {
	c.end()
	delete(s.scopes, c.scope)
	if s.sessions[c.id] == c {
		delete(s.sessions, c.id)
		c.owner.sessions--
	}
}

// sharedCalls is how many times Limits.Calls all clients of a credential have together.
const sharedCalls = 16

// A call is a request in flight.
type call struct {
	cancel context.CancelFunc
	out    responder
	began  uint64 // number of the request in the session
}

// roomAfter is how long a request waits for room before it is refused, so that a burst of quick
// requests is served.
const roomAfter = 100 * time.Millisecond

// errFull is the error of a request beyond the limit.
var errFull = rpcErrorf(mcp.INVALID_REQUEST, "too many requests in flight; wait for one of them")

// begin registers a request, so that it counts and can be cancelled. It returns the key for finish.
func (c *session) begin(ctx context.Context, id string, out responder) (context.Context, string, *rpcError) {
	in, key, err := c.tryBegin(ctx, id, out)
	if err != errFull {
		return in, key, err
	}
	late := time.NewTimer(roomAfter)
	defer late.Stop()
	for {
		select {
		case <-c.room:
			if in, key, err = c.tryBegin(ctx, id, out); err != errFull {
				return in, key, err
			}
		case <-late.C: // another request may have taken the signal
			return c.tryBegin(ctx, id, out)
		case <-ctx.Done():
			return nil, "", err
		}
	}
}

// tryBegin is begin without waiting.
func (c *session) tryBegin(ctx context.Context, id string, out responder) (context.Context, string, *rpcError) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ctx, cancel)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = time.Now()
	if c.served++; c.shared { // clients may use equal ids, and cannot cancel by them
		id = fmt.Sprint("request ", c.served)
	}
	limit := c.srv.limits.Calls
	if c.shared {
		limit *= sharedCalls
	}
	_, twice := c.calls[id]
	full := c.owner.calls.Add(1) > int64(sharedCalls*c.srv.limits.Calls)
	if twice || full || len(c.calls) >= limit {
		c.owner.calls.Add(-1)
		stop()
		cancel()
		if twice {
			return nil, "", rpcErrorf(mcp.INVALID_REQUEST, "the id %s is in use by a request in flight; use another", id)
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
	case c.room <- struct{}{}:
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

// introduced reports whether the client has initialized the session.
func (c *session) introduced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version != ""
}

// abilities returns what the client declared when it initialized.
func (c *session) abilities() abilities {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.can
}

// notify records what to notify the client of. While a call is in flight that is sent on the call's
// stream before its result, unless now is set.
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

// wakeLocked wakes pump, which sends all that is pending.
func (c *session) wakeLocked() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// toolsChange returns toolsChanged if the client's list is out of date, and records the new one as
// known.
func (c *session) toolsChange(ctx context.Context) changes {
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	if known == "" { // it has never requested a list
		return 0
	}
	v, err := c.srv.cfg.Toolkit.View(ctx, c.scope)
	if err != nil {
		return 0 // the session or the call has ended
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Unless the client has requested it meanwhile, or another call has noticed.
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

// takePending returns what is pending and clears it.
func (c *session) takePending() changes {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.pending
	c.pending = 0
	return m
}

// pump sends notifications that belong to no request, until ctx ends or the client does not read.
// beat, unless nil, is run every interval.
func (c *session) pump(ctx context.Context, out responder, interval time.Duration, beat func() error) {
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
func (c *session) ask(ctx context.Context, out responder, method string, params any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.srv.limits.Ask, fmt.Errorf("no answer within %v", c.srv.limits.Ask))
	defer cancel()
	reply := make(chan *rpcMessage, 1) // buffered, so that handleAnswer never blocks
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
	if err := out.send(encode(&rpcMessage{Version: mcp.JSONRPC_VERSION, ID: json.RawMessage(id), Method: method, Params: raw})); err != nil {
		return nil, err
	}
	select {
	case m := <-reply:
		return m.Result, m.failure()
	case <-c.inputEnded:
		select {
		case m := <-reply: // an answer that came with the end
			return m.Result, m.failure()
		default:
			return nil, errCannotAsk
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// handleAnswer handles an answer of the client. An unexpected one is dropped.
func (c *session) handleAnswer(m *rpcMessage) {
	c.mu.Lock()
	reply := c.waiting[string(m.ID)]
	delete(c.waiting, string(m.ID))
	c.mu.Unlock()
	if reply != nil {
		reply <- m
	}
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
