package pgsession

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kitbag-go/kitbag/agent/session"
)

const (
	maxRemoved  = 500  // rows that one statement removes
	maxSelected = 1000 // sessions that one statement selects
)

// Delete removes a session. If a writer has it open, the error is [session.ErrConflict].
func (s *Store) Delete(ctx context.Context, id string) error {
	if err := s.writable(ctx, id); err != nil {
		return err
	}
	var num int64
	err := s.try(ctx, func(ctx context.Context, again bool) error {
		err := s.unlink(ctx, id, "updated IS NOT NULL", &num)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		var open bool
		err = s.pool.QueryRow(ctx, "SELECT "+alive+" FROM session s WHERE id = $1 AND updated IS NOT NULL", id).Scan(&open)
		switch {
		case errors.Is(err, pgx.ErrNoRows) && again: // the previous attempt has unlinked it; Prune removes its rows
			return nil
		case errors.Is(err, pgx.ErrNoRows):
			return fs.ErrNotExist
		case err == nil:
			return session.ErrConflict
		}
		return err
	})
	if err == nil {
		s.hub.noteChange(id, onRecord)
		err = s.purge(ctx, num)
	}
	if err != nil {
		return fmt.Errorf("delete session %q: %w", id, err)
	}
	return nil
}

// unlink deletes a session by setting its id to NULL, and stores its number in num, for purge, which removes its rows.
// The error is [pgx.ErrNoRows] if the session is open or cond is false; $2 in cond is the first of args. As for a claim,
// the row is locked before it is checked.
func (s *Store) unlink(ctx context.Context, id, cond string, num *int64, args ...any) error {
	b := &pgx.Batch{}
	b.Queue("SELECT FROM session WHERE id = $1 FOR UPDATE", id)
	b.Queue("UPDATE session s SET id = NULL, updated = NULL, inputs = 0, holder = NULL, token = NULL WHERE id = $1 AND NOT "+alive+" AND "+cond+" RETURNING num",
		append([]any{id}, args...)...)
	return s.batch(ctx, b, func(row pgx.Row) error { return row.Scan(num) })
}

// purge removes the rows of a session that was unlinked.
func (s *Store) purge(ctx context.Context, num int64) error {
	for _, table := range []struct{ name, key string }{{"record", "seq"}, {"event", "seq"}, {"input", "n"}} {
		remove := fmt.Sprintf(`WITH gone AS (
			DELETE FROM %[1]s WHERE num = $1 AND %[2]s IN (SELECT %[2]s FROM %[1]s WHERE num = $1 LIMIT %[3]d) RETURNING ref
		), payloads AS (DELETE FROM payload WHERE ref IN (SELECT ref FROM gone))
		SELECT count(*) FROM gone`, table.name, table.key, maxRemoved)
		for n := maxRemoved; n == maxRemoved; { // until a statement has removed fewer rows
			err := s.try(ctx, func(ctx context.Context, _ bool) error {
				return s.pool.QueryRow(ctx, remove, num).Scan(&n)
			})
			if err != nil {
				return err
			}
		}
	}
	return s.try(ctx, func(ctx context.Context, _ bool) error {
		_, err := s.pool.Exec(ctx, "DELETE FROM session WHERE num = $1 AND id IS NULL", num)
		return err
	})
}

// Retention configures [Store.Prune].
type Retention struct {
	// Sessions is how long sessions without waiting inputs are kept after their last record; 0 keeps all.
	Sessions time.Duration

	// History is how long records and events are kept that are not needed to load a session, because a whole record
	// follows them; 0 keeps all. Read and Watch return [session.ErrGone] for those that were removed.
	History time.Duration
}

// Pruned is the number of sessions that [Store.Prune] has removed, and of records of other sessions.
type Pruned struct {
	Sessions, Records int
}

// Prune removes sessions and records that are older than r permits, and data that killed processes have left
// behind. Sessions that are open are not deleted. Call it from time to time, in any process: its transactions are
// short, and others can work meanwhile.
func (s *Store) Prune(ctx context.Context, r Retention) (Pruned, error) {
	var pruned Pruned
	if err := s.writable(ctx, anyID); err != nil {
		return pruned, err
	}
	if r.Sessions < 0 || r.History < 0 {
		return pruned, fmt.Errorf("prune sessions: %+v: durations must not be negative; 0 keeps everything", r)
	}
	err := s.pruneSessions(ctx, r.Sessions, &pruned)
	if err == nil && r.History > 0 {
		err = s.pruneHistory(ctx, r.History, &pruned)
	}
	if err != nil {
		return pruned, fmt.Errorf("prune sessions: %w", err)
	}
	return pruned, nil
}

func (s *Store) pruneSessions(ctx context.Context, age time.Duration, pruned *Pruned) error {
	if age > 0 {
		n, err := s.unlinkAll(ctx, "updated < clock_timestamp() - $2::interval AND inputs = 0", age)
		if pruned.Sessions += n; err != nil {
			return err
		}
	}
	// Sessions of processes that died before they stored a record.
	if _, err := s.unlinkAll(ctx, "updated IS NULL"); err != nil {
		return err
	}
	unlinked, err := queryAll(ctx, s, pgx.RowTo[int64], "SELECT num FROM session WHERE updated IS NULL AND id IS NULL")
	if err != nil {
		return err
	}
	for _, num := range unlinked {
		if err := s.purge(ctx, num); err != nil {
			return err
		}
	}
	return s.try(ctx, func(ctx context.Context, _ bool) error {
		// A store that has not renewed its claims for a day does not exist any more.
		_, err := s.pool.Exec(ctx, "DELETE FROM holder WHERE expires < clock_timestamp() - interval '1 day'")
		return err
	})
}

// unlinkAll unlinks the sessions that are not open and satisfy cond, with args as in unlink, and returns their number.
func (s *Store) unlinkAll(ctx context.Context, cond string, args ...any) (n int, err error) {
	query := fmt.Sprintf("SELECT id FROM session s WHERE id > $1 AND %s AND NOT %s ORDER BY id LIMIT %d", cond, alive, maxSelected)
	for after := ""; ; {
		ids, err := queryAll(ctx, s, pgx.RowTo[string], query, append([]any{after}, args...)...)
		if err != nil {
			return n, err
		}
		for _, id := range ids {
			var num int64
			err := s.try(ctx, func(ctx context.Context, _ bool) error {
				return s.unlink(ctx, id, cond, &num, args...)
			})
			switch {
			case errors.Is(err, pgx.ErrNoRows): // the session was opened or stored meanwhile
				continue
			case err != nil:
				return n, err
			}
			s.hub.noteChange(id, onRecord)
			n++
		}
		if len(ids) < maxSelected {
			return n, nil
		}
		after = ids[len(ids)-1]
	}
}

// pruneHistory removes the records before the last whole one that is older than age: a load does not need them.
func (s *Store) pruneHistory(ctx context.Context, age time.Duration, pruned *Pruned) error {
	type history struct{ num, first, whole int64 } // the records of a session from first up to, but not including, whole
	scan := func(row pgx.CollectableRow) (h history, err error) {
		return h, row.Scan(&h.num, &h.first, &h.whole)
	}
	for after := int64(0); ; {
		list, err := queryAll(ctx, s, scan, `SELECT num, first, coalesce((SELECT seq FROM record r WHERE r.num = s.num AND r.whole AND r.at < clock_timestamp() - $2::interval
			ORDER BY seq DESC LIMIT 1), 0) FROM session s WHERE num > $1 AND first < whole AND updated IS NOT NULL ORDER BY num LIMIT $3`, after, age, maxSelected)
		if err != nil {
			return err
		}
		for _, h := range list {
			for first := h.first; first < h.whole; {
				next := min(first+maxRemoved, h.whole)
				n, err := s.removeRecords(ctx, h.num, first, next)
				if err != nil {
					return err
				}
				pruned.Records += n
				first = next
			}
			after = h.num
		}
		if len(list) < maxSelected {
			return nil
		}
	}
}

// removeRecords removes the records from first up to, but not including, next, with their events, and returns their
// number: 0 if another process has removed them.
func (s *Store) removeRecords(ctx context.Context, num, first, next int64) (n int, err error) {
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		return s.pool.QueryRow(ctx, `WITH last AS (SELECT event FROM record WHERE num = $1 AND seq = $3 - 1
		), cut AS (
			UPDATE session SET first = $3, gone = (SELECT event FROM last) WHERE num = $1 AND first = $2 RETURNING num
		), records AS (
			DELETE FROM record WHERE num = (SELECT num FROM cut) AND seq < $3 RETURNING ref
		), events AS (
			DELETE FROM event WHERE num = (SELECT num FROM cut) AND seq <= (SELECT event FROM last) RETURNING ref
		), payloads AS (
			DELETE FROM payload WHERE ref IN (SELECT ref FROM records UNION ALL SELECT ref FROM events)
		)
		SELECT count(*) FROM records`, num, first, next).Scan(&n)
	})
	return n, err
}

// queryAll returns the rows of a query, each as scan returns it.
func queryAll[T any](ctx context.Context, s *Store, scan pgx.RowToFunc[T], sql string, args ...any) (list []T, err error) {
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		rows, err := s.pool.Query(ctx, sql, args...)
		if err == nil {
			list, err = pgx.CollectRows(rows, scan)
		}
		return err
	})
	return list, err
}
