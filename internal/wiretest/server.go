package wiretest

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
)

// A Plan is the part of a turn that is the same for every vendor. R is the type of requests, T of turns.
type Plan[R, T any] struct {
	Answer Answer           // with Status 0 if the turn renders its own answer
	Always bool             // the turn answers all further requests
	Func   func(*R) T       // makes the turn from the request; nil for a fixed turn
	Checks []func(*R) error // an error fails the request
}

// A Server is a fake server, which answers requests with turns. It is safe for concurrent use.
type Server[R, T any] struct {
	Mu     sync.Mutex
	Closed chan struct{} // closed by Close, which ends hanging answers

	plan     func(*T) *Plan[R, T]
	http     *httptest.Server
	conns    atomic.Int64
	turns    []T // not used yet
	requests []*R
	faults   []error
}

// Start starts the server on a port of the loopback interface, and returns its URL.
func (s *Server[R, T]) Start(turns []T, plan func(*T) *Plan[R, T], serve http.HandlerFunc) string {
	s.turns, s.plan, s.Closed = slices.Clone(turns), plan, make(chan struct{})
	s.http = httptest.NewUnstartedServer(serve)
	s.http.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}
	s.http.Start()
	return s.http.URL
}

// Close ends the server and all running answers, and returns when they have ended. It may
// be called more than once.
func (s *Server[R, T]) Close() {
	s.Mu.Lock()
	select {
	case <-s.Closed:
	default:
		close(s.Closed)
	}
	s.Mu.Unlock()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Requests returns the requests so far, including rejected ones.
func (s *Server[R, T]) Requests() []*R {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return slices.Clone(s.requests)
}

// Faults returns the errors of the requests so far, without those for a wrong key.
func (s *Server[R, T]) Faults() []error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return slices.Clone(s.faults)
}

// Remaining returns the number of unused turns, not counting a turn with Always.
func (s *Server[R, T]) Remaining() (n int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for i := range s.turns {
		if !s.plan(&s.turns[i]).Always {
			n++
		}
	}
	return n
}

// Connections returns the number of TCP connections that clients have opened.
func (s *Server[R, T]) Connections() int { return int(s.conns.Load()) }

// Record adds a request, and returns its number, from 1. The caller holds the lock.
func (s *Server[R, T]) Record(req *R) int {
	s.requests = append(s.requests, req)
	return len(s.requests)
}

// Fault records that the last request is invalid. The caller holds the lock.
func (s *Server[R, T]) Fault(err error) {
	s.faults = append(s.faults, fmt.Errorf("request %d: %w", len(s.requests), err))
}

// Next returns the turn that answers a request, or a status and the reason why there is none. The caller holds the
// lock, so that the functions of turns may share variables; they must not use the server.
func (s *Server[R, T]) Next(req *R) (turn T, status int, err error) {
	if len(s.turns) == 0 {
		return turn, http.StatusNotImplemented, errors.New("no turn is left; add one to the server")
	}
	turn = s.turns[0]
	if !s.plan(&turn).Always {
		s.turns = s.turns[1:]
	}
	if fn := s.plan(&turn).Func; fn != nil {
		turn = fn(req)
	}
	for _, check := range s.plan(&turn).Checks {
		if err := check(req); err != nil {
			return turn, http.StatusBadRequest, fmt.Errorf("failed Expect: %w", err)
		}
	}
	return turn, 0, nil
}

// A T is the part of *testing.T that CloseWith uses.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Cleanup(func())
}

// CloseWith closes the server at the end of a test, which fails for faults and for unused turns.
func (s *Server[R, _]) CloseWith(t T, name string) {
	t.Helper()
	s.Mu.Lock()
	total := len(s.turns)
	s.Mu.Unlock()
	t.Cleanup(func() {
		t.Helper()
		s.Close()
		for _, err := range s.Faults() {
			t.Errorf("%s: %v", name, err)
		}
		if n := s.Remaining(); n > 0 {
			t.Errorf("%s: %d of %d turns were not used", name, n, total)
		}
	})
}
