package postgres

import (
	"context"
	"fmt"
	"io/fs"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/kitbag-go/kitbag/agent/session"
)

// maxEvents is how many events are read at once.
const maxEvents = 64

// Watch yields the events of a session.
func (s *Store) Watch(ctx context.Context, id string, after int64) iter.Seq2[session.Event, error] {
	return func(yield func(session.Event, error) bool) {
		if err := s.watch(ctx, id, after, func(ev session.Event) bool { return yield(ev, nil) }); err != nil {
			yield(session.Event{}, fmt.Errorf("watch session %q: %w", id, err))
		}
	}
}

// watch returns nil if the consumer has stopped.
func (s *Store) watch(ctx context.Context, id string, after int64, yield func(session.Event) bool) error {
	if err := session.CheckID(id); err != nil {
		return err
	}
	changed, unsubscribe := s.hub.subscribe(id, onRecord)
	defer unsubscribe()
	w := &watch{store: s, id: id, after: after}
	for {
		events, err := w.next(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		for _, ev := range events {
			if !yield(ev) {
				return nil
			}
		}
		if len(events) == maxEvents { // there may be more
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
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
	if err := w.store.usable(ctx, w.id); err != nil {
		return nil, err
	}
	var num, gone int64
	err = w.store.try(ctx, func(ctx context.Context, _ bool) error {
		num, gone, events = 0, 0, nil
		rows, err := w.store.pool.Query(ctx, `SELECT s.num, s.gone, e.seq, e.record, e.data FROM session s
			LEFT JOIN LATERAL (SELECT seq, record, `+selectData+` AS data FROM event t WHERE t.num = s.num AND seq > $2 ORDER BY seq LIMIT $3) e ON TRUE
			WHERE s.id = $1 AND s.updated IS NOT NULL ORDER BY e.seq`, w.id, w.after, maxEvents)
		if err != nil {
			return err
		}
		var seq, record *int64 // nil if there are no events
		var data []byte
		_, err = pgx.ForEachRow(rows, []any{&num, &gone, &seq, &record, &data}, func() error {
			if seq != nil {
				events = append(events, session.Event{Seq: *seq, Data: data, Record: *record})
			}
			data = nil
			return nil
		})
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case w.num != 0 && num != w.num:
		return nil, fmt.Errorf("it was deleted: %w", fs.ErrNotExist)
	case max(w.after, 0) < gone:
		return nil, fmt.Errorf("events up to number %d were removed: %w", gone, session.ErrGone)
	}
	if w.num = num; len(events) > 0 {
		w.after = events[len(events)-1].Seq
	}
	return events, nil
}
