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
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// An outlet is where the messages go that belong to a request, or to none.
type outlet interface {
	// send writes a message. It blocks while the client does not read, and
	// fails when that takes too long.
	send(message []byte) error
	// streams reports whether anything but one answer can be sent.
	streams() bool
}

// A session is one client: a connection on stdio, a session over HTTP. Of the new
// era, it is all requests of a credential, which share limits and nothing else.
type session struct {
	srv  *Server
	id   string
	name string      // for records
	cred *Credential // nil without credentials

	owner *owner

	// shared is set for all clients of the new era that show one credential:
	// their ids mean nothing to each other.
	shared bool

	scope *toolkit.Scope
	state tool.State

	ctx context.Context
	end context.CancelFunc

	old   *oldStream  // of a client of the transport HTTP+SSE; else nil
	host  *clientHost // of clients that have a session
	log   *Logger     // of clients that have a session
	talks int         // calls that wait for a client of the new era; Server.mu guards it

	// slots are held by requests until their answers are written, where all go out on one
	// stream; nil where each has its own. There are more of them than calls may be at
	// work, so that who waits for one waits for the client to read and for nothing else.
	slots chan struct{}

	silent <-chan struct{} // closed when the client will say nothing more; nil if that cannot be told

	room chan struct{} // holds one element when a request has ended

	mu      sync.Mutex
	can     abilities                   // of the client
	calls   map[string]call             // requests at work, by id
	waiting map[string]chan *rpcMessage // questions to the client, by id
	asked   int                         // questions so far
	rules   []permission.Rule           // what the person no longer wants to be asked
	known   string                      // digest of the list that the client knows; empty before it asked
	pending marks                       // what it has to be told
	offers  offers                      // what of the configuration it sees, when it was told last
	counts  int                         // how often offers was made anew
	watched map[string]*watched         // resources subscribed to
	level   mcp.LoggingLevel            // from which on log messages are sent; empty for none
	used    time.Time
	served  uint64
	version string // of the protocol, as agreed on

	standing int       // connections for what belongs to no request; one, or two while one replaces another
	streams  []*stream // that can be resumed, the oldest first
	kept     int       // bytes of their events

	wake chan struct{} // holds one element when pending is to be told without a request
}

// An owner is all sessions of a credential, or those without one, which share limits: who
// may do little must not be able to use up what there is for all.
type owner struct {
	sessions int          // over HTTP; Server.mu guards it
	calls    atomic.Int64 // at work
	watched  atomic.Int64 // resources, of all its sessions together
	share    int64        // of them
}

// newSession returns a session that nobody knows yet; see add and enter. Its name tells
// sessions apart in records, where the id would let a reader in.
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
	c.offers = s.offered(s.cfg.Toolkit, c.scope)
	return c
}

// oneStream has the session's requests take slots.
func (c *session) oneStream() { c.slots = make(chan struct{}, 2*c.srv.limits.Calls) }

// add makes the session known to changes of the toolkit.
func (s *Server) add(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scopes[c.scope] = c
}

// remove ends the session and forgets it.
func (s *Server) remove(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(c)
}

// forget is remove for who holds s.mu.
func (s *Server) forget(c *session) {
	c.end()
	delete(s.scopes, c.scope)
	if s.sessions[c.id] == c {
		delete(s.sessions, c.id)
		c.owner.sessions--
	}
}

// sharedCalls is how many times the limit of a session's calls all clients of a credential
// have together.
const sharedCalls = 16

// A call is a request at work.
type call struct {
	cancel context.CancelFunc
	out    outlet
	began  uint64 // which request of the session it is
}

// roomAfter is how long a request waits for one of those at work to end, if there are as
// many as there may be, before it is refused: most are quick, and a burst of them is served.
const roomAfter = 100 * time.Millisecond

// errFull is the error of a request that is one too many.
var errFull = invalid(mcp.INVALID_REQUEST, "as many requests are at work as there may be; wait for one of them")

// begin registers a request, so that it can be cancelled.
// It returns the key under which finish knows it.
func (c *session) begin(ctx context.Context, id string, out outlet) (context.Context, string, *rpcError) {
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
		case <-late.C: // another one may have been told of the room that there is
			return c.tryBegin(ctx, id, out)
		case <-ctx.Done():
			return nil, "", err
		}
	}
}

// tryBegin is begin without waiting.
func (c *session) tryBegin(ctx context.Context, id string, out outlet) (context.Context, string, *rpcError) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ctx, cancel) // the end of the session ends its requests
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = time.Now()
	if c.served++; c.shared { // two clients may use one id, and cannot cancel by it
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
			return nil, "", invalid(mcp.INVALID_REQUEST, "a request with the id %s is still at work", id)
		}
		return nil, "", errFull
	}
	c.calls[id] = call{func() { stop(); cancel() }, out, c.served}
	return ctx, id, nil
}

// finish ends what begin began.
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

// touch notes that the session is in use; see Limits.Idle.
func (c *session) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = time.Now()
}

// cancelCall ends a request of this session; other sessions' it cannot name.
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

// abilities returns what the client said that it can be asked for when it initialized.
func (c *session) abilities() abilities {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.can
}

// mark notes what the client has to be told. While a call is at work that is told
// on the call's stream, before its result; now does not wait for that.
func (c *session) mark(m marks, now bool) {
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

// wakeLocked has pump look. One waiting element is enough, since it tells all that is
// pending.
func (c *session) wakeLocked() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// compare returns toolsChanged if the session sees other tools than its client knows
// of, which then counts as told.
func (c *session) compare(ctx context.Context) marks {
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	if known == "" { // it has never asked, so that nothing it knows is out of date
		return 0
	}
	v, err := c.srv.cfg.Toolkit.View(ctx, c.scope)
	if err != nil {
		return 0 // the context has ended, and with it the session or the call
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Unless the client has asked meanwhile, or another call has noticed.
	if c.known != known || v.Digest() == known {
		return 0
	}
	c.known = v.Digest()
	return toolsChanged
}

// learn notes which list the client has got.
func (c *session) learn(digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = digest
}

// take returns what is pending, which counts as told then.
func (c *session) take() marks {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.pending
	c.pending = 0
	return m
}

// pump tells what no request tells, until ctx ends or the client does not read.
// Beat, unless nil, is run every interval.
func (c *session) pump(ctx context.Context, out outlet, interval time.Duration, beat func() error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		var err error
		select {
		case <-c.wake:
			err = c.tell(out)
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
func (c *session) ask(ctx context.Context, out outlet, method string, params any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.srv.limits.Ask, fmt.Errorf("no answer within %v", c.srv.limits.Ask))
	defer cancel()
	reply := make(chan *rpcMessage, 1) // so that answered never waits
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
	case <-c.silent:
		select {
		case m := <-reply: // the last thing that it said
			return m.Result, m.failure()
		default:
			return nil, errNobody
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// answered takes an answer of the client. One that nobody waits for is dropped.
func (c *session) answered(m *rpcMessage) {
	c.mu.Lock()
	reply := c.waiting[string(m.ID)]
	delete(c.waiting, string(m.ID))
	c.mu.Unlock()
	if reply != nil {
		reply <- m
	}
}

// policy returns what decides about the session's calls.
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
	// What the person has allowed for good is behind what the owner wrote: a deny
	// rule still wins.
	with := *p
	with.Rules = slices.Concat(p.Rules, c.rules)
	return &with
}
