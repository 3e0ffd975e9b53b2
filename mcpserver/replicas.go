package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver/internal/replica"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
)

// Replicas makes a server one of several replicas, each of which serves all clients over HTTP. All replicas must have the same
// configuration, except URL.
type Replicas struct {
	Shared Shared

	// URL is the address of this server's Handler for the other replicas, such as "http://10.0.0.7:8080/". They
	// forward clients' requests, with tokens, to it: the network between replicas must be private, or the URL
	// https.
	URL string
}

// A Shared is a store that all replicas share. It has values by keys, each for a limited time. It must be safe for concurrent
// use, and Swap must be atomic for all replicas. Whoever can write to it can act as any client. Package postgres/pggateway
// has an implementation.
type Shared interface {
	// Get returns the value of a key, or nil if the key has no value.
	Get(ctx context.Context, key string) ([]byte, error)

	// Swap sets the value of a key to new if the value is old, and reports whether it did. If old is nil, the key must
	// have no value; if new is nil, Swap removes the value. The value is kept for at least ttl.
	Swap(ctx context.Context, key string, old, new []byte, ttl time.Duration) (bool, error)
}

// NewShared returns a Shared for replicas in one process, as in tests.
func NewShared() Shared { return new(replica.Memory) }

func (r *Replicas) check() error {
	u, err := url.Parse(r.URL)
	switch {
	case r.Shared == nil:
		return errors.New("Config.Replicas.Shared is nil; set it to the same store for all replicas")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("Config.Replicas.URL is %q; it must be the http or https URL under which the other replicas reach this one", r.URL)
	}
	return nil
}

// replicas connects a server with the other replicas. One replica holds a session and serves all of its requests;
// the others forward them. The store has a record of the session, with which another replica takes it over after
// its holder has handed it over or died.
type replicas struct {
	srv       *Server
	store     Shared
	members   *replica.Members
	quotas    *replica.Quotas
	forwarder *replica.Forwarder
	streams   forwards // requests with GET, which open or resume a session's stream
	calls     forwards // all other requests

	mu sync.Mutex // held while a session is taken over or handed over
}

// A record is what the store has of a session. The key in the store is a hash of the session's id, so that reading the store
// is not enough to use the session.
type record struct {
	Holder     string          `json:"holder,omitempty"`     // the replica's id; empty after the session was handed over
	Credential string          `json:"credential,omitempty"` // account.key
	SSE        bool            `json:"sse,omitempty"`        // the transport is HTTP+SSE, so the session ends with its stream
	Moves      int             `json:"moves,omitempty"`      // how often a replica has taken over the session
	State      json.RawMessage `json:"state"`                // client.state
	Tools      json.RawMessage `json:"tools"`                // client.tools

	// Only after the session was handed over:
	Pending changes     `json:"pending,omitempty"`
	Streams []wire.Kept `json:"streams,omitempty"`
}

// A savedRecord is the last record of a session that this replica has stored.
type savedRecord struct {
	mu    sync.Mutex // held while the record is stored
	raw   []byte     // the encoded record; nil if it was never stored
	at    time.Time  // when it was stored
	moves int        // record.Moves
}

// questionsPerMove is how many numbers of questions each replica has for a session: more than it uses. So an answer to a
// question of an earlier replica is never taken for the answer to a new question.
const questionsPerMove = 1_000_000

func newReplicas(ctx context.Context, s *Server, cfg *Replicas, keys *replica.Keys, id string) (p *replicas, err error) {
	p = &replicas{srv: s, store: cfg.Shared, forwarder: replica.NewForwarder(id, keys, s.cat.limits.Write)}
	for _, f := range []*forwards{&p.streams, &p.calls} {
		f.ctx, f.end = context.WithCancel(ctx)
	}
	onRemoved := func() { // the other replicas have removed this one as dead
		s.reg.dropSessions()
		p.quotas.Reset()
	}
	if p.members, err = replica.Join(ctx, id, cfg.URL, cfg.Shared, onRemoved); err != nil {
		return nil, err
	}
	p.quotas = replica.NewQuotas(cfg.Shared, p.members)
	for _, a := range s.reg.allAccounts() {
		if err := p.divide(ctx, a); err != nil {
			return nil, err
		}
	}
	s.reg.divide = func(a *account) { _ = p.divide(ctx, a) } // only fails for permanent accounts, and this one is new
	return p, nil
}

// divide divides the limits of an account among the replicas.
func (p *replicas) divide(ctx context.Context, a *account) error {
	limit := func(name string, b *wire.Budget) replica.Limit {
		return replica.Limit{Name: name, Max: b.Max.Load(), Budget: b}
	}
	return p.quotas.Add(ctx, hash(a.key), a.permanent, limit("sessions", &a.budgets.sessions), limit("calls", &a.budgets.calls))
}

// run stores the replica's heartbeats, its parts of limits and the records of its sessions, until ctx ends.
func (p *replicas) run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { p.members.Run(ctx) })
	work.Go(func() { p.quotas.Run(ctx) })
	tick := time.NewTicker(p.srv.cat.limits.Idle / 8) // often enough, because a stored record expires after Idle
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, c := range p.srv.reg.httpSessions() {
				p.save(ctx, c)
			}
		case <-ctx.Done():
			return
		}
	}
}

// close removes this replica from the list of live replicas.
func (p *replicas) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = p.members.Leave(ctx) // on failure the other replicas remove this one after missing its heartbeats
	p.forwarder.Close()
}

func recordKey(id string) string { return "session/" + hash(id) }

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// load returns the record of a session of the account, decoded and as stored. rec is nil if there is no such record, or if it
// cannot be decoded.
func (p *replicas) load(ctx context.Context, id string, who *account) (rec *record, raw []byte, err error) {
	raw, err = p.store.Get(ctx, recordKey(id))
	if err != nil {
		return nil, nil, replica.Unavailable(ctx, err)
	}
	if raw == nil || json.Unmarshal(raw, &rec) != nil || rec == nil || rec.Credential != who.key {
		return nil, nil, nil
	}
	return rec, raw, nil
}

// newRecord returns a record of the session as it is now, held by the replica with the id holder, or handed over.
func (c *session) newRecord(holder string) (*record, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, err := json.Marshal(c.state)
	tools, toolsErr := json.Marshal(&c.tools)
	return &record{Holder: holder, Credential: c.account.key, SSE: c.sse != nil, Moves: c.saved.moves, State: state, Tools: tools}, errors.Join(err, toolsErr)
}

// storeRecord replaces the session's stored record by rec, unless both are equal and the stored record does not expire soon.
// It returns false if another replica has taken over the session. The caller holds c.saved.mu.
func (p *replicas) storeRecord(ctx context.Context, c *session, rec *record) (held bool, err error) {
	raw, err := json.Marshal(rec)
	ttl := p.srv.cat.limits.Idle
	if err != nil || bytes.Equal(raw, c.saved.raw) && time.Since(c.saved.at) < ttl/4 {
		return err == nil, err
	}
	for range 2 {
		swapped, err := p.store.Swap(ctx, recordKey(c.id), c.saved.raw, raw, ttl)
		if swapped {
			c.saved.raw, c.saved.at = raw, time.Now()
		}
		if swapped || err != nil {
			return swapped, err
		}
		// An earlier Swap may have stored this replica's record although it returned an error: then replace that record.
		stored, storedRaw, err := p.load(ctx, c.id, c.account)
		if err != nil || stored == nil || stored.Holder != p.members.ID || stored.Moves != c.saved.moves {
			return false, err
		}
		c.saved.raw = storedRaw
	}
	return false, nil
}

// save stores the record of a session that this replica holds, if the record has changed. It ends the session if another
// replica has taken it over.
func (p *replicas) save(ctx context.Context, c *session) {
	c.saved.mu.Lock()
	defer c.saved.mu.Unlock()
	if c.ctx.Err() != nil {
		return
	}
	rec, err := c.newRecord(p.members.ID)
	held := false
	if err == nil {
		held, err = p.storeRecord(context.WithoutCancel(ctx), c, rec)
	}
	switch {
	case err != nil:
		_ = replica.Unavailable(ctx, err) // logs the error; the next save may succeed
	case !held:
		c.stop()
		p.srv.reg.remove(c)
	}
}

// forget removes the record of a session that has ended.
func (p *replicas) forget(ctx context.Context, c *session) {
	c.saved.mu.Lock()
	defer c.saved.mu.Unlock()
	_, _ = p.store.Swap(context.WithoutCancel(ctx), recordKey(c.id), c.saved.raw, nil, 0) // on failure the record expires
}

// findOrForward returns the session that a request is for, if this replica holds the session or can take it over. Otherwise it
// forwards or refuses the request and returns nil. missing is the answer if there is no such session. m is nil for a request
// without a message.
func (p *replicas) findOrForward(w http.ResponseWriter, r *http.Request, who *account, id string, m *rpc.Message, missing string) *session {
	for range attempts(r.Context()) {
		if c := p.srv.reg.session(id, who); c != nil && p.members.Current() {
			return c
		}
		rec, raw, err := p.load(r.Context(), id, who)
		if err != nil {
			break
		}
		target, url := "", "" // the replica to forward to; url is empty if there is none
		if rec != nil && rec.Holder != "" && rec.Holder != p.members.ID {
			target = rec.Holder
			if url, err = p.members.URL(r.Context(), target); err != nil {
				break
			}
		}
		if rec != nil && rec.SSE && url == "" { // the session has ended with its stream, when its holder died
			_, _ = p.store.Swap(r.Context(), recordKey(id), raw, nil, 0) // on failure the record expires
			rec = nil
		}
		if rec == nil {
			http.Error(w, missing, http.StatusNotFound)
			return nil
		}
		draining := p.members.Draining()
		if url == "" && draining {
			target, url = p.members.Other() // which takes over the session
		}
		switch {
		case url == "" && draining: // try again: another replica may join
		case url == "":
			if c := p.takeOver(r.Context(), id, who, rec, raw); c != nil {
				return c
			}
		case isForwarded(r):
			http.Error(w, "the session is on another replica", http.StatusMisdirectedRequest)
			return nil
		case p.forward(w, r, target, url, m):
			return nil
		}
	}
	status := http.StatusServiceUnavailable
	if isForwarded(r) { // the forwarding replica tries again
		status = http.StatusMisdirectedRequest
	}
	http.Error(w, "the replica that has the session cannot be reached; try again", status)
	return nil
}

// takeOver makes this replica the holder of a session with the record rec, which is stored as raw. It returns nil if another
// replica was faster, or if the record cannot be used or replaced; the caller then looks for the session again.
func (p *replicas) takeOver(ctx context.Context, id string, who *account, rec *record, raw []byte) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.srv.reg.session(id, who); c != nil { // another request was faster
		return c
	}
	handedOver, streams, pending := rec.Holder == "", rec.Streams, rec.Pending
	rec.Holder, rec.Streams, rec.Pending = p.members.ID, nil, 0
	rec.Moves++
	taken, err := json.Marshal(rec)
	if err != nil {
		return nil
	}
	if ok, err := p.store.Swap(ctx, recordKey(id), raw, taken, p.srv.cat.limits.Idle); !ok || err != nil {
		return nil
	}
	c := p.srv.reg.newSession(who)
	c.id = id
	c.saved.raw, c.saved.at, c.saved.moves = taken, time.Now(), rec.Moves
	c.questions.asked = rec.Moves * questionsPerMove
	watched, err := c.restore(rec)
	if err != nil { // the record is from another version of the server
		c.cancel()
		p.forget(ctx, c)
		return nil
	}
	if !handedOver { // the previous holder died: notify of everything, because its notifications may be lost
		pending = toolsChanged | groupsChanged | resourceUpdated
		if c.cat.hasPrompts() {
			pending |= promptsChanged
		}
		if c.cat.hasResources() {
			pending |= resourcesChanged
		}
	}
	for uri, updated := range watched {
		if _, ok := c.watch(uri, nil); ok && (updated || !handedOver) { // watchAgain subscribes to upstream servers
			c.markUpdated(uri)
		}
	}
	c.replay.Import(streams, c.readsEmptyEvents())
	c.notify(pending, true)
	if !p.srv.reg.adopt(c) {
		return nil
	}
	c.budgets.sessions.More(ctx) // the session counts towards this replica's part of the limit from now on
	p.srv.background(func() { c.watchAgain(watched) })
	return c
}

// restore sets the session's state from a record, except state.Watched, which it returns. The session keeps the account's
// ceiling, because the record may have an older ceiling.
func (c *session) restore(rec *record) (watched map[string]bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	scope, ceiling := c.state.Scope, c.state.Scope.Ceiling()
	err = errors.Join(json.Unmarshal(rec.State, &c.state), json.Unmarshal(rec.Tools, &c.tools))
	c.state.Scope = cmp.Or(c.state.Scope, scope) // the record may have null
	c.state.Scope.SetCeiling(ceiling)
	watched, c.state.Watched = c.state.Watched, nil
	return watched, err
}

// watchAgain subscribes to resources of upstream servers for a session that was taken over.
func (c *session) watchAgain(watched map[string]bool) {
	ctx, cancel := context.WithTimeout(c.ctx, subscribeTimeout)
	defer cancel()
	r := c.newRequest(&rpc.Message{Method: "resources/subscribe"}, nil)
	for uri := range watched {
		if r.watchResource(ctx, c, uri) != nil {
			c.markUpdated(uri) // so the client reads the resource, and gets the error
		}
	}
}

// handOver ends a session that has no calls in flight on this replica, and stores it for another replica to take over.
func (p *replicas) handOver(ctx context.Context, c *session) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.saved.mu.Lock()
	defer c.saved.mu.Unlock()
	rec, err := c.newRecord("") // before ending the session, which ends its subscriptions
	p.srv.reg.remove(c)
	for end := time.Now().Add(closeTimeout); c.streaming() && time.Now().Before(end); { // a stream may still be sending
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		return err
	}
	rec.Pending, rec.Streams = c.takePending(), c.replay.Export()
	_, err = p.storeRecord(ctx, c, rec)
	return err
}
