package session

import (
	"context"
	"fmt"
	"iter"

	"github.com/kitbag-go/kitbag/agent/event"
)

// A Watcher is a [Store] that keeps the events of sessions, so that any process can
// follow a session wherever it runs.
type Watcher interface {
	// Watch yields the events of a session with numbers above after, in order, each
	// once, and when there are no more waits for those to come. Events come with
	// the record that makes them true, so what is yielded is what a restart would
	// find. A store says how long one may be under way.
	//
	// A session that does not exist is waited for. The sequence ends with an error:
	// that of ctx, [fs.ErrNotExist] if the session is deleted, or [ErrGone] if
	// events after that number are not kept any more. It may be ranged again.
	Watch(ctx context.Context, session string, after int64) iter.Seq2[Event, error]
}

// Watch yields the events of a session with numbers above after, as [Watcher.Watch] does:
// all but deltas, whichever process runs the session. A client that reconnects continues
// after the number of the last event it got ([event.Header.Seq], which is the
// Last-Event-ID of server-sent events). It fails if the store is not a [Watcher]. For the
// record of each event, which [Fork] takes, range over store.(session.Watcher).Watch.
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
