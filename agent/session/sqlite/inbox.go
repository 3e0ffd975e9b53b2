package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
)

// Send sends an input to a session.
func (s *Store) Send(ctx context.Context, id string, in session.Entry) (accepted bool, err error) {
	if err := errors.Join(ctx.Err(), session.CheckID(id)); err != nil {
		return false, err
	}
	err = s.write(ctx, func(tx *sql.Tx) error {
		num, err := numberOf(ctx, tx, id)
		if err != nil {
			return err
		}
		var known bool
		var waiting, lastN int // lastN is the number of the last input
		row := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM input WHERE num = ?1 AND id = ?2),
			(SELECT count(*) FROM input WHERE num = ?1 AND record = 0), coalesce((SELECT max(n) FROM input WHERE num = ?1), 0)`, num, in.ID)
		if err := row.Scan(&known, &waiting, &lastN); err != nil || known {
			return err
		}
		if err := in.Check(waiting); err != nil {
			return err
		}
		var data bytes.Buffer
		_ = json.Compact(&data, in.Data) // Check has validated it
		if num == 0 {                    // the session does not exist
			if num, err = create(ctx, tx, id); err != nil {
				return err
			}
		}
		accepted = true
		_, err = tx.ExecContext(ctx, "INSERT INTO input (num, n, id, data, sent) VALUES (?, ?, ?, ?, ?)", num, lastN+1, in.ID, data.Bytes(), time.Now().UnixMicro())
		return err
	})
	if err != nil {
		return false, fmt.Errorf("session %q: %w", id, err)
	}
	return accepted, nil
}

// selectInput selects inputs of a session for scanInput. A further condition follows.
const selectInput = "SELECT id, data, sent, record, refused FROM input WHERE num = (SELECT num FROM session WHERE id = ?)"

func scanInput(row interface{ Scan(...any) error }) (e session.Entry, err error) {
	var sent int64
	var data []byte
	err = row.Scan(&e.ID, &data, &sent, &e.Record, &e.Refused)
	e.Data, e.Sent = data, time.UnixMicro(sent)
	return e, err
}

// Inputs returns the inputs that wait.
func (s *Store) Inputs(ctx context.Context, id string) (entries []session.Entry, err error) {
	if err := errors.Join(ctx.Err(), session.CheckID(id)); err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, selectInput+" AND record = 0 ORDER BY n", id)
	if err != nil {
		return nil, err
	}
	err = forEach(rows, func() error {
		e, err := scanInput(rows)
		entries = append(entries, e)
		return err
	})
	return entries, err
}

// Input returns one input.
func (s *Store) Input(ctx context.Context, id, input string) (session.Entry, error) {
	if err := errors.Join(ctx.Err(), session.CheckID(id)); err != nil {
		return session.Entry{}, err
	}
	e, err := scanInput(s.db.QueryRowContext(ctx, selectInput+" AND id = ?", id, input))
	if errors.Is(err, sql.ErrNoRows) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return session.Entry{}, fmt.Errorf("session %q: input %q: %w", id, input, err)
	}
	return e, nil
}
