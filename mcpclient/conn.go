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

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/visible"
)

// idPrefix begins the ids of our requests. They are strings because servers number their own requests, and
// mcp-go's SSE transport mistakes a ping for an answer if the ids are equal.
const idPrefix = "kb-"

// A conn is one connection to a server. It sends JSON-RPC over a transport of mcp-go and keeps
// the raw answers: mcp-go's typed results drop unknown members and fail on unexpected ones.
type conn struct {
	cfg  *config
	kind wire
	tr   transport.Interface
	proc *process // nil unless the client started it
	pipe io.Closer
	out  *outbox      // for a server that reads lines
	http *http.Client // for HTTP
	hub  *hub         // answers the server's requests

	opened      time.Time
	version     string // negotiated; set by the handshake
	server      initResult
	httpVersion atomic.Pointer[string] // version, for goroutines that run during the handshake; nil or empty if unknown

	lastID   atomic.Int64
	onNotify func(method string, params map[string]any) // called on the reading goroutine; not for progress

	subscribed chan struct{} // has one element when the server has acknowledged a subscription to resources

	levelMu   sync.Mutex
	sentLevel atomic.Pointer[string] // the log level that was sent last

	mu             sync.Mutex
	routes         map[string]func(progress) // by progress token
	calls          []*inflight               // oldest first
	abandoned      []abandonedCall
	serverRequests map[string]func() // cancel functions, by id
	closing        bool
	workers        sync.WaitGroup
	cancelNotices  sync.WaitGroup // notifications/cancelled being sent

	callsInFlight   atomic.Int64
	answersInFlight atomic.Int64    // only over HTTP
	life            context.Context // ends when the connection is lost or closed
	end             context.CancelCauseFunc
	stopped         chan struct{} // closed when the server's process, if any, has ended
	closeIdle       func()        // closes idle HTTP connections
}

// An initResult is the server's answer to initialize or server/discover.
type initResult struct {
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

// open starts a transport. Ending ctx ends the opening, but not the connection.
func open(ctx context.Context, cfg *config, kind wire, h *hub, notify func(method string, params map[string]any)) (*conn, error) {
	c := &conn{
		cfg: cfg, kind: kind, hub: h, onNotify: notify, opened: time.Now(),
		routes: map[string]func(progress){}, serverRequests: map[string]func(){}, stopped: make(chan struct{}), subscribed: make(chan struct{}, 1), closeIdle: func() {},
	}
	c.life, c.end = context.WithCancelCause(context.Background())
	if err := c.start(ctx); err != nil {
		c.end(err)
		c.closeIdle()
		return nil, err
	}
	context.AfterFunc(c.life, func() {
		if c.proc != nil {
			// Only a server that works gets time to end: one that is silent, or has closed its output, is killed.
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
	ended := func() { c.fail(errors.New("its output ended")) }
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
	if c.tr, c.http, c.closeIdle, err = httpTransport(c.cfg, c.kind); err != nil {
		return err
	}
	if sse, ok := c.tr.(*transport.SSE); ok {
		sse.SetConnectionLostHandler(func(err error) { c.fail(fmt.Errorf("the event stream ended: %w", err)) })
	}
	// Start binds the connection to its context: pass the long one, and end the connection if ctx ends first.
	stop := context.AfterFunc(ctx, func() { c.end(context.Cause(ctx)) })
	defer stop()
	c.handle()
	if err := c.tr.Start(c.life); err != nil {
		_ = c.tr.Close()
		return err
	}
	return nil
}

// overLines starts a transport whose messages are lines. Its context never ends: otherwise mcp-go would then
// answer the server's requests itself, and log.
func (c *conn) overLines(in io.Reader, out io.WriteCloser) error {
	c.out = &outbox{WriteCloser: out, fail: c.fail}
	c.tr = transport.NewIO(in, c.out, nil)
	c.handle()
	return c.tr.Start(context.Background())
}

// handle sets the handlers for notifications and requests of the server. It must run before the transport
// starts, so that nothing is missed or answered by mcp-go.
func (c *conn) handle() {
	c.tr.SetNotificationHandler(c.onNotification)
	if two, ok := c.tr.(transport.BidirectionalInterface); ok {
		two.SetRequestHandler(c.onRequest)
	}
}

// sessionless reports whether the revision has no sessions: then each request describes the
// client.
func (c *conn) sessionless() bool { return mcp.IsModernProtocol(c.version) }

// fail ends the connection, and with it the requests in flight. It keeps only the text of why: an error that
// one request never reached the server is not true of the others.
func (c *conn) fail(why error) { c.end(fmt.Errorf("%w: %v", ErrLost, why)) }

func (c *conn) dead() bool { return c.life.Err() != nil }

// close ends the connection and waits until all of it has ended.
func (c *conn) close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.awaitCancelNotices()
	c.end(ErrClosed)
	<-c.stopped
	_ = c.tr.Close()
	c.cancelNotices.Wait()
	c.workers.Wait()
	c.closeIdle()
	if c.proc != nil {
		c.proc.stdin.drain()
	}
}

// awaitCancelNotices waits a moment for notifications/cancelled to be sent: the server may outlive the
// connection, and would continue the cancelled calls.
func (c *conn) awaitCancelNotices() {
	sent := make(chan struct{})
	go func() { c.cancelNotices.Wait(); close(sent) }()
	select {
	case <-sent:
	case <-c.life.Done():
		<-sent
	case <-time.After(time.Second):
	}
}

// goWork runs fn in a goroutine that close waits for, unless the connection is closing.
func (c *conn) goWork(fn func()) bool { return c.goWorkIn(&c.workers, fn) }

func (c *conn) goWorkIn(wg *sync.WaitGroup, fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing {
		wg.Go(fn)
	}
	return !c.closing
}

// stderr returns the end of the server's stderr. After its death it waits a moment for the
// rest.
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

// request sends a request and returns the raw result. The error is a *CallError if the server refused, wraps
// ErrLost if the connection was lost, and has an *unreachedError in its chain if the server certainly never
// received the request.
func (c *conn) request(ctx context.Context, method string, params map[string]any, header http.Header) (json.RawMessage, error) {
	return c.requestAs(ctx, c.version, method, params, header)
}

func (c *conn) requestAs(ctx context.Context, version, method string, params map[string]any, header http.Header) (json.RawMessage, error) {
	if c.dead() {
		return nil, &unreachedError{context.Cause(c.life)}
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
		c.proc.stdin.addWaiting(id)
		defer c.proc.stdin.removeWaiting(id)
	}
	x := &exchange{id: id}
	res, err := c.send(ctx, x, req)
	if err == nil {
		return c.answer(method, res)
	}
	if ctx.Err() != nil && !errors.Is(err, ErrLost) {
		c.sendCancelled(id, method, context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
	return nil, c.classify(err, x, id, method)
}

// send runs SendRequest in a goroutine: mcp-go ignores the context while it writes, and over SSE also a lost
// connection.
func (c *conn) send(ctx context.Context, x *exchange, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	sending := ctx
	if c.kind != wireLines { // over lines the end of the connection ends the request
		// Omit the deadline: over SSE mcp-go reports a lost answer a moment before it.
		var cancel context.CancelFunc
		sending, cancel = context.WithCancel(withExchange(context.WithoutCancel(ctx), x))
		defer cancel()
	}
	type outcome struct {
		res *transport.JSONRPCResponse
		err error
	}
	done := make(chan outcome, 1)
	if !c.goWork(func() {
		res, err := c.tr.SendRequest(sending, req)
		done <- outcome{res, err}
	}) {
		return nil, &unreachedError{ErrClosed}
	}
	select {
	case o := <-done:
		return o.res, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.life.Done():
	}
	// Prefer an answer that came together with the end.
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
		return nil, fmt.Errorf("%s: the answer is empty", method)
	}
	if e := res.Error; e != nil {
		if e.Code == codeTooLarge {
			return nil, fmt.Errorf("%w%s", errTooLarge, strings.TrimPrefix(e.Message, errTooLarge.Error()))
		}
		if e.Code == codeMalformed {
			return nil, fmt.Errorf("%w: the answer to %s: %s", errMalformed, method, e.Message)
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

// classify finds out what a transport's error means for the connection and the request.
func (c *conn) classify(err error, x *exchange, id, method string) error {
	if ce, ok := errors.AsType[*CallError](err); ok {
		named := *ce
		named.Method = method
		return &named
	}
	if why := x.refused.Load(); why != nil && errors.Is(*why, errTooLarge) {
		return fmt.Errorf("%w: the limit is %d bytes", errTooLarge, c.cfg.Limits.Message)
	} else if why != nil {
		return fmt.Errorf("%w: the answer to %s: %w", errMalformed, method, *why)
	}
	if status, ok := errors.AsType[*httpStatusError](err); ok {
		return status
	}
	if errors.Is(err, ErrLogin) {
		return &unreachedError{err}
	}
	if neverReached(err) {
		c.fail(err)
		return &unreachedError{fmt.Errorf("%w: %w", ErrLost, err)}
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue // without mcp-go's prefix
	}
	reached := c.kind == wireHTTP && x.written.Load()
	if !errors.Is(err, ErrLost) {
		// Over HTTP each request has its own stream, and a broken one says nothing about the others.
		if !reached {
			c.fail(err)
		}
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	if !reached && !c.reached(x, id) {
		return &unreachedError{err}
	}
	return err
}

// reached reports whether the server may have received the request.
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

// sendCancelled notifies the server that the caller no longer waits. In the revisions without sessions over
// HTTP the end of the stream means the same.
func (c *conn) sendCancelled(id, method string, why error) {
	if c.proc != nil && !c.proc.stdin.removeWaiting(id) {
		return
	}
	if method == "initialize" || method == "server/discover" || c.kind != wireLines && c.sessionless() || c.dead() {
		return
	}
	c.goWorkIn(&c.cancelNotices, func() {
		ctx, cancel := context.WithTimeout(c.life, 5*time.Second)
		defer cancel()
		_ = c.notifyServer(ctx, "notifications/cancelled", map[string]any{"requestId": id, "reason": why.Error()})
	})
}

// notifyServer sends a notification.
func (c *conn) notifyServer(ctx context.Context, method string, params map[string]any) error {
	n := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION}
	n.Method = method
	n.Params.AdditionalFields = params
	return c.tr.SendNotification(ctx, n)
}

// withMeta adds to the params what the revisions without sessions require in each request.
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

// headers returns the HTTP headers that the revisions without sessions require.
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
