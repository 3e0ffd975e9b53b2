package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
)

// selectInfo selects the columns for [scanInfo]. Each subquery uses an index.
const selectInfo = `SELECT id, updated, labels, coalesce((SELECT max(seq) FROM record WHERE record.num = session.num), 0),
	coalesce((SELECT max(seq) FROM event WHERE event.num = session.num), 0),
	(SELECT count(*) FROM input WHERE input.num = session.num AND input.record = 0),
	status, expires FROM session WHERE `

// List implements [session.Store].
func (s *Store) List(ctx context.Context, q session.Query) (session.Page, error) {
	now := nowPlus(0)
	where, args, err := condition(q, now)
	if err != nil {
		return session.Page{}, err
	}
	var infos []session.Info
	rows, err := s.db.QueryContext(ctx, fmt.Sprintf("%s%s ORDER BY updated DESC, id LIMIT %d", selectInfo, where, q.Size()+1), args...)
	if err != nil {
		return session.Page{}, err
	}
	if err := forEach(rows, func() error {
		in, err := scanInfo(rows, now)
		infos = append(infos, in)
		return err
	}); err != nil {
		return session.Page{}, err
	}
	return q.Page(infos)
}

// condition returns the condition of q in SQL.
func condition(q session.Query, now int64) (string, []any, error) {
	conds, args := []string{"TRUE"}, []any(nil)
	add := func(cond string, values ...any) {
		conds, args = append(conds, cond), append(args, values...)
	}
	if q.ID != "" {
		add("id = ?", q.ID)
	}
	if len(q.Status) > 0 {
		var choices []string
		for _, st := range q.Status {
			switch st {
			case session.StatusWorking:
				choices, args = append(choices, "status = 'working' AND expires >= ?"), append(args, now)
			case session.StatusAbandoned:
				choices, args = append(choices, "status = 'working' AND expires < ?"), append(args, now)
			default:
				choices, args = append(choices, "status = ?"), append(args, string(st))
			}
		}
		conds = append(conds, "("+strings.Join(choices, " OR ")+")")
	}
	for _, k := range slices.Sorted(maps.Keys(q.Labels)) {
		add("num IN (SELECT num FROM label WHERE key = ? AND value = ?)", k, q.Labels[k])
	}
	if !q.Since.IsZero() {
		add("updated >= ?", ceil(q.Since))
	}
	if !q.Before.IsZero() {
		add("updated < ?", ceil(q.Before))
	}
	if q.Inputs {
		add("EXISTS (SELECT 1 FROM input WHERE input.num = session.num AND input.record = 0)")
	}
	updated, id, isLater, err := q.Start()
	if isLater {
		add("(updated < ? OR updated = ? AND id > ?)", updated.UnixMicro(), updated.UnixMicro(), id)
	}
	return strings.Join(conds, " AND "), args, err
}

// ceil returns the first microsecond that is not before t.
func ceil(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }

func scanInfo(row interface{ Scan(...any) error }, now int64) (in session.Info, err error) {
	var updated, expires int64
	var labels []byte
	if err := row.Scan(&in.ID, &updated, &labels, &in.Seq, &in.Event, &in.Inputs, &in.Status, &expires); err != nil {
		return in, err
	}
	in.Updated = time.UnixMicro(updated)
	if in.Status == session.StatusWorking && expires < now {
		in.Status = session.StatusAbandoned
	}
	return in, json.Unmarshal(labels, &in.Labels)
}

// Read implements [session.Reader].
func (s *Store) Read(ctx context.Context, id string, seq int64) (in session.Info, recs []session.Record, err error) {
	if err := errors.Join(ctx.Err(), session.CheckID(id)); err != nil {
		return session.Info{}, nil, err
	}
	err = s.read(ctx, func(tx *sql.Tx) error {
		num, err := numberOf(ctx, tx, id)
		if err != nil {
			return err
		}
		if num == 0 {
			return fs.ErrNotExist
		}
		if in, err = scanInfo(tx.QueryRowContext(ctx, selectInfo+"num = ?", num), nowPlus(0)); err != nil {
			return err
		}
		if seq < 0 || seq > in.Seq {
			return fmt.Errorf("record %d: %w: the last is %d", seq, fs.ErrNotExist, in.Seq)
		}
		if seq == 0 {
			seq = in.Seq
		}
		recs, err = load(ctx, tx, num, seq)
		if err == nil && len(recs) == 0 && seq > 0 { // an older version of this package has deleted the record
			err = fmt.Errorf("record %d: %w", seq, session.ErrGone)
		}
		return err
	})
	if err != nil {
		return session.Info{}, nil, fmt.Errorf("session %q: %w", id, err)
	}
	return in, recs, nil
}
