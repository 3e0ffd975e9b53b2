package postgres

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/kitbag-go/kitbag/agent/session"
)

// insertInput stores an input, and creates the session if it is new. If the inbox is full or has
// the input, s has no row, and the NOT NULL constraint of input.num fails the transaction.
const insertInput = `WITH s AS (
	INSERT INTO session (id, updated, inputs, sent) VALUES ($1, clock_timestamp(), 1, 1)
	ON CONFLICT (id) DO UPDATE SET inputs = session.inputs + 1, sent = session.sent + 1, updated = coalesce(session.updated, excluded.updated)
	WHERE session.inputs < $4 AND NOT EXISTS (SELECT FROM input i WHERE i.num = session.num AND i.id = $2)
	RETURNING num, sent
)
INSERT INTO input (num, n, id, token, sent, data, ref)
VALUES ((SELECT num FROM s), (SELECT sent FROM s), $2, $3, clock_timestamp(), $5, $6)`

// capacity is the number of inputs that may wait, which package session does not export.
var capacity = sync.OnceValue(func() int {
	n, in := 0, session.Entry{ID: "x", Data: json.RawMessage("0")}
	for in.Check(n) == nil {
		n++
	}
	return n
})

// Send sends an input to a session.
func (s *Store) Send(ctx context.Context, id string, in session.Entry) (accepted bool, err error) {
	if err := s.writable(ctx, id); err != nil {
		return false, err
	}
	token := rand.Text()
	invalid := in.Check(0)
	data, _ := compact(in.Data) // Check has validated it
	err = s.try(ctx, func(ctx context.Context, again bool) error {
		if invalid != nil || again {
			known, sender, _, err := s.known(ctx, id, in.ID)
			if accepted = sender == token; err != nil || known { // accepted: by an earlier attempt of this call
				return err
			}
			if invalid != nil {
				return invalid
			}
		}
		accepted, err = s.send(ctx, id, in.ID, token, data)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("session %q: %w", id, err)
	}
	if accepted {
		s.hub.changed(id, onInput)
	}
	return accepted, nil
}

func (s *Store) send(ctx context.Context, id, input, token string, content []byte) (accepted bool, err error) {
	for { // after a refusal, a record may have consumed inputs before the reason is read
		b := &pgx.Batch{}
		data, ref := inlineOrPayload(b, content)
		b.Queue(insertInput, id, input, token, capacity(), data, ref)
		err := s.batch(ctx, b, nil)
		if !hasCode(err, "23502", "23505") { // not_null_violation; unique_violation: sent twice at once
			return err == nil, err
		}
		known, _, waiting, err := s.known(ctx, id, input)
		if err != nil || known {
			return false, err
		}
		if err := (session.Entry{ID: input, Data: content}).Check(waiting); err != nil {
			return false, err
		}
	}
}

// known reports whether a session has an input, the token of the Send that stored it, and how many inputs wait.
func (s *Store) known(ctx context.Context, id, input string) (known bool, token string, waiting int, err error) {
	if session.CheckID(input) != nil {
		return false, "", 0, nil
	}
	err = s.pool.QueryRow(ctx, "SELECT i.num IS NOT NULL, coalesce(i.token, ''), s.inputs FROM session s LEFT JOIN input i ON i.num = s.num AND i.id = $2 WHERE s.id = $1",
		id, input).Scan(&known, &token, &waiting)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return known, token, waiting, err
}

const selectInput = "SELECT t.id, " + selectData + ", t.sent, t.record, t.refused FROM input t WHERE t.num = (SELECT num FROM session WHERE id = $1) AND "

func scanInput(row pgx.CollectableRow) (e session.Entry, err error) {
	var data, refused []byte
	err = row.Scan(&e.ID, &data, &e.Sent, &e.Record, &refused)
	e.Data, e.Refused = data, string(refused)
	return e, err
}

// Inputs returns the inputs that wait.
func (s *Store) Inputs(ctx context.Context, id string) (entries []session.Entry, err error) {
	if err := s.usable(ctx, id); err != nil {
		return nil, err
	}
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		rows, err := s.pool.Query(ctx, selectInput+"t.record = 0 ORDER BY t.n", id)
		if err == nil {
			entries, err = pgx.CollectRows(rows, scanInput)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("session %q: %w", id, err)
	}
	return entries, nil
}

// Input returns one input.
func (s *Store) Input(ctx context.Context, id, input string) (e session.Entry, err error) {
	if err := s.usable(ctx, id); err != nil {
		return session.Entry{}, err
	}
	err = fs.ErrNotExist
	if session.CheckID(input) == nil {
		err = s.try(ctx, func(ctx context.Context, _ bool) error {
			rows, err := s.pool.Query(ctx, selectInput+"t.id = $2", id, input)
			if err == nil {
				e, err = pgx.CollectExactlyOneRow(rows, scanInput)
			}
			return err
		})
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return session.Entry{}, fmt.Errorf("session %q: input %q: %w", id, input, err)
	}
	return e, nil
}
