package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// The first restart is almost immediate, so that a call after a crash waits little; then the wait doubles.
const (
	minBackoff    = 100 * time.Millisecond
	maxBackoff    = 30 * time.Second
	eagerRestarts = 5 // failures in a row after which the server is restarted only when it is needed

	// stableAfter is how long a connection must have lasted for its loss to count as the first failure of a row.
	stableAfter = time.Minute

	// restartPatience is how long a call waits for a restart before it fails with errRestarting.
	restartPatience = 5 * time.Second
)

// backoff returns how long to wait before the next attempt. It is random, so that clients do not reconnect all at once.
func backoff(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	wait := min(minBackoff<<min(failures-1, 20), maxBackoff) // a larger shift could overflow
	return wait/2 + rand.N(wait/2)
}

// A state describes the connection to a server. These are the values of Status.State.
type state string

const (
	stateIdle       = "idle"       // not connected yet, perhaps connecting for the first time
	stateReady      = "ready"      // connected
	stateRestarting = "restarting" // the connection was lost; a restart is in progress or due soon
	stateFailed     = "failed"     // the next connection is made only when needed
	stateClosed     = "closed"
)

// A supervisor connects to a server when it is needed, and again when the connection is lost.
type supervisor struct {
	cfg      *config
	hub      *hub
	observer connObserver

	life    context.Context // ends with close
	end     context.CancelFunc
	workers sync.WaitGroup

	mu         sync.Mutex
	state      state
	conn       *conn      // nil while there is no connection; a lost connection stays until dropDead
	previous   *conn      // the last lost connection, whose process may still be ending
	attempt    *attempt   // nil while no connection is being made
	negotiated negotiated // the outcome of the last handshake
	history
}

// A history is what has happened to the connections to a server. It is guarded by supervisor.mu.
type history struct {
	worked   bool // the server has listed its tools at least once
	failures int  // connections lost or not made since the last successful call
	restarts int
	lastErr  error
}

// A connObserver uses the connections of a supervisor.
type connObserver interface {
	// notify is called with notifications, on the reading goroutine.
	notify(method string, params map[string]any)
	// connected is called after a connection was made. again says that the server was connected before.
	connected(again bool)
	// maintain is called with each connection, and returns when the connection has ended.
	maintain(cn *conn)
}

// negotiated is the outcome of a handshake. The next connection reuses it to be faster.
type negotiated struct {
	kind    wire
	version string
	server  initResult
}

// An attempt is a connection being made.
type attempt struct {
	done   chan struct{}
	starts time.Time // after the wait of backoff
	err    error     // set before done is closed
}

func newSupervisor(cfg *config, h *hub) *supervisor {
	s := &supervisor{cfg: cfg, hub: h, state: stateIdle}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// close ends the connection, and returns when the server's processes have ended.
func (s *supervisor) close() {
	s.mu.Lock()
	s.state = stateClosed
	cn := s.conn
	s.mu.Unlock()
	s.end()
	if cn != nil {
		cn.close()
	}
	s.workers.Wait()
}

// current returns the connection, which may be dead, or nil.
func (s *supervisor) current() *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}

// status returns the parts of the status that the supervisor knows, and the server's answer to the last handshake.
func (s *supervisor) status() (Status, initResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropDead()
	n := s.negotiated
	st := Status{
		Name: s.cfg.name, State: string(s.state), Protocol: n.version, ServerName: n.server.ServerInfo.Name,
		ServerVersion: n.server.ServerInfo.Version, Instructions: n.server.Instructions, Restarts: s.restarts,
	}
	if s.state == stateRestarting || s.state == stateFailed {
		st.Err = s.lastErr
	}
	return st, n.server
}

// acquire returns a live connection, and a function that releases it.
func (s *supervisor) acquire(ctx context.Context) (cn *conn, release func(), err error) {
	if s.cfg.Stateless {
		return s.oneUseConn(ctx)
	}
	for {
		s.mu.Lock()
		s.dropDead()
		switch s.state {
		case stateClosed:
			s.mu.Unlock()
			return nil, nil, &ServerError{Server: s.cfg.name, Err: ErrClosed}
		case stateReady:
			cn := s.conn
			cn.activeUses.Add(1)
			s.mu.Unlock()
			return cn, func() { cn.activeUses.Add(-1) }, nil
		}
		a, restarting, last := s.startAttempt(), s.failures > 0, s.lastErr
		s.mu.Unlock()
		if err := a.wait(ctx, restarting); err != nil {
			switch {
			case errors.Is(err, errRestarting) && last != nil:
				err = fmt.Errorf("%w: %w", err, last)
			case restarting && ctx.Err() == nil:
				err = fmt.Errorf("the server could not be started again, so the call did not run; tell the user if the task needs it: %w", err)
			}
			return nil, nil, s.cfg.serverError(nil, err)
		}
	}
}

// wait waits for the attempt, but for a restart no longer than restartPatience.
func (a *attempt) wait(ctx context.Context, restarting bool) error {
	var patience <-chan time.Time
	if restarting {
		t := time.NewTimer(restartPatience)
		defer t.Stop()
		patience = t.C
		if wait := time.Until(a.starts); wait > restartPatience {
			return fmt.Errorf("%w, the next attempt is in %v", errRestarting, wait.Round(time.Second))
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

// startAttempt returns the attempt in progress, or starts an attempt. The context of the attempt is the supervisor's, not
// that of a caller, because several callers may wait for the attempt. s.mu is held.
func (s *supervisor) startAttempt() *attempt {
	if s.attempt != nil {
		return s.attempt
	}
	wait := backoff(s.failures)
	a := &attempt{done: make(chan struct{}), starts: time.Now().Add(wait)}
	s.attempt = a
	if s.restarts > 0 || s.failures > 0 {
		s.state = stateRestarting
	}
	previous := s.previous
	s.workers.Go(func() {
		defer close(a.done)
		t := time.NewTimer(wait)
		defer t.Stop()
		if previous != nil { // its process may still have a lock file that the next process needs
			<-previous.stopped
		}
		select {
		case <-t.C:
		case <-s.life.Done():
		}
		var cn *conn
		cn, a.err = s.dial(s.life)
		s.finishAttempt(cn, a.err)
	})
	return a
}

// finishAttempt stores the new connection. After an error it starts the next attempt if the server has worked before;
// otherwise the next call of acquire does.
func (s *supervisor) finishAttempt(cn *conn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempt = nil
	switch {
	case s.state == stateClosed && cn != nil:
		s.workers.Go(cn.close)
	case err == nil:
		s.observer.connected(s.worked || s.restarts > 0)
		s.state, s.conn, s.lastErr = stateReady, cn, nil
		s.workers.Go(func() { s.supervise(cn) })
	default:
		s.failures++
		s.lastErr = err
		s.setDisconnected(s.worked && s.failures < eagerRestarts)
		if s.state == stateRestarting {
			s.startAttempt()
		}
	}
}

// setDisconnected sets the state after a lost connection or failed attempt. restart says that the next attempt is made
// without waiting for a call. s.mu is held.
func (s *supervisor) setDisconnected(restart bool) {
	switch {
	case s.state == stateClosed:
	case restart:
		s.state = stateRestarting
	default:
		s.state = stateFailed
	}
}

// supervise maintains a connection until it has ended, and connects again unless a call does so first.
func (s *supervisor) supervise(cn *conn) {
	s.observer.maintain(cn)
	s.mu.Lock()
	s.dropDead()
	if s.state == stateRestarting {
		s.startAttempt()
	}
	s.mu.Unlock()
	cn.close()
}

// dropDead removes a lost connection, counts the loss, and decides whether to reconnect. Only the first call after a
// loss has an effect. s.mu is held.
func (s *supervisor) dropDead() {
	cn := s.conn
	if cn == nil || !cn.dead() || s.state == stateClosed {
		return
	}
	s.conn, s.previous = nil, cn
	if time.Since(cn.opened) > stableAfter {
		s.failures = 0
	}
	s.failures++
	s.restarts++
	s.lastErr = context.Cause(cn.life)
	s.setDisconnected(s.failures < eagerRestarts)
}

func (s *supervisor) callSucceeded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = 0
}

// setWorked records that the server works, so that it is restarted after a failure.
func (s *supervisor) setWorked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.worked = true
}

// oneUseConn returns a connection for one use, which ends with release or when the supervisor is closed.
func (s *supervisor) oneUseConn(ctx context.Context) (cn *conn, release func(), err error) {
	s.mu.Lock()
	if s.state == stateClosed {
		s.mu.Unlock()
		return nil, nil, &ServerError{Server: s.cfg.name, Err: ErrClosed}
	}
	s.workers.Add(1)
	s.mu.Unlock()
	dialing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(ErrClosed) })()
	cn, err = s.dial(dialing)
	s.mu.Lock()
	if s.lastErr = err; err != nil {
		s.setDisconnected(false)
	} else if s.state != stateClosed {
		s.state = stateIdle
	}
	s.mu.Unlock()
	if err != nil {
		s.workers.Done()
		return nil, nil, err
	}
	stop := context.AfterFunc(s.life, func() { cn.end(ErrClosed) })
	return cn, func() {
		defer s.workers.Done()
		stop()
		cn.close()
	}, nil
}

// dial connects with the transport and the revision of the last handshake, if any. After a failure it tries once more: with
// initialize if the server exited on server/discover, with a new negotiation if the server may have been replaced, or over
// SSE if the server refuses POST.
func (s *supervisor) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Timeouts.Start,
		fmt.Errorf("%w: it was not ready after %v", ErrTimeout, s.cfg.Timeouts.Start))
	defer cancel()
	s.mu.Lock()
	known := s.negotiated
	s.mu.Unlock()
	kind, version := s.cfg.wire, s.cfg.Protocol
	if kind == wireAuto {
		kind = wireHTTP
	}
	if known.kind != wireAuto {
		kind = known.kind
		if version == "" {
			version = known.version
		}
	}
	cn, err := s.openConn(ctx, kind, version)
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, errExitedOnDiscover):
		cn, err = s.openConn(ctx, kind, mcp.LATEST_LEGACY_PROTOCOL_VERSION)
	case version != s.cfg.Protocol && !errors.Is(err, ErrLost):
		cn, err = s.openConn(ctx, kind, s.cfg.Protocol)
	case s.cfg.wire == wireAuto && isStatus(err, 400, 404, 405):
		if sse, sseErr := s.openConn(ctx, wireSSE, ""); sseErr == nil {
			cn, err = sse, nil
		}
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.negotiated = negotiated{cn.kind, cn.protocol.revision(), cn.server}
	return cn, nil
}

// openConn opens a connection and negotiates a protocol revision.
func (s *supervisor) openConn(ctx context.Context, kind wire, version string) (*conn, error) {
	cn, err := open(ctx, s.cfg, kind, s.hub, s.observer.notify)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, s.cfg.serverError(nil, err)
	}
	if err := cn.handshake(ctx, version); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		cn.end(err)
		cn.close()
		return nil, s.cfg.serverError(cn, err)
	}
	return cn, nil
}
