package sqlite

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
)

const (
	pollEvery = 50 * time.Millisecond // the interval of queries for events of other processes
	maxEvents = 256                   // per query
)

// Watch yields the events of a session.
func (s *Store) Watch(ctx context.Context, id string, after int64) iter.Seq2[session.Event, error] {
	return func(yield func(session.Event, error) bool) {
		if err := session.CheckID(id); err != nil {
			yield(session.Event{}, err)
			return
		}
		ticker := time.NewTicker(pollEvery)
		defer ticker.Stop()
		w := &watch{store: s, id: id, after: after}
		for {
			changed := s.changed.next() // before the query, so that no event is missed
			events, err := w.next(ctx)
			if err != nil {
				if ctx.Err() != nil {
					err = context.Cause(ctx)
				}
				yield(session.Event{}, fmt.Errorf("watch session %q: %w", id, err))
				return
			}
			for _, ev := range events {
				if !yield(ev, nil) {
					return
				}
			}
			if len(events) == maxEvents { // more may be stored
				continue
			}
			select {
			case <-changed:
			case <-ticker.C:
			case <-ctx.Done():
				yield(session.Event{}, fmt.Errorf("watch session %q: %w", id, context.Cause(ctx)))
				return
			}
		}
	}
}

// A watch is the position of a watcher.
type watch struct {
	store *Store
	id    string
	num   int64 // 0 until the session exists
	after int64 // the number of the last event that was read
}

// next returns the stored events after the position, at most maxEvents, and advances the position.
func (w *watch) next(ctx context.Context) (events []session.Event, err error) {
	if w.num == 0 {
		if w.num, err = numberOf(ctx, w.store.db, w.id); err != nil || w.num == 0 {
			return nil, err
		}
	}
	rows, err := w.store.db.QueryContext(ctx, "SELECT seq, record, data FROM event WHERE num = ? AND seq > ? ORDER BY seq LIMIT ?", w.num, w.after, maxEvents)
	if err != nil {
		return nil, err
	}
	err = forEach(rows, func() error {
		var ev session.Event
		var data []byte
		err := rows.Scan(&ev.Seq, &ev.Record, &data)
		ev.Data = data
		events = append(events, ev)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(events) > 0 {
		w.after = events[len(events)-1].Seq
		return events, nil
	}
	num, err := numberOf(ctx, w.store.db, w.id)
	if err == nil && num != w.num {
		err = fmt.Errorf("the session was deleted: %w", fs.ErrNotExist)
	}
	return nil, err
}
