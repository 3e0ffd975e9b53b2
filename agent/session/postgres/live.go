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
	publishEvery     = 50 * time.Millisecond
	maxNotification  = 7900 // Postgres accepts less than 8000 bytes
	maxNotifications = 64   // per transaction
	eventOverhead    = 40   // bytes of an event's JSON in a notification, in addition to its data
	liveSize         = 256  // of the channels of Live; when one is full, events are dropped
)

// Publish implements [session.Notifier]. The store sends at most 64 notifications of 8 kB every 50 ms, and drops
// further events.
func (s *Store) Publish(id string, ev session.Event) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if size := len(ev.Data); !s.opts.ReadOnly && size < maxNotification/2 && h.bytes+size <= maxNotifications*maxNotification {
		h.published[id] = append(h.published[id], ev)
		h.bytes += size
		poke(h.hasPublished)
	}
}

// Live implements [session.Notifier].
func (s *Store) Live(ctx context.Context, id string) <-chan session.Event {
	h := s.hub
	ch := make(chan session.Event, liveSize)
	addLive := func(n int) {
		if h.live += n; h.interruptKeeper != nil {
			h.interruptKeeper()
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.topic(id).live[ch] = true
	addLive(1)
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.topics[id].live, ch)
		h.forget(id)
		addLive(-1)
	})
	return ch
}

// sendPublished sends published events to other processes.
func (s *Store) sendPublished(ctx context.Context) {
	for {
		select {
		case <-s.hub.hasPublished:
		case <-ctx.Done():
			return
		}
		time.Sleep(publishEvery) // so that many deltas are sent at once
		if list := s.hub.takePublished(); len(list) > 0 {
			ctx, cancel := context.WithTimeout(ctx, shortTimeout)
			_, _ = s.pool.Exec(ctx, "SELECT pg_notify($1, p) FROM unnest($2::text[]) p", s.liveChannel(), list)
			cancel()
		}
	}
}

// takePublished removes the published events, and returns the notifications to send: each is the id of a session
// followed by a JSON array of events.
func (h *hub) takePublished() (list []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(h.published)) {
		events := h.published[id]
		for len(events) > 0 && len(list) < maxNotifications {
			n, size := 0, len(id)
			for n < len(events) && size+len(events[n].Data)+eventOverhead < maxNotification {
				size += len(events[n].Data) + eventOverhead
				n++
			}
			data, err := json.Marshal(events[:n])
			if err == nil && len(data) < maxNotification-len(id) {
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

// setKeeper sets the function that is called when live changes. It reports whether the keeper must listen on the
// channel of deltas.
func (h *hub) setKeeper(interrupt func()) (wantLive bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interruptKeeper = interrupt
	return h.live > 0
}

// listenLive listens to published events while there are channels of Live.
func (k *keeper) listenLive(ctx context.Context) error {
	if want := k.store.hub.setKeeper(nil); want != k.live {
		k.live = want
		verb := "UNLISTEN "
		if want {
			verb = "LISTEN "
		}
		return k.listen(ctx, verb, k.store.liveChannel())
	}
	return nil
}
