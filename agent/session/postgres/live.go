package postgres

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kitbag-go/kitbag/agent/session"
)

// Changed implements [session.Notifier].
func (s *Store) Changed(ctx context.Context, id string, inbox bool) <-chan struct{} {
	kind := onRecord
	if inbox {
		kind = onInput
	}
	ch, leave := s.hub.join(id, kind)
	context.AfterFunc(ctx, leave)
	return ch
}

const (
	postEvery  = 50 * time.Millisecond
	maxPayload = 7900 // Postgres accepts less than 8000 bytes in a notification
	maxPosts   = 64   // per transaction
	liveSize   = 256  // of the channels of Live; when one is full, events are dropped
)

// Publish implements [session.Notifier]. The store sends at most 64 notifications of 8 kB every 50 ms, and drops
// further events.
func (s *Store) Publish(id string, ev session.Event) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if size := len(ev.Data); !s.opts.ReadOnly && size < maxPayload/2 && h.bytes+size <= maxPosts*maxPayload {
		h.published[id] = append(h.published[id], ev)
		h.bytes += size
		poke(h.hasPublished)
	}
}

// Live implements [session.Notifier].
func (s *Store) Live(ctx context.Context, id string) <-chan session.Event {
	h := s.hub
	ch := make(chan session.Event, liveSize)
	count := func(n int) {
		if h.live += n; h.interruptKeeper != nil {
			h.interruptKeeper()
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.topic(id).live[ch] = true
	count(1)
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.topics[id].live, ch)
		h.forget(id)
		count(-1)
	})
	return ch
}

// post sends published events to other processes.
func (s *Store) post(ctx context.Context) {
	for {
		select {
		case <-s.hub.hasPublished:
		case <-ctx.Done():
			return
		}
		time.Sleep(postEvery) // collect deltas, which are many
		if list := s.hub.takePosts(); len(list) > 0 {
			ctx, cancel := context.WithTimeout(ctx, closeFor)
			_, _ = s.pool.Exec(ctx, "SELECT pg_notify($1, p) FROM unnest($2::text[]) p", s.liveChannel(), list)
			cancel()
		}
	}
}

// takePosts returns the payloads to send. Each is the id of a session and a JSON array of events.
func (h *hub) takePosts() (list []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(h.published)) {
		events := h.published[id]
		for len(events) > 0 && len(list) < maxPosts {
			n, size := 0, len(id)
			for n < len(events) && size+len(events[n].Data)+40 < maxPayload {
				size += len(events[n].Data) + 40
				n++
			}
			data, err := json.Marshal(events[:n])
			if err == nil && len(data) < maxPayload-len(id) {
				list = append(list, id+string(data))
			}
			events = events[n:]
		}
	}
	clear(h.published)
	h.bytes = 0
	return list
}

// notified handles a notification, which this process may have sent.
func (h *hub) notified(n *pgconn.Notification) {
	id, events, published := strings.Cut(n.Payload, "[")
	if !published {
		id, kind := strings.TrimSuffix(id, "/"), onRecord
		if id != n.Payload {
			kind = onInput
		}
		h.wake(id, kind)
		return
	}
	var list []session.Event
	if json.Unmarshal([]byte("["+events), &list) != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[id]
	if t == nil {
		return
	}
	for _, ev := range list {
		for ch := range t.live {
			select {
			case ch <- ev:
			default:
			}
		}
	}
}

// liveChannel returns the name of the channel of deltas. Any role that can connect to the database may listen to a channel
// whose name it knows, so it contains a secret from a table.
func (s *Store) liveChannel() string { return "kitbag_live_" + s.secret }

// setKeeper sets the function that is called when live changes. It reports whether the keeper must start or stop
// listening on the channel of deltas; listening says whether it does now.
func (h *hub) setKeeper(interrupt func(), listening bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interruptKeeper = interrupt
	return listening != (h.live > 0)
}

// listenLive listens to published events while there are channels of Live.
func (k *keeper) listenLive(ctx context.Context) error {
	if want := k.store.hub.setKeeper(nil, false); want != k.live {
		k.live = want
		verb := "UNLISTEN "
		if want {
			verb = "LISTEN "
		}
		return k.listen(ctx, verb, k.store.liveChannel())
	}
	return nil
}
