package mcpgateway

import (
	"context"
	"fmt"
	"sync"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
)

// maxApart is how many sessions may have a process of one server at a time. Of several
// credentials each may have a quarter of them.
const maxApart = 256

// apart are the clients of a server that has a process for each session. They are
// known by the context that ends with the session.
type apart struct {
	cfg   mcpclient.Server
	share int // of a credential

	mu      sync.Mutex
	clients map[context.Context]*mcpclient.Client
	users   map[string]int // how many a credential has
	closed  bool
	closing sync.WaitGroup
}

// close waits for what the end of the sessions has begun. Nothing is started
// afterwards, by a call that has not heard of it yet for instance.
func (a *apart) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.closing.Wait()
}

// client returns the session's client, which is made for its first call and closed
// when the session ends.
func (a *apart) client(ctx context.Context) (*mcpclient.Client, error) {
	session := mcpserver.Session(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.clients[session]; c != nil {
		return c, nil
	}
	if a.closed || session.Err() != nil { // a client made now would be closed before it is used
		return nil, fmt.Errorf("MCP server %q: the session has ended", a.cfg.Name)
	}
	cfg, l := a.cfg, mcpserver.LoggerFrom(ctx)
	who := ""
	if l != nil {
		who = l.Credential()
	}
	if len(a.clients) >= maxApart || a.users[who] >= a.share {
		return nil, fmt.Errorf("MCP server %q: %d sessions have a process of it, %d of them with this credential; try again later", a.cfg.Name, len(a.clients), a.users[who])
	}
	if l != nil && cfg.Options.Log == nil { // whose messages these are there can be no doubt
		cfg.Options.Log = func(m mcpclient.LogMessage) { tell(l, cfg.Name, m) }
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
	a.users[who]++
	a.closing.Add(1)
	context.AfterFunc(session, func() {
		defer a.closing.Done()
		a.mu.Lock()
		delete(a.clients, session)
		if a.users[who]--; a.users[who] == 0 {
			delete(a.users, who)
		}
		a.mu.Unlock()
		_ = c.Close() // nobody is left who could be told
	})
	return c, nil
}

// tool returns the session's own of a tool that the shared process has listed. Lists
// are expected to be the same in all processes of a server; where they differ the
// model is told so.
func (a *apart) tool(ctx context.Context, listed tool.Tool) (tool.Tool, error) {
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
