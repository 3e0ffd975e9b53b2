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

// load reads the files, which must have a server.
func (f *mcpFlags) load() (configs []mcpclient.Server, broken []*mcpclient.LoadError, err error) {
	configs, broken, err = loadConfigs(serverFiles(f.files))
	if err == nil && len(configs)+len(broken) == 0 {
		err = fmt.Errorf("no MCP server in %s; add one under mcpServers", strings.Join(f.files, ", "))
	}
	return configs, broken, err
}

// The states of a server in a report.
const (
	ready  = "ready"
	failed = "failed"
)

// serverReport is the output about one server. Its JSON is fixed, since other programs read
// it.
type serverReport struct {
	Name    string              `json:"name"`
	State   string              `json:"state"` // ready or failed
	Era     string              `json:"era"`   // the protocol's version, such as 2025-06-18
	Version string              `json:"version"`
	Error   string              `json:"error"`
	Groups  []string            `json:"groups"`
	Tools   []toolReport        `json:"tools"`
	Skipped []mcpclient.Skipped `json:"skipped"`

	Login bool `json:"login,omitempty"` // it failed because it requires one

	PingMS   *float64 `json:"ping_ms,omitempty"`  // for status only
	Restarts *int     `json:"restarts,omitempty"` // for status only
}

// A toolReport is the output about one tool.
type toolReport struct {
	Name   string   `json:"name"`
	Title  string   `json:"title"`
	Bytes  int      `json:"bytes"` // of name, description and schema: as sent to a model
	Groups []string `json:"groups"`
}

// mcpListCommand is "kitbag mcp list".
func mcpListCommand() *cobra.Command {
	var f mcpFlags
	cmd := &cobra.Command{
		Use:   "list [flags] [SERVER...]",
		Short: "Start the servers and list their tools",
		Long: `Starts the servers, or only the given ones, and lists their tools. The exit
code is 0 if one of them is ready; of given ones all must be.`,
		Example: "  kitbag mcp list\n  kitbag mcp list --mcp kitbag.json --json github",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.report(cmd, args, listServer, printList)
		},
	}
	f.add(cmd)
	return cmd
}

// mcpStatusCommand is "kitbag mcp status".
func mcpStatusCommand() *cobra.Command {
	var f mcpFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Start the servers and ping them",
		Long: `Starts the servers and pings each of them. The exit
code is 0 if one of them is ready.`,
		Example: "  kitbag mcp status --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.report(cmd, nil, pingServer, printStatus)
		},
	}
	f.add(cmd)
	return cmd
}

// only keeps the servers with the given names, or all without names.
func only(names []string, configs []mcpclient.Server, broken []*mcpclient.LoadError) ([]mcpclient.Server, []*mcpclient.LoadError, error) {
	if len(names) == 0 {
		return configs, broken, nil
	}
	var exist []string
	for _, c := range configs {
		exist = append(exist, c.Name)
	}
	for _, e := range broken {
		exist = append(exist, e.Server)
	}
	for _, n := range names {
		if !slices.Contains(exist, n) {
			return nil, nil, fmt.Errorf("no MCP server %q%s", n, suggestion(n, exist))
		}
	}
	configs = slices.DeleteFunc(configs, func(c mcpclient.Server) bool { return !slices.Contains(names, c.Name) })
	broken = slices.DeleteFunc(broken, func(e *mcpclient.LoadError) bool { return !slices.Contains(names, e.Server) })
	return configs, broken, nil
}

// An askFunc queries a server, and adds the answer to its report.
type askFunc func(context.Context, *mcpclient.Client, *serverReport) error

// report queries the named servers, or all, in parallel and prints the reports. It fails if
// none is ready, or one of the named ones is not.
func (f *mcpFlags) report(cmd *cobra.Command, names []string, ask askFunc, print func(io.Writer, serverReport)) error {
	configs, broken, err := f.load()
	if err == nil {
		configs, broken, err = only(names, configs, broken)
	}
	if err != nil {
		return err
	}
	reports := askAll(cmd, configs, ask)
	for _, e := range broken {
		r := newReport(e.Server, failed)
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
	// One broken server is not a failure of a list of many, unless it was requested by
	// name.
	isReady := func(r serverReport) bool { return r.State == ready }
	bad := !slices.ContainsFunc(reports, isReady)
	if len(names) > 0 {
		bad = slices.ContainsFunc(reports, func(r serverReport) bool { return !isReady(r) })
	}
	if err == nil && bad {
		return &exit{code: exitError}
	}
	return err
}

// askAll queries the servers in parallel, and reports slow ones on standard error.
func askAll(cmd *cobra.Command, configs []mcpclient.Server, ask askFunc) []serverReport {
	reports := make([]serverReport, len(configs))
	there := make([]atomic.Bool, len(configs))
	told := tellLate(cmd.ErrOrStderr(), func() (missing []string) {
		for i, cfg := range configs {
			if !there[i].Load() {
				missing = append(missing, cfg.Name)
			}
		}
		return missing
	})
	var wg sync.WaitGroup
	for i, cfg := range configs {
		wg.Go(func() {
			reports[i] = reportServer(cmd.Context(), cfg, ask)
			there[i].Store(true)
		})
	}
	wg.Wait()
	told()
	return reports
}

// late is after what time the user is told which servers are slow. A server from npm that is
// not installed yet takes longer.
const late = 3 * time.Second

// tellLate prints the missing servers on log after that time, unless the function that it
// returns was called before.
func tellLate(log io.Writer, missing func() []string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-done:
		case <-time.After(late):
			fmt.Fprintf(log, "still starting: %s\n", plainLine(strings.Join(missing(), ", ")))
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// newReport returns a report whose lists are empty, not null.
func newReport(name, state string) serverReport {
	return serverReport{Name: name, State: state, Groups: []string{}, Tools: []toolReport{}, Skipped: []mcpclient.Skipped{}}
}

// reportServer starts one server and queries it. A failure is part of the report, as the other
// servers are reported too.
func reportServer(ctx context.Context, cfg mcpclient.Server, ask askFunc) serverReport {
	r := newReport(cfg.Name, ready)
	c, err := mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options)
	if err == nil {
		defer c.Close()
		err = ask(ctx, c, &r)
		st := c.Status()
		r.Era, r.Version = st.Protocol, st.ServerVersion
	}
	if err != nil {
		r.State, r.Error = failed, wantsLogin(cfg.Name, err).Error()
		r.Login = errors.Is(err, mcpclient.ErrLogin)
	}
	return r
}

// listServer adds the tools, and the server's own groups.
func listServer(ctx context.Context, c *mcpclient.Client, r *serverReport) error {
	tools, err := c.Tools(ctx) // the first call starts the server
	if err != nil {
		return err
	}
	groups, err := c.Groups(ctx)
	if err != nil {
		return err
	}
	in := map[string][]string{}
	for _, g := range groups {
		r.Groups = append(r.Groups, g.Name)
		for _, name := range g.Members() {
			in[name] = append(in[name], g.Name)
		}
	}
	for _, t := range tools {
		info := t.Info()
		r.Tools = append(r.Tools, toolReport{info.Name, info.Title, modelBytes(info), in[info.Name]})
	}
	r.Skipped = append(r.Skipped, c.Skipped()...)
	return nil
}

// modelBytes is the cost of a tool in each request that has it, without a few bytes of
// punctuation.
func modelBytes(info tool.Info) int { return len(info.Name) + len(info.Description) + len(info.Input) }

// pingServer adds the time of an answer.
func pingServer(ctx context.Context, c *mcpclient.Client, r *serverReport) error {
	if err := c.Ping(ctx); err != nil { // connects, so that the start is not measured
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

// printHead prints the line about a server, and below it the error.
func printHead(w io.Writer, r serverReport, rest string) {
	fmt.Fprintf(w, "%s: %s%s\n", plainLine(r.Name), r.State, rest)
	if r.Error != "" {
		fmt.Fprintf(w, "  %s\n", indented(r.Error))
	}
}

// printList prints a report of list for people.
func printList(w io.Writer, r serverReport) {
	bytes := 0
	for _, t := range r.Tools {
		bytes += t.Bytes
	}
	rest := ""
	if r.Error == "" {
		rest = fmt.Sprintf(", protocol %s, %d tools, %d bytes", plainLine(r.Era), len(r.Tools), bytes)
	}
	printHead(w, r, rest)
	for _, t := range r.Tools {
		fmt.Fprintf(w, "  %-40s %6d  %s\n", t.Name, t.Bytes, plainLine(t.Title))
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "  skipped %s: %s\n", plainLine(s.Name), plainLine(s.Reason))
	}
}

// printStatus prints a report of status for people.
func printStatus(w io.Writer, r serverReport) {
	rest := ""
	if r.PingMS != nil {
		rest = fmt.Sprintf(", protocol %s, version %s, ping %.1f ms, %d restarts", plainLine(r.Era), plainLine(r.Version), *r.PingMS, *r.Restarts)
	}
	printHead(w, r, rest)
}
