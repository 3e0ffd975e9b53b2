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

// maxSessionClients is how many processes of one server the sessions may have. If there are several credentials, the
// sessions of each credential may have at most a quarter of that.
const maxSessionClients = 256

// sessionClients are the clients of a server that has a process for each session.
type sessionClients struct {
	cfg              mcpclient.Server
	maxPerCredential int    // clients
	gateway          string // a random name for this gateway; see claimProcess

	mu           sync.Mutex
	clients      map[<-chan struct{}]*mcpclient.Client // by the session's channel of mcpserver.SessionDone
	byCredential map[string]int                        // number of clients
	closed       chan struct{}
	closing      sync.WaitGroup
}

func newSessionClients(cfg mcpclient.Server, gateway string) *sessionClients {
	return &sessionClients{cfg: cfg, maxPerCredential: maxSessionClients, gateway: gateway,
		clients: map[<-chan struct{}]*mcpclient.Client{}, byCredential: map[string]int{}, closed: make(chan struct{})}
}

// close closes all clients, also those of sessions that continue, and waits until they are closed.
func (s *sessionClients) close() {
	s.mu.Lock()
	if !isClosed(s.closed) {
		close(s.closed)
	}
	s.mu.Unlock()
	s.closing.Wait()
}

// client returns the session's client, which is created for its first call and closed when the session ends.
func (s *sessionClients) client(ctx context.Context) (*mcpclient.Client, error) {
	session := mcpserver.SessionDone(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[session]; c != nil {
		return c, nil
	}
	if isClosed(s.closed) || isClosed(session) { // a new client would be closed at once
		return nil, fmt.Errorf("MCP server %q: the session has ended, or the gateway no longer has the server", s.cfg.Name)
	}
	cfg, logger := s.cfg, mcpserver.LoggerFrom(ctx)
	if s.claimProcess(ctx) {
		return nil, fmt.Errorf("MCP server %q: the session's process of this server has ended with the replica of the gateway that ran it, and its state is lost; this call was not made: call again to start a new process", cfg.Name)
	}
	credential := credentialOf(ctx)
	if len(s.clients) >= maxSessionClients || s.byCredential[credential] >= s.maxPerCredential {
		return nil, fmt.Errorf("MCP server %q: too many sessions have a process of this server (%d, of which %d with this credential); try again later", cfg.Name, len(s.clients), s.byCredential[credential])
	}
	if logger != nil && cfg.Options.Log == nil { // all messages of the process are for this session
		cfg.Options.Log = func(m mcpclient.LogMessage) { sendLog(logger, cfg.Name, m) }
	}
	c, err := mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options)
	if err != nil {
		return nil, err
	}
	if logger != nil {
		setLevel := func() { c.SetLogLevel(logger.Level()) }
		if logger.OnLevel(setLevel); logger.Level() != "" {
			setLevel()
		}
	}
	s.clients[session] = c
	s.byCredential[credential]++
	s.closing.Go(func() {
		select {
		case <-session:
		case <-s.closed:
		}
		s.mu.Lock()
		delete(s.clients, session)
		if s.byCredential[credential]--; s.byCredential[credential] == 0 {
			delete(s.byCredential, credential)
		}
		s.mu.Unlock()
		_ = c.Close() // no one needs the error of a process that is no longer used
	})
	return c, nil
}

// processes names the gateways that have the session's processes, by server. A replica that takes over the session gets
// these names with the state of the session's tools.
var processes = toolstate.NewKey[map[string]string]("mcpgateway.processes")

// claimProcess records that this gateway has the session's process, and reports whether another gateway had one, whose
// state is lost.
func (s *sessionClients) claimProcess(ctx context.Context) (lost bool) {
	_ = processes.Update(ctx, func(gateways *map[string]string) error { // fails only if ctx is not from mcpserver
		if *gateways == nil {
			*gateways = map[string]string{}
		}
		previous := (*gateways)[s.cfg.Name]
		(*gateways)[s.cfg.Name] = s.gateway
		lost = previous != "" && previous != s.gateway
		return nil
	})
	return lost
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// toolOf returns the client's tool with the name of a tool that another client of the same server has listed. The server
// may list other tools for each client.
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
