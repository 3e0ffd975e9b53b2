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

// A client is a connection over stdio, a session over HTTP, or all clients without sessions over HTTP that have the same
// credential. It has limits and the state of tools.
type client struct {
	cat         *catalogue
	sessionName string // for audit records; empty for clients without sessions
	account     *account
	budgets     *budgets // the account's
	tools       toolstate.State

	ctx        context.Context // cancelled when the client has left
	cancel     context.CancelFunc
	inputEnded <-chan struct{} // closed when the input of a connection over stdio has ended; nil over HTTP

	traffic
	parked park.Owner // the parked calls of clients without sessions

	mu    sync.Mutex
	state state
}

// A state is the part of a client that another replica needs to take over its session. A state has only values:
// connections, goroutines and requests in flight are in other types. Without sessions only Scope is set, for its ceiling.
type state struct {
	Scope   *toolkit.Scope  // the open groups; never replaced
	Watched map[string]bool // the URIs of subscriptions; true if the client must be notified of an update

	Version      string            // of the protocol, as negotiated; empty before initialize
	Capabilities capabilities      // the client's
	Level        mcp.LoggingLevel  // the least severe level of log messages that are sent; if empty, none are sent
	Rules        []permission.Rule // the suggested rules that the user has accepted for the session
	Tools        string            // digest of the list of tools that the client knows; empty before its first list or call
	Visible      visibleItems      // as of the last notification
}

// budgets limit what all clients of a credential may use together, or all clients without a credential, so that the clients
// of one credential leave something to others.
type budgets struct {
	sessions wire.Budget // over HTTP
	calls    wire.Budget // requests in flight
	watched  wire.Budget // subscriptions
	events   wire.Budget // bytes of events that are kept for clients that reconnect
}

const (
	sharedCalls   = 16       // all clients of a credential may have this times Limits.Calls requests in flight
	maxKeptEvents = 64 << 20 // bytes, for all sessions of a credential; events of ended sessions count until they are dropped
)

// newBudgets returns the budgets of one of several identities; each may use at most a quarter of maxWatched and
// maxKeptEvents. A single identity may use everything.
func newBudgets(l *Limits, identities int) *budgets {
	b, parts := &budgets{}, int64(1)
	if identities > 1 {
		parts = 4
	}
	b.sessions.Max.Store(int64(l.Share))
	b.calls.Max.Store(int64(sharedCalls * l.Calls))
	b.watched.Max.Store(maxWatched / parts)
	b.events.Max.Store(maxKeptEvents / parts)
	return b
}

// snapshot returns a copy of the state for reading, except Watched, which is not copied.
func (c *client) snapshot() state {
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
	// The user's rules come after the rules of the server's owner, so that a deny rule of the owner still wins.
	extended := *p
	extended.Rules = slices.Concat(p.Rules, c.state.Rules)
	return &extended
}

// credential returns the name of the client's identity; empty if it has none.
func (c *client) credential() string { return c.account.Name }
