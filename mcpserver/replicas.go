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
	"github.com/kitbag-go/kitbag/tool/toolstate"
)

// Replicas configures a server as one of several that act as one over HTTP. All of them must have the same
// configuration, except URL.
type Replicas struct {
	Shared Shared

	// URL is the address of this server's Handler for the other replicas, such as "http://10.0.0.7:8080/". They
	// forward clients' requests, with tokens, to it: the network between replicas must be private, or the URL
	// https.
	URL string
}

// A Shared has values by keys, each for a limited time. All replicas share it. It must be safe for concurrent use,
// and Swap must be atomic for all replicas. Whoever can write to it can act as any client. Package
// mcpserver/postgres has an implementation.
type Shared interface {
	// Get returns the value of a key, or nil if it has none.
	Get(ctx context.Context, key string) ([]byte, error)

	// Swap replaces the value of a key, if it is old, by new, and reports whether it did. If old is nil, the key must
	// have no value; if new is nil, it has none afterwards. The value is kept for at least ttl.
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
	streams   forwards // of sessions' streams
	calls     forwards // of all other requests

	mu sync.Mutex // held while a session is taken over or handed over
}

// A record is a session in the store. Its key is a hash of the session's id, so that reading the store is not enough to
// use the session.
type record struct {
	Holder     string           `json:"holder,omitempty"` // the replica's id; empty after the session was handed over
	Credential string           `json:"credential,omitempty"`
	SSE        bool             `json:"sse,omitempty"`   // the transport is HTTP+SSE, so the session ends with its stream
	Moves      int              `json:"moves,omitempty"` // how often a replica has taken over the session
	State      json.RawMessage  `json:"state"`
	Tools      *toolstate.State `json:"tools"`

	// After the session was handed over:
	Pending changes     `json:"pending,omitempty"`
	Streams []wire.Kept `json:"streams,omitempty"`
}

// A savedRecord is the last record of a session that this replica has stored.
type savedRecord struct {
	mu    sync.Mutex
	raw   []byte
	at    time.Time
	moves int
}

// questionsPerMove is larger than the number of questions that a session asks on one replica, so that no question
// has the id of an earlier one whose answer may still arrive.
const questionsPerMove = 1_000_000

func newReplicas(ctx context.Context, s *Server, cfg *Replicas, keys *replica.Keys, id string) (p *replicas, err error) {
	p = &replicas{srv: s, store: cfg.Shared, forwarder: replica.NewForwarder(id, keys, s.cat.limits.Write)}
	for _, f := range []*forwards{&p.streams, &p.calls} {
		f.ctx, f.end = context.WithCancel(ctx)
	}
	removed := func() {
		s.reg.dropSessions()
		p.quotas.Reset()
	}
	if p.members, err = replica.Join(ctx, id, cfg.URL, cfg.Shared, removed); err != nil {
		return nil, err
	}
	p.quotas = replica.NewQuotas(cfg.Shared, p.members)
	for _, a := range s.reg.allAccounts() {
		if err := p.divide(ctx, a); err != nil {
			return nil, err
		}
	}
	s.reg.divide = func(a *account) { _ = p.divide(ctx, a) } // cannot fail: accounts made after New are not kept
	return p, nil
}

// divide makes the limits of an account hold for all replicas together.
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
	tick := time.NewTicker(p.srv.cat.limits.Idle / 8) // a record expires after Idle
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, c := range p.srv.reg.overHTTP() {
				p.save(ctx, c)
			}
		case <-ctx.Done():
			return
		}
	}
}

// close removes the replica from the list.
func (p *replicas) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = p.members.Leave(ctx) // on failure the others remove it when its heartbeats are missing
	p.forwarder.Close()
}

func recordKey(id string) string { return "session/" + hash(id) }

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// load returns the record of a session of the credential, decoded and as stored, or nil if there is none.
func (p *replicas) load(ctx context.Context, id string, who *account) (*record, []byte, error) {
	raw, err := p.store.Get(ctx, recordKey(id))
	if err != nil {
		return nil, nil, replica.Unavailable(ctx, err)
	}
	var rec record
	if raw == nil || json.Unmarshal(raw, &rec) != nil || rec.Credential != who.key {
		return nil, nil, nil
	}
	return &rec, raw, nil
}

// newRecord returns a record of the session's current state. The record is not nil, even with an error.
func (c *session) newRecord(holder string) (*record, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, err := json.Marshal(c.state)
	return &record{Holder: holder, Credential: c.account.key, SSE: c.sse != nil, Moves: c.saved.moves, State: state, Tools: &c.tools}, err
}

// storeRecord replaces the session's stored record, unless it is the same and will not expire soon. It returns false if
// another replica has taken over the session. The caller holds c.saved.mu.
func (p *replicas) storeRecord(ctx context.Context, c *session, rec *record) (bool, error) {
	raw, err := json.Marshal(rec)
	ttl := p.srv.cat.limits.Idle
	if err != nil || bytes.Equal(raw, c.saved.raw) && time.Since(c.saved.at) < ttl/4 {
		return err == nil, err
	}
	for range 2 {
		ok, err := p.store.Swap(ctx, recordKey(c.id), c.saved.raw, raw, ttl)
		if ok {
			c.saved.raw, c.saved.at = raw, time.Now()
		}
		if ok || err != nil {
			return ok, err
		}
		// An earlier Swap may have stored its record although it returned an error.
		last, stored, err := p.load(ctx, c.id, c.account)
		if err != nil || last == nil || last.Holder != p.members.ID || last.Moves != c.saved.moves {
			return false, err
		}
		c.saved.raw = stored
	}
	return false, nil
}

// save stores the record of a session that this replica holds, if it has changed. It ends a session that another
// replica has taken over.
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
	_, _ = p.store.Swap(context.WithoutCancel(ctx), recordKey(c.id), c.saved.raw, nil, 0) // otherwise it expires
}

// find returns the session that a request is for if this replica holds it or can take it over. Otherwise it forwards the
// request, or refuses it, and returns nil. missing is the answer if there is no such session. m is nil for requests
// without a message.
func (p *replicas) find(w http.ResponseWriter, r *http.Request, who *account, id string, m *rpc.Message, missing string) *session {
	for range attempts(r.Context()) {
		if c := p.srv.reg.session(id, who); c != nil && p.members.Current() {
			return c
		}
		rec, raw, err := p.load(r.Context(), id, who)
		if err != nil {
			break
		}
		holder, url := "", "" // url stays empty if no other live replica holds the session
		if rec != nil && rec.Holder != p.members.ID && rec.Holder != "" {
			holder = rec.Holder
			if url, err = p.members.URL(r.Context(), holder); err != nil {
				break
			}
		}
		if rec != nil && url == "" && rec.SSE {
			_, _ = p.store.Swap(r.Context(), recordKey(id), raw, nil, 0) // on failure the record expires
			rec = nil
		}
		if rec == nil {
			http.Error(w, missing, http.StatusNotFound)
			return nil
		}
		if url == "" && p.members.Draining() {
			if holder, url = p.members.Other(); url == "" {
				continue
			}
		}
		if url == "" {
			if c := p.takeOver(r.Context(), id, who, rec, raw); c != nil {
				return c
			}
			continue
		}
		if isForwarded(r) {
			http.Error(w, "the session is on another replica", http.StatusMisdirectedRequest)
			return nil
		}
		if p.forward(w, r, holder, url, m) {
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

// takeOver makes this replica the holder of a session. It returns nil if another request or another replica was faster.
func (p *replicas) takeOver(ctx context.Context, id string, who *account, rec *record, raw []byte) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.srv.reg.session(id, who); c != nil {
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
	if err != nil { // another version of the server has stored the record
		c.cancel()
		p.forget(ctx, c)
		return nil
	}
	if !handedOver { // notifications may have been lost when the old holder died
		pending = toolsChanged | groupsChanged | resourceUpdated
		if c.cat.hasPrompts() {
			pending |= promptsChanged
		}
		if c.cat.hasResources() {
			pending |= resourcesChanged
		}
	}
	for uri, updated := range watched {
		if _, ok := c.watch(uri, nil); ok && (updated || !handedOver) {
			c.updated(uri)
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

// restore sets the session's state from a record, except its subscriptions, which it returns like state.Watched. The
// session keeps the credential's ceiling, because the record may have an older one.
func (c *session) restore(rec *record) (watched map[string]bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	scope, ceiling := c.state.Scope, c.state.Scope.Ceiling()
	err = json.Unmarshal(rec.State, &c.state)
	c.state.Scope = cmp.Or(c.state.Scope, scope) // the record may have null
	c.state.Scope.SetCeiling(ceiling)
	watched, c.state.Watched = c.state.Watched, nil
	if err == nil && rec.Tools != nil { // a State has a mutex, so it cannot be copied
		var tools []byte
		if tools, err = json.Marshal(rec.Tools); err == nil {
			err = json.Unmarshal(tools, &c.tools)
		}
	}
	return watched, err
}

// watchAgain subscribes to resources of upstream servers for a session that was taken over.
func (c *session) watchAgain(watched map[string]bool) {
	ctx, cancel := context.WithTimeout(c.ctx, acceptTimeout)
	defer cancel()
	r := &request{client: c.client, revision: c, msg: &rpc.Message{Method: "resources/subscribe"}, tk: c.cat.cfg.Toolkit, scope: c.state.Scope, log: c.log}
	for uri := range watched {
		if r.watchFor(ctx, c, uri) != nil {
			c.updated(uri) // so the client reads the resource, and gets the error
		}
	}
}

// handOver stores a session that has no calls in flight, for another replica to take over, and ends it on this replica.
func (p *replicas) handOver(ctx context.Context, c *session) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.saved.mu.Lock()
	defer c.saved.mu.Unlock()
	rec, err := c.newRecord("") // before ending the session, which ends its subscriptions
	p.srv.reg.remove(c)
	for end := time.Now().Add(closeTimeout); c.streaming() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	rec.Pending, rec.Streams = c.takePending(), c.replay.Export()
	if err == nil {
		_, err = p.storeRecord(ctx, c, rec)
	}
	return err
}
