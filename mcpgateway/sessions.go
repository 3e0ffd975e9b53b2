package mcpgateway

import (
	"context"
	"fmt"
	"sync"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
)

// maxSessionClients is how many sessions may have a process of one server. With several
// credentials each may have a quarter of them.
const maxSessionClients = 256

// sessionClients are the clients of a server that has a process for each session, by the
// channel of [mcpserver.SessionDone].
type sessionClients struct {
	cfg   mcpclient.Server
	share int // of one credential

	mu           sync.Mutex
	clients      map[<-chan struct{}]*mcpclient.Client
	byCredential map[string]int // number of clients
	closed       bool
	closing      sync.WaitGroup
}

// close waits until the clients of ended sessions are closed. No client is made afterwards.
func (a *sessionClients) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.closing.Wait()
}

// client returns the session's client, which is made for its first call and closed when the
// session ends.
func (a *sessionClients) client(ctx context.Context) (*mcpclient.Client, error) {
	session := mcpserver.SessionDone(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.clients[session]; c != nil {
		return c, nil
	}
	if a.closed || ended(session) { // it would be closed at once
		return nil, fmt.Errorf("MCP server %q: the session has ended", a.cfg.Name)
	}
	cfg, l := a.cfg, mcpserver.LoggerFrom(ctx)
	who := ""
	if l != nil {
		who = l.Credential()
	}
	if len(a.clients) >= maxSessionClients || a.byCredential[who] >= a.share {
		return nil, fmt.Errorf("MCP server %q: too many sessions have a process of it (%d, of which %d with this credential); try again later", a.cfg.Name, len(a.clients), a.byCredential[who])
	}
	if l != nil && cfg.Options.Log == nil { // all its messages are for this session
		cfg.Options.Log = func(m mcpclient.LogMessage) { sendLog(l, cfg.Name, m) }
	}
	c, err := mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options)
	if err != nil {
		return nil, err
	}
	if l != nil {
		tune := func() { c.SetLogLevel(l.Level()) }
		if l.OnLevel(tune); l.Level() != "" {
			tune()
		}
	}
	a.clients[session] = c
	a.byCredential[who]++
	a.closing.Add(1)
	go func() {
		defer a.closing.Done()
		<-session
		a.mu.Lock()
		delete(a.clients, session)
		if a.byCredential[who]--; a.byCredential[who] == 0 {
			delete(a.byCredential, who)
		}
		a.mu.Unlock()
		_ = c.Close() // the session has ended
	}()
	return c, nil
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

// tool returns the session's version of a tool that the shared process has listed. Processes of
// a server usually have equal lists.
func (a *sessionClients) tool(ctx context.Context, listed tool.Tool) (tool.Tool, error) {
	c, err := a.client(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.Tools(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if t.Info().Name == listed.Info().Name {
			return t, nil
		}
	}
	return nil, fmt.Errorf("MCP server %q no longer has this tool", a.cfg.Name)
}
