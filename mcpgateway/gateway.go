package mcpgateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A Config says which servers are joined, in which groups, and how they are
// served. Servers is required.
type Config struct {
	// Servers are those behind the gateway. A Prefix is given to each: its name
	// and two underscores. A zero MaxResult is 16 MiB: it is for the host to
	// shorten what its model reads.
	Servers []mcpclient.Server

	Groups []Group  // in the order in which the model reads of them, before those of servers
	Labels []string // names of servers whose own groups are used

	// PerSession are names of servers of which each session has a process, or a
	// connection, of its own: one that keeps what it is told, such as a browser.
	// It is started for the session's first call and ends with the session; of
	// clients of protocol 2026-07-28, which have no sessions, with the call. A
	// further process is shared, to list the tools.
	PerSession []string

	Initial []string // groups that are open from the start; their servers are started with the first session

	Style Style

	// AuditFile, unless empty, is the file to which a line of JSON is appended for
	// every call; see [mcpserver.Record]. Its arguments are left out, unless
	// AuditArguments is set. The file may be moved away or cut while the gateway
	// runs. While it cannot be written, no call is run.
	AuditFile      string
	AuditArguments bool

	Serve ServeOptions
}

// ServeOptions say how the gateway serves its tools; see [mcpserver.Config] for each field.
// Version is required.
type ServeOptions struct {
	Name            string // empty is "kitbag"
	Version         string
	Title           string
	Instructions    string
	MaxInstructions int

	Policy      *permission.Policy
	Credentials []mcpserver.Credential
	Middleware  []tool.Middleware // around every call, inside of the audit file
	Audit       func(mcpserver.Record)

	// Prompts and Resources are the gateway's own, besides those of the servers.
	Prompts   []mcpserver.Prompt
	Resources []mcpserver.Resource

	PageSize, WholeList int
	Hosts, Origins      []string
	Limits              mcpserver.Limits
}

// config returns the configuration of the server, without toolkit and offers.
func (s *ServeOptions) config() mcpserver.Config {
	return mcpserver.Config{
		Name: cmp.Or(s.Name, "kitbag"), Version: s.Version, Title: s.Title,
		Instructions: s.Instructions, MaxInstructions: s.MaxInstructions,
		Policy: s.Policy, Credentials: s.Credentials, Middleware: s.Middleware, Audit: s.Audit,
		Prompts: s.Prompts, Resources: s.Resources, PageSize: s.PageSize, WholeList: s.WholeList,
		Hosts: s.Hosts, Origins: s.Origins, Limits: s.Limits,
	}
}

// A Group is a set of tools of any servers.
type Group struct {
	Name        string // letters, digits, "_", "-" and "."; unique
	Description string // what it is for; the model chooses by it

	// Tools are globs over the names of tools, SERVER__TOOL, in which "*" is any
	// text. Without globs the group must be named like a server, whose group it
	// describes.
	Tools []string

	Instructions string   // told to the model when it opens the group, instead of the servers' own
	Parents      []string // groups that must be open too
}

// A Gateway is a server in front of many.
type Gateway struct {
	Server  *mcpserver.Server
	Toolkit *toolkit.Toolkit // which the server serves; Update and Refresh are left to the gateway

	cfg       Config
	upstreams []*upstream
	audit     *auditFile

	ctx     context.Context // ends with Close
	end     context.CancelFunc
	regroup chan struct{} // holds one element when labels have to be looked at
	known   chan struct{} // holds one element when more servers are known to have prompts or resources
	work    sync.WaitGroup
}

// maxResult is how much of a result is passed on, in bytes.
const maxResult = 16 << 20

// labelsTimeout is how long New waits for a server to tell its groups. One that
// takes longer is one group, until it has told them.
const labelsTimeout = 10 * time.Second

// New makes a gateway. No server is started yet but those of Config.Labels, which
// are asked for their groups for as long as ctx lives, at most ten seconds. Close
// the gateway when it is no longer needed.
func New(ctx context.Context, cfg Config) (*Gateway, error) {
	g := &Gateway{cfg: cfg, regroup: make(chan struct{}, 1), known: make(chan struct{}, 1)}
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
		u, err := newUpstream(c, slices.Contains(g.cfg.Labels, c.Name), slices.Contains(g.cfg.PerSession, c.Name), g.lookAgain, g.knowMore)
		if err != nil {
			return err
		}
		if u.apart != nil && len(g.cfg.Serve.Credentials) > 1 {
			u.apart.share = maxApart / 4
		}
		g.upstreams = append(g.upstreams, u)
	}
	bounded, cancel := context.WithTimeout(ctx, labelsTimeout)
	defer cancel()
	g.askLabels(bounded)
	if g.Toolkit, err = toolkit.New(g.config(g.cfg.Style)); err != nil {
		return err
	}
	serve := g.cfg.Serve.config()
	serve.Toolkit, serve.Offers = g.Toolkit, offers{g}
	if g.cfg.AuditFile != "" {
		if g.audit, err = openAudit(g.cfg.AuditFile, g.cfg.AuditArguments); err != nil {
			return err
		}
		// The outermost: what is not on record has not happened at all.
		serve.Middleware = append([]tool.Middleware{g.audit.required}, serve.Middleware...)
		tell := serve.Audit
		serve.Audit = func(r mcpserver.Record) {
			g.audit.append(r)
			if tell != nil {
				tell(r)
			}
		}
	}
	if g.Server, err = mcpserver.New(serve); err != nil {
		return err
	}
	for _, u := range g.upstreams {
		u.client.OnChange(func() {
			if u.labeled {
				g.lookAgain()
			}
			g.Toolkit.Refresh()
		})
		u.client.OnPromptsChange(g.Server.OffersChanged)
		u.client.OnResourcesChange(g.Server.OffersChanged)
	}
	g.work.Go(g.follow)
	return nil
}

// Close ends all sessions and stops all servers. It may be called twice.
func (g *Gateway) Close() error {
	g.end()
	var errs []error
	if g.Server != nil {
		errs = append(errs, g.Server.Close())
	}
	var wg sync.WaitGroup
	closed := make([]error, len(g.upstreams))
	for i, u := range g.upstreams { // side by side: one that has to be killed takes seconds
		wg.Go(func() { closed[i] = u.client.Close() })
	}
	wg.Wait()
	for _, u := range g.upstreams {
		if u.apart != nil {
			u.apart.close()
		}
	}
	g.work.Wait()
	if g.audit != nil {
		errs = append(errs, g.audit.close())
	}
	return errors.Join(append(errs, closed...)...)
}

// Status returns how the servers are, in the order of the configuration.
func (g *Gateway) Status() []mcpclient.Status {
	out := make([]mcpclient.Status, len(g.upstreams))
	for i, u := range g.upstreams {
		out[i] = u.client.Status()
	}
	return out
}

// A StyleCost is what a style's first list of tools costs, in every request of the
// host's model.
type StyleCost struct {
	Style Style
	toolkit.Cost
}

// Costs starts all servers and returns what the first list costs in each style,
// what each group costs when it is open, and what could not be listed.
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
		if st == Full { // which is the one that lists every server
			groups, skipped = v.Cost().Groups, v.Skipped()
		}
	}
	return styles, groups, skipped, nil
}
