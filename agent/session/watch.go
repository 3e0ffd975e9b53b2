package session

import (
	"context"
	"fmt"
	"iter"

	"github.com/kitbag-go/kitbag/agent/event"
)

// A Watcher is a [Store] that stores the events of sessions, so that any process can watch a session, wherever
// it runs.
type Watcher interface {
	// Watch yields the events of a session with numbers above after, each once and in order, and then waits
	// for new ones. Events are stored with the record of their step, so every yielded event is still stored
	// after a restart. A store documents the maximum delay of an event.
	//
	// If the session does not exist, Watch waits for it. The sequence ends with an error: that of ctx,
	// [fs.ErrNotExist] if the session is deleted, or [ErrGone] if events after that number were dropped. It may
	// be ranged again.
	Watch(ctx context.Context, session string, after int64) iter.Seq2[Event, error]
}

// Watch yields the events of a session with numbers above after, like [Watcher.Watch]: all except deltas,
// whichever process runs the session. A client that reconnects continues after the number of the last event
// that it received ([event.Header.Seq], which is the Last-Event-ID of server-sent events). It fails if the store
// is not a [Watcher]. To get the record of each event, which [Fork] needs, range over
// store.(session.Watcher).Watch.
func Watch(ctx context.Context, store Store, session string, after int64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		w, ok := store.(Watcher)
		if !ok {
			yield(nil, unsupported(store, "Watcher", "read the session from time to time"))
			return
		}
		for raw, err := range w.Watch(ctx, session, after) {
			var ev event.Event
			if err == nil {
				if ev, err = event.Decode(raw.Data); err != nil {
					err = fmt.Errorf("session %q: event %d: %w", session, raw.Seq, err)
				}
			}
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}
