package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/internal/demoserver"
	"github.com/kitbag-go/kitbag/internal/hostcheck"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/mcpserver/oauth"
	"github.com/kitbag-go/kitbag/postgres/pggateway"
	"github.com/kitbag-go/kitbag/toolkit"
)

func styleNames() string {
	var out []string
	for _, s := range mcpgateway.Styles() {
		out = append(out, string(s))
	}
	return strings.Join(out, ", ")
}

// tokenVar is the environment variable with a token that HTTP clients may present. All users could see a flag.
const tokenVar = "KITBAG_MCP_TOKEN"

// drainTimeout is how long calls in flight may take after the first interrupt. A second interrupt ends the program at once.
const drainTimeout = 30 * time.Second

type serveFlags struct {
	mcpFlags
	policyFlags
	config, style, audit string
	http, admin          string // addresses to listen at
	demo, printCost      bool
	logJSON              bool
	auditArguments       bool
	pageSize             int
}

// mcpServeCommand is "kitbag mcp serve", the gateway of package mcpgateway.
func mcpServeCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve many MCP servers as one, with their tools in groups",
		Long: `Serve the servers of a file as one MCP server, on standard input and output or
over HTTP. Every server is a group of tools with the server's name, which the
host's model opens when needed: the list of tools is short at first, and a server
is started when its group is opened. Clients of protocol 2026-07-28, where the list
cannot change, search the tools instead.

A --config file has the servers, and also groups of their tools,
permissions, credentials with their access, an audit log, and the database that
several gateways share ("replicas"):

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

Over HTTP, a client must present a token: of "credentials", of $` + tokenVar + `, or
of an issuer of "oauth". If none of these is configured, only clients on this
machine are served. kitbag mcp key makes a token.

SIGHUP reloads the configuration: servers, groups and permissions change together or, if
there is a mistake, not at all; a log line and /readyz have the revision. A POST to
/reload at the --admin address also reloads it. The POST needs the token in
$` + adminTokenVar + ` or, if that is not set, must come from this machine.`,
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
	f.registerFiles(cmd)
	fl.StringVar(&f.style, "style", "", "how groups are opened: "+styleNames()+" (default "+string(mcpgateway.StyleReset)+"); clients of protocol 2026-07-28 get discover")
	fl.StringVar(&f.http, "http", "", "serve HTTP at `HOST:PORT` instead of standard input and output")
	fl.StringVar(&f.admin, "admin", "", "with --http: serve /livez, /readyz and /metrics at `HOST:PORT`, without a token, and /reload and /logins, for administrators")
	fl.BoolVar(&f.logJSON, "log-json", false, "log in lines of JSON")
	fl.StringVar(&f.audit, "audit", "", "append a line of JSON for every call to `FILE`; with --http, - is standard output")
	fl.BoolVar(&f.auditArguments, "audit-arguments", false, "include the calls' arguments")
	fl.IntVar(&f.pageSize, "page-size", 0, "the maximum number of tools in a page of the list; 0 for no pages")
	fl.BoolVar(&f.printCost, "print-cost", false, "start all servers, and print the size of each style's first list of tools")
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
		return usage("--json needs --print-cost; for a log in JSON use --log-json")
	}
	cfg, err := f.gatewayConfig(cmd)
	if err != nil {
		return err
	}
	if f.logJSON {
		defer slog.SetDefault(slog.Default())
		slog.SetDefault(slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil)))
	}
	if f.printCost {
		cfg.AuditFile = ""     // no tool is called
		if cfg.Logins == nil { // otherwise the database is needed: it has the logins with which to list tools
			cfg.Serve.Replicas = nil
		}
	} else if err := f.applyHTTP(&cfg); err != nil {
		return err
	}
	closeDatabases, err := f.openDatabases(cmd.Context(), &cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeDatabases()) }()
	metrics := newGatewayMetrics()
	cfg.Serve.Audit = metrics.record
	g, err := mcpgateway.New(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if f.printCost {
		return f.showCost(cmd, g)
	}
	defer publish(g, cmp.Or(f.config, strings.Join(f.files, ", ")), cfg.AuditFile)()
	metrics.gateway = g
	if f.http == "" {
		explainStdio(cmd)
		return g.Server.ServeStdio(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
	}
	return f.serve(cmd, metrics, &cfg)
}

// gatewayConfig makes the configuration from the --config file and the flags. It reads the default file of servers only
// without a --config file.
func (f *serveFlags) gatewayConfig(cmd *cobra.Command) (cfg mcpgateway.Config, err error) {
	changed := cmd.Flags().Changed
	if f.config != "" {
		cfg, err = mcpgateway.Load(f.config)
		if errors.Is(err, fs.ErrNotExist) {
			return cfg, fmt.Errorf("%w; kitbag mcp serve --help shows such a file", err)
		}
		if err != nil {
			return cfg, err
		}
		if err := usePins(f.config, cfg.Servers); err != nil {
			return cfg, err
		}
		if len(cfg.Servers) == 0 && !changed("mcp") {
			return cfg, fmt.Errorf("%s: mcpServers is missing; add servers to it, or name a file of servers with --mcp", f.config)
		}
	}
	if f.config == "" || changed("mcp") {
		configs, broken, err := f.load()
		if err != nil {
			return cfg, err
		}
		warnBroken(cmd.ErrOrStderr(), broken) // one broken entry does not affect the others
		cfg.Servers = append(cfg.Servers, configs...)
	}
	if f.style != "" {
		if cfg.Style, err = mcpgateway.ParseStyle(f.style); err != nil {
			return cfg, usage("--style: %w", err)
		}
	}
	if f.audit != "" {
		if cfg.AuditDatabase != "" {
			return cfg, usage("--audit: %s has audit.database; set the audit log in one place", f.config)
		}
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
		cfg.Servers[i] = withSandbox(server, sandboxSettings{}, nil)
	}
	cfg.OpenOAuth, cfg.CacheDir = oauth.New, serverCache()
	cfg.Serve.PageSize, cfg.Serve.Title = f.pageSize, "kitbag gateway"
	cfg.Serve.Version, _ = buildVersions()
	return cfg, nil
}

// applyHTTP adds the settings for HTTP to cfg, or checks that cfg can be served without HTTP.
func (f *serveFlags) applyHTTP(cfg *mcpgateway.Config) error {
	if f.http == "" {
		switch {
		case f.admin != "":
			return usage("--admin needs --http")
		case cfg.AuditFile == "-":
			return usage("the audit log cannot be standard output, which the protocol uses; name a file, or add --http")
		case len(cfg.Serve.Credentials) > 0 || cfg.OAuth != nil:
			// The limits of credentials would not apply, since a client on standard input sends no token.
			return usage("%s has credentials or oauth, but clients send tokens over HTTP only; add --http, or use a file without them", f.config)
		case cfg.Serve.Replicas != nil:
			return usage("%s has replicas, but these forward requests over HTTP only; add --http, or use a file without them", f.config)
		}
		return nil
	}
	host, _, err := net.SplitHostPort(f.http)
	switch {
	case err != nil:
		return usage("--http %s: %w", f.http, err)
	case host == "":
		return usage("--http %s: give the host, such as 127.0.0.1%s; an empty host would serve every network", f.http, f.http)
	}
	if size := len(os.Getenv(adminTokenVar)); f.admin != "" && size > 0 && size < mcpserver.MinToken {
		return usage("the token in $%s has %d bytes, and needs at least %d; kitbag mcp key makes a random token", adminTokenVar, size, mcpserver.MinToken)
	}
	cfg.Serve.Hosts = append(cfg.Serve.Hosts, host) // requests for other host names are refused
	if token := os.Getenv(tokenVar); token != "" {
		cfg.Serve.Credentials = append(cfg.Serve.Credentials, mcpserver.Credential{Name: tokenVar, Token: token})
	}
	return nil
}

// databaseTimeout is how long opening the databases may take.
const databaseTimeout = 15 * time.Second

// openDatabases opens the databases that the file names. The caller must call closeAll after closing the gateway.
func (f *serveFlags) openDatabases(ctx context.Context, cfg *mcpgateway.Config) (closeAll func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	var closers []func() error
	closeAll = func() (err error) {
		for _, closeOne := range closers {
			err = errors.Join(err, closeOne())
		}
		return err
	}
	if cfg.Serve.Replicas != nil {
		shared, err := openDatabase(ctx, f.config+": replicas.store", cfg.ReplicaStore, pggateway.Open)
		if err != nil {
			return nil, err
		}
		cfg.Serve.Replicas.Shared = shared
		closers = append(closers, shared.Close)
	}
	if cfg.AuditDatabase != "" {
		audit, err := openDatabase(ctx, f.config+": audit.database", cfg.AuditDatabase, pggateway.OpenAudit)
		if err != nil {
			return nil, errors.Join(err, closeAll())
		}
		cfg.AuditWriter = audit
		closers = append(closers, audit.Close)
	}
	return closeAll, nil
}

// openDatabase opens a Postgres database. where names the setting that has the URL.
func openDatabase[T any](ctx context.Context, where, url string, open func(context.Context, string) (T, error)) (db T, err error) {
	if !strings.HasPrefix(url, "postgres://") && !strings.HasPrefix(url, "postgresql://") {
		return db, fmt.Errorf("%s: must be the URL of a Postgres database: postgres://USER@HOST/DATABASE", where) // without url, which may have a password
	}
	if db, err = open(ctx, url); err != nil {
		return db, fmt.Errorf("%s: %w; check the URL, and that its user may create a table in the database", where, err)
	}
	return db, nil
}

// serve serves HTTP until the command is interrupted. Without credentials it warns that the gateway refuses clients on
// other machines.
func (f *serveFlags) serve(cmd *cobra.Command, metrics *gatewayMetrics, cfg *mcpgateway.Config) error {
	if os.Getenv("GOGC") == "" {
		// With a small heap, garbage collection takes a sixth of the CPU time, since a call allocates 30 KB. The ballast
		// makes the collector run less often: it counts as heap, but uses no memory, since nothing writes to it. A larger
		// GOGC would multiply the heap of a gateway with thousands of tools.
		ballast := make([]byte, 16<<20)
		defer runtime.KeepAlive(ballast)
	}
	g := metrics.gateway
	listener, err := listen(cmd, "--http", f.http)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "serving MCP at http://%s/\n", listener.Addr())
	if a, ok := listener.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() && len(cfg.Serve.Credentials) == 0 && cfg.OAuth == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "! without a token only this machine is served: set $%s, or credentials or oauth in the --config file, and the names of this machine under hosts there\n", tokenVar)
	}
	var reloading sync.Mutex // held until the log has the revision, so that no other reload changes it before
	reload := func(ctx context.Context) error {
		reloading.Lock()
		defer reloading.Unlock()
		if err := f.reload(cmd, g); err != nil {
			slog.ErrorContext(ctx, "the configuration was not reloaded; nothing has changed", "err", err, "revision", g.Revision().String())
			return err
		}
		slog.InfoContext(ctx, "the configuration was reloaded", "revision", g.Revision().String())
		return nil
	}
	if f.admin != "" {
		adminListener, err := listen(cmd, "--admin", f.admin)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "serving /livez, /readyz and /metrics at http://%s/\n", adminListener.Addr())
		hosts := append(slices.Clone(cfg.Serve.Hosts), hostcheck.Name(f.admin))
		admin := &http.Server{Handler: onlyHosts(hosts, adminHandler(metrics, os.Getenv(adminTokenVar), reload)), ReadHeaderTimeout: 10 * time.Second}
		defer admin.Close()
		go func() { _ = admin.Serve(adminListener) }() // ends with Close
	}
	defer reloadOnHangup(reload)()
	// Only headers have a timeout: a stream of notifications lasts as long as the session.
	server := &http.Server{Handler: g.Server.Handler(), ReadHeaderTimeout: 10 * time.Second}
	stopDrain := context.AfterFunc(cmd.Context(), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), drainTimeout)
		defer cancel()
		if err := g.Drain(ctx); err != nil {
			slog.Warn("the gateway stops before all calls have ended", "err", err)
		}
		_ = g.Server.Close() // ends the streams, which server.Close would leave open
		_ = server.Close()
	})
	defer stopDrain()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func listen(cmd *cobra.Command, flag, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; choose another address or port", flag, err)
	}
	return l, nil
}

// reloadOnHangup reloads the configuration at each SIGHUP, until stop is called.
func reloadOnHangup(reload func(context.Context) error) (stop func()) {
	hangups, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer close(done)
		for range hangups {
			_ = reload(context.Background()) // reload logs its error
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
		<-done
	}
}

func (f *serveFlags) reload(cmd *cobra.Command, g *mcpgateway.Gateway) error {
	cfg, err := f.gatewayConfig(cmd)
	if err != nil {
		return err
	}
	if err := f.applyHTTP(&cfg); err != nil {
		return err
	}
	return g.Reload(cmd.Context(), cfg)
}

// explainStdio tells a user who has started the gateway at a terminal that it is for a host to start.
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
	Share  float64 `json:"share"` // Bytes divided by the Bytes of the full list
}

// showCost prints the cost of the first list of tools in each style, and of each group when it is open.
func (f *serveFlags) showCost(cmd *cobra.Command, g *mcpgateway.Gateway) error {
	styles, groups, skipped, err := g.Costs(cmd.Context())
	if err != nil {
		return err
	}
	full := slices.IndexFunc(styles, func(s mcpgateway.StyleCost) bool { return s.Style == mcpgateway.StyleFull })
	fullBytes := max(1, styles[full].Bytes) // never zero, as it is a divisor
	line := func(name string, c toolkit.Cost) costLine {
		return costLine{name, c.Tools, c.Bytes, c.Tokens, float64(c.Bytes) / float64(fullBytes)}
	}
	report := costReport{Styles: []costLine{}, Groups: []costLine{}, Skipped: []map[string]string{}}
	for _, s := range slices.Backward(styles) { // begin with the full list, as the other lists are compared with it
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
	table := func(lines []costLine) {
		for _, l := range lines {
			fmt.Fprintf(out, "%-20s %5d tools %9d bytes %8d tokens %6.1f %%\n", plainLine(l.Name), l.Tools, l.Bytes, l.Tokens, 100*l.Share)
		}
	}
	table(report.Styles)
	fmt.Fprintln(out, "\nin addition, for each open group")
	table(report.Groups)
	showSkipped(out, skipped)
	return nil
}
