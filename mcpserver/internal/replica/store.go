// Package replica lets several processes of one server act as one behind a load balancer without session affinity:
//
//   - [Store] is shared by all of them; [Memory] is for a single server.
//   - [Keys] seals values that only replicas can open.
//   - [Members] is the list of live replicas, with their URLs.
//   - [Quotas] are limits of which each replica has a part, and a [Rate] is how often something may happen.
//   - [Forwarder] forwards a request to another replica.
//
// A client never chooses the address of a replica: a ticket or a session leads to the id of a replica, and only a
// replica can register the URL of an id. A request is forwarded at most once, because a replica does not forward a
// forwarded request.
package replica

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A Store has values by keys, each for a limited time. All replicas of a server share it. It must be safe for
// concurrent use, and a Swap must be atomic for all replicas.
type Store interface {
	// Get returns the value of a key, or nil if the key has no value.
	Get(ctx context.Context, key string) ([]byte, error)

	// Swap stores new as the value of a key if the value is old, and reports whether it was old. A nil old means that the
	// key must have no value; a nil new removes the value. The new value is kept for at least ttl.
	Swap(ctx context.Context, key string, old, new []byte, ttl time.Duration) (bool, error)
}

// ErrUnavailable replaces an error of the Store in answers to clients.
var ErrUnavailable = errors.New("the store of the replicas is not available; try again later")

// Unavailable logs an error of the Store, which may name machines, and returns ErrUnavailable.
func Unavailable(ctx context.Context, err error) error {
	slog.WarnContext(ctx, "the store of the replicas has failed", "err", err)
	return ErrUnavailable
}

// maxTries is how often a replica tries to change a value that other replicas change at the same time.
const maxTries = 50

// pause waits before the next attempt to change a value, with mu unlocked, so that other callers can try meanwhile.
func pause(mu *sync.Mutex) {
	mu.Unlock()
	time.Sleep(rand.N(5 * time.Millisecond))
	mu.Lock()
}

// A sharedRead joins the reads of the store that clients can cause by sending made-up names: calls that wait at the same
// time share one read.
type sharedRead struct {
	busy  chan struct{} // buffers one element during a read
	begun atomic.Int64  // how many reads have begun
	err   error         // of the last read
}

func newSharedRead() *sharedRead { return &sharedRead{busy: make(chan struct{}, 1)} }

// do calls read, unless another call has begun a read while this call waited. It returns the error of that read.
func (s *sharedRead) do(ctx context.Context, read func(context.Context) error) error {
	begun := s.begun.Load()
	s.busy <- struct{}{}
	defer func() { <-s.busy }()
	if s.begun.Load() == begun {
		s.begun.Add(1)
		s.err = read(context.WithoutCancel(ctx)) // other calls use the result, too
	}
	return s.err
}

// Memory is a Store for replicas in one process. The zero Memory is empty.
type Memory struct {
	mu        sync.Mutex
	values    map[string]entry
	nextSweep time.Time // when a Swap removes expired values
}

type entry struct {
	value   []byte
	expires time.Time
}

// Get implements [Store].
func (m *Memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.get(key), nil
}

func (m *Memory) get(key string) []byte {
	e := m.values[key]
	if e.expires.Before(time.Now()) {
		return nil
	}
	return bytes.Clone(e.value)
}

// Swap implements [Store].
func (m *Memory) Swap(_ context.Context, key string, old, new []byte, ttl time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if current := m.get(key); (current == nil) != (old == nil) || !bytes.Equal(current, old) {
		return false, nil
	}
	now := time.Now()
	if now.After(m.nextSweep) {
		maps.DeleteFunc(m.values, func(_ string, e entry) bool { return e.expires.Before(now) })
		m.nextSweep = now.Add(time.Minute)
	}
	if new == nil {
		delete(m.values, key)
		return true, nil
	}
	if m.values == nil {
		m.values = map[string]entry{}
	}
	m.values[key] = entry{bytes.Clone(new), now.Add(ttl)}
	return true, nil
}
