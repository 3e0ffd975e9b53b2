package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// A link is a transport of mcp-go and its lifetime.
type link struct {
	cfg  *config
	kind wire
	tr   transport.Interface
	proc *process     // for a Command; nil otherwise
	pipe io.Closer    // for a Dial; nil otherwise
	out  *outbox      // for a server that reads lines
	http *http.Client // for HTTP

	life      context.Context // ends when the connection is lost or closed
	end       context.CancelCauseFunc
	stopped   chan struct{} // closed when the server's process, if any, has ended
	closeIdle func()        // closes idle HTTP connections

	mu            sync.Mutex
	closing       bool // no more goroutines may start
	workers       sync.WaitGroup
	cancelNotices sync.WaitGroup // notifications/cancelled being sent
}

// handlers handle what the server sends, except answers.
type handlers interface {
	onNotification(n mcp.JSONRPCNotification)
	onRequest(ctx context.Context, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error)
}

func newLink(cfg *config, kind wire) *link {
	l := &link{cfg: cfg, kind: kind, stopped: make(chan struct{}), closeIdle: func() {}}
	l.life, l.end = context.WithCancelCause(context.Background())
	return l
}

// open starts the transport.
func (l *link) open(ctx context.Context, h handlers) error {
	if err := l.start(ctx, h); err != nil {
		l.end(err)
		l.closeIdle()
		return err
	}
	context.AfterFunc(l.life, func() {
		if l.proc != nil {
			// After a lost connection the server may hang, and is killed at once.
			l.proc.stop(errors.Is(context.Cause(l.life), ErrClosed))
		}
		if l.pipe != nil {
			l.pipe.Close()
		}
		close(l.stopped)
	})
	return nil
}

func (l *link) start(ctx context.Context, h handlers) (err error) {
	onEOF := func() { l.fail(errors.New("its output ended")) }
	if l.cfg.dial != nil {
		pipe, err := l.cfg.dial(ctx)
		if err != nil {
			return fmt.Errorf("dial: %w", err)
		}
		l.pipe = pipe
		return l.startLines(newLineReader(pipe, l.cfg.Limits.Message, onEOF), pipe, h)
	}
	if l.kind == wireLines {
		l.proc, err = startProcess(&l.cfg.command, l.cfg.Limits.Message, onEOF)
		if err != nil {
			return err
		}
		return l.startLines(l.proc.stdout, l.proc.stdin, h)
	}
	if l.tr, l.http, l.closeIdle, err = httpTransport(l.cfg, l.kind); err != nil {
		return err
	}
	if sse, ok := l.tr.(*transport.SSE); ok {
		sse.SetConnectionLostHandler(func(err error) { l.fail(fmt.Errorf("the event stream ended: %w", err)) })
	}
	// The context of Start limits the connection, and so must be l.life. ctx ends the connection only until Start returns.
	stop := context.AfterFunc(ctx, func() { l.end(context.Cause(ctx)) })
	defer stop()
	l.setHandlers(h)
	if err := l.tr.Start(l.life); err != nil {
		_ = l.tr.Close()
		return err
	}
	return nil
}

// startLines starts a transport whose messages are lines. The context of Start never ends, because mcp-go would then
// answer the server's requests itself, and log.
func (l *link) startLines(in io.Reader, out io.WriteCloser, h handlers) error {
	l.out = &outbox{WriteCloser: out, fail: l.fail}
	l.tr = transport.NewIO(in, l.out, nil)
	l.setHandlers(h)
	return l.tr.Start(context.Background())
}

// setHandlers sets the handlers for notifications and requests of the server. It must run before the transport
// starts, so that nothing is missed or answered by mcp-go.
func (l *link) setHandlers(h handlers) {
	l.tr.SetNotificationHandler(h.onNotification)
	if b, ok := l.tr.(transport.BidirectionalInterface); ok {
		b.SetRequestHandler(h.onRequest)
	}
}

// fail ends the connection, and with it the requests in flight. It keeps only the text of the reason: an unreachedError in
// the reason would be wrong for the other requests.
func (l *link) fail(reason error) {
	l.end(fmt.Errorf("%w: %v", ErrLost, l.cfg.withoutURLSecrets(reason)))
}

func (l *link) dead() bool { return l.life.Err() != nil }

// close ends the connection and waits for its process and goroutines.
func (l *link) close() {
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
	l.awaitCancelNotices()
	l.end(ErrClosed)
	<-l.stopped
	_ = l.tr.Close()
	l.cancelNotices.Wait()
	l.workers.Wait()
	l.closeIdle()
	if l.proc != nil {
		l.proc.stdin.drain()
	}
}

// awaitCancelNotices waits at most a second until notifications/cancelled are sent: a server that survives the connection
// would otherwise continue the cancelled calls.
func (l *link) awaitCancelNotices() {
	sent := make(chan struct{})
	go func() { l.cancelNotices.Wait(); close(sent) }()
	select {
	case <-sent:
	case <-l.life.Done():
		<-sent // soon, because the contexts of the notifications have ended
	case <-time.After(time.Second):
	}
}

// goWork runs fn in a goroutine that close waits for. It reports false, and does nothing, if the connection is closing.
func (l *link) goWork(fn func()) bool { return l.goWorkIn(&l.workers, fn) }

func (l *link) goWorkIn(wg *sync.WaitGroup, fn func()) bool {
	if !l.addWorker(wg) {
		return false
	}
	go func() { defer wg.Done(); fn() }()
	return true
}

// addWorker makes close wait until wg.Done. It reports false, and does nothing, if the connection is closing.
func (l *link) addWorker(wg *sync.WaitGroup) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closing {
		wg.Add(1)
	}
	return !l.closing
}

// stderr returns the end of the server's stderr, all of it if the connection has ended.
func (l *link) stderr() string {
	if l.proc == nil {
		return ""
	}
	if l.dead() {
		l.awaitExit()
	}
	return l.proc.stderr.String()
}

// awaitExit waits until the process has exited. A process that cannot be killed must not block its callers.
func (l *link) awaitExit() {
	select {
	case <-l.proc.exited:
	case <-time.After(5 * time.Second):
	}
}

// send sends a request by mcp-go and waits for its answer. SendRequest runs in a goroutine, because it ignores the context
// while it writes, and over SSE also a lost connection.
func (l *link) send(ctx context.Context, x *exchange, method string, params map[string]any) (*transport.JSONRPCResponse, error) {
	body, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	req := transport.JSONRPCRequest{JSONRPC: mcp.JSONRPC_VERSION, ID: mcp.NewRequestId(x.id), Method: method, Params: json.RawMessage(body)}
	sendCtx := ctx
	if l.kind != wireLines {
		// Without the deadline of ctx: over SSE mcp-go would report a lost answer a moment before the deadline.
		var cancel context.CancelFunc
		sendCtx, cancel = context.WithCancel(withExchange(context.WithoutCancel(ctx), x))
		defer cancel()
	}
	type outcome struct {
		res *transport.JSONRPCResponse
		err error
	}
	done := make(chan outcome, 1)
	if !l.goWork(func() {
		res, err := l.tr.SendRequest(sendCtx, req)
		done <- outcome{res, err}
	}) {
		return nil, &unreachedError{ErrClosed}
	}
	select {
	case o := <-done:
		return o.res, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.life.Done():
	}
	// An answer that came just before the connection ended may still be on its way through mcp-go.
	select {
	case o := <-done:
		if o.err == nil {
			return o.res, nil
		}
	case <-time.After(20 * time.Millisecond):
	}
	return nil, context.Cause(l.life)
}

// mayHaveReached reports whether the server may have received the request of a lost connection.
func (l *link) mayHaveReached(x *exchange) bool {
	if l.kind != wireLines {
		return x.written.Load()
	}
	if l.proc == nil { // a pipe does not tell what the server has read
		return true
	}
	l.awaitExit()
	select {
	case <-l.proc.exited:
		return l.proc.stdin.reached(x.id)
	default:
		return true
	}
}

// signal puts an element into a channel of size one, unless it is full.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// A ctxMutex is a mutex whose lock fails when the context ends. It is made with capacity 1.
type ctxMutex chan struct{}

func (s ctxMutex) lock(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s ctxMutex) unlock() { <-s }
