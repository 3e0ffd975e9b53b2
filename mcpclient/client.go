package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// A Client talks to one MCP server, and is a [tool.Source]. It is safe for concurrent use.
type Client struct {
	cfg       config
	hub       *hub
	sup       *supervisor
	cat       *catalogue
	runner    *runner
	closeIdle func() // closes idle connections of the login (HTTP.OAuth)
}

// New returns a client for a server. The server is started or contacted when it is first
// needed, for example by [Client.Tools]. New fails if the arguments are not valid. Nil Options
// are the zero Options.
//
// The name begins the names of the tools, and must be unique in a program. It has at most 40
// bytes. After characters that model APIs reject are replaced by underscores, it must not begin
// or end with an underscore nor have two in a row; see Names in the package's documentation.
func New(name string, t Transport, opts *Options) (*Client, error) {
	cfg, err := newConfig(name, t, opts)
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: *cfg, closeIdle: func() {}}
	if cfg.http.OAuth != nil {
		base, closeIdle := baseTransport(cfg)
		c.cfg.login, c.closeIdle = newLogin(cfg.http.OAuth, cfg.url, base), closeIdle
	}
	c.hub = newHub(&c.cfg)
	c.sup = newSupervisor(&c.cfg, c.hub)
	c.cat = newCatalogue(&c.cfg, c.sup)
	c.runner = &runner{cfg: &c.cfg, sup: c.sup, cat: c.cat}
	c.sup.observer, c.cat.caller = c.cat, c.runner
	return c, nil
}

// Name returns the server's name.
func (c *Client) Name() string { return c.cfg.name }

// OnChange calls fn after each change of the list of tools or groups, until stop is called. The calls come one
// at a time; fn must not call the client, and should return soon.
func (c *Client) OnChange(fn func()) (stop func()) { return c.cat.listeners.add(onTools, fn) }

// OnPromptsChange is like OnChange for the list of prompts: fn is called when the list may have changed since
// [Client.Prompts].
func (c *Client) OnPromptsChange(fn func()) (stop func()) { return c.cat.listeners.add(onPrompts, fn) }

// OnResourcesChange is like OnPromptsChange for the lists of resources and resource templates. For the content of a
// resource see [Client.WatchResource].
func (c *Client) OnResourcesChange(fn func()) (stop func()) {
	return c.cat.listeners.add(onResources, fn)
}

// SetRoots replaces the directories of Options.Roots, and notifies a server of a revision before
// 2026-07-28. If Options.Roots was nil when the connection was made, the server gets the roots
// with the next connection.
func (c *Client) SetRoots(dirs ...string) {
	if !c.hub.setRootDirs(dirs) {
		return
	}
	cn := c.sup.current()
	if cn == nil || cn.kind == wireSSE || !cn.protocol.notifies() { // over SSE roots are not declared
		return
	}
	cn.goWork(func() {
		ctx, cancel := context.WithTimeout(cn.life, noticeTimeout)
		defer cancel()
		// On failure the next connection has the new roots.
		_ = cn.notifyServer(ctx, "notifications/roots/list_changed", nil)
	})
}

// Close ends the connection, and stops the server if the client started it. It returns when the server's
// processes have ended; a server that does not react is killed after four seconds. Calling Close again is
// allowed.
func (c *Client) Close() error {
	c.sup.close()
	c.closeIdle()
	return nil
}

// Tools returns the server's tools, sorted by name. The server is queried the first time and after a change; in
// between, and while it restarts, the last list is returned. The slice is shared and must not be changed.
func (c *Client) Tools(ctx context.Context) ([]tool.Tool, error) {
	s, err := c.cat.current(ctx)
	if err != nil {
		return nil, err
	}
	return s.tools, nil
}

// Call calls a tool by the server's own name for it, and returns its result. Args are encoded as the JSON
// object of the arguments; nil is {}. Call is for programs: it checks no permission, and leaves checking the
// arguments to the server. If the tool fails, its result has the outcome error and Call returns no error; the
// error is a [*ServerError] or a [*CallError] if the server could not be called or rejected the call. Only
// tools in [Client.Tools] can be called.
func (c *Client) Call(ctx context.Context, name string, args any) (*message.ToolResult, error) {
	input, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("MCP server %q: arguments of %s: %w", c.cfg.name, clip(name, maxNameBytes), err)
	}
	tools, err := c.Tools(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range tools {
		if _, remoteName, _ := Origin(t); remoteName != name {
			continue
		}
		call := tool.Call{ID: "call", Name: t.Info().Name, Input: input}
		result := tool.NewCollector(call)
		for chunk, err := range t.Call(ctx, call) {
			if err != nil {
				return nil, err
			}
			result.Add(chunk)
		}
		return result.Result(), nil
	}
	return nil, fmt.Errorf("MCP server %q has no tool %q, or Options exclude it; see Client.Tools and Client.Skipped", c.cfg.name, clip(name, maxNameBytes))
}

// Groups returns the server's groups, sorted by name, and one named after the server for the tools that are in
// no group.
func (c *Client) Groups(ctx context.Context) ([]Group, error) {
	s, err := c.cat.current(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Clone(s.groups), nil
}

// Skipped returns the entries of the last list that are not used, with reasons.
func (c *Client) Skipped() []Skipped {
	if s := c.cat.snap.Load(); s != nil {
		return slices.Clone(s.skipped)
	}
	return nil
}

// Withheld returns why [Pins] withhold a tool of the server, given the name that models would see; nil for any other
// tool.
func (c *Client) Withheld(tool string) error {
	s := c.cat.snap.Load()
	if s == nil {
		return nil
	}
	for _, t := range s.withheld {
		for _, skipped := range s.skipped {
			if t.info.Name == tool && skipped.Name == clip(t.remoteName, maxNameBytes) {
				return errors.New(skipped.Reason)
			}
		}
	}
	return nil
}

// A Status describes a server and its connection. What the server reports about itself is empty before the
// first connection.
type Status struct {
	Name string

	// State is "idle" (not started, or stateless between calls), "ready", "restarting",
	// "failed" (the next call tries again) or "closed".
	State string

	Protocol      string // the negotiated revision
	ServerName    string
	ServerVersion string
	Instructions  string // from the server, for the model; with Options.Pins, empty until the tools were listed
	Restarts      int    // number of lost connections
	Err           error  // the last failure, if State is "restarting" or "failed"

	// PromptsVersion and ResourcesVersion grow whenever the list of prompts, or of resources and resource
	// templates, may have changed. The version is 0 if the server does not declare prompts, or resources.
	PromptsVersion, ResourcesVersion int64
}

// Status returns the current status. It does not contact the server.
func (c *Client) Status() Status {
	s, server := c.sup.status()
	if c.cfg.Pins != nil { // which may withhold the instructions
		s.Instructions = ""
		if listed := c.cat.snap.Load(); listed != nil {
			s.Instructions = listed.instructions
		}
	}
	if server.declares("prompts") {
		s.PromptsVersion = 1 + c.cat.prompts.changes.Load()
	}
	if server.declares("resources") {
		s.ResourcesVersion = 1 + c.cat.resources.changes.Load() + c.cat.templates.changes.Load()
	}
	return s
}

// Ping checks that the server answers. It connects if necessary.
func (c *Client) Ping(ctx context.Context) error {
	cn, release, err := c.sup.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := cn.ping(ctx); err != nil {
		return c.cfg.serverError(cn, err)
	}
	return nil
}
