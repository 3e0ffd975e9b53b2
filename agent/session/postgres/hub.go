package postgres

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kitbag-go/kitbag/agent/session"
)

// sweepEvery is the interval at which the sessions of a hub are checked for changes whose notification was lost.
const sweepEvery = time.Second

// A hub wakes the goroutines of this process that wait for changes of sessions.
type hub struct {
	closed atomic.Bool

	mu              sync.Mutex
	topics          map[string]*topic // by session
	live            int               // number of channels returned by Store.Live
	pending         map[string]bool   // changes of this process that are not announced yet: session ids, with a slash appended for inboxes
	hasPending      chan struct{}     // has one element if pending is not empty
	interruptKeeper func()            // makes the keeper check live; nil while the keeper is not waiting

	published    map[string][]session.Event // events to send to other processes
	bytes        int                        // the size of the data in published
	hasPublished chan struct{}              // has one element if published is not empty
}

// A topic is a session with goroutines that wait for its changes.
type topic struct {
	wakes [2]map[chan struct{}]bool // each buffers one element
	live  map[chan session.Event]bool
	seen  version // found by the last sweep
}

// The indices of topic.wakes.
const (
	onRecord = iota
	onInput
)

// A version is the state of a session and its inbox.
type version struct{ num, seq, sent int64 }

func newHub() *hub {
	return &hub{topics: map[string]*topic{}, pending: map[string]bool{}, hasPending: make(chan struct{}, 1),
		published: map[string][]session.Event{}, hasPublished: make(chan struct{}, 1)}
}

// topic returns the topic of a session, and creates it if it is new. mu is held.
func (h *hub) topic(id string) *topic {
	t := h.topics[id]
	if t == nil {
		t = &topic{wakes: [2]map[chan struct{}]bool{{}, {}}, live: map[chan session.Event]bool{}}
		h.topics[id] = t
	}
	return t
}

// forget removes a topic without channels. mu is held.
func (h *hub) forget(id string) {
	if t := h.topics[id]; len(t.wakes[onRecord])+len(t.wakes[onInput])+len(t.live) == 0 {
		delete(h.topics, id)
	}
}

// join returns a channel that gets an element after changes of a kind, and a function that removes the channel.
func (h *hub) join(id string, kind int) (<-chan struct{}, func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ch := make(chan struct{}, 1)
	h.topic(id).wakes[kind][ch] = true
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.topics[id].wakes[kind], ch)
		h.forget(id)
	}
}

// poke puts an element into a channel that buffers one, unless it has one.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// wake wakes the goroutines that wait for a change of a kind.
func (h *hub) wake(id string, kind int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[id]; t != nil {
		for ch := range t.wakes[kind] {
			poke(ch)
		}
	}
}

func (h *hub) wakeAll() {
	for _, id := range h.watched() {
		h.wake(id, onRecord)
		h.wake(id, onInput)
	}
}

func (h *hub) watched() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.topics))
}

// noteVersion compares a session's version with that of the last sweep, and wakes the waiting goroutines if it has
// changed.
func (h *hub) noteVersion(id string, now version) {
	h.mu.Lock()
	t := h.topics[id]
	var was version
	if t != nil {
		was, t.seen = t.seen, now
	}
	h.mu.Unlock()
	if was.num != now.num || was.seq != now.seq {
		h.wake(id, onRecord)
	}
	if was.num != now.num || was.sent != now.sent {
		h.wake(id, onInput)
	}
}

// changed wakes the waiting goroutines of this process, and queues the change for announce.
func (h *hub) changed(id string, kind int) {
	h.wake(id, kind)
	h.mu.Lock()
	defer h.mu.Unlock()
	if kind == onInput {
		id += "/"
	}
	h.pending[id] = true
	poke(h.hasPending)
}

// takePending removes and returns the pending changes.
func (h *hub) takePending() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := slices.Collect(maps.Keys(h.pending))
	clear(h.pending)
	return ids
}

// close ends the watchers. It reports false if it was called before.
func (h *hub) close() bool {
	closed := h.closed.Swap(true)
	h.wakeAll()
	return !closed
}

// start starts the background goroutines.
func (s *Store) start(config *pgx.ConnConfig) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.keep(ctx, config) })
	if !s.opts.ReadOnly {
		running.Go(func() { s.announce(ctx) })
		running.Go(func() { s.sendPublished(ctx) })
	}
	s.stop = func() {
		cancel()
		running.Wait()
	}
}

func (s *Store) channel() string { return "kitbag_in_" + s.opts.Schema }

// announce notifies other processes of changes. It is not part of the transaction of a save, because Postgres
// serializes the commits of transactions that notify.
func (s *Store) announce(ctx context.Context) {
	for ended := false; !ended; {
		select {
		case <-s.hub.hasPending:
		case <-ctx.Done():
			ended = true
		}
		if ids := s.hub.takePending(); len(ids) > 0 {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shortTimeout)
			// On failure the sweeps of other processes find the changes.
			_, _ = s.pool.Exec(ctx, "SELECT pg_notify($1, id) FROM unnest($2::text[]) id", s.channel(), ids)
			cancel()
		}
	}
}

// keep renews the claims of this store and receives notifications. Its connection is not in the pool, so that it
// never waits for other operations.
func (s *Store) keep(ctx context.Context, config *pgx.ConnConfig) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		k := &keeper{store: s}
		if err := k.connect(ctx, config); err == nil {
			pause = firstPause
			k.run(ctx)
		} else { // the database may have no free connection
			_ = s.renew(ctx, s.pool)
		}
		s.hub.wakeAll() // to query the database: notifications may have been lost
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// A keeper is a connection of [Store.keep].
type keeper struct {
	store *Store
	conn  *pgx.Conn
	live  bool // it listens on the channel of deltas

	nextRenewal, nextSweep time.Time
}

func (k *keeper) connect(ctx context.Context, config *pgx.ConnConfig) (err error) {
	ctx, cancel := context.WithTimeout(ctx, shortTimeout)
	defer cancel()
	k.conn, err = pgx.ConnectConfig(ctx, config.Copy())
	return err
}

// run returns when the connection fails or ctx ends.
func (k *keeper) run(ctx context.Context) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shortTimeout)
		defer cancel()
		_ = k.conn.Close(ctx)
	}()
	if err := k.listen(ctx, "LISTEN ", k.store.channel()); err != nil {
		return
	}
	k.store.hub.wakeAll()
	for k.renewAndSweep(ctx) == nil && k.listenLive(ctx) == nil {
		until := k.nextSweep
		if !k.store.opts.ReadOnly && k.nextRenewal.Before(until) {
			until = k.nextRenewal
		}
		waitCtx, cancel := context.WithDeadline(ctx, until)
		if k.store.hub.setKeeper(cancel) != k.live {
			cancel()
		}
		n, err := k.conn.WaitForNotification(waitCtx)
		timeout := waitCtx.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil, err != nil && !timeout:
			return
		case err == nil:
			k.store.hub.notified(n)
		}
	}
}

// listen starts or stops listening on a channel, by the verb LISTEN or UNLISTEN.
func (k *keeper) listen(ctx context.Context, verb, channel string) error {
	ctx, cancel := context.WithTimeout(ctx, shortTimeout)
	defer cancel()
	_, err := k.conn.Exec(ctx, verb+pgx.Identifier{channel}.Sanitize())
	if hasCode(err, "25006") { // read_only_sql_transaction: on a standby only sweeps find changes
		return nil
	}
	return err
}

// renewAndSweep renews the claims and sweeps the topics, if it is time for that.
func (k *keeper) renewAndSweep(ctx context.Context) error {
	s, now := k.store, time.Now()
	if !s.opts.ReadOnly && !now.Before(k.nextRenewal) {
		if err := s.renew(ctx, k.conn); err != nil {
			return err
		}
		k.nextRenewal = now.Add(s.opts.Claim / 3)
	}
	if now.Before(k.nextSweep) {
		return nil
	}
	k.nextSweep = now.Add(sweepEvery)
	return k.sweepTopics(ctx)
}

// sweepTopics finds the topics whose sessions have changed.
func (k *keeper) sweepTopics(ctx context.Context) error {
	hub := k.store.hub
	ids := hub.watched()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.store.opts.Claim/3)
	defer cancel()
	rows, err := k.conn.Query(ctx, "SELECT id, num, seq, sent FROM session WHERE id = ANY($1) AND updated IS NOT NULL", ids)
	if err != nil {
		return err
	}
	now := map[string]version{}
	var id string
	var v version
	if _, err = pgx.ForEachRow(rows, []any{&id, &v.num, &v.seq, &v.sent}, func() error {
		now[id] = v
		return nil
	}); err != nil {
		return err
	}
	for _, id := range ids {
		hub.noteVersion(id, now[id])
	}
	return nil
}

func (s *Store) renew(ctx context.Context, q querier) error {
	if s.opts.ReadOnly {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Claim/3)
	defer cancel()
	_, err := q.Exec(ctx, `INSERT INTO holder (id, expires, term) VALUES ($1, clock_timestamp() + $2::interval, $2)
		ON CONFLICT (id) DO UPDATE SET expires = excluded.expires`, s.holder, s.opts.Claim)
	return err
}
