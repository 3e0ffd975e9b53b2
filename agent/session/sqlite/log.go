package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
)

// A store claims its open sessions while a run is in progress, so that others can see whether the run was
// abandoned. A claim does not prevent others from writing.
const (
	claimTerm  = 30 * time.Second
	renewEvery = claimTerm / 3
)

// Open opens a session. It never returns [session.ErrConflict]: a second writer is refused when it appends.
func (s *Store) Open(ctx context.Context, id string) (session.Log, error) {
	if err := errors.Join(ctx.Err(), session.CheckID(id)); err != nil {
		return nil, err
	}
	num, err := numberOf(ctx, s.db, id)
	if err == nil {
		err = s.claim(ctx, num)
	}
	if err != nil {
		return nil, fmt.Errorf("open session %q: %w", id, err)
	}
	l := &log{store: s, id: id, num: num}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("open session %q: the store is closed: %w", id, fs.ErrClosed)
	}
	if len(s.open) == 0 {
		s.startRenewing()
	}
	s.open[l] = num
	return l, nil
}

// claim claims working sessions, unless another store has a claim.
func (s *Store) claim(ctx context.Context, nums ...int64) error {
	list, err := json.Marshal(nums)
	if err != nil {
		return err
	}
	const claimable = "num IN (SELECT value FROM json_each(?)) AND status = 'working' AND (holder = ? OR expires < ?)"
	var needed bool // rarely, when a session is opened; reading is cheaper than writing
	if err := s.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM session WHERE "+claimable+")", string(list), s.holder, nowPlus(0)).Scan(&needed); err != nil || !needed {
		return err
	}
	_, err = s.db.ExecContext(ctx, "UPDATE session SET holder = ?, expires = ? WHERE "+claimable, s.holder, nowPlus(claimTerm), string(list), s.holder, nowPlus(0))
	return err
}

// startRenewing renews the claims as long as a log is open. mu is held.
func (s *Store) startRenewing() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	s.stopRenewing = func() {
		cancel()
		<-ended
	}
	go func() {
		defer close(ended)
		ticker := time.NewTicker(renewEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				s.mu.Lock()
				nums := slices.Collect(maps.Values(s.open))
				s.mu.Unlock()
				_ = s.claim(ctx, nums...) // on failure the next tick or Append claims again
			case <-ctx.Done():
				return
			}
		}
	}()
}

// nowPlus returns the time d from now in the unit of the tables, microseconds.
func nowPlus(d time.Duration) int64 { return time.Now().Add(d).UnixMicro() }

// log is an open session.
type log struct {
	store  *Store
	id     string
	num    int64 // 0 for a session that does not exist yet
	closed bool
}

func (l *log) usable(ctx context.Context) error {
	if l.closed {
		return fmt.Errorf("session %q: %w", l.id, fs.ErrClosed)
	}
	return ctx.Err()
}

func (l *log) Load(ctx context.Context) (recs []session.Record, err error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	err = l.store.read(ctx, func(tx *sql.Tx) error {
		recs, err = load(ctx, tx, l.num, 1<<62)
		return err
	})
	return recs, err
}

// load returns the last whole record up to a number, and those after it.
func load(ctx context.Context, tx *sql.Tx, num, seq int64) (recs []session.Record, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT seq, whole, data, meta FROM record
		WHERE num = ?1 AND seq <= ?2 AND seq >= (SELECT max(seq) FROM record WHERE num = ?1 AND seq <= ?2 AND whole) ORDER BY seq`, num, seq)
	if err != nil {
		return nil, err
	}
	err = forEach(rows, func() error {
		var rec session.Record
		var meta []byte
		if err := rows.Scan(&rec.Seq, &rec.Whole, (*[]byte)(&rec.Data), &meta); err != nil {
			return err
		}
		if err := json.Unmarshal(meta, &rec); err != nil {
			return fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		recs = append(recs, rec)
		return nil
	})
	return recs, err
}

func (l *log) Append(ctx context.Context, rec session.Record) error {
	if err := l.usable(ctx); err != nil {
		return err
	}
	num := l.num
	err := l.store.tx(ctx, func(tx *sql.Tx) (err error) {
		if num, err = l.checkedNumber(ctx, tx, rec); err != nil {
			return err
		}
		return l.insert(ctx, tx, num, rec)
	})
	if err != nil {
		return fmt.Errorf("session %q: record %d: %w", l.id, rec.Seq, err)
	}
	if l.num != num {
		l.num = num
		l.store.mu.Lock()
		l.store.open[l] = num
		l.store.mu.Unlock()
	}
	l.store.changed.wake()
	return nil
}

// checkedNumber returns the number of the session after checking that rec may be its next record. A session that does
// not exist is created.
func (l *log) checkedNumber(ctx context.Context, tx *sql.Tx, rec session.Record) (int64, error) {
	in := session.Info{ID: l.id}
	num, err := numberOf(ctx, tx, l.id)
	if err != nil {
		return 0, err
	}
	row := tx.QueryRowContext(ctx, `SELECT coalesce((SELECT max(seq) FROM record WHERE num = ?1), 0),
		coalesce((SELECT max(seq) FROM event WHERE num = ?1), 0)`, num)
	if err := row.Scan(&in.Seq, &in.Event); err != nil {
		return 0, err
	}
	// A session that did not exist when it was opened may have received inputs since.
	if num != l.num && !(l.num == 0 && in.Seq == 0) {
		return 0, fmt.Errorf("%w: it was deleted in the meantime; open the session again", session.ErrConflict)
	}
	if err := session.CheckRecord(rec, in); err != nil || num != 0 {
		return num, err
	}
	return create(ctx, tx, l.id)
}

func create(ctx context.Context, tx *sql.Tx, id string) (int64, error) {
	res, err := tx.ExecContext(ctx, "INSERT INTO session (id, updated) VALUES (?, ?)", id, nowPlus(0))
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

// insert stores the contents of a record.
func (l *log) insert(ctx context.Context, tx *sql.Tx, num int64, rec session.Record) error {
	var data bytes.Buffer
	if err := json.Compact(&data, rec.Data); err != nil {
		return err
	}
	// The members that have no column.
	meta, err := json.Marshal(session.Record{Status: rec.Status, Labels: rec.Labels, Consumed: rec.Consumed})
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO record (num, seq, whole, data, meta) VALUES (?, ?, ?, ?, ?)",
		num, rec.Seq, rec.Whole, data.Bytes(), string(meta))
	if err != nil {
		return err
	}
	if err := insertEvents(ctx, tx, num, rec); err != nil {
		return err
	}
	for _, in := range rec.Consumed {
		res, err := tx.ExecContext(ctx, "UPDATE input SET record = ?, refused = ? WHERE num = ? AND id = ? AND record = 0", rec.Seq, in.Refused, num, in.ID)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return errors.Join(fmt.Errorf("it consumes the input %q, which is not waiting", in.ID), err)
		}
	}
	return l.update(ctx, tx, num, rec)
}

func insertEvents(ctx context.Context, tx *sql.Tx, num int64, rec session.Record) error {
	var data bytes.Buffer
	for _, ev := range rec.Events {
		data.Reset()
		if err := json.Compact(&data, ev.Data); err != nil {
			return fmt.Errorf("event %d: %w", ev.Seq, err)
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO event (num, seq, record, data) VALUES (?, ?, ?, ?)", num, ev.Seq, rec.Seq, data.Bytes())
		if err != nil {
			return err
		}
	}
	return nil
}

// update stores the Info of the session.
func (l *log) update(ctx context.Context, tx *sql.Tx, num int64, rec session.Record) error {
	labels := []byte("{}")
	if len(rec.Labels) > 0 {
		var err error
		if labels, err = json.Marshal(rec.Labels); err != nil {
			return err
		}
	}
	var old string
	if err := tx.QueryRowContext(ctx, "SELECT labels FROM session WHERE num = ?", num).Scan(&old); err != nil {
		return err
	}
	if old != string(labels) {
		if _, err := tx.ExecContext(ctx, "DELETE FROM label WHERE num = ?", num); err != nil {
			return err
		}
		for k, v := range rec.Labels {
			if _, err := tx.ExecContext(ctx, "INSERT INTO label (num, key, value) VALUES (?, ?, ?)", num, k, v); err != nil {
				return err
			}
		}
	}
	var expires int64
	if rec.Status == session.StatusWorking {
		expires = nowPlus(claimTerm)
	}
	_, err := tx.ExecContext(ctx, "UPDATE session SET updated = ?, status = ?, labels = ?, holder = ?, expires = ? WHERE num = ?",
		nowPlus(0), rec.Status, string(labels), l.store.holder, expires, num)
	return err
}

// Close gives up the claim, if no other log of this store has the session open.
func (l *log) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	s := l.store
	s.mu.Lock()
	delete(s.open, l)
	stop := func() {}
	if len(s.open) == 0 && !s.closed {
		stop = s.stopRenewing
	}
	giveUp := !s.closed && l.num != 0 && !slices.Contains(slices.Collect(maps.Values(s.open)), l.num)
	s.mu.Unlock()
	stop()
	if !giveUp {
		return nil
	}
	_, err := s.db.Exec("UPDATE session SET expires = 0 WHERE num = ? AND holder = ? AND expires <> 0", l.num, s.holder)
	return err
}
