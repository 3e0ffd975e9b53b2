package mcpserver

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/toolkit"
)

// A registry has all clients of a server.
type registry struct {
	cat    *catalogue
	ctx    context.Context        // of all clients
	owners map[*Credential]*owner // the key nil is for clients without credentials

	mu        sync.Mutex
	closed    bool
	sessions  map[string]*session         // sessions over HTTP, by id
	scopes    map[*toolkit.Scope]*session // sessions of all kinds
	shared    map[*Credential]*client     // clients without sessions
	listening map[*session]bool           // clients without sessions that listen for changes
	sweep     *time.Timer                 // ends idle sessions; nil while there are no sessions over HTTP
}

func newRegistry(ctx context.Context, cat *catalogue) *registry {
	g := &registry{cat: cat, ctx: ctx, owners: map[*Credential]*owner{nil: newOwner(&cat.limits, 1)}, sessions: map[string]*session{},
		scopes: map[*toolkit.Scope]*session{}, shared: map[*Credential]*client{}, listening: map[*session]bool{}}
	for i := range cat.cfg.Credentials {
		g.owners[&cat.cfg.Credentials[i]] = newOwner(&cat.limits, len(cat.cfg.Credentials))
	}
	return g
}

// newClient returns a client that is not registered yet. Records contain its name, because anyone who has the id
// of a session can use the session. A shared client stands for all clients of a credential that have no sessions.
func (g *registry) newClient(cred *Credential, o *owner, shared bool) *client {
	c := &client{cat: g.cat, cred: cred, owner: o}
	c.ctx, c.end = context.WithCancel(g.ctx)
	limit := g.cat.limits.Calls
	c.parked.Max = limit * sharedCalls
	if shared {
		limit *= sharedCalls
	} else {
		c.name = rand.Text()[:12]
	}
	c.traffic = newTraffic(limit, &o.calls, shared)
	if c.state.Scope = (&toolkit.Scope{}); cred != nil {
		c.state.Scope.SetCeiling(cred.Ceiling)
	}
	return c
}

// newSession returns a session that is not registered yet; see add and register.
func (g *registry) newSession(cred *Credential) *session {
	return newSession(g.newClient(cred, g.owners[cred], false))
}

// sharedClient returns the client for all clients without sessions of a credential.
func (g *registry) sharedClient(cred *Credential) *client {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shared[cred] == nil {
		g.shared[cred] = g.newClient(cred, g.owners[cred], true)
	}
	return g.shared[cred]
}

// add registers a session for changes of the toolkit.
func (g *registry) add(c *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.scopes[c.state.Scope] = c
}

const tooManySessions = "too many sessions in total or for this credential; end one, or try again later"

// register adds a session over HTTP. If there are too many sessions it ends the new one and returns false.
func (g *registry) register(c *session) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	full := func() bool { return len(g.sessions) >= g.cat.limits.Sessions || c.owner.sessions >= g.cat.limits.Share }
	if full() {
		g.removeIdleLocked()
	}
	if g.closed || full() {
		c.end()
		return false
	}
	c.id = rand.Text()
	g.sessions[c.id], g.scopes[c.state.Scope] = c, c
	c.owner.sessions++
	if g.sweep == nil {
		g.sweep = time.AfterFunc(g.sweepInterval(), g.removeIdle)
	}
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
	c.end()
	delete(g.scopes, c.state.Scope)
	if g.sessions[c.id] == c {
		delete(g.sessions, c.id)
		c.owner.sessions--
	}
}

// sweepInterval is how often removeIdle runs.
func (g *registry) sweepInterval() time.Duration { return max(g.cat.limits.Idle/4, time.Minute) }

// removeIdle ends sessions whose clients have left without ending them: the data that tools keep for a session,
// such as a process, lives as long as the session.
func (g *registry) removeIdle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removeIdleLocked()
	if g.closed || len(g.sessions) == 0 {
		g.sweep = nil
		return
	}
	g.sweep.Reset(g.sweepInterval())
}

// removeIdleLocked ends the sessions that are idle. The caller holds g.mu.
func (g *registry) removeIdleLocked() {
	for _, c := range g.sessions {
		if c.idle(g.cat.limits.Idle) {
			g.removeLocked(c)
		}
	}
}

// session returns the session over HTTP that has the id and the credential, or nil. A session of another
// credential is treated as missing.
func (g *registry) session(id string, cred *Credential) *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.sessions[id]; c != nil && c.cred == cred {
		return c
	}
	return nil
}

// all returns the sessions of all kinds.
func (g *registry) all() []*session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.scopes))
}

// ofScope returns the session that has the scope, or nil.
func (g *registry) ofScope(s *toolkit.Scope) *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.scopes[s]
}

// setListening adds a listener, or removes it.
func (g *registry) setListening(c *session, on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if on {
		g.listening[c] = true
	} else {
		delete(g.listening, c)
	}
}

// listeners returns the clients without sessions that listen for changes.
func (g *registry) listeners() []*session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.listening))
}

// close ends all sessions, and lets no further ones register.
func (g *registry) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.sweep != nil {
		g.sweep.Stop()
	}
	for _, c := range g.scopes {
		c.end()
	}
}
