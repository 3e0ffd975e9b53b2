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

// load reads the files, which must name a server.
func (f *mcpFlags) load() (configs []mcpclient.Server, broken []*mcpclient.LoadError, err error) {
	configs, broken, err = loadConfigs(serverFiles(f.files))
	if err == nil && len(configs)+len(broken) == 0 {
		err = fmt.Errorf("there is no MCP server in %s; add one under mcpServers", strings.Join(f.files, ", "))
	}
	return configs, broken, err
}

// The states of a server in a report.
const (
	ready  = "ready"
	failed = "failed"
)

// serverReport is what is printed about one server. Its JSON is fixed: other programs
// read it.
type serverReport struct {
	Name    string              `json:"name"`
	State   string              `json:"state"` // ready or failed
	Era     string              `json:"era"`   // the protocol's version, such as 2025-06-18
	Version string              `json:"version"`
	Error   string              `json:"error"`
	Groups  []string            `json:"groups"`
	Tools   []toolReport        `json:"tools"`
	Skipped []mcpclient.Skipped `json:"skipped"`

	Login bool `json:"login,omitempty"` // it failed because it wants one

	PingMS   *float64 `json:"ping_ms,omitempty"`  // of status only
	Restarts *int     `json:"restarts,omitempty"` // of status only
}

// A toolReport is what is printed about one tool.
type toolReport struct {
	Name   string   `json:"name"`
	Title  string   `json:"title"`
	Bytes  int      `json:"bytes"` // of name, description and schema: what a model is sent
	Groups []string `json:"groups"`
}

// mcpListCommand is "kitbag mcp list".
func mcpListCommand() *cobra.Command {
	var f mcpFlags
	cmd := &cobra.Command{
		Use:   "list [flags] [SERVER...]",
		Short: "Start the servers and list their tools",
		Long: `Starts the servers, or those that are named, and lists their tools. The exit code
is 0 if one of them is ready; of those that are named, if all are.`,
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
		Short: "Start the servers and ask whether they live",
		Long: `Starts the servers and asks each of them for a sign of life, once it is up. The
exit code is 0 if one of them is ready.`,
		Example: "  kitbag mcp status --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.report(cmd, nil, pingServer, printStatus)
		},
	}
	f.add(cmd)
	return cmd
}

// only keeps what is named, everything if nothing is.
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
			return nil, nil, fmt.Errorf("no MCP server %q%s", n, meant(n, exist))
		}
	}
	configs = slices.DeleteFunc(configs, func(c mcpclient.Server) bool { return !slices.Contains(names, c.Name) })
	broken = slices.DeleteFunc(broken, func(e *mcpclient.LoadError) bool { return !slices.Contains(names, e.Server) })
	return configs, broken, nil
}

// An askFunc asks a server something, and writes down what it says.
type askFunc func(context.Context, *mcpclient.Client, *serverReport) error

// report asks the named servers, or all, side by side and prints what they say. It
// fails if none is ready, or one of those named is not.
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
	// One server that is out of order is no failure of a list of many; of one that was
	// asked for by name it is.
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

// askAll asks the servers side by side, and tells for whom it waits.
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

// late is after what time a person begins to wonder. A server from npm that is not
// installed yet takes longer.
const late = 3 * time.Second

// tellLate tells on log who is missing when it gets late. The function it returns is
// for when nobody is any more: nothing is told after it.
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

// reportServer starts one server and asks it. Its failure is in the report: the others
// are to be seen all the same.
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

// listServer adds the tools, and the groups that the server itself has.
func listServer(ctx context.Context, c *mcpclient.Client, r *serverReport) error {
	tools, err := c.Tools(ctx) // the first call is what starts the server
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

// modelBytes is what a tool costs in each request that names it, but for the few bytes
// of punctuation around it.
func modelBytes(info tool.Info) int { return len(info.Name) + len(info.Description) + len(info.Input) }

// pingServer adds how long an answer takes.
func pingServer(ctx context.Context, c *mcpclient.Client, r *serverReport) error {
	if err := c.Ping(ctx); err != nil { // connects; the time would be that of the start
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

// printHead prints the line about a server, and below it why it is not there.
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
