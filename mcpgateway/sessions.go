package mcpgateway

import (
	"context"
	"fmt"
	"sync"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
)

// maxSessionClients is how many sessions may have a process of one server. With several credentials each may
// have at most a quarter of them.
const maxSessionClients = 256

// sessionClients are the clients of a server that has a process for each session. The keys are the channels of
// [mcpserver.SessionDone].
type sessionClients struct {
	cfg     mcpclient.Server
	share   int    // the limit for one credential
	gateway string // a random name for this gateway; see claimProcess

	mu           sync.Mutex
	clients      map[<-chan struct{}]*mcpclient.Client
	byCredential map[string]int // number of clients
	closed       bool
	closing      sync.WaitGroup
}

// close waits until the clients of ended sessions are closed. No client is created afterwards.
func (a *sessionClients) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.closing.Wait()
}

// client returns the session's client, which is created for its first call and closed when the session ends.
func (a *sessionClients) client(ctx context.Context) (*mcpclient.Client, error) {
	session := mcpserver.SessionDone(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.clients[session]; c != nil {
		return c, nil
	}
	if a.closed || ended(session) { // a new client would be closed at once
		return nil, fmt.Errorf("MCP server %q: the session has ended", a.cfg.Name)
	}
	cfg, l := a.cfg, mcpserver.LoggerFrom(ctx)
	if a.claimProcess(ctx) {
		return nil, fmt.Errorf("MCP server %q: the session's process of this server has ended with the replica of the gateway that ran it, and its state is lost; this call was not made: call again to start a new process", cfg.Name)
	}
	cred := credentialOf(ctx)
	if len(a.clients) >= maxSessionClients || a.byCredential[cred] >= a.share {
		return nil, fmt.Errorf("MCP server %q: too many sessions have a process of this server (%d, of which %d with this credential); try again later", a.cfg.Name, len(a.clients), a.byCredential[cred])
	}
	if l != nil && cfg.Options.Log == nil { // all messages of the process are for this session
		cfg.Options.Log = func(m mcpclient.LogMessage) { sendLog(l, cfg.Name, m) }
	}
	c, err := mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options)
	if err != nil {
		return nil, err
	}
	if l != nil {
		setLevel := func() { c.SetLogLevel(l.Level()) }
		if l.OnLevel(setLevel); l.Level() != "" {
			setLevel()
		}
	}
	a.clients[session] = c
	a.byCredential[cred]++
	a.closing.Add(1)
	go func() {
		defer a.closing.Done()
		<-session
		a.mu.Lock()
		delete(a.clients, session)
		if a.byCredential[cred]--; a.byCredential[cred] == 0 {
			delete(a.byCredential, cred)
		}
		a.mu.Unlock()
		_ = c.Close() // the session has ended
	}()
	return c, nil
}

// processes names the gateways that have the session's processes, by server. It is kept with the state of the session's
// tools, which other replicas of the gateway get with the session.
var processes = toolstate.NewKey[map[string]string]("mcpgateway.processes")

// claimProcess records that this gateway has the session's process, and reports whether another gateway had one, whose
// state is lost.
func (a *sessionClients) claimProcess(ctx context.Context) (lost bool) {
	_ = processes.Update(ctx, func(m *map[string]string) error { // fails only for requests that are not calls
		if *m == nil {
			*m = map[string]string{}
		}
		owner := (*m)[a.cfg.Name]
		(*m)[a.cfg.Name] = a.gateway
		lost = owner != "" && owner != a.gateway
		return nil
	})
	return lost
}

// ended reports whether the channel of a session is closed.
func ended(session <-chan struct{}) bool {
	select {
	case <-session:
		return true
	default:
		return false
	}
}

// toolOf returns the tool of a client that another client of the same server has listed. Usually both have the same list.
func toolOf(ctx context.Context, c *mcpclient.Client, listed tool.Tool) (tool.Tool, error) {
	all, err := c.Tools(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if t.Info().Name == listed.Info().Name {
			return t, nil
		}
	}
	return nil, fmt.Errorf("MCP server %q no longer has this tool", c.Name())
}
