package pgsession

import (
	"context"
	"fmt"
	"io/fs"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/kitbag-go/kitbag/agent/session"
)

// maxEvents is the maximum number of events that one query reads.
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
	pos := &position{store: s, id: id, after: after}
	for {
		events, err := pos.next(ctx)
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

// A position is how far a watcher has read the events of a session.
type position struct {
	store *Store
	id    string
	num   int64 // 0 until the session exists
	after int64 // the number of the last event that was read
}

// next returns the next events, if there are any, and moves the position after them.
func (p *position) next(ctx context.Context) (events []session.Event, err error) {
	if err := p.store.usable(ctx, p.id); err != nil {
		return nil, err
	}
	var num, gone int64 // gone is the number of the last event that was removed, 0 if none was
	err = p.store.try(ctx, func(ctx context.Context, _ bool) error {
		num, gone, events = 0, 0, nil
		rows, err := p.store.pool.Query(ctx, `SELECT s.num, s.gone, e.seq, e.record, e.data FROM session s
			LEFT JOIN LATERAL (SELECT seq, record, `+selectData+` AS data FROM event t WHERE t.num = s.num AND seq > $2 ORDER BY seq LIMIT $3) e ON TRUE
			WHERE s.id = $1 AND s.updated IS NOT NULL ORDER BY e.seq`, p.id, p.after, maxEvents)
		if err != nil {
			return err
		}
		var seq, record *int64 // nil if there are no events
		var data []byte
		_, err = pgx.ForEachRow(rows, []any{&num, &gone, &seq, &record, &data}, func() error {
			if seq != nil {
				events = append(events, session.Event{Seq: *seq, Data: data, Record: *record})
			}
			return nil
		})
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case p.num != 0 && num != p.num:
		return nil, fmt.Errorf("the session was deleted: %w", fs.ErrNotExist)
	case max(p.after, 0) < gone:
		return nil, fmt.Errorf("events up to number %d were removed: %w", gone, session.ErrGone)
	}
	if p.num = num; len(events) > 0 {
		p.after = events[len(events)-1].Seq
	}
	return events, nil
}
