package mcpgateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A Config configures a [Gateway]: its servers, their groups, and how they are served. Servers and
// Serve.Version are required.
type Config struct {
	// Servers are the servers behind the gateway. The gateway sets their Options.Prefix to the name and two
	// underscores. If Limits.Result is zero it is 16 MiB, because the host shortens the text for its model.
	Servers []mcpclient.Server

	Groups []Group  // in the order for the model; the servers' groups follow
	Labels []string // names of servers whose own groups are used

	// PerSession are names of servers that run in a separate process, or have a separate connection, for each
	// session: servers with state, such as a browser. The process starts with the session's first call and ends
	// with the session or, for clients of protocol 2026-07-28, which have no sessions, with the call. Another
	// process, which is shared, lists the tools.
	PerSession []string

	Initial []string // groups that are open initially; their servers are started with the first session

	Style Style

	// CacheDir is a directory for the names of the servers' tools, by which the groups of the next gateway are
	// described before their servers are started. If it is empty, nothing is stored.
	CacheDir string

	// AuditFile is the file to which a line of JSON is appended for every call; see [mcpserver.Record]. If it is
	// empty, there is no file. AuditArguments adds the arguments. The file may be moved or truncated while the
	// gateway runs. While it cannot be written, calls are refused.
	AuditFile      string
	AuditArguments bool

	Serve ServeOptions
}

// ServeOptions are the settings of the gateway's server; see [mcpserver.Config] for each field. Version is required.
type ServeOptions struct {
	Name            string // "kitbag" by default
	Version         string
	Title           string
	Instructions    string
	MaxInstructions int

	// New returns an error if a rule for tools of a server has a pattern, or if a rule names a server that does not
	// exist and the name is similar to that of an existing server. The tools of the servers are not known then.
	Policy      *permission.Policy
	Credentials []mcpserver.Credential
	Middleware  []tool.Middleware // around every call; the audit file is outside it
	Audit       func(mcpserver.Record)

	// Prompts and Resources are the gateway's own. They are served in addition to those of the servers.
	Prompts   []mcpserver.Prompt
	Resources []mcpserver.Resource

	PageSize, MaxListBytes int
	Hosts, Origins         []string
	Limits                 mcpserver.Limits
}

// config returns the configuration of the server, without the toolkit.
func (s *ServeOptions) config() mcpserver.Config {
	return mcpserver.Config{
		Name: cmp.Or(s.Name, "kitbag"), Version: s.Version, Title: s.Title,
		Instructions: s.Instructions, MaxInstructions: s.MaxInstructions,
		Policy: s.Policy, Credentials: s.Credentials, Middleware: s.Middleware, Audit: s.Audit,
		Prompts: s.Prompts, Resources: s.Resources, PageSize: s.PageSize, MaxListBytes: s.MaxListBytes,
		Hosts: s.Hosts, Origins: s.Origins, Limits: s.Limits,
	}
}

// A Group is a set of tools of one or more servers.
type Group struct {
	Name        string // letters, digits, "_", "-" and "."; unique
	Description string // what it is for; the model chooses groups by their descriptions

	// Tools are globs over tool names, SERVER__TOOL, in which "*" matches any text. A group without globs must have
	// the name of a server; it describes that server's group.
	Tools []string

	Instructions string   // for the model when it opens the group; they replace the servers' own
	Parents      []string // groups that must also be open
}

// A Gateway is an MCP server in front of others.
type Gateway struct {
	Server  *mcpserver.Server
	Toolkit *toolkit.Toolkit // the server's; only the gateway may call Update and Refresh

	cfg       Config
	upstreams []*upstream
	audit     *auditFile

	ctx          context.Context // cancelled by Close
	end          context.CancelFunc
	regroup      chan struct{} // buffers one signal that labels may have changed
	moreItems    chan struct{} // buffers one signal that another server is known to have prompts or resources
	itemsChanged func()        // notifies the clients whose lists of prompts or resources have changed
	work         sync.WaitGroup
}

// maxResult is the default of Limits.Result.
const maxResult = 16 << 20

// labelsTimeout is how long New waits for a server's groups. A server that takes longer is a single group until
// its groups are known.
const labelsTimeout = 10 * time.Second

// New returns a gateway. It starts no server except those of Config.Labels, which list their groups while ctx
// is not cancelled, for at most ten seconds. The caller must call Close.
func New(ctx context.Context, cfg Config) (*Gateway, error) {
	g := &Gateway{cfg: cfg, regroup: make(chan struct{}, 1), moreItems: make(chan struct{}, 1)}
	g.ctx, g.end = context.WithCancel(context.Background())
	if err := g.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("mcpgateway: %w", err), g.Close())
	}
	return g, nil
}

func (g *Gateway) open(ctx context.Context) (err error) {
	if err := g.cfg.check(); err != nil {
		return err
	}
	for _, c := range g.cfg.Servers {
		u, err := newUpstream(c, slices.Contains(g.cfg.Labels, c.Name), slices.Contains(g.cfg.PerSession, c.Name), g.cfg.CacheDir, g.signalRegroup, g.signalItems)
		if err != nil {
			return err
		}
		if u.sessions != nil && len(g.cfg.Serve.Credentials) > 1 {
			u.sessions.share = maxSessionClients / 4
		}
		g.upstreams = append(g.upstreams, u)
	}
	bounded, cancel := context.WithTimeout(ctx, labelsTimeout)
	defer cancel()
	g.refreshLabels(bounded)
	if g.Toolkit, err = toolkit.New(g.config(g.cfg.Style)); err != nil {
		return err
	}
	serve := g.cfg.Serve.config()
	serve.Toolkit = g.Toolkit
	mcpupstream.Attach(&serve, items{g})
	if g.cfg.AuditFile != "" {
		if g.audit, err = openAudit(g.cfg.AuditFile, g.cfg.AuditArguments); err != nil {
			return err
		}
		// The audit is outermost, so that no call runs without a record.
		serve.Middleware = append([]tool.Middleware{g.audit.middleware}, serve.Middleware...)
		next := serve.Audit
		serve.Audit = func(r mcpserver.Record) {
			g.audit.append(r)
			if next != nil {
				next(r)
			}
		}
	}
	if g.Server, err = mcpserver.New(serve); err != nil {
		return err
	}
	for _, u := range g.upstreams {
		u.client.OnChange(func() {
			if u.labeled {
				g.signalRegroup()
			}
			g.Toolkit.Refresh()
		})
	}
	g.work.Go(g.watchServers)
	return nil
}

// Close ends all sessions and stops all servers. It may be called more than once.
func (g *Gateway) Close() error {
	g.end()
	var errs []error
	if g.Server != nil {
		errs = append(errs, g.Server.Close())
	}
	var wg sync.WaitGroup
	closed := make([]error, len(g.upstreams))
	for i, u := range g.upstreams { // in parallel, because killing a server can take seconds
		wg.Go(func() { closed[i] = u.client.Close() })
	}
	wg.Wait()
	for _, u := range g.upstreams {
		if u.sessions != nil {
			u.sessions.close()
		}
	}
	g.work.Wait()
	if g.audit != nil {
		errs = append(errs, g.audit.close())
	}
	return errors.Join(append(errs, closed...)...)
}

// Status returns the status of each server, in the order of the configuration.
func (g *Gateway) Status() []mcpclient.Status {
	out := make([]mcpclient.Status, len(g.upstreams))
	for i, u := range g.upstreams {
		out[i] = u.client.Status()
	}
	return out
}

// A StyleCost is the cost of a style's first list of tools, in every request of the model.
type StyleCost struct {
	Style Style
	toolkit.Cost
}

// Costs starts all servers. It returns the cost of the first list in each style and of each open group, and the
// tools that could not be listed.
func (g *Gateway) Costs(ctx context.Context) (styles []StyleCost, groups []toolkit.Cost, skipped []toolkit.Skipped, err error) {
	for _, st := range Styles() {
		tk, err := toolkit.New(g.config(st))
		if err != nil {
			return nil, nil, nil, err
		}
		v, err := tk.View(ctx, &toolkit.Scope{})
		if err != nil {
			return nil, nil, nil, err
		}
		styles = append(styles, StyleCost{st, v.Cost().Total})
		if st == StyleFull { // its view lists every server
			groups, skipped = v.Cost().Groups, v.Skipped()
		}
	}
	return styles, groups, skipped, nil
}
