package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/tool"
)

// load reads the files, which must name at least one server.
func (f *mcpFlags) load() (configs []mcpclient.Server, broken []*mcpclient.LoadError, err error) {
	configs, broken, err = loadConfigs(wholeFiles(f.files))
	if err == nil && len(configs)+len(broken) == 0 {
		err = fmt.Errorf("no MCP server in %s; add one under mcpServers", strings.Join(f.files, ", "))
	}
	return configs, broken, err
}

// The states of a server in a report.
const (
	stateReady  = "ready"
	stateFailed = "failed"
)

// A serverReport is the output about one server. Its JSON must not change, since other programs read it.
type serverReport struct {
	Name     string              `json:"name"`
	State    string              `json:"state"`    // ready or failed
	Protocol string              `json:"protocol"` // the revision, such as 2025-06-18
	Version  string              `json:"version"`  // the server's own
	Error    string              `json:"error"`
	Groups   []string            `json:"groups"`
	Tools    []toolReport        `json:"tools"`
	Skipped  []mcpclient.Skipped `json:"skipped"`

	Login    bool     `json:"login,omitempty"`    // the server has failed because it requires a login
	PingMS   *float64 `json:"ping_ms,omitempty"`  // only set by kitbag mcp status
	Restarts *int     `json:"restarts,omitempty"` // only set by kitbag mcp status
}

type toolReport struct {
	Name   string   `json:"name"`
	Title  string   `json:"title"`
	Bytes  int      `json:"bytes"` // see modelBytes
	Groups []string `json:"groups"`
}

func mcpListCommand() *cobra.Command {
	var f mcpFlags
	cmd := &cobra.Command{
		Use:   "list [flags] [SERVER...]",
		Short: "Start the servers and list their tools",
		Long: `Start the servers, or only each SERVER, and list their tools. The exit code is
0 if at least one server is ready, or if each SERVER is.`,
		Example: "  kitbag mcp list\n  kitbag mcp list --mcp kitbag.json --json github",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.report(cmd, args, listServer, printList)
		},
	}
	f.register(cmd)
	return cmd
}

func mcpStatusCommand() *cobra.Command {
	var f mcpFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Start the servers and ping them",
		Long: `Start the servers and ping each of them. The exit code is 0 if at least one
server is ready.`,
		Example: "  kitbag mcp status --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.report(cmd, nil, pingServer, printStatus)
		},
	}
	f.register(cmd)
	return cmd
}

// selectServers keeps only the servers that are named, or all if names is empty.
func (f *mcpFlags) selectServers(names []string, configs []mcpclient.Server, broken []*mcpclient.LoadError) ([]mcpclient.Server, []*mcpclient.LoadError, error) {
	if len(names) == 0 {
		return configs, broken, nil
	}
	var existing []string
	for _, cfg := range configs {
		existing = append(existing, cfg.Name)
	}
	for _, e := range broken {
		existing = append(existing, e.Server)
	}
	for _, name := range names {
		if !slices.Contains(existing, name) {
			return nil, nil, fmt.Errorf("no MCP server %q in %s%s", name, strings.Join(f.files, ", "), suggestion(name, existing))
		}
	}
	configs = slices.DeleteFunc(configs, func(c mcpclient.Server) bool { return !slices.Contains(names, c.Name) })
	broken = slices.DeleteFunc(broken, func(e *mcpclient.LoadError) bool { return !slices.Contains(names, e.Server) })
	return configs, broken, nil
}

// A queryFunc queries a server and adds the answer to its report.
type queryFunc func(context.Context, *mcpclient.Client, *serverReport) error

// report queries the named servers, or all if names is empty, in parallel and prints the reports. It fails if no server
// is ready, or if a named server is not.
func (f *mcpFlags) report(cmd *cobra.Command, names []string, query queryFunc, print func(io.Writer, serverReport)) error {
	configs, broken, err := f.load()
	if err == nil {
		configs, broken, err = f.selectServers(names, configs, broken)
	}
	if err != nil {
		return err
	}
	reports := queryAll(cmd, configs, query)
	for _, e := range broken {
		r := newReport(e.Server, stateFailed)
		r.Error = e.Error()
		reports = append(reports, r)
	}
	slices.SortStableFunc(reports, func(a, b serverReport) int { return cmp.Compare(a.Name, b.Name) })
	out := cmd.OutOrStdout()
	if f.json {
		err = json.NewEncoder(out).Encode(map[string]any{"servers": reports})
	} else {
		for _, r := range reports {
			print(out, r)
		}
	}
	// A server that is not ready is only a failure if it was named, or if no other server is ready.
	hasState := func(state string) bool {
		return slices.ContainsFunc(reports, func(r serverReport) bool { return r.State == state })
	}
	if err == nil && (!hasState(stateReady) || len(names) > 0 && hasState(stateFailed)) {
		return &exit{code: exitError}
	}
	return err
}

// queryAll queries the servers in parallel, and names slow servers on standard error.
func queryAll(cmd *cobra.Command, configs []mcpclient.Server, query queryFunc) []serverReport {
	reports := make([]serverReport, len(configs))
	reported := make([]atomic.Bool, len(configs))
	stopNotice := noticeSlow(cmd.ErrOrStderr(), func() (names []string) {
		for i, cfg := range configs {
			if !reported[i].Load() {
				names = append(names, cfg.Name)
			}
		}
		return names
	})
	var wg sync.WaitGroup
	for i, cfg := range configs {
		wg.Go(func() {
			reports[i] = reportServer(cmd.Context(), cfg, query)
			reported[i].Store(true)
		})
	}
	wg.Wait()
	stopNotice()
	return reports
}

// slowStart is the time after which a server counts as slow. Only a server that npm must install first takes longer to start.
const slowStart = 3 * time.Second

// noticeSlow prints the names of the starting servers on log after slowStart, unless stop has been called by then.
func noticeSlow(log io.Writer, starting func() []string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-done:
		case <-time.After(slowStart):
			fmt.Fprintf(log, "still starting: %s\n", plainLine(strings.Join(starting(), ", ")))
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// newReport returns a report whose lists are empty in JSON, not null.
func newReport(name, state string) serverReport {
	return serverReport{Name: name, State: state, Groups: []string{}, Tools: []toolReport{}, Skipped: []mcpclient.Skipped{}}
}

// reportServer starts one server and queries it. An error becomes part of the report.
func reportServer(ctx context.Context, cfg mcpclient.Server, query queryFunc) serverReport {
	r := newReport(cfg.Name, stateReady)
	c, err := mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options)
	if err == nil {
		defer c.Close()
		err = query(ctx, c, &r)
		status := c.Status()
		r.Protocol, r.Version = status.Protocol, status.ServerVersion
	}
	if err != nil {
		r.State, r.Error = stateFailed, addLoginRemedy(cfg.Name, err).Error()
		r.Login = errors.Is(err, mcpclient.ErrLogin)
	}
	return r
}

func listServer(ctx context.Context, c *mcpclient.Client, r *serverReport) error {
	tools, err := c.Tools(ctx) // the first call starts the server
	if err != nil {
		return err
	}
	groups, err := c.Groups(ctx)
	if err != nil {
		return err
	}
	groupsOf := map[string][]string{}
	for _, g := range groups {
		r.Groups = append(r.Groups, g.Name)
		for _, name := range g.Members() {
			groupsOf[name] = append(groupsOf[name], g.Name)
		}
	}
	for _, t := range tools {
		info := t.Info()
		r.Tools = append(r.Tools, toolReport{info.Name, info.Title, modelBytes(info), groupsOf[info.Name]})
	}
	r.Skipped = append(r.Skipped, c.Skipped()...)
	return nil
}

// modelBytes returns the size of a tool in a request to a model, without a few bytes of punctuation.
func modelBytes(info tool.Info) int { return len(info.Name) + len(info.Description) + len(info.Input) }

// pingServer adds the time of a ping to the report.
func pingServer(ctx context.Context, c *mcpclient.Client, r *serverReport) error {
	if err := c.Ping(ctx); err != nil { // connect first, so that the start is not measured
		return err
	}
	start := time.Now()
	if err := c.Ping(ctx); err != nil {
		return err
	}
	ms := float64(time.Since(start).Microseconds()) / 1000
	restarts := c.Status().Restarts
	r.PingMS, r.Restarts = &ms, &restarts
	return nil
}

// printHead prints a line with the server, its state and details, and a line with the error, if any.
func printHead(w io.Writer, r serverReport, details string) {
	fmt.Fprintf(w, "%s: %s%s\n", plainLine(r.Name), r.State, details)
	if r.Error != "" {
		fmt.Fprintf(w, "  %s\n", indented(r.Error))
	}
}

func printList(w io.Writer, r serverReport) {
	bytes := 0
	for _, t := range r.Tools {
		bytes += t.Bytes
	}
	details := ""
	if r.Error == "" {
		details = fmt.Sprintf(", protocol %s, %d tools, %d bytes", plainLine(r.Protocol), len(r.Tools), bytes)
	}
	printHead(w, r, details)
	for _, t := range r.Tools {
		fmt.Fprintf(w, "  %-40s %6d  %s\n", t.Name, t.Bytes, plainLine(t.Title))
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "  skipped %s: %s\n", plainLine(s.Name), plainLine(s.Reason))
	}
}

func printStatus(w io.Writer, r serverReport) {
	details := ""
	if r.PingMS != nil {
		details = fmt.Sprintf(", protocol %s, version %s, ping %.1f ms, %d restarts", plainLine(r.Protocol), plainLine(r.Version), *r.PingMS, *r.Restarts)
	}
	printHead(w, r, details)
}
