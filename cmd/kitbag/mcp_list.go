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
	configs, broken, err = loadConfigs(serverFiles(f.files))
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
	Version  string              `json:"version"`  // of the server
	Error    string              `json:"error"`
	Groups   []string            `json:"groups"`
	Tools    []toolReport        `json:"tools"`
	Skipped  []mcpclient.Skipped `json:"skipped"`

	Login bool `json:"login,omitempty"` // it failed because it requires a login

	PingMS   *float64 `json:"ping_ms,omitempty"`  // for status only
	Restarts *int     `json:"restarts,omitempty"` // for status only
}

type toolReport struct {
	Name   string   `json:"name"`
	Title  string   `json:"title"`
	Bytes  int      `json:"bytes"` // of name, description and schema: as sent to a model
	Groups []string `json:"groups"`
}

func mcpListCommand() *cobra.Command {
	var f mcpFlags
	cmd := &cobra.Command{
		Use:   "list [flags] [SERVER...]",
		Short: "Start the servers and list their tools",
		Long: `Start the servers, or only the given ones, and list their tools. The exit
code is 0 if one server is ready; with given names all of them must be.`,
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
		Long: `Start the servers and ping each of them. The exit code is 0 if one server is
ready.`,
		Example: "  kitbag mcp status --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.report(cmd, nil, pingServer, printStatus)
		},
	}
	f.register(cmd)
	return cmd
}

// selectServers keeps the servers with the given names, or all if there are no names.
func (f *mcpFlags) selectServers(names []string, configs []mcpclient.Server, broken []*mcpclient.LoadError) ([]mcpclient.Server, []*mcpclient.LoadError, error) {
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
			return nil, nil, fmt.Errorf("no MCP server %q in %s%s", n, strings.Join(f.files, ", "), suggestion(n, exist))
		}
	}
	configs = slices.DeleteFunc(configs, func(c mcpclient.Server) bool { return !slices.Contains(names, c.Name) })
	broken = slices.DeleteFunc(broken, func(e *mcpclient.LoadError) bool { return !slices.Contains(names, e.Server) })
	return configs, broken, nil
}

// A queryFunc queries a server and adds the answer to its report.
type queryFunc func(context.Context, *mcpclient.Client, *serverReport) error

// report queries the named servers, or all, in parallel and prints the reports. It fails if no server is ready,
// or if a named one is not.
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
	// One broken server in a list of many is not a failure, unless it was requested by name.
	readyCount := 0
	for _, r := range reports {
		if r.State == stateReady {
			readyCount++
		}
	}
	if err == nil && (readyCount == 0 || len(names) > 0 && readyCount < len(reports)) {
		return &exit{code: exitError}
	}
	return err
}

// queryAll queries the servers in parallel, and names slow ones on standard error.
func queryAll(cmd *cobra.Command, configs []mcpclient.Server, query queryFunc) []serverReport {
	reports := make([]serverReport, len(configs))
	reported := make([]atomic.Bool, len(configs))
	stopNotice := noticeSlow(cmd.ErrOrStderr(), func() (missing []string) {
		for i, cfg := range configs {
			if !reported[i].Load() {
				missing = append(missing, cfg.Name)
			}
		}
		return missing
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

// noticeSlow prints the missing servers on log after slowStart, unless stop has been called by then.
func noticeSlow(log io.Writer, missing func() []string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-done:
		case <-time.After(slowStart):
			fmt.Fprintf(log, "still starting: %s\n", plainLine(strings.Join(missing(), ", ")))
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

// reportServer starts one server and queries it. The report includes a failure.
func reportServer(ctx context.Context, cfg mcpclient.Server, query queryFunc) serverReport {
	r := newReport(cfg.Name, stateReady)
	c, err := mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options)
	if err == nil {
		defer c.Close()
		err = query(ctx, c, &r)
		st := c.Status()
		r.Protocol, r.Version = st.Protocol, st.ServerVersion
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

// modelBytes returns the size of a tool in a request, without a few bytes of punctuation.
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

// printHead prints the line about a server, and its error in the next line.
func printHead(w io.Writer, r serverReport, rest string) {
	fmt.Fprintf(w, "%s: %s%s\n", plainLine(r.Name), r.State, rest)
	if r.Error != "" {
		fmt.Fprintf(w, "  %s\n", indented(r.Error))
	}
}

func printList(w io.Writer, r serverReport) {
	bytes := 0
	for _, t := range r.Tools {
		bytes += t.Bytes
	}
	rest := ""
	if r.Error == "" {
		rest = fmt.Sprintf(", protocol %s, %d tools, %d bytes", plainLine(r.Protocol), len(r.Tools), bytes)
	}
	printHead(w, r, rest)
	for _, t := range r.Tools {
		fmt.Fprintf(w, "  %-40s %6d  %s\n", t.Name, t.Bytes, plainLine(t.Title))
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "  skipped %s: %s\n", plainLine(s.Name), plainLine(s.Reason))
	}
}

func printStatus(w io.Writer, r serverReport) {
	rest := ""
	if r.PingMS != nil {
		rest = fmt.Sprintf(", protocol %s, version %s, ping %.1f ms, %d restarts", plainLine(r.Protocol), plainLine(r.Version), *r.PingMS, *r.Restarts)
	}
	printHead(w, r, rest)
}
