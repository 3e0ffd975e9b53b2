package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// beatEvery is the interval of a replica's heartbeats. Another replica removes the replica after deadAfter without a
	// heartbeat.
	beatEvery = 500 * time.Millisecond
	deadAfter = 3 * time.Second

	membersName = "replicas" // in the Store
	membersTTL  = 24 * time.Hour
)

// A member is the entry of a replica in the list of replicas.
type member struct {
	URL      string `json:"url"`
	Beats    int64  `json:"beats"` // number of heartbeats
	Draining bool   `json:"draining,omitempty"`
}

// Members is the list of live replicas. A replica is dead when another replica has removed it from the list; before
// that, no replica takes over its sessions. The replicas need no common clock, because each replica watches whether the
// others' counts of heartbeats grow.
type Members struct {
	ID        string
	store     Store
	url       string
	onRemoved func() // called if another replica has removed this replica although it is alive
	shared    *sharedRead

	changing sync.Mutex        // held during an attempt to change the list
	mu       sync.Mutex        // never held during a request to the store
	all      map[string]member // the list, by the ids of the replicas
	lives    map[string]life   // of replicas that Alive was called for
	beats    map[string]beat   // of other replicas
	draining bool
	joined   bool
	lastBeat time.Time // when this replica last stored a heartbeat
}

// A beat has the count of another replica's heartbeats, and when the count last grew, by this machine's clock.
type beat struct {
	count int64
	grew  time.Time
}

// A life is a context that ends when a replica has died.
type life struct {
	ctx context.Context
	end context.CancelFunc
}

// Join adds a replica to the list, where Run keeps the replica until Leave.
func Join(ctx context.Context, id, url string, store Store, onRemoved func()) (*Members, error) {
	m := &Members{ID: id, store: store, url: url, onRemoved: onRemoved, shared: newSharedRead(), lives: map[string]life{}, beats: map[string]beat{}}
	return m, m.Beat(ctx)
}

// Run stores heartbeats until ctx ends.
func (m *Members) Run(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := m.Beat(ctx); err != nil && ctx.Err() == nil {
				slog.WarnContext(ctx, "this replica cannot store its heartbeat", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// Leave removes the replica from the list.
func (m *Members) Leave(ctx context.Context) error {
	return m.change(ctx, func(all map[string]member) {
		m.joined = false
		delete(all, m.ID)
	})
}

// Beat stores a heartbeat and reads the list. It removes the replicas in dead, and replicas without a recent heartbeat.
func (m *Members) Beat(ctx context.Context, dead ...string) error {
	removed := false
	err := m.change(ctx, func(all map[string]member) {
		own, listed := all[m.ID]
		removed = m.joined && !listed
		maps.DeleteFunc(all, func(id string, other member) bool {
			earlier := other.URL == m.url // an earlier process with this replica's URL, which has ended
			return id != m.ID && (earlier || slices.Contains(dead, id) || m.silent(id, other.Beats))
		})
		all[m.ID] = member{URL: m.url, Beats: own.Beats + 1, Draining: m.draining}
	})
	if err != nil {
		return err
	}
	if removed {
		slog.ErrorContext(ctx, "the other replicas could not reach this replica and have taken over its sessions", "url", m.url)
		m.onRemoved()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joined, m.lastBeat = true, time.Now()
	maps.DeleteFunc(m.beats, func(id string, _ beat) bool { _, ok := m.all[id]; return !ok })
	maps.DeleteFunc(m.lives, func(id string, _ life) bool { _, ok := m.all[id]; return !ok })
	return nil
}

// change changes the list in the store with do, and sets m.all to the new list. It calls do with m.mu held, and calls do
// again if another replica has changed the list at the same time.
func (m *Members) change(ctx context.Context, do func(all map[string]member)) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	for range maxTries {
		raw, err := m.store.Get(ctx, membersName)
		if err != nil {
			return err
		}
		all := map[string]member{}
		if raw != nil {
			if err := json.Unmarshal(raw, &all); err != nil {
				return fmt.Errorf("read the list of replicas: %w", err)
			}
		}
		m.mu.Lock()
		do(all)
		m.mu.Unlock()
		changed, err := json.Marshal(all)
		if err != nil {
			return err
		}
		ok := bytes.Equal(raw, changed)
		if !ok {
			ok, err = m.store.Swap(ctx, membersName, raw, changed, membersTTL)
		}
		if err != nil {
			return err
		}
		if ok {
			m.mu.Lock()
			defer m.mu.Unlock()
			for id, old := range m.all { // a drained replica has left by itself, and still sends its answers
				if _, listed := all[id]; !listed && !old.Draining && m.lives[id].end != nil {
					m.lives[id].end()
				}
			}
			m.all = all
			return nil
		}
		pause(&m.changing)
	}
	return fmt.Errorf("the list of replicas could not be changed in %d attempts, because other replicas changed it at the same time", maxTries)
}

// silent records the count of a replica's heartbeats, and reports whether it has not grown for deadAfter. The caller holds m.mu.
func (m *Members) silent(id string, count int64) bool {
	if last, ok := m.beats[id]; ok && last.count == count {
		return time.Since(last.grew) > deadAfter
	}
	m.beats[id] = beat{count, time.Now()}
	return false
}

// Drain keeps other replicas from handing over sessions to this replica.
func (m *Members) Drain(ctx context.Context) error {
	m.mu.Lock()
	m.draining = true
	m.mu.Unlock()
	return m.Beat(ctx)
}

// Draining reports whether Drain was called.
func (m *Members) Draining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.draining
}

// Count returns the number of replicas, with this one.
func (m *Members) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.all)
}

// Current reports whether the last heartbeat is so recent that no other replica can have removed this replica.
func (m *Members) Current() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.lastBeat) < deadAfter
}

// URL returns the URL of a replica, or "" if the replica is dead.
func (m *Members) URL(ctx context.Context, id string) (string, error) {
	m.mu.Lock()
	known, ok := m.all[id]
	m.mu.Unlock()
	if ok {
		return known.URL, nil
	}
	// Read the list, because the replica may be new.
	if err := m.shared.do(ctx, func(ctx context.Context) error { return m.change(ctx, func(map[string]member) {}) }); err != nil {
		return "", Unavailable(ctx, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[id].URL, nil
}

// Alive returns a context that ends when the replica has died.
func (m *Members) Alive(id string) context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.lives[id]
	if !ok {
		l.ctx, l.end = context.WithCancel(context.Background())
		m.lives[id] = l
	}
	if _, ok := m.all[id]; !ok {
		l.end()
	}
	return l.ctx
}

// Other returns the largest id of the other replicas that are not draining, and its URL. Both are empty without such a replica.
func (m *Members) Other() (id, url string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for otherID, other := range m.all {
		if otherID != m.ID && !other.Draining && otherID > id {
			id, url = otherID, other.URL
		}
	}
	return id, url
}
