package pgsession

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

// insertInput stores an input, and creates the session if that is new. If the inbox is full or has
// the input, s has no row, and the NOT NULL constraint of input.num fails the transaction.
const insertInput = `WITH s AS (
	INSERT INTO session (id, updated, inputs, sent) VALUES ($1, clock_timestamp(), 1, 1)
	ON CONFLICT (id) DO UPDATE SET inputs = session.inputs + 1, sent = session.sent + 1, updated = coalesce(session.updated, excluded.updated)
	WHERE session.inputs < $4 AND NOT EXISTS (SELECT FROM input i WHERE i.num = session.num AND i.id = $2)
	RETURNING num, sent
)
INSERT INTO input (num, n, id, token, sent, data, ref)
VALUES ((SELECT num FROM s), (SELECT sent FROM s), $2, $3, clock_timestamp(), $5, $6)`

// capacity is the number of inputs that may wait. Package session does not export the number, so Check finds it.
var capacity = sync.OnceValue(func() int {
	waiting, valid := 0, session.Entry{ID: "x", Data: json.RawMessage("0")}
	for valid.Check(waiting) == nil {
		waiting++
	}
	return waiting
})

// Send sends an input to a session.
func (s *Store) Send(ctx context.Context, id string, in session.Entry) (accepted bool, err error) {
	if err := s.writable(ctx, id); err != nil {
		return false, err
	}
	token := rand.Text() // identifies this call
	invalid := in.Check(0)
	data, _ := compact(in.Data) // Check has validated it
	err = s.try(ctx, func(ctx context.Context, again bool) error {
		if invalid != nil || again { // sending an input again is no error, even if it is invalid
			known, sender, _, err := s.findInput(ctx, id, in.ID)
			if accepted = sender == token; err != nil || known { // an earlier attempt of this call may have stored it
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
		s.hub.noteChange(id, onInput)
	}
	return accepted, nil
}

// send stores an input. If the database refuses it but findInput finds no reason, send tries again: in between, a record
// has consumed inputs of a full inbox.
func (s *Store) send(ctx context.Context, id, input, token string, content []byte) (accepted bool, err error) {
	for {
		b := &pgx.Batch{}
		data, ref := inlineOrPayload(b, content)
		b.Queue(insertInput, id, input, token, capacity(), data, ref)
		err := s.batch(ctx, b, nil)
		if !hasCode(err, "23502", "23505") { // not_null_violation; unique_violation if two calls sent the input at once
			return err == nil, err
		}
		known, _, waiting, err := s.findInput(ctx, id, input)
		if err != nil || known {
			return false, err
		}
		if err := (session.Entry{ID: input, Data: content}).Check(waiting); err != nil {
			return false, err
		}
	}
}

// findInput returns whether a session has an input, the token of the call of Send that stored it, and how many inputs
// wait.
func (s *Store) findInput(ctx context.Context, id, input string) (known bool, token string, waiting int, err error) {
	if session.CheckID(input) != nil { // the database refuses some invalid ids, such as those with a zero byte
		return false, "", 0, nil
	}
	err = s.pool.QueryRow(ctx, "SELECT i.num IS NOT NULL, coalesce(i.token, ''), s.inputs FROM session s LEFT JOIN input i ON i.num = s.num AND i.id = $2 WHERE s.id = $1",
		id, input).Scan(&known, &token, &waiting)
	if errors.Is(err, pgx.ErrNoRows) { // the session does not exist
		err = nil
	}
	return known, token, waiting, err
}

// selectInput selects inputs of a session for scanInput. A condition on the input t follows.
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
	entries, err = queryAll(ctx, s, scanInput, selectInput+"t.record = 0 ORDER BY t.n", id)
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
	var entries []session.Entry
	if session.CheckID(input) == nil { // otherwise there is no such input
		entries, err = queryAll(ctx, s, scanInput, selectInput+"t.id = $2", id, input)
	}
	if err == nil && len(entries) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return session.Entry{}, fmt.Errorf("session %q: input %q: %w", id, input, err)
	}
	return entries[0], nil
}
