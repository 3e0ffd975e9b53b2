package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// The first restart is almost immediate, so that a call after a crash waits little; then the wait doubles.
// After eagerRestarts in a row the server is restarted only when it is needed.
const (
	minBackoff    = 100 * time.Millisecond
	maxBackoff    = 30 * time.Second
	eagerRestarts = 5

	// stableAfter is how long a connection must have lived for its loss to start a new row.
	stableAfter = time.Minute

	// restartPatience is how long a call waits for a restart before it fails with errRestarting.
	restartPatience = 5 * time.Second
)

func backoff(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	wait := min(minBackoff<<min(failures-1, 20), maxBackoff)
	return wait/2 + rand.N(wait/2)
}

// acquire returns a live connection, and a function that releases it.
func (c *Client) acquire(ctx context.Context) (cn *conn, release func(), err error) {
	if c.cfg.Stateless {
		return c.oneUseConn(ctx)
	}
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, nil, &ServerError{Server: c.cfg.name, Err: ErrClosed}
		}
		if cn := c.conn; cn != nil && !cn.dead() {
			cn.callsInFlight.Add(1)
			c.mu.Unlock()
			return cn, func() { cn.callsInFlight.Add(-1) }, nil
		}
		c.dropDead()
		a, restarting := c.startAttempt(), c.failures > 0
		last := c.lastErr
		c.mu.Unlock()
		if err := a.wait(ctx, restarting); err != nil {
			if errors.Is(err, errRestarting) && last != nil {
				err = fmt.Errorf("%w: %w", err, last)
			}
			return nil, nil, c.serverError(nil, err)
		}
	}
}

// wait waits for the attempt; if it is a restart, only as long as restartPatience.
func (a *attempt) wait(ctx context.Context, restarting bool) error {
	var patience <-chan time.Time
	if restarting {
		t := time.NewTimer(restartPatience)
		defer t.Stop()
		patience = t.C
		if in := time.Until(a.at); in > restartPatience {
			return fmt.Errorf("%w, the next attempt is in %v", errRestarting, in.Round(time.Second))
		}
	}
	select {
	case <-a.done:
		return a.err
	case <-patience:
		return fmt.Errorf("%w, try again in a moment", errRestarting)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// startAttempt returns the attempt in progress, or starts one: there is at most one. It belongs to the client,
// because the caller's context may end while others wait. c.mu is held.
func (c *Client) startAttempt() *attempt {
	if c.attempt != nil {
		return c.attempt
	}
	wait := backoff(c.failures)
	a := &attempt{done: make(chan struct{}), at: time.Now().Add(wait)}
	c.attempt, c.reconnect = a, false
	before := c.previous
	c.workers.Go(func() {
		defer close(a.done)
		t := time.NewTimer(wait)
		defer t.Stop()
		if before != nil { // the old process may hold what the next one needs, such as a lock file
			<-before.stopped
		}
		select {
		case <-t.C:
		case <-c.life.Done():
		}
		var cn *conn
		cn, a.err = c.dial(c.life)
		c.attemptDone(cn, a.err)
	})
	return a
}

// attemptDone ends an attempt: it stores the connection, or starts the next attempt if the server has worked
// before. Otherwise the caller decides whether to try again. c.mu is not held.
func (c *Client) attemptDone(cn *conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempt = nil
	if c.closed && cn != nil {
		c.workers.Go(cn.close)
		return
	}
	if err != nil {
		c.failures++
		c.lastErr = err
		if c.snap.Load() != nil && c.failures < eagerRestarts && !c.closed {
			c.startAttempt()
		}
		return
	}
	if c.snap.Load() != nil || c.restarts > 0 {
		c.listChanged(allLists) // a restarted server may have other lists
	}
	c.conn = cn
	c.lastErr = nil
	c.workers.Go(func() { c.supervise(cn) })
}

// supervise maintains a connection until it has ended.
func (c *Client) supervise(cn *conn) {
	c.maintain(cn)
	c.mu.Lock()
	c.dropDead()
	if c.reconnect && !c.closed {
		c.startAttempt()
	}
	c.mu.Unlock()
	cn.close()
}

// dropDead removes a lost connection, counts the loss, and decides whether to reconnect. Any goroutine may call
// it; only the first call after a loss has an effect. c.mu is held.
func (c *Client) dropDead() {
	cn := c.conn
	if cn == nil || !cn.dead() || c.closed {
		return
	}
	c.conn, c.previous = nil, cn
	if time.Since(cn.opened) > stableAfter {
		c.failures = 0
	}
	c.failures++
	c.restarts++
	c.lastErr = context.Cause(cn.life)
	c.reconnect = c.failures < eagerRestarts
}

// callSucceeded resets the count of failures.
func (c *Client) callSucceeded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = 0
}

// listChanged makes maintain list again soon.
func (c *Client) listChanged(lists uint32) {
	c.changedLists.Or(lists)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Client) onNotification(method string, params map[string]any) {
	switch method {
	case mcp.MethodNotificationResourceUpdated:
		if uri, _ := params["uri"].(string); c.watches.updated(uri) {
			c.listChanged(updates)
		}
	case "notifications/tools/list_changed", "notifications/groups/list_changed":
		c.listChanged(listOfTools)
	case mcp.MethodNotificationPromptsListChanged:
		c.listChanged(listOfPrompts)
	case mcp.MethodNotificationResourcesListChanged:
		c.listChanged(listOfResources)
	case mcp.MethodNotificationSubscriptionsAcknowledged:
		c.listChanged(allLists) // changes between the listing and the subscription were not announced
	}
}

// debounce is how long announced changes are collected before the list is requested. It doubles, up to
// maxDebounce, while the server continues to announce changes.
const (
	debounce    = 200 * time.Millisecond
	maxDebounce = 10 * time.Second
)

// A debouncer computes how long changes are collected.
type debouncer struct {
	wait   time.Duration
	listed time.Time // when the list was last requested
}

// delay returns how long to collect after a change. It starts at debounce again if the server was quiet for
// twice the last delay.
func (p *debouncer) delay() time.Duration {
	if p.wait > 0 && time.Since(p.listed) < 2*p.wait {
		p.wait = min(2*p.wait, maxDebounce)
	} else {
		p.wait = debounce
	}
	return p.wait
}

// maintain lists again after announced changes, and pings an idle server. It returns when the
// connection is lost.
func (c *Client) maintain(cn *conn) {
	if filter := cn.server.changeFilter(); cn.sessionless() && len(filter) > 0 {
		cn.goWork(func() { cn.listenLists(filter) })
	}
	if cn.server.declaresSubscribe() {
		cn.goWork(func() { cn.resubscribe(c.watches) })
	}
	var tick <-chan time.Time
	if c.cfg.PingInterval > 0 {
		t := time.NewTicker(c.cfg.PingInterval)
		defer t.Stop()
		tick = t.C
	}
	var p debouncer
	poke, due := c.wake, (<-chan time.Time)(nil)
	for {
		select {
		case <-cn.life.Done():
			return
		case <-poke: // later changes are covered by the same listing
			poke, due = nil, time.After(p.delay())
		case <-due:
			select {
			case <-c.wake:
			default:
			}
			lists := c.changedLists.Swap(0)
			if lists&listOfTools != 0 {
				_ = c.relistAfterChange(cn.life)
			}
			c.listsChanged(lists)
			if lists&updates != 0 {
				c.watches.callListeners()
			}
			poke, due, p.listed = c.wake, nil, time.Now()
		case <-tick:
			cn.pingIdle(c.cfg.PingInterval)
		}
	}
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

// oneUseConn returns a connection for one use: release ends it, and so does the end of the caller's context.
func (c *Client) oneUseConn(ctx context.Context) (cn *conn, release func(), err error) {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.workers.Add(1)
	}
	c.mu.Unlock()
	if closed {
		return nil, nil, &ServerError{Server: c.cfg.name, Err: ErrClosed}
	}
	dialing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.life, func() { cancel(ErrClosed) })()
	cn, err = c.dial(dialing)
	c.mu.Lock()
	c.lastErr = err
	c.mu.Unlock()
	if err != nil {
		c.workers.Done()
		return nil, nil, err
	}
	stop := context.AfterFunc(c.life, func() { cn.end(ErrClosed) })
	return cn, func() {
		defer c.workers.Done()
		stop()
		cn.close()
	}, nil
}

// dial connects and negotiates as the last time. If that fails it uses initialize for a server that exited on
// server/discover, negotiates again for a server that has changed, and uses SSE for a server that refuses POST.
func (c *Client) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeouts.Start,
		fmt.Errorf("%w: it was not ready after %v", ErrTimeout, c.cfg.Timeouts.Start))
	defer cancel()
	c.mu.Lock()
	known := c.negotiated
	c.mu.Unlock()
	kind, version := c.cfg.wire, c.cfg.Protocol
	if kind == wireAuto {
		kind = wireHTTP
	}
	if known.kind != wireAuto {
		kind = known.kind
		if version == "" {
			version = known.version
		}
	}
	cn, err := c.openConn(ctx, kind, version)
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, errProbed):
		cn, err = c.openConn(ctx, kind, mcp.LATEST_LEGACY_PROTOCOL_VERSION)
	case version != c.cfg.Protocol && !errors.Is(err, ErrLost):
		cn, err = c.openConn(ctx, kind, c.cfg.Protocol) // the server may have been replaced
	case c.cfg.wire == wireAuto && isStatus(err, 400, 404, 405):
		if sse, sseErr := c.openConn(ctx, wireSSE, ""); sseErr == nil {
			cn, err = sse, nil
		}
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.negotiated = negotiated{cn.kind, cn.version, cn.server}
	return cn, nil
}

// openConn opens a connection and negotiates a protocol revision.
func (c *Client) openConn(ctx context.Context, kind wire, version string) (*conn, error) {
	cn, err := open(ctx, &c.cfg, kind, c.hub, c.onNotification)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, c.serverError(nil, err)
	}
	if err := cn.handshake(ctx, version); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		cn.end(err)
		cn.close()
		return nil, c.serverError(cn, err)
	}
	return cn, nil
}

func isStatus(err error, codes ...int) bool {
	s, ok := errors.AsType[*httpStatusError](err)
	for _, code := range codes {
		if ok && s.code == code {
			return true
		}
	}
	return false
}
