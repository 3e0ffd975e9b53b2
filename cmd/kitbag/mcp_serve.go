package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/internal/demoserver"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A style is a way in which a host's model opens groups.
type style struct {
	name    string
	control toolkit.Control
	full    bool // all groups are open
}

var styles = []style{
	{"reset", toolkit.ResetTools(), false},
	{"enable", toolkit.EnableDisable(), false},
	{"per-group", toolkit.PerGroup(), false},
	{"discover", toolkit.Discover(), false},
	{"full", toolkit.NoControl(), true},
}

func styleNames() string {
	var out []string
	for _, s := range styles {
		out = append(out, s.name)
	}
	return strings.Join(out, ", ")
}

// tokenVar is the environment variable of the token that HTTP clients must show. A
// flag would be seen by every user of the machine.
const tokenVar = "KITBAG_MCP_TOKEN"

// serveFlags are the flags of kitbag mcp serve.
type serveFlags struct {
	mcpFlags
	demo, printCost bool
	style           string
	http, audit     string
	pageSize        int
	policyFlags
}

func mcpServeCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve [--mcp FILE]",
		Short: "Serve many MCP servers as one, with their tools in groups",
		Long: `Serve the servers of a file as one MCP server, on standard input and output or
over HTTP. Every server is a group of tools, named after it, which the host's
model opens when it needs it: the list of tools is short at first, and a server is
started when its group is opened. Clients of protocol 2026-07-28, whose list must
not change, search the tools instead.

What no rule allows is asked about: the host asks its person, where it can. A host
that asks about every call anyway needs no second question: --mode bypass.

Over HTTP, clients must show the token in $` + tokenVar + `, if it is set; without
one only loopback addresses are served.`,
		Example: `  kitbag mcp serve --mcp .mcp.json --mode bypass
  kitbag mcp serve --allow 'github__get_*' --http 127.0.0.1:8080
  kitbag mcp serve --print-cost           what each style would cost
  kitbag mcp serve --demo                 a small server to try clients with`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.demo, "demo", false, "serve a few small tools")
	fl.StringArrayVar(&f.files, "mcp", []string{defaultServers}, "a `FILE` that names MCP servers under mcpServers, repeatable")
	fl.StringVar(&f.style, "style", "reset", "how groups are opened: "+styleNames())
	fl.StringVar(&f.http, "http", "", "serve HTTP at `HOST:PORT` instead of standard input and output")
	fl.StringVar(&f.audit, "audit", "", "append a line of JSON about every call to `FILE`, without its arguments")
	fl.IntVar(&f.pageSize, "page-size", 0, "the most tools in a page of the list; 0 for no pages")
	fl.BoolVar(&f.printCost, "print-cost", false, "start all servers, and print what each style's first list costs")
	f.policyFlags.register(cmd)
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command) (err error) {
	if f.demo {
		return demoserver.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
	}
	index := slices.IndexFunc(styles, func(s style) bool { return s.name == f.style })
	if index < 0 {
		return usage("--style %q: the styles are %s", f.style, styleNames())
	}
	policy, err := f.policy(cmd)
	if err != nil {
		return err
	}
	g, err := f.open(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	if f.printCost {
		return g.printCost(cmd.Context(), cmd.OutOrStdout())
	}
	tk, err := g.toolkit(styles[index])
	if err != nil {
		return err
	}
	version, _ := build()
	cfg := mcpserver.Config{Toolkit: tk, Name: "kitbag", Version: version, Title: "kitbag gateway", Policy: policy, PageSize: f.pageSize}
	if f.audit != "" {
		file, err := os.OpenFile(f.audit, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("--audit: %w", err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		cfg.Audit = auditor(file, cmd.ErrOrStderr())
	}
	if token := os.Getenv(tokenVar); token != "" {
		cfg.Credentials = []mcpserver.Credential{{Name: tokenVar, Token: token}}
	}
	return f.serve(cmd, cfg)
}

func (f *serveFlags) serve(cmd *cobra.Command, cfg mcpserver.Config) (err error) {
	host, _, addrErr := net.SplitHostPort(f.http)
	if f.http != "" && addrErr != nil {
		return usage("--http %s: %w", f.http, addrErr)
	}
	if host != "" {
		cfg.Hosts = []string{host}
	}
	s, err := mcpserver.New(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if f.http == "" {
		return s.ServeStdio(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
	}
	if host == "" {
		return usage("--http %s: name the host, such as 127.0.0.1%s; an empty one would serve every network", f.http, f.http)
	}
	l, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", f.http)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "serving MCP at http://%s/\n", l.Addr())
	h := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(cmd.Context(), func() {
		_ = s.Close() // ends streams, which would never end by themselves
		_ = h.Close()
	})
	defer stop()
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// auditor returns a function that appends records, without their arguments. One
// that cannot be written is told on log.
func auditor(file, log io.Writer) func(mcpserver.Record) {
	var mu sync.Mutex
	return func(r mcpserver.Record) {
		r.Input = nil
		line, err := json.Marshal(r)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			_, err = file.Write(append(line, '\n'))
		}
		if err != nil {
			fmt.Fprintf(log, "! --audit: %v\n", err)
		}
	}
}

// notInNames is what model APIs do not take in the name of a tool.
var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// A gateway is many MCP servers in front of which another one stands.
type gateway struct{ servers []server }

// open makes clients for the servers of the files; none is started. A broken entry
// is told on log and does not cost the others.
func (f *serveFlags) open(log io.Writer) (*gateway, error) {
	configs, broken, err := f.load()
	if err != nil {
		return nil, err
	}
	for _, b := range broken {
		fmt.Fprintf(log, "! left out: %s\n", plain(b.Error()))
	}
	g := &gateway{}
	for _, cfg := range configs {
		cfg.Prefix = notInNames.ReplaceAllString(cfg.Name, "_") + "__"
		c, err := mcpclient.New(cfg)
		if err == nil && slices.ContainsFunc(g.servers, func(s server) bool { return s.Name == cfg.Name }) {
			err = fmt.Errorf("the MCP server %q is named twice; rename one", cfg.Name)
		}
		if err != nil {
			return nil, errors.Join(err, g.close())
		}
		g.servers = append(g.servers, server{c, cfg.Name})
	}
	return g, nil
}

func (g *gateway) close() error { return closeServers(g.servers) }

// toolkit makes the toolkit of a style: a group for each server.
func (g *gateway) toolkit(st style) (*toolkit.Toolkit, error) {
	cfg := toolkit.Config{Control: st.control}
	cfg.Policy.NoActivation = st.full
	for _, s := range g.servers {
		cfg.Groups = append(cfg.Groups, toolkit.Group{
			Name: s.Name, Description: fmt.Sprintf("The tools of the MCP server %q.", s.Name), Sources: []tool.Source{s.Client}})
	}
	tk, err := toolkit.New(cfg)
	if err != nil {
		return nil, err
	}
	for _, s := range g.servers {
		s.OnChange(tk.Refresh)
	}
	return tk, nil
}

// printCost starts all servers and prints what the first list costs in each style,
// and what it would cost to list everything.
func (g *gateway) printCost(ctx context.Context, out io.Writer) error {
	full := 0
	for _, st := range slices.Backward(styles) { // the full list first: it is what the others are compared with
		tk, err := g.toolkit(st)
		if err != nil {
			return err
		}
		v, err := tk.View(ctx, &toolkit.Scope{})
		if err != nil {
			return err
		}
		c := v.Cost().Total
		if st.full {
			full = max(1, c.Bytes)
			showSkipped(out, v)
		}
		fmt.Fprintf(out, "%-10s %5d tools %9d bytes %8d tokens %6.1f %%\n", st.name, c.Tools, c.Bytes, c.Tokens, 100*float64(c.Bytes)/float64(full))
	}
	return nil
}
