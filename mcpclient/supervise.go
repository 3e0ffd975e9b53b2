package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// Restarts: the first is at once but for a moment's jitter, so that a call
// after a crash waits little; then the wait doubles. After eagerRestarts in a
// row the server is left alone until somebody needs it.
const (
	firstWait     = 100 * time.Millisecond
	longestWait   = 30 * time.Second
	eagerRestarts = 5

	// steady is how long a connection must have lived for its end to count as
	// the first in a row.
	steady = time.Minute

	// patience is how long a call waits for a restart that is under way before
	// it says so.
	patience = 5 * time.Second
)

func backoff(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	wait := min(firstWait<<min(failures-1, 20), longestWait)
	return wait/2 + rand.N(wait/2)
}

// acquire returns a live connection. release must be called when it is no
// longer used.
func (c *Client) acquire(ctx context.Context) (cn *conn, release func(), err error) {
	if c.cfg.Stateless {
		return c.single(ctx)
	}
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, nil, &ServerError{Server: c.cfg.name, Err: ErrClosed}
		}
		if cn := c.conn; cn != nil && !cn.dead() {
			cn.users.Add(1)
			c.mu.Unlock()
			return cn, func() { cn.users.Add(-1) }, nil
		}
		c.bury()
		a, restarting := c.connecting(), c.failures > 0
		last := c.lastErr
		c.mu.Unlock()
		if err := a.wait(ctx, restarting); err != nil {
			if errors.Is(err, ErrRestarting) && last != nil {
				err = fmt.Errorf("%w: %w", err, last)
			}
			return nil, nil, c.serverError(nil, err)
		}
	}
}

// wait waits for the attempt, but not for long for one that is put off.
func (a *attempt) wait(ctx context.Context, restarting bool) error {
	var late <-chan time.Time
	if restarting {
		t := time.NewTimer(patience)
		defer t.Stop()
		late = t.C
		if in := time.Until(a.at); in > patience {
			return fmt.Errorf("%w, the next attempt is in %v", ErrRestarting, in.Round(time.Second))
		}
	}
	select {
	case <-a.done:
		return a.err
	case <-late:
		return fmt.Errorf("%w, try again in a moment", ErrRestarting)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// connecting returns the attempt under way, or starts one, so that there is only
// ever one. It runs for the client and not for the caller, whose context may end
// while others still wait. c.mu is held.
func (c *Client) connecting() *attempt {
	if c.attempt != nil {
		return c.attempt
	}
	wait := backoff(c.failures)
	a := &attempt{done: make(chan struct{}), at: time.Now().Add(wait)}
	c.attempt, c.owed = a, false
	before := c.buried
	c.workers.Go(func() {
		defer close(a.done)
		t := time.NewTimer(wait)
		defer t.Stop()
		if before != nil { // it may hold what the next one needs, such as a lock file
			<-before.stopped
		}
		select {
		case <-t.C:
		case <-c.life.Done():
		}
		var cn *conn
		cn, a.err = c.dial(c.life)
		c.connected(cn, a.err)
	})
	return a
}

// connected ends an attempt: the connection is taken into service, or the next
// attempt is planned if the server has worked before. One that never has is
// left to the caller, who knows whether it is worth another try. c.mu is free.
func (c *Client) connected(cn *conn, err error) {
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
			c.connecting()
		}
		return
	}
	if c.snap.Load() != nil || c.restarts > 0 {
		c.changed(allLists) // the server that came back may offer something else
	}
	c.conn = cn
	c.lastErr = nil
	c.workers.Go(func() { c.watch(cn) })
}

// watch stays with a connection until nothing is left of it.
func (c *Client) watch(cn *conn) {
	c.attend(cn)
	c.mu.Lock()
	c.bury()
	if c.owed && !c.closed {
		c.connecting()
	}
	c.mu.Unlock()
	cn.close()
}

// bury takes a connection that is lost out of service, counts it, and notes whether the
// next one is to be made. Whoever notices first does so. c.mu is held.
func (c *Client) bury() {
	cn := c.conn
	if cn == nil || !cn.dead() || c.closed {
		return
	}
	c.conn, c.buried = nil, cn
	if time.Since(cn.opened) > steady {
		c.failures = 0
	}
	c.failures++
	c.restarts++
	c.lastErr = context.Cause(cn.life)
	c.owed = c.failures < eagerRestarts
}

// served is called when a call has worked: the server is in order again.
func (c *Client) served() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = 0
}

// changed has the lists asked for anew soon.
func (c *Client) changed(lists uint32) {
	c.due.Or(lists)
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

func (c *Client) notified(method string, params map[string]any) {
	switch method {
	case mcp.MethodNotificationResourceUpdated:
		if uri, _ := params["uri"].(string); c.watches.updated(uri) {
			c.changed(updates)
		}
	case "notifications/tools/list_changed", "notifications/groups/list_changed":
		c.changed(listOfTools)
	case mcp.MethodNotificationPromptsListChanged:
		c.changed(listOfPrompts)
	case mcp.MethodNotificationResourcesListChanged:
		c.changed(listOfResources)
	case mcp.MethodNotificationSubscriptionsAcknowledged:
		c.changed(allLists) // what has changed between the listing and this moment, nobody tells
	}
}

// debounce is how long list_changed is collected before the list is asked for. While
// a server goes on and on it becomes twice as long each time, up to slowest, so that one
// that says it for every clock tick does not keep everybody busy.
const (
	debounce = 200 * time.Millisecond
	slowest  = 10 * time.Second
)

// A pace says how long changes are collected.
type pace struct {
	wait   time.Duration
	listed time.Time // the last time
}

// next returns how long to collect the change that is announced now. A server that was
// quiet for twice the last wait is listed soon again.
func (p *pace) next() time.Duration {
	if p.wait > 0 && time.Since(p.listed) < 2*p.wait {
		p.wait = min(2*p.wait, slowest)
	} else {
		p.wait = debounce
	}
	return p.wait
}

// attend looks after a live connection: it lists anew what the server says has
// changed, and asks an idle server whether it lives. It returns when the
// connection is dead.
func (c *Client) attend(cn *conn) {
	if filter := cn.hello.news(); cn.modern() && len(filter) > 0 {
		cn.work(func() { cn.listen(filter) })
	}
	if cn.hello.tellsUpdates() {
		cn.work(func() { cn.watchOn(c.watches) })
	}
	var tick <-chan time.Time
	if c.cfg.PingInterval > 0 {
		t := time.NewTicker(c.cfg.PingInterval)
		defer t.Stop()
		tick = t.C
	}
	var p pace
	poke, due := c.poke, (<-chan time.Time)(nil)
	for {
		select {
		case <-cn.life.Done():
			return
		case <-poke: // what comes from now on is answered by the same listing
			poke, due = nil, time.After(p.next())
		case <-due:
			select {
			case <-c.poke:
			default:
			}
			lists := c.due.Swap(0)
			if lists&listOfTools != 0 {
				_ = c.renew(cn.life)
			}
			c.listsChanged(lists)
			if lists&updates != 0 {
				c.watches.tell()
			}
			poke, due, p.listed = c.poke, nil, time.Now()
		case <-tick:
			cn.checkPulse(c.cfg.PingInterval)
		}
	}
}

// checkPulse ends a connection to a server that has nothing to do and does not
// answer. One that is busy may have no time for pings.
func (c *conn) checkPulse(limit time.Duration) {
	if c.users.Load() > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.life, min(limit, 10*time.Second))
	defer cancel()
	if err := c.ping(ctx); err != nil && ctx.Err() != nil && c.users.Load() == 0 {
		c.lost(errors.New("it does not answer a ping"))
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// listen keeps a subscription to changes open, as the stateless revisions have
// it. Each time that it stands, the list is asked for once more.
func (c *conn) listen(filter map[string]any) {
	for wait := time.Second; !c.dead(); wait = min(2*wait, longestWait) {
		began := time.Now()
		_, err := c.request(c.life, "subscriptions/listen", map[string]any{"notifications": filter}, nil)
		if _, refused := errors.AsType[*CallError](err); refused {
			return
		}
		if time.Since(began) > steady {
			wait = time.Second
		}
		pause(c.life, wait)
	}
}

// single returns a connection for one use: a session that release ends. It is
// made for the caller, so it ends with its context.
func (c *Client) single(ctx context.Context) (cn *conn, release func(), err error) {
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

// dial makes a connection and says hello, in the ways that the server may want:
// as it was agreed on before; the older way for a server that died of the newer;
// from the start for one that has changed; and over SSE for one that does not
// take a POST. It remembers what worked.
func (c *Client) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeouts.Start,
		fmt.Errorf("%w: it was not ready after %v", ErrTimeout, c.cfg.Timeouts.Start))
	defer cancel()
	c.mu.Lock()
	known := c.agreed
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
	cn, err := c.hello(ctx, kind, version)
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, errProbed):
		cn, err = c.hello(ctx, kind, mcp.LATEST_LEGACY_PROTOCOL_VERSION)
	case version != c.cfg.Protocol && !errors.Is(err, ErrLost):
		cn, err = c.hello(ctx, kind, c.cfg.Protocol) // it may be another server by now
	case c.cfg.wire == wireAuto && isStatus(err, 400, 404, 405):
		if sse, sseErr := c.hello(ctx, wireSSE, ""); sseErr == nil {
			cn, err = sse, nil
		}
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.agreed = agreed{cn.kind, cn.version, cn.hello}
	return cn, nil
}

// hello opens a connection and agrees on a protocol revision.
func (c *Client) hello(ctx context.Context, kind wire, version string) (*conn, error) {
	cn, err := open(ctx, &c.cfg, kind, c.hub, c.notified)
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
	s, ok := errors.AsType[*httpStatus](err)
	for _, code := range codes {
		if ok && s.code == code {
			return true
		}
	}
	return false
}
