package mcpserver

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver/internal/replica"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A registry has the accounts and the clients of a server.
type registry struct {
	cat       *catalogue
	ctx       context.Context // ends when the server is closed; the parent of all clients' contexts
	store     replica.Store
	anonymous *account       // of all clients over HTTP, if the server has no authentication
	divide    func(*account) // divides the limits of a new account among the replicas; nil without replicas

	mu        sync.Mutex
	closed    bool
	accounts  map[string]*account         // by account.key
	sessions  map[string]*session         // sessions over HTTP, by id
	scopes    map[*toolkit.Scope]*session // sessions over HTTP and stdio, by state.Scope
	listening map[*session]bool           // listeners: the sessions of requests subscriptions/listen, which are in no other map
	sweep     *time.Timer                 // runs sweepSessions; nil while there are no sessions over HTTP
}

func newRegistry(ctx context.Context, cat *catalogue, store replica.Store) *registry {
	g := &registry{cat: cat, ctx: ctx, store: store, accounts: map[string]*account{}, sessions: map[string]*session{},
		scopes: map[*toolkit.Scope]*session{}, listening: map[*session]bool{}}
	g.anonymous = g.newAccount(Identity{}, "", 1) // without authentication all clients are one identity
	g.anonymous.permanent = true
	for _, c := range cat.cfg.Credentials {
		a := g.newAccount(c.identity(), c.key(), cat.cfg.identities())
		a.permanent = true
		g.accounts[a.key] = a
	}
	return g
}

// newAccount returns the account of an identity. Its limits depend on the number of the server's identities; see newBudgets.
func (g *registry) newAccount(id Identity, key string, identities int) *account {
	return &account{Identity: id, key: key, budgets: newBudgets(&g.cat.limits, identities), buckets: g.newBuckets(key)}
}

// newClient returns a client of an account. With shared the client stands for all clients of the account that have no
// sessions. Otherwise it has a name for audit records, because anyone who has a session's id can use the session.
func (g *registry) newClient(who *account, shared bool) *client {
	c := &client{cat: g.cat, account: who, budgets: who.budgets}
	c.ctx, c.cancel = context.WithCancel(g.ctx)
	limit := g.cat.limits.Calls
	c.parked.Key, c.parked.Max = who.key, limit*sharedCalls
	if shared {
		limit *= sharedCalls
	} else {
		c.sessionName = rand.Text()[:12] // enough to be unique in the records
	}
	c.traffic = newTraffic(limit, &c.budgets.calls, shared)
	c.state.Scope = &toolkit.Scope{}
	c.state.Scope.SetCeiling(who.Ceiling)
	return c
}

// newSession returns a session that is not in the registry yet; see registerStdio, register and adopt.
func (g *registry) newSession(who *account) *session {
	return newSession(g.newClient(who, false))
}

// sharedClient returns the client that stands for all clients of an account that have no sessions.
func (g *registry) sharedClient(who *account) *client {
	g.mu.Lock()
	defer g.mu.Unlock()
	if who.shared == nil {
		who.shared = g.newClient(who, true)
		if g.closed {
			who.shared.stop()
		}
	}
	return who.shared
}

// registerStdio adds a session over stdio, so that it is notified of changes of the toolkit.
func (g *registry) registerStdio(c *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.scopes[c.state.Scope] = c
}

const tooManySessions = "too many sessions in total or for this credential; end one, or try again later"

// register adds a new session over HTTP. If there are too many sessions, it ends the new session and returns false.
func (g *registry) register(ctx context.Context, c *session) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	full := func() bool { return len(g.sessions) >= g.cat.limits.Sessions || c.budgets.sessions.Full() }
	if full() {
		g.removeIdleLocked()
	}
	if raise := c.budgets.sessions.More; full() && raise != nil {
		g.mu.Unlock() // raise uses the store of the replicas
		raise(ctx)
		g.mu.Lock()
	}
	if g.closed || full() {
		c.cancel()
		return false
	}
	c.id = rand.Text()
	g.addLocked(c)
	return true
}

// addLocked adds a session over HTTP, without checking the limits. The caller holds g.mu.
func (g *registry) addLocked(c *session) {
	g.sessions[c.id], g.scopes[c.state.Scope] = c, c
	c.budgets.sessions.Add(1)
	if g.sweep == nil {
		g.sweep = time.AfterFunc(g.sweepInterval(), g.sweepSessions)
	}
}

// adopt adds a session that another replica has opened, without checking the limits. If the registry is closed, it ends the
// session and returns false.
func (g *registry) adopt(c *session) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		c.cancel()
		return false
	}
	g.addLocked(c)
	return true
}

// remove ends a session and removes it.
func (g *registry) remove(c *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removeLocked(c)
}

// removeLocked is remove for a caller that holds g.mu.
func (g *registry) removeLocked(c *session) {
	c.cancel()
	delete(g.scopes, c.state.Scope)
	if g.sessions[c.id] == c { // not over stdio, and not if the session was removed before
		delete(g.sessions, c.id)
		c.budgets.sessions.Add(-1)
	}
}

// sweepInterval is how often sweepSessions runs.
func (g *registry) sweepInterval() time.Duration { return max(g.cat.limits.Idle/4, time.Minute) }

// sweepSessions ends idle sessions, which their clients have left without ending them. The data that tools keep for a session,
// such as a process, lives as long as the session.
func (g *registry) sweepSessions() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removeIdleLocked()
	if g.closed || len(g.sessions) == 0 {
		g.sweep = nil
		return
	}
	g.sweep.Reset(g.sweepInterval())
}

// removeIdleLocked ends the idle sessions over HTTP. The caller holds g.mu.
func (g *registry) removeIdleLocked() {
	for _, c := range g.sessions {
		if c.idle(g.cat.limits.Idle) {
			g.removeLocked(c)
		}
	}
}

// session returns the account's session over HTTP with the id, or nil if there is none or it is another account's.
func (g *registry) session(id string, who *account) *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.sessions[id]; c != nil && c.account == who {
		return c
	}
	return nil
}

// allSessions returns the sessions over HTTP and stdio.
func (g *registry) allSessions() []*session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.scopes))
}

// httpSessions returns the sessions over HTTP.
func (g *registry) httpSessions() []*session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.sessions))
}

// clients returns all clients, with and without sessions.
func (g *registry) clients() (all []*client) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.scopes {
		all = append(all, c.client)
	}
	for _, a := range g.allAccounts() {
		if a.shared != nil {
			all = append(all, a.shared)
		}
	}
	return all
}

// dropSessions ends the sessions over HTTP, because other replicas take them over.
func (g *registry) dropSessions() {
	for _, c := range g.httpSessions() {
		c.stop()
		g.remove(c)
	}
}

// sessionWithScope returns the session that has the scope, or nil.
func (g *registry) sessionWithScope(s *toolkit.Scope) *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.scopes[s]
}

// allAccounts returns all accounts. The caller holds g.mu, unless nothing else uses the registry yet.
func (g *registry) allAccounts() []*account {
	return slices.AppendSeq([]*account{g.anonymous}, maps.Values(g.accounts))
}

// setListening adds a listener if on is set, and otherwise removes it.
func (g *registry) setListening(c *session, on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if on {
		g.listening[c] = true
	} else {
		delete(g.listening, c)
	}
}

// listeners returns the sessions of requests subscriptions/listen.
func (g *registry) listeners() []*session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.listening))
}

// close ends all sessions and lets no further sessions register. Shared clients end with g.ctx.
func (g *registry) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.sweep != nil {
		g.sweep.Stop()
	}
	for _, c := range g.scopes {
		c.stop()
		c.cancel()
	}
	for _, a := range g.allAccounts() {
		if a.shared != nil {
			a.shared.stop()
		}
	}
}
