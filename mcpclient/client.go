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

	"github.com/kitbag-go/kitbag/tool"
)

// A Client is one MCP server as a [tool.Source]. It is safe for concurrent use.
type Client struct {
	cfg    config
	hub    *hub
	tokens atomic.Int64 // progress tokens given
	idle   func()       // closes idle connections of the login

	life context.Context // ends with Close
	end  context.CancelFunc
	poke chan struct{} // the server says that lists have changed
	due  atomic.Uint32 // which

	prompts              *listCache[Prompt]
	resources, templates *listCache[json.RawMessage]

	watches *watches

	mu       sync.Mutex
	workers  sync.WaitGroup
	closed   bool
	conn     *conn    // nil while there is none
	buried   *conn    // the one before, which may still be ending
	attempt  *attempt // nil while none is being made
	owed     bool     // an attempt, which watch makes unless somebody needs the server before
	agreed   agreed   // what the last handshake found out
	failures int      // connections lost or not made since the last call that worked
	restarts int
	lastErr  error

	listeners [listenerKinds][]*func() // each slice is replaced, never changed in place

	listing chan struct{} // holds a token while somebody lists
	snap    atomic.Pointer[snapshot]

	pinned sync.Map // what is known of Options.Pins, so that they are not read for each call
}

// agreed is what the last handshake found out. It is remembered over restarts,
// which are quicker for it, and over the sessions of a stateless client.
type agreed struct {
	kind    wire
	version string
	hello   hello
}

// An attempt is a connection being made.
type attempt struct {
	done chan struct{}
	at   time.Time // when it starts
	err  error     // read after done is closed
}

// New returns a client for a server. The server is not started or contacted before it is
// needed, such as by [Client.Tools]. It fails if the arguments are not valid. The nil Options
// are the zero ones.
//
// The name begins the names of the tools. It is unique in a program, of at most 40 bytes, and
// neither begins or ends with an underscore nor has two in a row, counting the characters
// that become one; see Names in the package's documentation.
func New(name string, t Transport, opts *Options) (*Client, error) {
	cfg, err := newConfig(name, t, opts)
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: *cfg, poke: make(chan struct{}, 1), listing: make(chan struct{}, 1),
		prompts:   newListCache("prompts/list", "prompts", decodePrompt),
		resources: newListCache("resources/list", "resources", asWritten),
		templates: newListCache("resources/templates/list", "resources", asWritten),
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

// OnChange has fn called after each change of the list of tools or groups, until stop is
// called. The calls come one at a time; fn must not call the client, and should return soon.
func (c *Client) OnChange(fn func()) (stop func()) { return c.listen(onTools, fn) }

// OnPromptsChange is OnChange for the list of prompts: fn is called when the list may have
// changed since [Client.Prompts].
func (c *Client) OnPromptsChange(fn func()) (stop func()) { return c.listen(onPrompts, fn) }

// OnResourcesChange is OnPromptsChange for the lists of resources and resource templates. For
// the content of a resource see [Client.WatchResource].
func (c *Client) OnResourcesChange(fn func()) (stop func()) { return c.listen(onResources, fn) }

// What listeners are called for.
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

// SetRoots replaces the working directories that the server may ask for, and tells
// a server of the older protocols that they have changed. A server that was not
// declared any (Options.Roots was nil) gets them when it is next connected.
func (c *Client) SetRoots(dirs ...string) {
	if !c.hub.setDirs(dirs) {
		return
	}
	c.mu.Lock()
	cn := c.conn
	c.mu.Unlock()
	if cn == nil || cn.modern() || cn.kind == wireSSE {
		return
	}
	cn.work(func() {
		ctx, cancel := context.WithTimeout(cn.life, 5*time.Second)
		defer cancel()
		_ = cn.tell(ctx, "notifications/roots/list_changed", nil) // one that is gone asks anew
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

// Close ends the connection, and the server if it was started. It returns when
// nothing of it is left, which may take four seconds if the server has to be
// killed. It may be called twice.
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

// Tools returns the server's tools, by name. The server is asked the first
// time and after a change; in between, and while it is restarting, the last
// list is returned. The slice is shared: do not change it.
func (c *Client) Tools(ctx context.Context) ([]tool.Tool, error) {
	s, err := c.current(ctx)
	if err != nil {
		return nil, err
	}
	return s.tools, nil
}

// Groups returns the server's groups, by name: those it names itself, and one
// named after the server for the tools that are in none.
func (c *Client) Groups(ctx context.Context) ([]Group, error) {
	s, err := c.current(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Clone(s.groups), nil
}

// Skipped returns what the last list held that is not used, and why.
func (c *Client) Skipped() []Skipped {
	if s := c.snap.Load(); s != nil {
		return slices.Clone(s.skipped)
	}
	return nil
}

// What a client is doing; see [Status].
const (
	stateIdle       = "idle"
	stateReady      = "ready"
	stateRestarting = "restarting"
	stateFailed     = "failed"
	stateClosed     = "closed"
)

// A Status describes a server and its connection at one time. What the server
// says of itself is empty before the first connection.
type Status struct {
	Name string

	// State is "idle" (not started, or stateless between calls), "ready", "restarting",
	// "failed" (it is tried again when it is needed) or "closed".
	State string

	Protocol      string // the revision agreed on
	ServerName    string
	ServerVersion string
	Instructions  string // from the server, for the model; with Options.Pins, empty until the tools were listed
	Restarts      int
	Err           error // why it failed or restarts

	// PromptsVersion and ResourcesVersion grow whenever that list, or that of resource
	// templates, may have changed. They are 0 until the server has declared to have any.
	PromptsVersion, ResourcesVersion int64
}

// Status returns how things stand. It neither contacts the server nor starts it.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bury()
	a := c.agreed
	s := Status{
		Name: c.cfg.name, State: stateIdle, Protocol: a.version, ServerName: a.hello.ServerInfo.Name,
		ServerVersion: a.hello.ServerInfo.Version, Instructions: a.hello.Instructions, Restarts: c.restarts,
	}
	if c.cfg.Pins != nil { // which may hold them back
		s.Instructions = ""
		if known := c.snap.Load(); known != nil {
			s.Instructions = known.instructions
		}
	}
	if a.hello.declares("prompts") {
		s.PromptsVersion = 1 + c.prompts.changes.Load()
	}
	if a.hello.declares("resources") {
		s.ResourcesVersion = 1 + c.resources.changes.Load() + c.templates.changes.Load()
	}
	switch {
	case c.closed:
		s.State = stateClosed
	case c.conn != nil && !c.conn.dead():
		s.State = stateReady
	case c.owed || c.attempt != nil && (c.restarts > 0 || c.failures > 0):
		s.State, s.Err = stateRestarting, c.lastErr
	case c.lastErr != nil:
		s.State, s.Err = stateFailed, c.lastErr
	}
	return s
}

// Ping asks the server whether it lives, connecting if need be.
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

// ping asks what costs the server least. The stateless revisions have no ping.
func (c *conn) ping(ctx context.Context) error {
	method := "ping"
	if c.modern() {
		method = "server/discover"
	}
	_, err := c.request(ctx, method, nil, nil)
	if _, ok := errors.AsType[*CallError](err); ok {
		return nil // it refuses, so it lives
	}
	return err
}

// current returns the snapshot, made anew where it must be: the first time, and
// when its time is over. Changes that the server announces are followed by
// attend and found here.
func (c *Client) current(ctx context.Context) (*snapshot, error) {
	s := c.snap.Load()
	if s != nil && (s.until.IsZero() || time.Now().Before(s.until)) {
		return s, nil
	}
	fresh, err := c.refresh(ctx, s)
	if err != nil && s != nil && ctx.Err() == nil {
		// A server that is down withdraws nothing; ask again in a while.
		kept := *s
		kept.until = time.Now().Add(retryList)
		c.snap.CompareAndSwap(s, &kept)
		return s, nil
	}
	return fresh, err
}

// retryList is how long a list that could not be renewed is good for.
const retryList = 10 * time.Second

// refresh lists anew, unless another goroutine has done so since old was read.
// A connection that is lost meanwhile costs one more try; listing is harmless.
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

// renew lists anew after the server said that its list has changed, or may have. A
// listing that is under way may have been too early, so it is waited for. Without
// a list there is none to renew, and on failure the last one stays.
func (c *Client) renew(ctx context.Context) (err error) {
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

// catchUpWait is how long the result of a call waits for the list that the call has changed.
const catchUpWait = 2 * time.Second

// catchUp lists anew, before a call has its result, if the server has said meanwhile that
// its list has changed: whoever looks next sees what the call has made of it.
func (c *Client) catchUp(ctx context.Context) {
	due := c.due.And(^listOfTools)&listOfTools != 0
	if !due && len(c.listing) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	if due && c.renew(ctx) != nil {
		c.changed(listOfTools)
	}
	select { // or it is being listed already
	case c.listing <- struct{}{}:
		<-c.listing
	case <-ctx.Done():
	}
}

// relist asks for the list and takes it into use. c.listing is held.
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
		// The same content stays the same list, so that what the model was
		// told does not change.
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

// serverError gives an error of the connection the facts a reader needs.
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
	if errors.Is(context.Cause(cn.life), ErrLost) { // and was not ended by us
		select {
		case <-cn.proc.exited:
			e.Err = fmt.Errorf("%w (%s)", err, cn.proc.status)
		default:
		}
	}
	return e
}

// news returns which lists the server says that it announces changes of, as the filter
// of subscriptions/listen.
func (h *hello) news() map[string]any {
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
