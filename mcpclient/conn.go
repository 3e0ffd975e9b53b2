package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// idPrefix starts the ids of our requests. They are strings: a server's own
// requests have numbers, and mcp-go's SSE transport would take a ping whose id
// equals one of ours for an answer.
const idPrefix = "kb-"

// A conn is one connection to a server, from its start to its end. It speaks
// JSON-RPC over a transport of mcp-go and keeps the raw answers: mcp-go's typed
// results drop what they do not know and fail on what they did not expect.
type conn struct {
	cfg  *config
	kind wire
	tr   transport.Interface
	proc *process // nil unless it was started by us
	pipe io.Closer
	out  *outbox      // to a server that reads lines
	http *http.Client // over HTTP
	hub  *hub         // what the server may ask of us

	opened  time.Time
	version string // negotiated; set by the handshake
	hello   hello
	spoken  atomic.Pointer[string] // version for those who may be at work before it is set; nil or empty for none

	lastID atomic.Int64
	notify func(method string, params map[string]any) // called for every notification but progress, on the reader

	standing chan struct{} // holds one element when a subscription to resources stands

	tuning sync.Mutex
	tuned  atomic.Pointer[string] // the log level that the server was told

	mu      sync.Mutex
	routes  map[string]func(progress) // by progress token
	calls   []*inflight               // oldest first
	left    []leftover                // of calls that were given up
	open    map[string]func()         // what cancels the server's requests, by their ids
	closing bool
	workers sync.WaitGroup
	notices sync.WaitGroup // of requests that were given up

	users     atomic.Int64    // calls in flight
	answering atomic.Int64    // answers under way over HTTP
	life      context.Context // ends when the connection is lost or closed
	end       context.CancelCauseFunc
	stopped   chan struct{} // closed when the server's process is gone, if there was one
	idle      func()        // closes idle HTTP connections
}

// A hello is what the server said of itself when the connection was made.
type hello struct {
	ProtocolVersion   string                     `json:"protocolVersion"`
	SupportedVersions []string                   `json:"supportedVersions"`
	Capabilities      map[string]json.RawMessage `json:"capabilities"`
	Instructions      string                     `json:"instructions"`
	ServerInfo        serverInfo                 `json:"serverInfo"`
	Meta              map[string]json.RawMessage `json:"_meta"`
}

type serverInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// open makes a transport and starts it. Nothing was said yet. The connection
// does not end with ctx, which bounds the opening only.
func open(ctx context.Context, cfg *config, kind wire, h *hub, notify func(method string, params map[string]any)) (*conn, error) {
	c := &conn{
		cfg: cfg, kind: kind, hub: h, notify: notify, opened: time.Now(),
		routes: map[string]func(progress){}, open: map[string]func(){}, stopped: make(chan struct{}), standing: make(chan struct{}, 1), idle: func() {},
	}
	c.life, c.end = context.WithCancelCause(context.Background())
	if err := c.start(ctx); err != nil {
		c.end(err)
		c.idle()
		return nil, err
	}
	context.AfterFunc(c.life, func() {
		if c.proc != nil {
			// One that does not talk to us, or has closed its output, may
			// still run, to no avail; only one that works gets time to end.
			c.proc.stop(errors.Is(context.Cause(c.life), ErrClosed))
		}
		if c.pipe != nil {
			c.pipe.Close()
		}
		close(c.stopped)
	})
	return c, nil
}

func (c *conn) start(ctx context.Context) (err error) {
	ended := func() { c.lost(errors.New("its output ended")) }
	if c.cfg.dial != nil {
		pipe, err := c.cfg.dial(ctx)
		if err != nil {
			return fmt.Errorf("dial: %w", err)
		}
		c.pipe = pipe
		return c.overLines(newLineReader(pipe, c.cfg.Limits.Message, ended), pipe)
	}
	if c.kind == wireLines {
		c.proc, err = startProcess(&c.cfg.command, c.cfg.Limits.Message, ended)
		if err != nil {
			return err
		}
		return c.overLines(c.proc.stdout, c.proc.stdin)
	}
	if c.tr, c.http, c.idle, err = httpTransport(c.cfg, c.kind); err != nil {
		return err
	}
	if sse, ok := c.tr.(*transport.SSE); ok {
		sse.SetConnectionLostHandler(func(err error) { c.lost(fmt.Errorf("the event stream ended: %w", err)) })
	}
	// Start ties the connection to its context, so it gets the long one, and is
	// given up from outside when ctx ends.
	stop := context.AfterFunc(ctx, func() { c.end(context.Cause(ctx)) })
	defer stop()
	c.handle()
	if err := c.tr.Start(c.life); err != nil {
		_ = c.tr.Close()
		return err
	}
	return nil
}

// overLines starts a transport whose messages are lines. Its context does not end: mcp-go
// would answer what the server asks after that by itself, to no avail, and log that.
func (c *conn) overLines(in io.Reader, out io.WriteCloser) error {
	c.out = &outbox{WriteCloser: out, lost: c.lost}
	c.tr = transport.NewIO(in, c.out, nil)
	c.handle()
	return c.tr.Start(context.Background())
}

// handle takes what the server sends on its own. It comes before the start, since nothing
// may be missed, nor answered by mcp-go.
func (c *conn) handle() {
	c.tr.SetNotificationHandler(c.notified)
	if two, ok := c.tr.(transport.BidirectionalInterface); ok {
		two.SetRequestHandler(c.asked)
	}
}

// modern reports whether the revision is of the stateless kind, in which each
// request says who asks.
func (c *conn) modern() bool { return mcp.IsModernProtocol(c.version) }

// lost marks the connection dead. Requests in flight fail. Only the words of
// why are kept: that the request which noticed never reached the server says
// nothing of the others.
func (c *conn) lost(why error) { c.end(fmt.Errorf("%w: %v", ErrLost, why)) }

func (c *conn) dead() bool { return c.life.Err() != nil }

// close ends the connection and returns when nothing of it is left.
func (c *conn) close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.lastNotices()
	c.end(ErrClosed)
	<-c.stopped
	_ = c.tr.Close()
	c.notices.Wait()
	c.workers.Wait()
	c.idle()
	if c.proc != nil {
		c.proc.stdin.drain()
	}
}

// lastNotices waits a moment for what the server is being told of requests that were given
// up: it may outlive the connection, and would go on with them.
func (c *conn) lastNotices() {
	sent := make(chan struct{})
	go func() { c.notices.Wait(); close(sent) }()
	select {
	case <-sent:
	case <-c.life.Done():
		<-sent
	case <-time.After(time.Second):
	}
}

// work runs fn in a goroutine that close waits for. It reports whether it did.
func (c *conn) work(fn func()) bool { return c.workIn(&c.workers, fn) }

func (c *conn) workIn(wg *sync.WaitGroup, fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing {
		wg.Go(fn)
	}
	return !c.closing
}

// stderr returns the end of what the server wrote there. After a death it waits
// a moment for the last words.
func (c *conn) stderr() string {
	if c.proc == nil {
		return ""
	}
	if c.dead() {
		c.awaitExit()
	}
	return c.proc.stderr.String()
}

func (c *conn) awaitExit() {
	select {
	case <-c.proc.exited:
	case <-time.After(5 * time.Second):
	}
}

// request sends a request and returns the raw result. The error is a
// *CallError if the server refused, wraps ErrLost if the connection died, and
// has an *unreached in its chain if the server certainly never got the request.
func (c *conn) request(ctx context.Context, method string, params map[string]any, header http.Header) (json.RawMessage, error) {
	return c.requestAs(ctx, c.version, method, params, header)
}

func (c *conn) requestAs(ctx context.Context, version, method string, params map[string]any, header http.Header) (json.RawMessage, error) {
	if c.dead() {
		return nil, &unreached{context.Cause(c.life)}
	}
	body, err := json.Marshal(c.withMeta(version, params))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	id := fmt.Sprintf("%s%d", idPrefix, c.lastID.Add(1))
	req := transport.JSONRPCRequest{
		JSONRPC: mcp.JSONRPC_VERSION, ID: mcp.NewRequestId(id), Method: method,
		Params: json.RawMessage(body), Header: c.headers(version, method, body, header),
	}
	if c.proc != nil {
		c.proc.stdin.expect(id)
		defer c.proc.stdin.withdraw(id)
	}
	x := &exchange{id: id}
	res, err := c.send(ctx, x, req)
	if err == nil {
		return c.answer(method, res)
	}
	if ctx.Err() != nil && !errors.Is(err, ErrLost) {
		c.cancelled(id, method, context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
	return nil, c.classify(err, x, id, method)
}

// send runs SendRequest where it cannot hold up the caller: mcp-go does not
// look at the context while it writes, and over SSE not at a lost connection.
func (c *conn) send(ctx context.Context, x *exchange, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	if c.kind != wireLines { // there, the end of the connection ends the request
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(withExchange(ctx, x))
		defer cancel()
	}
	type outcome struct {
		res *transport.JSONRPCResponse
		err error
	}
	done := make(chan outcome, 1)
	if !c.work(func() {
		res, err := c.tr.SendRequest(ctx, req)
		done <- outcome{res, err}
	}) {
		return nil, &unreached{ErrClosed}
	}
	select {
	case o := <-done:
		return o.res, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.life.Done():
	}
	// An answer that came with the end still counts.
	select {
	case o := <-done:
		if o.err == nil {
			return o.res, nil
		}
	case <-time.After(20 * time.Millisecond):
	}
	return nil, context.Cause(c.life)
}

func (c *conn) answer(method string, res *transport.JSONRPCResponse) (json.RawMessage, error) {
	if res == nil {
		return nil, fmt.Errorf("%s: empty answer", method)
	}
	if e := res.Error; e != nil {
		if e.Code == codeTooLarge {
			return nil, fmt.Errorf("%w%s", ErrTooLarge, strings.TrimPrefix(e.Message, ErrTooLarge.Error()))
		}
		if e.Code == codeMalformed {
			return nil, fmt.Errorf("%w: the answer to %s: %s", ErrMalformed, method, e.Message)
		}
		var data json.RawMessage
		if e.Data != nil {
			data, _ = json.Marshal(e.Data)
		}
		return nil, &CallError{Server: c.cfg.name, Method: method, Code: e.Code, Message: visible.Text(e.Message), Data: data}
	}
	if len(res.Result) == 0 {
		return nil, fmt.Errorf("%s: the answer has neither a result nor an error", method)
	}
	return res.Result, nil
}

// classify tells what a failed transport means for the connection and for the
// request.
func (c *conn) classify(err error, x *exchange, id, method string) error {
	if ce, ok := errors.AsType[*CallError](err); ok {
		named := *ce
		named.Method = method
		return &named
	}
	if why := x.refused.Load(); why != nil && errors.Is(*why, ErrTooLarge) {
		return fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, c.cfg.Limits.Message)
	} else if why != nil {
		return fmt.Errorf("%w: the answer to %s: %w", ErrMalformed, method, *why)
	}
	if status, ok := errors.AsType[*httpStatus](err); ok {
		return status
	}
	if errors.Is(err, ErrLogin) {
		return &unreached{err}
	}
	if neverReached(err) {
		c.lost(err)
		return &unreached{fmt.Errorf("%w: %w", ErrLost, err)}
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue // without mcp-go's words about it
	}
	reached := c.kind == wireHTTP && x.written.Load()
	if !errors.Is(err, ErrLost) {
		// Over HTTP each request has a stream of its own: that one was cut says
		// nothing of the others, and the next request will tell.
		if !reached {
			c.lost(err)
		}
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	if !reached && !c.reached(x, id) {
		return &unreached{err}
	}
	return err
}

// reached reports whether the server may have got the request.
func (c *conn) reached(x *exchange, id string) bool {
	if c.kind != wireLines {
		return x.written.Load()
	}
	if c.proc == nil {
		return true
	}
	c.awaitExit()
	select {
	case <-c.proc.exited:
		return c.proc.stdin.reached(id)
	default:
		return true
	}
}

// cancelled tells the server that nobody waits any more. In the stateless
// revisions over HTTP, the end of the stream has said so.
func (c *conn) cancelled(id, method string, why error) {
	if c.proc != nil && !c.proc.stdin.withdraw(id) {
		return
	}
	if method == "initialize" || method == "server/discover" || c.kind != wireLines && c.modern() || c.dead() {
		return
	}
	c.workIn(&c.notices, func() {
		ctx, cancel := context.WithTimeout(c.life, 5*time.Second)
		defer cancel()
		_ = c.tell(ctx, "notifications/cancelled", map[string]any{"requestId": id, "reason": why.Error()})
	})
}

// tell sends a notification.
func (c *conn) tell(ctx context.Context, method string, params map[string]any) error {
	n := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION}
	n.Method = method
	n.Params.AdditionalFields = params
	return c.tr.SendNotification(ctx, n)
}

// withMeta adds to the params what the stateless revisions want in each.
func (c *conn) withMeta(version string, params map[string]any) map[string]any {
	if !mcp.IsModernProtocol(version) {
		if params == nil {
			params = map[string]any{}
		}
		return params
	}
	out := maps.Clone(params)
	if out == nil {
		out = map[string]any{}
	}
	meta := map[string]any{}
	if m, ok := out["_meta"].(map[string]any); ok {
		maps.Copy(meta, m)
	}
	meta[mcp.MetaKeyProtocolVersion] = version
	meta[mcp.MetaKeyClientCapabilities] = c.hub.capabilities(c.kind, true)
	meta[mcp.MetaKeyClientInfo] = clientInfo
	if level := c.hub.level.Load(); level != nil && *level != "" {
		meta[mcp.MetaKeyLogLevel] = *level
	}
	out["_meta"] = meta
	return out
}

// headers returns what the stateless revisions want in the HTTP header.
func (c *conn) headers(version, method string, body json.RawMessage, extra http.Header) http.Header {
	if c.kind == wireLines || !mcp.IsModernProtocol(version) {
		return nil
	}
	h := http.Header{}
	for k, v := range mcp.StandardHeaders(version, mcp.MCPMethod(method), body) {
		h.Set(k, v)
	}
	maps.Copy(h, extra)
	return h
}
