package postgres

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// sweepEvery is how often the sessions that are watched here are looked at, for those that
// changed while no one could say so.
const sweepEvery = time.Second

// A hub wakes the watchers of this process.
type hub struct {
	mu      sync.Mutex
	closed  bool
	topics  map[string]*topic // the sessions that are watched here
	pending map[string]bool   // those that changed here and were not announced
	some    chan struct{}     // has one element if some are pending
}

// A topic is a session that is watched.
type topic struct {
	watchers int
	changed  chan struct{} // closed, and replaced, when the session may have changed
	seen     version       // by the last sweep
}

// A version tells a session, and how far it is.
type version struct{ num, event int64 }

func newHub() *hub {
	return &hub{topics: map[string]*topic{}, pending: map[string]bool{}, some: make(chan struct{}, 1)}
}

func (h *hub) join(id string) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[id]
	if t == nil {
		t = &topic{changed: make(chan struct{})}
		h.topics[id] = t
	}
	t.watchers++
	return t
}

func (h *hub) leave(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[id]
	if t.watchers--; t.watchers == 0 {
		delete(h.topics, id)
	}
}

// next returns a channel that is closed at the next change.
func (h *hub) next(t *topic) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return t.changed
}

// wake wakes the watchers of some sessions.
func (h *hub) wake(ids ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if t := h.topics[id]; t != nil {
			t.wake()
		}
	}
}

func (t *topic) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

func (h *hub) wakeAll() { h.wake(h.watched()...) }

func (h *hub) watched() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.topics))
}

// swept wakes the watchers of sessions that are not as the last sweep saw them.
func (h *hub) swept(ids []string, now map[string]version) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if t := h.topics[id]; t != nil && t.seen != now[id] {
			t.seen = now[id]
			t.wake()
		}
	}
}

// changed wakes the watchers of a session here, and has it announced to other processes.
func (h *hub) changed(id string) {
	h.wake(id)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending[id] = true
	select {
	case h.some <- struct{}{}:
	default:
	}
}

// take returns the sessions that are to be announced.
func (h *hub) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := slices.Collect(maps.Keys(h.pending))
	clear(h.pending)
	return ids
}

// close ends the watchers. It reports false if it was called before.
func (h *hub) close() bool {
	h.mu.Lock()
	closed := h.closed
	h.closed = true
	h.mu.Unlock()
	h.wakeAll()
	return !closed
}

func (h *hub) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// start begins what runs in the background.
func (s *Store) start(config *pgx.ConnConfig) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.keep(ctx, config) })
	if !s.opts.ReadOnly {
		running.Go(func() { s.announce(ctx) })
	}
	s.stop = func() {
		cancel()
		running.Wait()
	}
}

func (s *Store) channel() string { return "kitbag_in_" + s.opts.Schema }

// announce says to other processes which sessions have changed. That is not done in the
// transaction of a save: Postgres commits transactions that notify one after the other.
func (s *Store) announce(ctx context.Context) {
	for ended := false; !ended; {
		select {
		case <-s.hub.some:
		case <-ctx.Done():
			ended = true
		}
		if ids := s.hub.take(); len(ids) > 0 {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeFor)
			// If it fails, the others find out when they sweep.
			_, _ = s.pool.Exec(ctx, "SELECT pg_notify($1, id) FROM unnest($2::text[]) id", s.channel(), ids)
			cancel()
		}
	}
}

// keep has a connection, outside of the pool so that it need not wait for one, on which the
// claims of this store are renewed and announcements come.
func (s *Store) keep(ctx context.Context, config *pgx.ConnConfig) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		k := &keeper{store: s}
		if err := k.connect(ctx, config); err == nil {
			pause = firstPause
			k.run(ctx)
		} else { // the database may have no connection to spare
			_ = s.renew(ctx, s.pool)
		}
		s.hub.wakeAll() // to find out that the database is away, or what has changed
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
	beat  time.Time // when claims are to be renewed
	sweep time.Time
}

func (k *keeper) connect(ctx context.Context, config *pgx.ConnConfig) (err error) {
	ctx, cancel := context.WithTimeout(ctx, closeFor)
	defer cancel()
	k.conn, err = pgx.ConnectConfig(ctx, config.Copy())
	return err
}

// run returns when the connection is of no use any more.
func (k *keeper) run(ctx context.Context) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeFor)
		defer cancel()
		_ = k.conn.Close(ctx)
	}()
	if err := k.listen(ctx); err != nil {
		return
	}
	k.store.hub.wakeAll()
	for k.due(ctx) == nil {
		until := k.sweep
		if !k.store.opts.ReadOnly && k.beat.Before(until) {
			until = k.beat
		}
		waitCtx, cancel := context.WithDeadline(ctx, until)
		n, err := k.conn.WaitForNotification(waitCtx)
		timeout := waitCtx.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil, err != nil && !timeout:
			return
		case err == nil:
			k.store.hub.wake(n.Payload)
		}
	}
}

func (k *keeper) listen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeFor)
	defer cancel()
	_, err := k.conn.Exec(ctx, "LISTEN "+pgx.Identifier{k.store.channel()}.Sanitize())
	if is(err, "25006") { // read_only_sql_transaction: on a standby only sweeps find what changes
		return nil
	}
	return err
}

// due does what is due.
func (k *keeper) due(ctx context.Context) error {
	s, now := k.store, time.Now()
	if !s.opts.ReadOnly && !now.Before(k.beat) {
		if err := s.renew(ctx, k.conn); err != nil {
			return err
		}
		k.beat = now.Add(s.opts.Claim / 3)
	}
	if now.Before(k.sweep) {
		return nil
	}
	k.sweep = now.Add(sweepEvery)
	return k.look(ctx)
}

// look finds the watched sessions that have changed.
func (k *keeper) look(ctx context.Context) error {
	hub := k.store.hub
	ids := hub.watched()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.store.opts.Claim/3)
	defer cancel()
	rows, err := k.conn.Query(ctx, "SELECT id, num, event FROM session WHERE id = ANY($1) AND updated IS NOT NULL", ids)
	if err != nil {
		return err
	}
	now := map[string]version{}
	var id string
	var v version
	if _, err = pgx.ForEachRow(rows, []any{&id, &v.num, &v.event}, func() error {
		now[id] = v
		return nil
	}); err != nil {
		return err
	}
	hub.swept(ids, now)
	return nil
}

// renew renews the claims of this store.
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
