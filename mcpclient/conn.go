package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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
	onNotify func(method string, params map[string]any) // for what onNotification does not handle; called on the reading goroutine
	opened   time.Time

	protocol      protocol // negotiated; set by the handshake
	server        initResult
	headerVersion atomic.Pointer[string] // the revision for postAnswer, also during the handshake; nil or empty if unknown
	lastID        atomic.Int64

	calls           callList
	activeUses      atomic.Int64          // uses between supervisor.acquire and release
	progressFuncs   table[func(progress)] // by progress token
	serverRequests  table[func()]         // cancel functions, by id
	answersInFlight atomic.Int64          // only over HTTP
	subscribed      chan struct{}         // has one element when the server has acknowledged a subscription to resources
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

// open opens a connection. ctx limits only the opening.
func open(ctx context.Context, cfg *config, kind wire, h *hub, notify func(method string, params map[string]any)) (*conn, error) {
	c := &conn{link: newLink(cfg, kind), hub: h, onNotify: notify, opened: time.Now(), subscribed: make(chan struct{}, 1)}
	return c, c.link.open(ctx, c)
}

// request sends a request and returns the raw result. The error is a *CallError if the server refused, wraps
// ErrLost if the connection was lost, and has an *unreachedError in its chain if the server certainly never
// received the request.
func (c *conn) request(ctx context.Context, method string, params map[string]any, header http.Header) (json.RawMessage, error) {
	return c.requestIn(ctx, c.protocol, method, params, header)
}

// requestIn is like request, with a protocol that is not negotiated yet.
func (c *conn) requestIn(ctx context.Context, p protocol, method string, params map[string]any, header http.Header) (json.RawMessage, error) {
	if c.dead() {
		return nil, &unreachedError{context.Cause(c.life)}
	}
	id := fmt.Sprintf("%s%d", idPrefix, c.lastID.Add(1))
	if c.proc != nil { // stdin writes a request only while its caller waits
		c.proc.stdin.addWaiting(id)
		defer c.proc.stdin.removeWaiting(id)
	}
	x := &exchange{id: id}
	res, err := p.send(ctx, x, method, params, header)
	if err == nil {
		return c.resultOf(method, res)
	}
	if ctx.Err() != nil && !errors.Is(err, ErrLost) { // the caller has cancelled the request
		c.sendCancelled(id, method, context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
	return nil, c.handleSendError(err, x, method)
}

// resultOf returns the result of an answer, or its error: a [*CallError], or errTooLarge or errMalformed if errorAnswer has
// replaced the server's answer.
func (c *conn) resultOf(method string, res *transport.JSONRPCResponse) (json.RawMessage, error) {
	if res == nil {
		return nil, fmt.Errorf("%s: the answer is empty", method)
	}
	if e := res.Error; e != nil {
		if e.Code == codeTooLarge {
			return nil, fmt.Errorf("%w: %s", errTooLarge, e.Message)
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

// handleSendError returns the error for the caller of a failed request, and ends the connection if the transport's error
// means that it is lost.
func (c *conn) handleSendError(err error, x *exchange, method string) error {
	if ce, ok := errors.AsType[*CallError](err); ok { // from roundTripper, which does not know the method
		named := *ce
		named.Method = method
		return &named
	}
	if reason := x.refused.Load(); reason != nil {
		if errors.Is(*reason, errTooLarge) {
			return fmt.Errorf("%w: the limit is %d bytes", errTooLarge, c.cfg.Limits.Message)
		}
		return fmt.Errorf("%w: the answer to %s: %w", errMalformed, method, *reason)
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
	if urlErr, ok := errors.AsType[*url.Error](err); ok {
		err = urlErr // without mcp-go's prefix
	}
	if !errors.Is(err, ErrLost) {
		// Over HTTP a request that was written has its own stream, so its failure says nothing about the connection.
		if c.kind != wireHTTP || !x.written.Load() {
			c.fail(err)
		}
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	if !c.mayHaveReached(x) {
		return &unreachedError{err}
	}
	return err
}

// sendCancelled notifies the server that the caller no longer waits. A handshake must not be cancelled. In the revisions
// without sessions the end of an HTTP stream cancels its request.
func (c *conn) sendCancelled(id, method string, reason error) {
	if c.proc != nil && !c.proc.stdin.removeWaiting(id) {
		return // the server never got the request
	}
	handshake := method == "initialize" || method == "server/discover" // c.protocol may be nil
	if handshake || c.kind != wireLines && !c.protocol.notifies() || c.dead() {
		return
	}
	c.goWorkIn(&c.cancelNotices, func() {
		ctx, cancel := context.WithTimeout(c.life, noticeTimeout)
		defer cancel()
		_ = c.notifyServer(ctx, "notifications/cancelled", map[string]any{"requestId": id, "reason": reason.Error()})
	})
}

func (c *conn) notifyServer(ctx context.Context, method string, params map[string]any) error {
	n := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION}
	n.Method = method
	n.Params.AdditionalFields = params
	return c.tr.SendNotification(ctx, n)
}

// serverError adds the server's name to an error and, if its process has ended, the exit status and the end of stderr.
// cn may be nil.
func (c *config) serverError(cn *conn, err error) error {
	_, isCallError := errors.AsType[*CallError](err)
	if _, isServerError := errors.AsType[*ServerError](err); isCallError || isServerError {
		return err
	}
	err = c.withoutURLSecrets(err)
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

// noticeTimeout limits notifications and requests whose failure does no lasting harm.
const noticeTimeout = 5 * time.Second

// ping sends the cheapest request.
func (c *conn) ping(ctx context.Context) error {
	_, err := c.request(ctx, c.protocol.pingMethod(), nil, nil)
	if _, ok := errors.AsType[*CallError](err); ok {
		return nil // a refusal is an answer
	}
	return err
}

// pingIdle ends the connection to an idle server that does not answer within the time, or 10 seconds if that is shorter.
// A busy server may not answer, and is not pinged.
func (c *conn) pingIdle(wait time.Duration) {
	if c.activeUses.Load() > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.life, min(wait, 10*time.Second))
	defer cancel()
	if err := c.ping(ctx); err != nil && ctx.Err() != nil && c.activeUses.Load() == 0 { // a call may have begun meanwhile
		c.fail(errors.New("it does not answer a ping"))
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
