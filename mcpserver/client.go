package mcpserver

import (
	"context"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/park"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A client owns limits and the state of tools. It is a connection over stdio, a session over HTTP, or all clients
// without sessions over HTTP that have the same credential.
type client struct {
	cat     *catalogue
	name    string // for audit records; empty if several clients share it
	account *account
	owner   *owner // the account's
	tools   toolstate.State

	ctx        context.Context // cancelled when the client has left
	cancel     context.CancelFunc
	inputEnded <-chan struct{} // closed when the client can send nothing more; nil if the server cannot know that

	traffic
	parked park.Owner // of clients without sessions

	mu    sync.Mutex
	state state
}

// A state is the part of a client that another replica needs to take it over. It has only values: connections,
// goroutines and requests in flight are in other types. Without sessions only Scope is set, for its ceiling.
type state struct {
	Scope   *toolkit.Scope  // the open groups; never replaced
	Watched map[string]bool // the URIs of subscriptions; true if the client must be notified of an update

	Version      string            // of the protocol, as negotiated; empty before initialize
	Capabilities capabilities      // the client's
	Level        mcp.LoggingLevel  // the least severe level of log messages that are sent; if empty, none are sent
	Rules        []permission.Rule // that the user has accepted for the session
	Tools        string            // digest of the list of tools that the client has; empty before it has requested one
	Visible      visibleItems      // as of the last notification
}

// An owner is all clients of a credential, or all clients without one. They share limits, so that one
// credential cannot use up what all clients share.
type owner struct {
	sessions wire.Budget // over HTTP
	calls    wire.Budget // requests in flight
	watched  wire.Budget // subscriptions
	kept     wire.Budget // bytes of events that are kept for clients that reconnect
}

// All clients of a credential together may have sharedCalls times Limits.Calls requests in flight.
const sharedCalls = 16

// maxKept is how many bytes of events are kept for all sessions of a credential; with several credentials each has
// a quarter of it. Sessions that have ended count until their events are dropped.
const maxKept = 64 << 20

// newOwner returns an owner. Its limits depend on the number of identities.
func newOwner(l *Limits, identities int) *owner {
	o := &owner{}
	parts := int64(1)
	if identities > 1 {
		parts = 4
	}
	o.sessions.Max.Store(int64(l.Share))
	o.calls.Max.Store(int64(sharedCalls * l.Calls))
	o.watched.Max.Store(maxWatched / parts)
	o.kept.Max.Store(maxKept / parts)
	return o
}

// values returns a copy of the state. It shares Watched, which must not be used.
func (c *client) values() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// policy returns the policy for the client's calls.
func (c *client) policy() *permission.Policy {
	p := c.cat.policy()
	if c.account.Policy != nil {
		p = c.account.Policy
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.state.Rules) == 0 {
		return p
	}
	// The user's rules come after the owner's, so that a deny rule of the owner still wins.
	extended := *p
	extended.Rules = slices.Concat(p.Rules, c.state.Rules)
	return &extended
}

// credential returns the name of the client's identity; empty if it has none.
func (c *client) credential() string { return c.account.Name }
