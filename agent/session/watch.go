package session

import (
	"context"
	"fmt"
	"iter"

	"github.com/kitbag-go/kitbag/agent/event"
)

// A Watcher is a [Store] that stores the events of sessions, so that any process can watch a session that another
// process runs.
type Watcher interface {
	// Watch yields the events of a session with numbers above after, each once and in order, and then waits
	// for new ones. Events are stored with the record of their step, so every yielded event is still stored
	// after a restart. A store documents the maximum delay of an event.
	//
	// If the session does not exist, Watch waits for it. The sequence ends with an error: the cause of ctx's end,
	// [fs.ErrNotExist] if the session is deleted, or [ErrGone] if events with numbers above after were dropped. The
	// sequence may be ranged again.
	Watch(ctx context.Context, session string, after int64) iter.Seq2[Event, error]
}

// Watch yields the events of a session with numbers above after, like [Watcher.Watch]: all except deltas, whichever
// process runs the session. A client that reconnects continues after the number of the last event that it received
// ([event.Header.Seq], which is the Last-Event-ID of server-sent events). Watch fails if the store is not a [Watcher].
// To get the record of each event, which [Fork] needs, range over store.(session.Watcher).Watch.
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
				if ev, err = raw.Decode(); err != nil {
					err = fmt.Errorf("session %q: event %d: %w", session, raw.Seq, err)
				}
			}
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// A Notifier is a [Store] that notifies all processes of changes of a session, and passes on events that are not
// stored.
type Notifier interface {
	// Changed returns a channel that receives a value after each input that is sent to a session, if inbox is true, or
	// after each record that is stored, if inbox is false. The value arrives within two seconds, usually at once. One
	// value may be for several changes, or for none.
	Changed(ctx context.Context, session string, inbox bool) <-chan struct{}

	// Publish sends an event that is not stored yet, such as a delta, to the channels of Live. It does not block.
	Publish(session string, ev Event)

	// Live returns a channel with the published events of a session, until ctx ends. It is best effort: events may be
	// missing.
	Live(ctx context.Context, session string) <-chan Event
}
