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
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/internal/demoserver"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/toolkit"
)

// styleNames lists the styles for the help.
func styleNames() string {
	var out []string
	for _, s := range mcpgateway.Styles() {
		out = append(out, string(s))
	}
	return strings.Join(out, ", ")
}

// tokenVar is the environment variable of the token that HTTP clients must present; a flag would be visible to
// every user of the machine.
const tokenVar = "KITBAG_MCP_TOKEN"

// serveFlags are the flags of kitbag mcp serve.
type serveFlags struct {
	mcpFlags
	config          string
	demo, printCost bool
	style           string
	http, audit     string
	auditArguments  bool
	pageSize        int
	policyFlags
}

// mcpServeCommand is "kitbag mcp serve", the gateway of package mcpgateway.
func mcpServeCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve many MCP servers as one, with their tools in groups",
		Long: `Serve the servers of a file as one MCP server, on standard input and output or
over HTTP. Every server is a group of tools, named after it, which the host's
model opens when needed: the list of tools is short at first, and a server is
started when its group is opened. Clients of protocol 2026-07-28, where the list
cannot change, search the tools instead.

A --config file has the servers, and also groups of their tools,
permissions, credentials with their access, and an audit log:

  {"mcpServers": {"github": {"command": "github-mcp-server", "args": ["stdio"]}},
   "groups": {"issues": {"tools": ["github__*issue*"], "description": "Bugs and wishes."}},
   "permissions": {"allow": ["github__get_*", "github__list_*"]},
   "credentials": {"ci": {"tokenEnv": "CI_TOKEN", "groups": ["issues"]}},
   "audit": {"file": "audit.jsonl"}}

"go doc ./mcpgateway Load" describes all of it. A server whose entry says
"sandbox": "read" or "work", with "write": ["DIRECTORY"] and "network": true, runs
confined: see kitbag sandbox --help.

A call that no rule allows needs approval: the host asks its user, if it can. With
a host that asks about every call itself, use --mode bypass to avoid a second question.

Over HTTP, clients must present a token of the file's credentials, or the one in
$` + tokenVar + `, if it is set; without a token only loopback addresses are served.`,
		Example: `  kitbag mcp serve --mcp .mcp.json --mode bypass
  kitbag mcp serve --config kitbag.json --http 127.0.0.1:8080
  kitbag mcp serve --config kitbag.json --print-cost    what each style would cost
  kitbag mcp serve --demo                               a small server to try clients with`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.demo, "demo", false, "serve a few small tools")
	fl.StringVar(&f.config, "config", "", "the gateway's configuration, a `FILE`")
	f.addFiles(cmd)
	fl.StringVar(&f.style, "style", "", "how groups are opened: "+styleNames()+" (default "+string(mcpgateway.StyleReset)+")")
	fl.StringVar(&f.http, "http", "", "serve HTTP at `HOST:PORT` instead of standard input and output")
	fl.StringVar(&f.audit, "audit", "", "append a line of JSON for every call to `FILE`")
	fl.BoolVar(&f.auditArguments, "audit-arguments", false, "include the calls' arguments")
	fl.IntVar(&f.pageSize, "page-size", 0, "the most tools in a page of the list; 0 for no pages")
	fl.BoolVar(&f.printCost, "print-cost", false, "start all servers, and print the cost of each style's first list")
	fl.BoolVar(&f.json, "json", false, "with --print-cost: print JSON")
	f.policyFlags.register(cmd)
	return cmd
}

// run serves, or prints the cost of the first lists.
func (f *serveFlags) run(cmd *cobra.Command) (err error) {
	if f.demo {
		if cmd.Flags().NFlag() > 1 {
			return usage("--demo serves its own tools on standard input and output; it cannot be combined with other flags")
		}
		explainStdio(cmd)
		return demoserver.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
	}
	if f.pageSize < 0 {
		return usage("--page-size %d: it must be the maximum number of tools in a page, or 0 for no pages", f.pageSize)
	}
	if f.json && !f.printCost {
		return usage("--json is for --print-cost; a server always uses JSON")
	}
	cfg, err := f.gateway(cmd)
	if err != nil {
		return err
	}
	if f.printCost {
		cfg.AuditFile = "" // nothing is called
	} else if err := f.network(&cfg); err != nil {
		return err
	}
	g, err := mcpgateway.New(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if f.printCost {
		return f.showCost(cmd, g)
	}
	return f.serve(cmd, g.Server, len(cfg.Serve.Credentials) > 0)
}

// gateway makes the configuration from the file and the flags. If the file names servers, the default server
// file is not read.
func (f *serveFlags) gateway(cmd *cobra.Command) (cfg mcpgateway.Config, err error) {
	changed := cmd.Flags().Changed
	if f.config != "" {
		if cfg, err = mcpgateway.Load(f.config); err != nil {
			return cfg, err
		}
		if err := pin(f.config, cfg.Servers); err != nil {
			return cfg, err
		}
	}
	if f.config != "" && len(cfg.Servers) == 0 && !changed("mcp") {
		return cfg, fmt.Errorf("%s: mcpServers is missing; add servers there, or a file of servers with --mcp", f.config)
	}
	if f.config == "" || changed("mcp") {
		configs, broken, err := f.load()
		if err != nil {
			return cfg, err
		}
		for _, b := range broken { // one broken entry does not affect the others
			fmt.Fprintf(cmd.ErrOrStderr(), "! left out: %s\n", indented(b.Error()))
		}
		cfg.Servers = append(cfg.Servers, configs...)
	}
	if f.style != "" {
		if cfg.Style, err = mcpgateway.ParseStyle(f.style); err != nil {
			return cfg, usage("--style: %w", err)
		}
	}
	if f.audit != "" {
		cfg.AuditFile = f.audit
	}
	cfg.AuditArguments = cfg.AuditArguments || f.auditArguments
	// With rules in two places it would be unclear which ones decide.
	for _, flag := range []string{"mode", "allow", "ask", "deny", "settings", "trust-read-only"} {
		if changed(flag) && cfg.Serve.Policy != nil {
			return cfg, usage("--%s: %s has permissions; set them in one place", flag, f.config)
		}
	}
	if cfg.Serve.Policy == nil {
		if cfg.Serve.Policy, err = f.policy(cmd); err != nil {
			return cfg, err
		}
	}
	applyPolicy(cfg.Serve.Policy, cfg.Servers)
	for i, server := range cfg.Servers {
		cfg.Servers[i] = confined(server, sandboxSettings{}, nil)
	}
	cfg.CacheDir = serverCache()
	cfg.Serve.PageSize, cfg.Serve.Title = f.pageSize, "kitbag gateway"
	cfg.Serve.Version, _ = build()
	return cfg, nil
}

// network adds the settings of HTTP to cfg.
func (f *serveFlags) network(cfg *mcpgateway.Config) error {
	if f.http == "" {
		if len(cfg.Serve.Credentials) > 0 {
			// A client on standard input presents no token, so the limits of credentials would not apply.
			return usage("%s has credentials, which clients present over HTTP only; add --http, or use a file without them", f.config)
		}
		return nil
	}
	host, _, err := net.SplitHostPort(f.http)
	switch {
	case err != nil:
		return usage("--http %s: %w", f.http, err)
	case host == "":
		return usage("--http %s: give the host, such as 127.0.0.1%s; an empty one would serve every network", f.http, f.http)
	}
	cfg.Serve.Hosts = append(cfg.Serve.Hosts, host) // requests for other host names are refused
	if token := os.Getenv(tokenVar); token != "" {
		cfg.Serve.Credentials = append(cfg.Serve.Credentials, mcpserver.Credential{Name: tokenVar, Token: token})
	}
	return nil
}

// serve serves until the command is interrupted or its input ends. Without credentials it warns that the server
// refuses other machines.
func (f *serveFlags) serve(cmd *cobra.Command, s *mcpserver.Server, credentials bool) error {
	if f.http == "" {
		explainStdio(cmd)
		return s.ServeStdio(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
	}
	l, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", f.http)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "serving MCP at http://%s/\n", l.Addr())
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() && !credentials {
		fmt.Fprintf(cmd.ErrOrStderr(), "! without a token only this machine is served: set $%s, or credentials in the --config file, and the names of this machine under hosts there\n", tokenVar)
	}
	// Whole requests have no timeout: a stream of notifications lasts as long as the session.
	h := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(cmd.Context(), func() {
		_ = s.Close() // ends the streams, which h.Close would leave open
		_ = h.Close()
	})
	defer stop()
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// explainStdio warns a user who started the server by hand that a host should start it.
func explainStdio(cmd *cobra.Command) {
	if isTerminal(cmd.InOrStdin()) {
		fmt.Fprintln(cmd.ErrOrStderr(), "serving MCP on standard input and output, for an MCP host to start; Ctrl-D ends it")
	}
}

// A costReport is the output of --print-cost --json.
type costReport struct {
	Styles  []costLine          `json:"styles"`
	Groups  []costLine          `json:"groups"`
	Skipped []map[string]string `json:"skipped"`
}

// A costLine is a list of tools and its cost.
type costLine struct {
	Name   string  `json:"name"`
	Tools  int     `json:"tools"`
	Bytes  int     `json:"bytes"`
	Tokens int     `json:"tokens"`
	Share  float64 `json:"share"` // of the bytes of the full list
}

// showCost prints the cost of the first list in each style, and what an open group adds.
func (f *serveFlags) showCost(cmd *cobra.Command, g *mcpgateway.Gateway) error {
	styles, groups, skipped, err := g.Costs(cmd.Context())
	if err != nil {
		return err
	}
	full := 1 // in bytes; never zero, as it is a divisor
	for _, s := range styles {
		if s.Style == mcpgateway.StyleFull {
			full = max(1, s.Bytes)
		}
	}
	line := func(name string, c toolkit.Cost) costLine {
		return costLine{name, c.Tools, c.Bytes, c.Tokens, float64(c.Bytes) / float64(full)}
	}
	// In JSON, empty lists are not null.
	report := costReport{Styles: []costLine{}, Groups: []costLine{}, Skipped: []map[string]string{}}
	for _, s := range slices.Backward(styles) { // the full list first, as the others are compared with it
		report.Styles = append(report.Styles, line(string(s.Style), s.Cost))
	}
	for _, c := range groups {
		report.Groups = append(report.Groups, line(c.Name, c))
	}
	for _, s := range skipped {
		report.Skipped = append(report.Skipped, map[string]string{"source": s.Source, "tool": s.Tool, "reason": s.Reason})
	}
	out := cmd.OutOrStdout()
	if f.json {
		return json.NewEncoder(out).Encode(report)
	}
	printCost(out, report)
	return nil
}

// printCost prints the report as text. Names come from servers, so control characters are removed.
func printCost(out io.Writer, r costReport) {
	table := func(lines []costLine) {
		for _, l := range lines {
			fmt.Fprintf(out, "%-20s %5d tools %9d bytes %8d tokens %6.1f %%\n", plainLine(l.Name), l.Tools, l.Bytes, l.Tokens, 100*l.Share)
		}
	}
	table(r.Styles)
	fmt.Fprintln(out, "\nand for each open group")
	table(r.Groups)
	for _, s := range r.Skipped {
		what := strings.TrimSpace(s["source"] + " " + s["tool"])
		fmt.Fprintf(out, "! left out: %s: %s\n", plainLine(what), indented(s["reason"]))
	}
}
