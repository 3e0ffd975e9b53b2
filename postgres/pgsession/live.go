package pgsession

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
	ch, unsubscribe := s.hub.subscribe(id, kind)
	context.AfterFunc(ctx, unsubscribe)
	return ch
}

const (
	publishEvery     = 50 * time.Millisecond
	maxNotification  = 7900 // Postgres accepts less than 8000 bytes
	maxNotifications = 64   // every publishEvery
	eventOverhead    = 40   // estimated bytes of an event's JSON in a notification, without its data
	liveSize         = 256  // of the channels of Live; when one is full, events are dropped
)

// Publish implements [session.Notifier]. The store sends at most 64 notifications of 8 kB every 50 ms, and drops
// further events and those of 4 kB or more.
func (s *Store) Publish(id string, ev session.Event) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	size := len(ev.Data)
	tooLarge := size >= maxNotification/2 // leaves room for the session id and the event's other JSON
	if s.opts.ReadOnly || tooLarge || h.publishedBytes+size > maxNotifications*maxNotification {
		return
	}
	h.published[id] = append(h.published[id], ev)
	h.publishedBytes += size
	poke(h.hasPublished)
}

// Live implements [session.Notifier].
func (s *Store) Live(ctx context.Context, id string) <-chan session.Event {
	h := s.hub
	ch := make(chan session.Event, liveSize)
	addLiveCount := func(n int) {
		if h.liveCount += n; h.interruptKeeper != nil {
			h.interruptKeeper()
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.topic(id).liveChannels[ch] = true
	addLiveCount(1)
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.topics[id].liveChannels, ch)
		h.removeIfUnused(id)
		addLiveCount(-1)
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
			// On failure the deltas are lost: Live is best effort.
			_, _ = s.pool.Exec(ctx, "SELECT pg_notify($1, p) FROM unnest($2::text[]) p", s.liveChannel(), list)
			cancel()
		}
	}
}

// takePublished removes the published events, and returns the payloads of the notifications to send: each is the id of
// a session followed by a JSON array of events. Events that do not fit into maxNotifications are dropped.
func (h *hub) takePublished() (payloads []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(h.published)) {
		events := h.published[id]
		for len(events) > 0 && len(payloads) < maxNotifications {
			n, size := 0, len(id)
			for n < len(events) && size+len(events[n].Data)+eventOverhead < maxNotification {
				size += len(events[n].Data) + eventOverhead
				n++
			}
			data, err := json.Marshal(events[:n])
			if err == nil && len(data) < maxNotification-len(id) {
				payloads = append(payloads, id+string(data))
			}
			events = events[n:]
		}
	}
	clear(h.published)
	h.publishedBytes = 0
	return payloads
}

// notified handles a notification of announce or sendPublished, from this process or another one. Only the payload of
// sendPublished has a bracket, since an id has none.
func (h *hub) notified(n *pgconn.Notification) {
	id, events, published := strings.Cut(n.Payload, "[")
	if !published {
		if id, isInput := strings.CutSuffix(id, "/"); isInput {
			h.wake(id, onInput)
		} else {
			h.wake(id, onRecord)
		}
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
		for ch := range t.liveChannels {
			select {
			case ch <- ev:
			default: // full: the event is dropped
			}
		}
	}
}

// liveChannel returns the name of the channel of deltas, with a secret from a table: any role that can connect to the
// database may listen to a channel whose name it knows.
func (s *Store) liveChannel() string { return "kitbag_live_" + s.secret }

// setInterrupt sets interruptKeeper, and reports whether the keeper must listen on the channel of deltas.
func (h *hub) setInterrupt(interrupt func()) (wantLive bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interruptKeeper = interrupt
	return h.liveCount > 0
}

// listenLive starts or stops listening on the channel of deltas, if the first channel of Live was added or the last one
// removed.
func (k *keeper) listenLive(ctx context.Context) error {
	wantLive := k.store.hub.setInterrupt(nil)
	if wantLive == k.listensLive {
		return nil
	}
	k.listensLive = wantLive
	verb := "UNLISTEN "
	if wantLive {
		verb = "LISTEN "
	}
	return k.listen(ctx, verb, k.store.liveChannel())
}
