package session

import (
	"context"
	"iter"
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
