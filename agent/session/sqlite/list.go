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
	now := time.Now().UnixMicro()
	where, args, err := whereClause(q, now)
	if err != nil {
		return session.Page{}, err
	}
	var infos []session.Info // one more than the page has, so that q.Page sees whether another page follows
	rows, err := s.db.QueryContext(ctx, fmt.Sprintf("%s%s ORDER BY updated DESC, id LIMIT %d", selectInfo, where, q.Size()+1), args...)
	if err != nil {
		return session.Page{}, err
	}
	if err := forEach(rows, func() error {
		info, err := scanInfo(rows, now)
		infos = append(infos, info)
		return err
	}); err != nil {
		return session.Page{}, err
	}
	return q.Page(infos)
}

// whereClause returns the SQL condition that q selects by, and its arguments.
func whereClause(q session.Query, now int64) (string, []any, error) {
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
		add("updated >= ?", ceilMicro(q.Since))
	}
	if !q.Before.IsZero() {
		add("updated < ?", ceilMicro(q.Before))
	}
	if q.Inputs {
		add("EXISTS (SELECT 1 FROM input WHERE input.num = session.num AND input.record = 0)")
	}
	updated, id, hasCursor, err := q.Start()
	if hasCursor {
		add("(updated < ? OR updated = ? AND id > ?)", updated.UnixMicro(), updated.UnixMicro(), id)
	}
	return strings.Join(conds, " AND "), args, err
}

// ceilMicro rounds t up to microseconds, the unit of the tables.
func ceilMicro(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }

func scanInfo(row interface{ Scan(...any) error }, now int64) (info session.Info, err error) {
	var updated, expires int64
	var labels []byte
	if err := row.Scan(&info.ID, &updated, &labels, &info.Seq, &info.Event, &info.Inputs, &info.Status, &expires); err != nil {
		return info, err
	}
	info.Updated = time.UnixMicro(updated)
	if info.Status == session.StatusWorking && expires < now {
		info.Status = session.StatusAbandoned
	}
	err = json.Unmarshal(labels, &info.Labels)
	return info, err
}

// Read implements [session.Reader].
func (s *Store) Read(ctx context.Context, id string, seq int64) (info session.Info, recs []session.Record, err error) {
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
		if info, err = scanInfo(tx.QueryRowContext(ctx, selectInfo+"num = ?", num), time.Now().UnixMicro()); err != nil {
			return err
		}
		if seq < 0 || seq > info.Seq {
			return fmt.Errorf("record %d: %w: the last is %d", seq, fs.ErrNotExist, info.Seq)
		}
		if seq == 0 {
			seq = info.Seq
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
	return info, recs, nil
}
