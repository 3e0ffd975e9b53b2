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
	pollEvery = 50 * time.Millisecond // for the records of other processes
	maxEvents = 256                   // that are read at once
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
			changed := s.changed.next() // before the query, so that nothing is missed
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
			if len(events) == maxEvents { // there may be more
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
	after int64
}

// next returns the next events, if there are any.
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
		err = fmt.Errorf("it was deleted: %w", fs.ErrNotExist)
	}
	return nil, err
}
