package pgsession

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

	mu              sync.Mutex        // guards the following fields, except the channels
	topics          map[string]*topic // by session id
	liveCount       int               // the number of channels in all topic.liveChannels
	pending         map[string]bool   // payloads of announce: ids of changed sessions, with a slash appended if the inbox changed
	hasPending      chan struct{}     // has a value if pending is not empty
	interruptKeeper func()            // makes the keeper check liveCount; nil while the keeper is not waiting

	published      map[string][]session.Event // by session id: events for sendPublished
	publishedBytes int                        // the size of the data in published
	hasPublished   chan struct{}              // has a value if published is not empty
}

// A topic is a session with goroutines that wait for its changes.
type topic struct {
	subscribers  [2]map[chan struct{}]bool   // by changeKind; each channel buffers one value
	liveChannels map[chan session.Event]bool // of Store.Live
	seen         version                     // found by the last sweep
}

type changeKind int

const (
	onRecord changeKind = iota // a record was stored, or the session was deleted
	onInput                    // an input was sent
)

// A version changes with every record and input: the columns num, seq and sent of a session. It is zero if the session
// does not exist.
type version struct{ num, seq, sent int64 }

func newHub() *hub {
	return &hub{topics: map[string]*topic{}, pending: map[string]bool{}, hasPending: make(chan struct{}, 1),
		published: map[string][]session.Event{}, hasPublished: make(chan struct{}, 1)}
}

// topic returns the topic of a session, and creates it if it is new. mu is held.
func (h *hub) topic(id string) *topic {
	t := h.topics[id]
	if t == nil {
		t = &topic{subscribers: [2]map[chan struct{}]bool{{}, {}}, liveChannels: map[chan session.Event]bool{}}
		h.topics[id] = t
	}
	return t
}

// removeIfUnused removes a topic that has no channels. mu is held.
func (h *hub) removeIfUnused(id string) {
	if t := h.topics[id]; len(t.subscribers[onRecord])+len(t.subscribers[onInput])+len(t.liveChannels) == 0 {
		delete(h.topics, id)
	}
}

// subscribe returns a channel that gets a value after changes of a kind, and a function that ends the subscription.
func (h *hub) subscribe(id string, kind changeKind) (changed <-chan struct{}, unsubscribe func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ch := make(chan struct{}, 1)
	h.topic(id).subscribers[kind][ch] = true
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.topics[id].subscribers[kind], ch)
		h.removeIfUnused(id)
	}
}

// poke puts a value into a channel that buffers one, unless the channel has a value.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// wake wakes the goroutines that wait for changes of a kind.
func (h *hub) wake(id string, kind changeKind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[id]; t != nil {
		for ch := range t.subscribers[kind] {
			poke(ch)
		}
	}
}

func (h *hub) wakeAll() {
	for _, id := range h.topicIDs() {
		h.wake(id, onRecord)
		h.wake(id, onInput)
	}
}

func (h *hub) topicIDs() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.topics))
}

// updateVersion stores the version that a sweep has found, and wakes the waiting goroutines if the version has changed.
func (h *hub) updateVersion(id string, now version) {
	h.mu.Lock()
	var was version
	if t := h.topics[id]; t != nil {
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

// noteChange wakes the waiting goroutines of this process, and queues the change for announce.
func (h *hub) noteChange(id string, kind changeKind) {
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

// close wakes all goroutines, which then find the hub closed. It returns false if the hub was closed before.
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

// changeChannel returns the name of the channel of announce.
func (s *Store) changeChannel() string { return "kitbag_in_" + s.opts.Schema }

// announce notifies other processes of changes; when ctx ends, for the last time. A save does not notify in its own
// transaction, because Postgres serializes the commits of transactions that notify.
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
			_, _ = s.pool.Exec(ctx, "SELECT pg_notify($1, id) FROM unnest($2::text[]) id", s.changeChannel(), ids)
			cancel()
		}
	}
}

// keep renews the claims of this store and receives notifications. It has its own connection, so that it never waits
// for one of the pool.
func (s *Store) keep(ctx context.Context, config *pgx.ConnConfig) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		k := &keeper{store: s}
		if err := k.connect(ctx, config); err == nil {
			pause = firstPause
			k.run(ctx)
		} else { // the database may have no free connection, but the pool may have one
			_ = s.renew(ctx, s.pool)
		}
		s.hub.wakeAll() // notifications may have been lost
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// A keeper is a connection of [Store.keep].
type keeper struct {
	store       *Store
	conn        *pgx.Conn
	listensLive bool // on the channel of deltas

	nextRenewal, nextSweep time.Time
}

func (k *keeper) connect(ctx context.Context, config *pgx.ConnConfig) (err error) {
	ctx, cancel := context.WithTimeout(ctx, shortTimeout)
	defer cancel()
	k.conn, err = pgx.ConnectConfig(ctx, config.Copy())
	return err
}

// run renews claims, sweeps and receives notifications until the connection fails or ctx ends.
func (k *keeper) run(ctx context.Context) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shortTimeout)
		defer cancel()
		_ = k.conn.Close(ctx)
	}()
	if err := k.listen(ctx, "LISTEN ", k.store.changeChannel()); err != nil {
		return
	}
	k.store.hub.wakeAll()
	for k.renewAndSweep(ctx) == nil && k.listenLive(ctx) == nil {
		until := k.nextSweep
		if !k.store.opts.ReadOnly && k.nextRenewal.Before(until) {
			until = k.nextRenewal
		}
		waitCtx, cancel := context.WithDeadline(ctx, until)
		if k.store.hub.setInterrupt(cancel) != k.listensLive { // changed since listenLive
			cancel()
		}
		n, err := k.conn.WaitForNotification(waitCtx)
		interrupted := waitCtx.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil, err != nil && !interrupted:
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

// renewAndSweep renews the claims if nextRenewal has passed, and sweeps the topics if nextSweep has passed.
func (k *keeper) renewAndSweep(ctx context.Context) error {
	s, now := k.store, time.Now()
	if !s.opts.ReadOnly && !now.Before(k.nextRenewal) {
		if err := s.renew(ctx, k.conn); err != nil {
			return err
		}
		k.nextRenewal = now.Add(s.renewEvery())
	}
	if now.Before(k.nextSweep) {
		return nil
	}
	k.nextSweep = now.Add(sweepEvery)
	return k.sweepTopics(ctx)
}

// sweepTopics reads the versions of the sessions with a topic, and wakes the goroutines of those that have changed.
func (k *keeper) sweepTopics(ctx context.Context) error {
	hub := k.store.hub
	ids := hub.topicIDs()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.store.renewEvery()) // the next renewal waits for the sweep
	defer cancel()
	rows, err := k.conn.Query(ctx, "SELECT id, num, seq, sent FROM session WHERE id = ANY($1) AND updated IS NOT NULL", ids)
	if err != nil {
		return err
	}
	versions := map[string]version{}
	var id string
	var v version
	if _, err = pgx.ForEachRow(rows, []any{&id, &v.num, &v.seq, &v.sent}, func() error {
		versions[id] = v
		return nil
	}); err != nil {
		return err
	}
	for _, id := range ids {
		hub.updateVersion(id, versions[id])
	}
	return nil
}

// renewEvery is a third of a claim, so that a claim outlasts two renewals that fail.
func (s *Store) renewEvery() time.Duration { return s.opts.Claim / 3 }

// renew extends all claims of this store, by its row in the table holder. A read-only store has none.
func (s *Store) renew(ctx context.Context, q querier) error {
	if s.opts.ReadOnly {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.renewEvery())
	defer cancel()
	_, err := q.Exec(ctx, `INSERT INTO holder (id, expires, term) VALUES ($1, clock_timestamp() + $2::interval, $2)
		ON CONFLICT (id) DO UPDATE SET expires = excluded.expires`, s.holder, s.opts.Claim)
	return err
}
