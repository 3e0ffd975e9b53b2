package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// A Client talks to one MCP server, and is a [tool.Source]. It is safe for concurrent use.
type Client struct {
	cfg    config
	hub    *hub
	tokens atomic.Int64 // how many progress tokens were used
	idle   func()       // closes idle connections of the login

	life         context.Context // ends with Close
	end          context.CancelFunc
	wake         chan struct{} // has one element when changedLists is not empty
	changedLists atomic.Uint32 // lists whose change the server has announced

	prompts              *listCache[Prompt]
	resources, templates *listCache[Resource]

	watches *watchList

	mu         sync.Mutex
	workers    sync.WaitGroup
	closed     bool
	conn       *conn      // nil while there is none
	previous   *conn      // its process may still be ending
	attempt    *attempt   // nil while the client does not connect
	reconnect  bool       // supervise connects again unless a call does so first
	negotiated negotiated // the outcome of the last handshake
	failures   int        // connections lost or not made since the last successful call
	restarts   int
	lastErr    error

	listeners [listenerKinds][]*func() // each slice is replaced, never changed in place

	listing chan struct{} // a semaphore for tools/list
	snap    atomic.Pointer[snapshot]

	knownPins sync.Map // definitions by tool, so that Options.Pins need not be read for each call
}

// negotiated is the outcome of a handshake. The next connection reuses it to be faster.
type negotiated struct {
	kind    wire
	version string
	server  initResult
}

// An attempt is a connection being made.
type attempt struct {
	done chan struct{}
	at   time.Time // when it starts
	err  error     // read after done is closed
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
	c := &Client{cfg: *cfg, wake: make(chan struct{}, 1), listing: make(chan struct{}, 1),
		prompts:   newListCache("prompts/list", "prompts", decodePrompt),
		resources: newListCache("resources/list", "resources", decodeResource),
		templates: newListCache("resources/templates/list", "resources", decodeResource),
		watches:   newWatches()}
	c.hub = newHub(&c.cfg)
	c.idle = func() {}
	if cfg.http.OAuth != nil {
		base, idle := baseTransport(cfg)
		c.cfg.login, c.idle = newLogin(cfg.http.OAuth, cfg.url, base), idle
	}
	c.life, c.end = context.WithCancel(context.Background())
	return c, nil
}

// Name returns the server's name.
func (c *Client) Name() string { return c.cfg.name }

// OnChange calls fn after each change of the list of tools or groups, until stop is called. The calls come one
// at a time; fn must not call the client, and should return soon.
func (c *Client) OnChange(fn func()) (stop func()) { return c.listen(onTools, fn) }

// OnPromptsChange is OnChange for the list of prompts: fn is called when the list may have
// changed since [Client.Prompts].
func (c *Client) OnPromptsChange(fn func()) (stop func()) { return c.listen(onPrompts, fn) }

// OnResourcesChange is OnPromptsChange for the lists of resources and resource templates. For
// the content of a resource see [Client.WatchResource].
func (c *Client) OnResourcesChange(fn func()) (stop func()) { return c.listen(onResources, fn) }

// Kinds of listeners.
const (
	onTools = iota
	onPrompts
	onResources
	listenerKinds
)

func (c *Client) listen(kind int, fn func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &fn
	c.listeners[kind] = append(slices.Clip(c.listeners[kind]), l)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.listeners[kind] = slices.DeleteFunc(slices.Clone(c.listeners[kind]), func(o *func()) bool { return o == l })
	}
}

// SetRoots replaces the directories of Options.Roots, and notifies a server of a revision before
// 2026-07-28. If Options.Roots was nil when the connection was made, the server gets the roots
// with the next connection.
func (c *Client) SetRoots(dirs ...string) {
	if !c.hub.setRootDirs(dirs) {
		return
	}
	c.mu.Lock()
	cn := c.conn
	c.mu.Unlock()
	if cn == nil || cn.sessionless() || cn.kind == wireSSE {
		return
	}
	cn.goWork(func() {
		ctx, cancel := context.WithTimeout(cn.life, 5*time.Second)
		defer cancel()
		_ = cn.notifyServer(ctx, "notifications/roots/list_changed", nil) // a server that is lost lists them again
	})
}

func (c *Client) callListeners(kind int) {
	c.mu.Lock()
	listeners := c.listeners[kind]
	c.mu.Unlock()
	for _, fn := range listeners {
		(*fn)()
	}
}

// Close ends the connection, and stops the server if the client started it. It returns when the server's
// processes have ended; a server that does not react is killed after four seconds. Calling Close again is
// allowed.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	cn := c.conn
	c.mu.Unlock()
	c.end()
	if cn != nil {
		cn.close()
	}
	c.workers.Wait()
	c.idle()
	return nil
}

// Tools returns the server's tools, sorted by name. The server is queried the first time and after a change; in
// between, and while it restarts, the last list is returned. The slice is shared and must not be changed.
func (c *Client) Tools(ctx context.Context) ([]tool.Tool, error) {
	s, err := c.current(ctx)
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
		if _, own, _ := Origin(t); own != name {
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
	s, err := c.current(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Clone(s.groups), nil
}

// Skipped returns the entries of the last list that are not used, with reasons.
func (c *Client) Skipped() []Skipped {
	if s := c.snap.Load(); s != nil {
		return slices.Clone(s.skipped)
	}
	return nil
}

// States of a client; see [Status].
const (
	stateIdle       = "idle"
	stateReady      = "ready"
	stateRestarting = "restarting"
	stateFailed     = "failed"
	stateClosed     = "closed"
)

// A Status describes a server and its connection. What the server reports about itself is empty before the
// first connection.
type Status struct {
	Name string

	// State is "idle" (not started, or stateless between calls), "ready", "restarting",
	// "failed" (it is tried again when needed) or "closed".
	State string

	Protocol      string // the negotiated revision
	ServerName    string
	ServerVersion string
	Instructions  string // from the server, for the model; with Options.Pins, empty until the tools were listed
	Restarts      int
	Err           error // why it failed or restarts

	// PromptsVersion and ResourcesVersion grow whenever the list of prompts, or of resources and resource
	// templates, may have changed. They are 0 if the server has declared none.
	PromptsVersion, ResourcesVersion int64
}

// Status returns the current status. It does not contact the server.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropDead()
	a := c.negotiated
	s := Status{
		Name: c.cfg.name, State: stateIdle, Protocol: a.version, ServerName: a.server.ServerInfo.Name,
		ServerVersion: a.server.ServerInfo.Version, Instructions: a.server.Instructions, Restarts: c.restarts,
	}
	if c.cfg.Pins != nil { // the pins may withhold them
		s.Instructions = ""
		if known := c.snap.Load(); known != nil {
			s.Instructions = known.instructions
		}
	}
	if a.server.declares("prompts") {
		s.PromptsVersion = 1 + c.prompts.changes.Load()
	}
	if a.server.declares("resources") {
		s.ResourcesVersion = 1 + c.resources.changes.Load() + c.templates.changes.Load()
	}
	switch {
	case c.closed:
		s.State = stateClosed
	case c.conn != nil && !c.conn.dead():
		s.State = stateReady
	case c.reconnect || c.attempt != nil && (c.restarts > 0 || c.failures > 0):
		s.State, s.Err = stateRestarting, c.lastErr
	case c.lastErr != nil:
		s.State, s.Err = stateFailed, c.lastErr
	}
	return s
}

// Ping checks that the server answers. It connects if necessary.
func (c *Client) Ping(ctx context.Context) error {
	cn, release, err := c.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := cn.ping(ctx); err != nil {
		return c.serverError(cn, err)
	}
	return nil
}

// ping sends the cheapest request. The revisions without sessions have no ping.
func (c *conn) ping(ctx context.Context) error {
	method := "ping"
	if c.sessionless() {
		method = "server/discover"
	}
	_, err := c.request(ctx, method, nil, nil)
	if _, ok := errors.AsType[*CallError](err); ok {
		return nil // a refusal is an answer
	}
	return err
}

// current returns the snapshot, and lists again the first time and when the snapshot has
// expired. Announced changes are handled by maintain.
func (c *Client) current(ctx context.Context) (*snapshot, error) {
	s := c.snap.Load()
	if s != nil && (s.until.IsZero() || time.Now().Before(s.until)) {
		return s, nil
	}
	fresh, err := c.refresh(ctx, s)
	if err != nil && s != nil && ctx.Err() == nil {
		// A server that is down withdraws nothing; list again later.
		kept := *s
		kept.until = time.Now().Add(retryListAfter)
		c.snap.CompareAndSwap(s, &kept)
		return s, nil
	}
	return fresh, err
}

// retryListAfter is how long a list is used that could not be refreshed.
const retryListAfter = 10 * time.Second

// refresh lists again, unless another goroutine has done so since old was read.
func (c *Client) refresh(ctx context.Context, old *snapshot) (*snapshot, error) {
	select {
	case c.listing <- struct{}{}:
		defer func() { <-c.listing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s := c.snap.Load(); s != old {
		return s, nil
	}
	return c.relist(ctx, old)
}

// relistAfterChange lists again after an announced change. It waits for a listing in progress, which may be
// older than the change. Without a list it does nothing; on failure the last list is kept.
func (c *Client) relistAfterChange(ctx context.Context) (err error) {
	select {
	case c.listing <- struct{}{}:
		defer func() { <-c.listing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if old := c.snap.Load(); old != nil {
		_, err = c.relist(ctx, old)
	}
	return err
}

// catchUpWait is how long the result of a call waits for a list that the call has changed.
const catchUpWait = 2 * time.Second

// catchUp lists again before a call returns, if the server has announced a change meanwhile, so that the
// model's next request shows what the call changed.
func (c *Client) catchUp(ctx context.Context) {
	due := c.changedLists.And(^listOfTools)&listOfTools != 0
	if !due && len(c.listing) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	if due && c.relistAfterChange(ctx) != nil {
		c.listChanged(listOfTools)
	}
	select { // or wait for a listing in progress
	case c.listing <- struct{}{}:
		<-c.listing
	case <-ctx.Done():
	}
}

// relist lists and stores the snapshot. c.listing is held. If the connection is lost meanwhile it tries once more.
func (c *Client) relist(ctx context.Context, old *snapshot) (*snapshot, error) {
	var s *snapshot
	for try := 0; ; try++ {
		cn, release, err := c.acquire(ctx)
		if err != nil {
			return nil, err
		}
		bounded, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeouts.Idle,
			fmt.Errorf("%w: tools/list was not answered in %v", ErrTimeout, c.cfg.Timeouts.Idle))
		s, err = cn.list(bounded, c)
		cancel()
		release()
		if err == nil {
			break
		}
		if try > 0 || !errors.Is(err, ErrLost) || ctx.Err() != nil {
			return nil, c.serverError(cn, err)
		}
	}
	if old != nil && old.digest == s.digest {
		// Equal content keeps the same slice, so that nothing changes for the model.
		kept := *old
		kept.until = s.until
		c.snap.Store(&kept)
		return &kept, nil
	}
	c.snap.Store(s)
	if old != nil {
		c.callListeners(onTools)
	}
	return s, nil
}

// serverError adds the server's name, its stderr and its exit status to an error.
func (c *Client) serverError(cn *conn, err error) error {
	if _, ok := errors.AsType[*CallError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*ServerError](err); ok {
		return err
	}
	e := &ServerError{Server: c.cfg.name, Err: err}
	if cn == nil || cn.proc == nil || !cn.dead() {
		return e
	}
	e.Stderr = cn.stderr()
	if errors.Is(context.Cause(cn.life), ErrLost) { // not ended by Close
		select {
		case <-cn.proc.exited:
			e.Err = fmt.Errorf("%w (%s)", err, cn.proc.status)
		default:
		}
	}
	return e
}

// changeFilter returns the lists whose changes the server announces, as the filter of subscriptions/listen.
func (h *initResult) changeFilter() map[string]any {
	filter := map[string]any{}
	for _, capability := range []string{"tools", "groups", "prompts", "resources"} {
		var c struct {
			ListChanged bool `json:"listChanged"`
		}
		if json.Unmarshal(h.Capabilities[capability], &c) == nil && c.ListChanged {
			filter[capability+"ListChanged"] = true
		}
	}
	return filter
}
