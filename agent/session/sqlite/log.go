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
	"math"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
)

// A store claims its open sessions while a run is in progress, so that other stores see whether the run
// was abandoned. A claim does not prevent them from writing.
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
	if len(s.openLogs) == 0 {
		s.startRenewing()
	}
	s.openLogs[l] = num
	return l, nil
}

// claim claims those of the sessions that are working and not claimed by another store, and renews this store's claims.
func (s *Store) claim(ctx context.Context, nums ...int64) error {
	list, err := json.Marshal(nums)
	if err != nil {
		return err
	}
	const claimable = "num IN (SELECT value FROM json_each(?)) AND status = 'working' AND (holder = ? OR expires < ?)"
	var canClaim bool // rarely when a session is opened; a query is cheaper than an update that changes nothing
	if err := s.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM session WHERE "+claimable+")", string(list), s.holder, time.Now().UnixMicro()).Scan(&canClaim); err != nil || !canClaim {
		return err
	}
	_, err = s.db.ExecContext(ctx, "UPDATE session SET holder = ?, expires = ? WHERE "+claimable, s.holder, time.Now().Add(claimTerm).UnixMicro(), string(list), s.holder, time.Now().UnixMicro())
	return err
}

// startRenewing renews the claims as long as a log is open. The caller holds mu.
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
				nums := slices.Collect(maps.Values(s.openLogs))
				s.mu.Unlock()
				_ = s.claim(ctx, nums...) // on failure the next tick or Append claims again
			case <-ctx.Done():
				return
			}
		}
	}()
}

// log is an open session.
type log struct {
	store  *Store
	id     string
	num    int64 // 0 for a session that does not exist yet
	closed bool
}

func (l *log) checkOpen(ctx context.Context) error {
	if l.closed {
		return fmt.Errorf("session %q: %w", l.id, fs.ErrClosed)
	}
	return ctx.Err()
}

func (l *log) Load(ctx context.Context) (recs []session.Record, err error) {
	if err := l.checkOpen(ctx); err != nil {
		return nil, err
	}
	err = l.store.read(ctx, func(tx *sql.Tx) error {
		recs, err = load(ctx, tx, l.num, math.MaxInt64)
		return err
	})
	return recs, err
}

// load returns the records up to number seq, beginning with the last whole one among them.
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
	if err := l.checkOpen(ctx); err != nil {
		return err
	}
	num := l.num
	err := l.store.write(ctx, func(tx *sql.Tx) (err error) {
		if num, err = l.findOrCreate(ctx, tx, rec); err != nil {
			return err
		}
		return l.insertRecord(ctx, tx, num, rec)
	})
	if err != nil {
		return fmt.Errorf("session %q: record %d: %w", l.id, rec.Seq, err)
	}
	if l.num != num {
		l.num = num
		l.store.mu.Lock()
		l.store.openLogs[l] = num
		l.store.mu.Unlock()
	}
	l.store.changed.wake()
	return nil
}

// findOrCreate returns the number of the session, which it creates if necessary, after checking that rec may be the next
// record.
func (l *log) findOrCreate(ctx context.Context, tx *sql.Tx, rec session.Record) (int64, error) {
	info := session.Info{ID: l.id}
	num, err := numberOf(ctx, tx, l.id)
	if err != nil {
		return 0, err
	}
	row := tx.QueryRowContext(ctx, `SELECT coalesce((SELECT max(seq) FROM record WHERE num = ?1), 0),
		coalesce((SELECT max(seq) FROM event WHERE num = ?1), 0)`, num)
	if err := row.Scan(&info.Seq, &info.Event); err != nil {
		return 0, err
	}
	if l.num != 0 && num != l.num {
		return 0, fmt.Errorf("%w: the session was deleted in the meantime; open it again", session.ErrConflict)
	}
	if err := session.CheckRecord(rec, info); err != nil || num != 0 {
		return num, err
	}
	return create(ctx, tx, l.id)
}

func create(ctx context.Context, tx *sql.Tx, id string) (int64, error) {
	res, err := tx.ExecContext(ctx, "INSERT INTO session (id, updated) VALUES (?, ?)", id, time.Now().UnixMicro())
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

// insertRecord stores the record, and what the record changes in other tables.
func (l *log) insertRecord(ctx context.Context, tx *sql.Tx, num int64, rec session.Record) error {
	var data bytes.Buffer
	if err := json.Compact(&data, rec.Data); err != nil {
		return err
	}
	// The members of the record that have no column of their own.
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
			return errors.Join(fmt.Errorf("the record consumes the input %q, which is not waiting", in.ID), err)
		}
	}
	return l.updateInfo(ctx, tx, num, rec)
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

// updateInfo updates what List returns about the session.
func (l *log) updateInfo(ctx context.Context, tx *sql.Tx, num int64, rec session.Record) error {
	labels := []byte("{}")
	if len(rec.Labels) > 0 {
		var err error
		if labels, err = json.Marshal(rec.Labels); err != nil {
			return err
		}
	}
	var oldLabels string
	if err := tx.QueryRowContext(ctx, "SELECT labels FROM session WHERE num = ?", num).Scan(&oldLabels); err != nil {
		return err
	}
	if oldLabels != string(labels) {
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
		expires = time.Now().Add(claimTerm).UnixMicro()
	}
	_, err := tx.ExecContext(ctx, "UPDATE session SET updated = ?, status = ?, labels = ?, holder = ?, expires = ? WHERE num = ?",
		time.Now().UnixMicro(), rec.Status, string(labels), l.store.holder, expires, num)
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
	delete(s.openLogs, l)
	stop := func() {}
	if len(s.openLogs) == 0 && !s.closed {
		stop = s.stopRenewing
	}
	giveUp := !s.closed && l.num != 0 && !slices.Contains(slices.Collect(maps.Values(s.openLogs)), l.num)
	s.mu.Unlock()
	stop()
	if !giveUp {
		return nil
	}
	_, err := s.db.Exec("UPDATE session SET expires = 0 WHERE num = ? AND holder = ? AND expires <> 0", l.num, s.holder)
	return err
}
