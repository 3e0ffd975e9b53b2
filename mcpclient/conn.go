package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// A conn is one connection to a server, with the protocol revision that was negotiated. It keeps the raw answers:
// mcp-go's typed results drop unknown members and fail on unexpected ones.
type conn struct {
	*link
	hub      *hub                                       // answers the server's requests
	onNotify func(method string, params map[string]any) // called on the reading goroutine; not for progress
	opened   time.Time

	version     string // negotiated; set by the handshake
	server      initResult
	httpVersion atomic.Pointer[string] // version, for goroutines that run during the handshake; nil or empty if unknown
	lastID      atomic.Int64

	calls           callList
	callsInFlight   atomic.Int64          // and lists
	routes          table[func(progress)] // by progress token
	serverRequests  table[func()]         // cancel functions, by id
	answersInFlight atomic.Int64          // only over HTTP
	subscribed      chan struct{}         // has one element when the server has acknowledged a subscription to resources
	level           sentLevel
}

// A table has values by key, and is safe for concurrent use.
type table[V any] struct {
	mu  sync.Mutex
	all map[string]V
}

// add adds a value until remove is called.
func (t *table[V]) add(key string, v V) (remove func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]V{}
	}
	t.all[key] = v
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.all, key)
	}
}

func (t *table[V]) get(key string) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[key]
}

// open opens a connection. Ending ctx ends the opening, but not the connection.
func open(ctx context.Context, cfg *config, kind wire, h *hub, notify func(method string, params map[string]any)) (*conn, error) {
	c := &conn{link: newLink(cfg, kind), hub: h, onNotify: notify, opened: time.Now(), subscribed: make(chan struct{}, 1)}
	return c, c.link.open(ctx, c)
}

// sessionless reports whether the revision has no sessions: then each request describes the
// client.
func (c *conn) sessionless() bool { return mcp.IsModernProtocol(c.version) }

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

// serverError adds the server's name, its stderr and its exit status to an error.
func (c *config) serverError(cn *conn, err error) error {
	if _, ok := errors.AsType[*CallError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*ServerError](err); ok {
		return err
	}
	e := &ServerError{Server: c.name, Err: err}
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

// pingIdle ends the connection to an idle server that does not answer. A busy server may not answer pings.
func (c *conn) pingIdle(limit time.Duration) {
	if c.callsInFlight.Load() > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.life, min(limit, 10*time.Second))
	defer cancel()
	if err := c.ping(ctx); err != nil && ctx.Err() != nil && c.callsInFlight.Load() == 0 {
		c.fail(errors.New("it does not answer a ping"))
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// listenLists keeps a subscription to list changes open, in the form of the revisions without sessions. The
// lists are requested again each time the subscription is acknowledged.
func (c *conn) listenLists(filter map[string]any) {
	for wait := time.Second; !c.dead(); wait = min(2*wait, maxBackoff) {
		began := time.Now()
		_, err := c.request(c.life, "subscriptions/listen", map[string]any{"notifications": filter}, nil)
		if _, refused := errors.AsType[*CallError](err); refused {
			return
		}
		if time.Since(began) > stableAfter {
			wait = time.Second
		}
		sleep(c.life, wait)
	}
}
