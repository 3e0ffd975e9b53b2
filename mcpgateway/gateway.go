package mcpgateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A Gateway is an MCP server in front of others.
type Gateway struct {
	Server  *mcpserver.Server
	Toolkit *toolkit.Toolkit // of Server; only the gateway may call Update and Refresh

	current atomic.Pointer[generation]
	audit   *auditLog                // nil without Config.AuditFile and Config.AuditWriter
	auth    mcpserver.ResourceServer // nil without Config.OAuth
	logins  *logins                  // nil without Config.Logins
	saved   atomic.Int64             // the result of Saved

	draining atomic.Bool // set by Drain

	ctx          context.Context // cancelled by Close
	cancel       context.CancelFunc
	regroup      chan struct{} // buffers one signal that labels may have changed
	moreItems    chan struct{} // buffers one signal that another server is known to have prompts or resources
	itemsChanged func()        // notifies the clients whose lists of prompts or resources have changed; set by mcpserver.New
	background   sync.WaitGroup

	replacing sync.Mutex // held while the groups or current are replaced
}

// A generation has the parts of a gateway that a reload replaces. It does not change after New or Reload.
type generation struct {
	cfg       Config
	upstreams []*upstream
	revision  Revision
}

// maxResult is the default of Limits.Result.
const maxResult = 16 << 20

// labelsTimeout is how long New and Reload wait for a server's groups. A server that takes longer is a single group
// until its groups are known.
const labelsTimeout = 10 * time.Second

// New returns a gateway. It starts no server except those of Config.Labels, which list their groups while ctx
// is not cancelled, for at most ten seconds. The caller must call Close.
func New(ctx context.Context, cfg Config) (*Gateway, error) {
	g := &Gateway{regroup: make(chan struct{}, 1), moreItems: make(chan struct{}, 1)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if err := g.open(ctx, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("mcpgateway: %w", err), g.Close())
	}
	return g, nil
}

// open makes what New returns. After an error, New closes the parts that exist.
func (g *Gateway) open(ctx context.Context, cfg Config) (err error) {
	if err := cfg.check(); err != nil {
		return err
	}
	gen := &generation{cfg: cfg, revision: revisionOf(1, cfg)}
	g.current.Store(gen)
	serve := cfg.Serve.config()
	if err := g.openAuth(&cfg, &serve); err != nil {
		return err
	}
	for _, c := range cfg.Servers {
		u, err := g.newUpstream(c, &cfg)
		if err != nil {
			return err
		}
		gen.upstreams = append(gen.upstreams, u)
	}
	labelsCtx, cancel := context.WithTimeout(ctx, labelsTimeout)
	defer cancel()
	gen.refreshLabels(labelsCtx)
	config, groupNames := gen.toolkitConfig(cfg.Style)
	if g.Toolkit, err = toolkit.New(config); err != nil {
		return err
	}
	gen.setGroupNames(groupNames)
	serve.Toolkit, serve.Listed = g.Toolkit, g.addSaved
	mcpupstream.Attach(&serve, items{g})
	if cfg.AuditFile != "" || cfg.AuditWriter != nil {
		if g.audit, err = openAudit(&cfg); err != nil {
			return err
		}
		// The middleware of the audit log is outermost, so that no call runs without a record.
		serve.Middleware = append([]tool.Middleware{g.audit.middleware}, serve.Middleware...)
		configured := serve.Audit
		serve.Audit = func(r mcpserver.Record) {
			g.audit.append(r)
			if configured != nil {
				configured(r)
			}
		}
	}
	if g.Server, err = mcpserver.New(serve); err != nil {
		return err
	}
	if err := g.Server.Reload(serve.Policy, gen.revision.String()); err != nil {
		return err
	}
	for _, u := range gen.upstreams {
		g.watch(u)
	}
	g.background.Go(g.watchServers)
	if g.logins != nil {
		g.background.Go(g.logins.closeEndedPeriodically)
	}
	return nil
}

// openAuth sets serve.Authenticator if the gateway has users of OAuth issuers.
func (g *Gateway) openAuth(cfg *Config, serve *mcpserver.Config) (err error) {
	if cfg.OAuth == nil {
		return nil
	}
	if cfg.OpenOAuth == nil {
		return errors.New("OAuth is set without OpenOAuth, so that no token could be checked; set OpenOAuth to oauth.New of package mcpserver/oauth")
	}
	if g.auth, err = cfg.OpenOAuth(*cfg.OAuth); err != nil {
		return err
	}
	serve.Authenticator = g.auth
	if cfg.Logins == nil {
		return nil
	}
	if g.logins, err = newLogins(g, cfg); err != nil {
		return err
	}
	serve.Authenticator = loginAuthenticator{g.auth, g.logins}
	return nil
}

// newUpstream returns the upstream of a server of cfg.
func (g *Gateway) newUpstream(c mcpclient.Server, cfg *Config) (*upstream, error) {
	var tokens *tokenSource
	if i := slices.IndexFunc(cfg.UpstreamTokens, func(t UpstreamToken) bool { return t.Server == c.Name }); i >= 0 {
		tokens = newTokenSource(cfg.UpstreamTokens[i], c.Transport.(mcpclient.HTTP), g.logins) // Config.check has checked the type
	}
	u, err := newUpstream(c, tokens, slices.Contains(cfg.Labels, c.Name), slices.Contains(cfg.PerSession, c.Name), cfg.CacheDir,
		func() { signal(g.regroup) }, func() { signal(g.moreItems) })
	severalCredentials := len(cfg.Serve.Credentials) > 1 || cfg.OAuth != nil || cfg.Serve.Authenticator != nil
	if err == nil && u.sessions != nil && severalCredentials { // none may use up all processes
		u.sessions.maxPerCredential = maxSessionClients / 4
	}
	return u, err
}

// watch updates the groups and lists of the gateway when an upstream's lists change.
func (g *Gateway) watch(u *upstream) {
	u.client.OnChange(func() {
		if u.labeled {
			signal(g.regroup)
		}
		g.Toolkit.Refresh()
	})
	u.client.OnPromptsChange(g.itemsChanged)
	u.client.OnResourcesChange(g.itemsChanged)
}

// Close ends all sessions and stops all servers. It may be called more than once.
func (g *Gateway) Close() error {
	g.cancel()
	var errs []error
	if g.Server != nil {
		errs = append(errs, g.Server.Close())
	}
	if gen := g.current.Load(); gen != nil {
		errs = append(errs, closeAll(gen.upstreams))
	}
	g.background.Wait()
	if g.audit != nil {
		errs = append(errs, g.audit.close())
	}
	if g.auth != nil {
		errs = append(errs, g.auth.Close())
	}
	return errors.Join(errs...)
}

// closeAll stops the servers, in parallel, because killing a process can take seconds.
func closeAll(upstreams []*upstream) error {
	var wg sync.WaitGroup
	errs := make([]error, len(upstreams))
	for i, u := range upstreams {
		wg.Go(func() {
			errs[i] = u.client.Close()
			if u.sessions != nil {
				u.sessions.close()
			}
			if u.users != nil {
				u.users.close()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Status returns the status of each server, in the order of the configuration.
func (g *Gateway) Status() []mcpclient.Status {
	upstreams := g.current.Load().upstreams
	out := make([]mcpclient.Status, len(upstreams))
	for i, u := range upstreams {
		out[i] = u.client.Status()
	}
	return out
}

// A StyleCost is what the first list of tools in a style adds to every request to the model.
type StyleCost struct {
	Style Style
	toolkit.Cost
}

// Costs starts all servers. It returns the cost of the first list in each style and of each open group, and the
// tools that could not be listed.
func (g *Gateway) Costs(ctx context.Context) (styles []StyleCost, groups []toolkit.Cost, skipped []toolkit.Skipped, err error) {
	for _, st := range Styles() {
		cfg, _ := g.current.Load().toolkitConfig(st)
		tk, err := toolkit.New(cfg)
		if err != nil {
			return nil, nil, nil, err
		}
		v, err := tk.View(ctx, &toolkit.Scope{})
		if err != nil {
			return nil, nil, nil, err
		}
		styles = append(styles, StyleCost{st, v.Cost().Total})
		if st == StyleFull { // the only style in which all groups are open
			groups, skipped = v.Cost().Groups, v.Skipped()
		}
	}
	return styles, groups, skipped, nil
}
