package pgsession

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kitbag-go/kitbag/agent/session"
)

// selectInfo selects sessions for scanInfo. A condition on the session s follows.
const selectInfo = `SELECT num, first, id, updated, seq, event, labels, inputs,
	CASE WHEN status = 'working' AND NOT ` + alive + ` THEN 'abandoned' ELSE status END FROM session s WHERE updated IS NOT NULL AND `

// List returns the sessions that q selects.
func (s *Store) List(ctx context.Context, q session.Query) (session.Page, error) {
	where, args, err := condition(q)
	if err := errors.Join(s.usable(ctx, anyID), err); err != nil {
		return session.Page{}, err
	}
	scan := func(row pgx.CollectableRow) (session.Info, error) {
		in, _, _, err := scanInfo(row)
		return in, err
	}
	// One session more than the page has tells q.Page that there is a next page.
	infos, err := queryAll(ctx, s, scan, fmt.Sprintf("%s%s ORDER BY updated DESC, id LIMIT %d", selectInfo, where, q.Size()+1), args...)
	if err != nil {
		return session.Page{}, fmt.Errorf("list sessions: %w", err)
	}
	return q.Page(infos)
}

// anyID is a valid id for usable and writable, in operations on several sessions.
const anyID = "any"

// condition returns the condition of q in SQL, and the arguments of its parameters $1, $2, ….
func condition(q session.Query) (cond string, args []any, err error) {
	conds := []string{"TRUE"}
	// add adds a condition with a value for each "?".
	add := func(cond string, values ...any) {
		for _, v := range values {
			args = append(args, v)
			cond = strings.Replace(cond, "?", fmt.Sprintf("$%d", len(args)), 1)
		}
		conds = append(conds, cond)
	}
	if q.ID != "" {
		add("id = ?", q.ID)
	}
	if len(q.Status) > 0 {
		stored, byClaim := []string{}, "" // StatusAbandoned is stored as StatusWorking, of a session whose claim has expired
		for _, st := range q.Status {
			switch st {
			case session.StatusWorking:
				byClaim += " OR status = 'working' AND " + alive
			case session.StatusAbandoned:
				byClaim += " OR status = 'working' AND NOT " + alive
			default:
				stored = append(stored, string(st))
			}
		}
		add("(status = ANY(?::text[])"+byClaim+")", stored)
	}
	if len(q.Labels) > 0 {
		add("labels @> ?::text[]", encodeLabels(q.Labels))
	}
	if !q.Since.IsZero() {
		add("updated >= ?", ceil(q.Since))
	}
	if !q.Before.IsZero() {
		add("updated < ?", ceil(q.Before))
	}
	if q.Inputs {
		add("inputs > 0")
	}
	updated, id, hasStart, err := q.Start()
	if hasStart { // in the order of List: updated earlier, or at the same time with a greater id
		add("updated <= ? AND (updated < ? OR id > ?)", updated, updated, id)
	}
	return strings.Join(conds, " AND "), args, err
}

// ceil rounds t up to microseconds, which is the precision of the database.
func ceil(t time.Time) time.Time { return t.Add(time.Microsecond - 1).Truncate(time.Microsecond) }

// scanInfo returns the Info of a session, its number and the first record that is kept.
func scanInfo(row pgx.Row) (in session.Info, num, first int64, err error) {
	var list []string
	if err := row.Scan(&num, &first, &in.ID, &in.Updated, &in.Seq, &in.Event, &list, &in.Inputs, &in.Status); err != nil {
		return in, 0, 0, err
	}
	in.Labels, err = parseLabels(list)
	return in, num, first, err
}

// Read returns the Info of a session, and the records that are needed to restore its State after record seq.
func (s *Store) Read(ctx context.Context, id string, seq int64) (in session.Info, recs []session.Record, err error) {
	if err := s.usable(ctx, id); err != nil {
		return session.Info{}, nil, err
	}
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
		return pgx.BeginTxFunc(ctx, s.pool, snapshot, func(tx pgx.Tx) error {
			in, recs, err = read(ctx, tx, id, seq)
			return err
		})
	})
	if err != nil {
		return session.Info{}, nil, fmt.Errorf("session %q: %w", id, err)
	}
	return in, recs, nil
}

func read(ctx context.Context, tx pgx.Tx, id string, seq int64) (session.Info, []session.Record, error) {
	in, num, first, err := scanInfo(tx.QueryRow(ctx, selectInfo+"id = $1", id))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return in, nil, fs.ErrNotExist
	case err != nil:
		return in, nil, err
	case seq < 0 || seq > in.Seq:
		return in, nil, fmt.Errorf("record %d: %w: the last is %d", seq, fs.ErrNotExist, in.Seq)
	case seq == 0:
		seq = in.Seq
	}
	recs, err := load(ctx, tx, num, seq)
	if err == nil && seq > 0 && (seq < first || len(recs) == 0) { // Prune has removed record seq, or the whole record that it needs
		err = fmt.Errorf("record %d: %w", seq, session.ErrGone)
	}
	return in, recs, err
}
