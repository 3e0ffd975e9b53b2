package pgsession

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/kitbag-go/kitbag/agent/session"
)

// alive is the condition that the holder of the session s is alive. A restart of the database begins each holder's term
// again, because no holder could renew its claims meanwhile.
const alive = `EXISTS (SELECT FROM holder h WHERE h.id = s.holder AND greatest(h.expires, pg_postmaster_start_time() + h.term) > clock_timestamp())`

// claimSession claims a session. The SELECT waits for a concurrent claim, and the UPDATE, which sees the result of that
// claim, checks whether the session is free, or was claimed by an earlier attempt with the same token.
var claimSession = [...]string{
	"INSERT INTO holder (id, expires, term) VALUES ($1, clock_timestamp() + $2::interval, $2) ON CONFLICT DO NOTHING",
	"INSERT INTO session (id) VALUES ($1) ON CONFLICT DO NOTHING",
	"SELECT FROM session WHERE id = $1 FOR UPDATE",
	"UPDATE session s SET holder = $2, token = $3 WHERE id = $1 AND (token = $3 OR NOT " + alive + ") RETURNING num, seq, event",
}

// Open opens a session. If another writer has it open, the error is [session.ErrConflict].
func (s *Store) Open(ctx context.Context, id string) (session.Log, error) {
	if err := s.writable(ctx, id); err != nil {
		return nil, err
	}
	l := &log{store: s, token: rand.Text(), last: session.Info{ID: id}}
	err := s.try(ctx, func(ctx context.Context, _ bool) error {
		b := &pgx.Batch{}
		b.Queue(claimSession[0], s.holder, s.opts.Claim)
		b.Queue(claimSession[1], id)
		b.Queue(claimSession[2], id)
		b.Queue(claimSession[3], id, s.holder, l.token)
		return s.batch(ctx, b, func(row pgx.Row) error { return row.Scan(&l.num, &l.last.Seq, &l.last.Event) })
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("session %q: %w; a process that has died keeps its claim for %v", id, session.ErrConflict, s.opts.Claim)
	case err != nil:
		return nil, fmt.Errorf("open session %q: %w", id, err)
	}
	return l, nil
}

// A log is an open session.
type log struct {
	store     *Store
	num       int64        // of the session
	token     string       // of the claim
	last      session.Info // the id, and the numbers of the last record and event
	closed    bool
	appendErr error // of an append of which it is unknown whether the record was stored
}

// usable returns an error if an operation must not begin.
func (l *log) usable(ctx context.Context) error {
	switch {
	case l.closed:
		return fmt.Errorf("session %q: %w", l.last.ID, fs.ErrClosed)
	case l.store.hub.closed.Load():
		return errClosed
	}
	return ctx.Err()
}

func (l *log) Load(ctx context.Context) (recs []session.Record, err error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	err = l.store.try(ctx, func(ctx context.Context, _ bool) error {
		recs, err = load(ctx, l.store.pool, l.num, math.MaxInt64)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("session %q: %w", l.last.ID, err)
	}
	return recs, nil
}

// load returns the records from the last whole one up to record seq.
func load(ctx context.Context, q querier, num, seq int64) (recs []session.Record, err error) {
	rows, err := q.Query(ctx, `SELECT seq, whole, meta, `+selectData+` FROM record t WHERE num = $1 AND seq <= $2
		AND seq >= (SELECT max(seq) FROM record WHERE num = $1 AND seq <= $2 AND whole) ORDER BY seq`, num, seq)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (rec session.Record, err error) {
		var meta []byte
		if err := row.Scan(&rec.Seq, &rec.Whole, &meta, (*[]byte)(&rec.Data)); err != nil {
			return rec, err
		}
		if err := json.Unmarshal(meta, &rec); err != nil {
			return rec, fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		return rec, nil
	})
}

// insertRecord stores a record with its events and the inputs that it consumes. If the claim was lost, another record is
// the last one, or an input does not wait, then fence has no row, and the NOT NULL constraint of record.num fails the
// whole transaction.
const insertRecord = `WITH fence AS (
	UPDATE session SET seq = $2, whole = CASE WHEN $4 THEN $2 ELSE whole END, event = $5, status = $6, labels = $7,
		inputs = inputs - cardinality($8::text[]), updated = greatest(clock_timestamp(), updated + interval '1 microsecond')
	WHERE num = $1 AND seq = $2 - 1 AND token = $3
		AND (SELECT count(*) FROM input WHERE num = $1 AND record = 0 AND id = ANY($8)) = cardinality($8)
	RETURNING num, updated
), consumed AS (
	UPDATE input i SET record = $2, refused = t.refused FROM fence f, unnest($8::text[], $9::bytea[]) t(id, refused)
	WHERE i.num = f.num AND i.id = t.id
), events AS (
	INSERT INTO event (num, seq, record, data, ref)
	SELECT f.num, e.seq, $2, e.data, e.ref FROM fence f, unnest($10::bigint[], $11::bytea[], $12::text[]) e(seq, data, ref)
)
INSERT INTO record (num, seq, whole, event, at, meta, data, ref)
VALUES ((SELECT num FROM fence), $2, $4, $5, (SELECT updated FROM fence), $13, $14, $15)`

func (l *log) Append(ctx context.Context, rec session.Record) error {
	if err := l.usable(ctx); err != nil {
		return err
	}
	if err := l.append(ctx, rec); err != nil {
		return fmt.Errorf("session %q: record %d: %w", l.last.ID, rec.Seq, err)
	}
	l.last.Seq = rec.Seq
	if n := len(rec.Events); n > 0 {
		l.last.Event = rec.Events[n-1].Seq
	}
	l.store.hub.noteChange(l.last.ID, onRecord)
	return nil
}

func (l *log) append(ctx context.Context, rec session.Record) error {
	if l.appendErr != nil {
		return fmt.Errorf("an earlier save failed; open the session again: %w", l.appendErr)
	}
	if err := session.CheckRecord(rec, l.last); err != nil {
		return err
	}
	columns, err := encode(rec)
	if err != nil {
		return err
	}
	refused := false // the database has refused the record, so nothing was stored
	err = l.store.try(ctx, func(ctx context.Context, again bool) error {
		err := l.insert(ctx, rec, columns)
		if hasCode(err, "23502") { // not_null_violation
			err = l.refusal(ctx, rec.Seq, columns.consumed, again)
		}
		refused = err != nil && !mayRetry(err) && ctx.Err() == nil
		return err
	})
	if err != nil && !refused {
		l.appendErr = err
	}
	return err
}

func (l *log) insert(ctx context.Context, rec session.Record, columns *recordColumns) error {
	b := &pgx.Batch{}
	lastEvent := l.last.Event
	seqs, datas, refs := make([]int64, len(rec.Events)), make([][]byte, len(rec.Events)), make([]*string, len(rec.Events))
	for i, ev := range rec.Events {
		lastEvent, seqs[i] = ev.Seq, ev.Seq
		datas[i], refs[i] = inlineOrPayload(b, columns.events[i])
	}
	data, ref := inlineOrPayload(b, columns.data)
	b.Queue(insertRecord, l.num, rec.Seq, l.token, rec.Whole, lastEvent, string(rec.Status), columns.labels, columns.consumed, columns.refused, seqs, datas, refs, columns.meta, data, ref)
	return l.store.batch(ctx, b, nil)
}

// refusal returns why the database has refused record seq, or nil if again is true and an earlier attempt has stored the
// record. That attempt may have been running until now: insert has waited for its row lock.
func (l *log) refusal(ctx context.Context, seq int64, consumed []string, again bool) error {
	var ours bool
	var last int64
	var waiting []string
	err := l.store.pool.QueryRow(ctx, `SELECT coalesce(token = $2, false), seq,
		ARRAY(SELECT id FROM input WHERE num = $1 AND record = 0 AND id = ANY($3)) FROM session WHERE num = $1`,
		l.num, l.token, consumed).Scan(&ours, &last, &waiting)
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return err
	case ours && again && last == seq:
		return nil
	case !ours || last != seq-1:
		return fmt.Errorf("the claim was lost: %w", session.ErrConflict)
	}
	for _, id := range consumed {
		if !slices.Contains(waiting, id) {
			return notWaiting(id)
		}
	}
	return session.ErrConflict
}

func notWaiting(id string) error {
	return fmt.Errorf("the record consumes the input %q, which is not waiting", id)
}

// recordColumns has the members of a record as the values of columns.
type recordColumns struct {
	data     []byte
	events   [][]byte
	labels   []string
	consumed []string
	refused  [][]byte
	meta     []byte // JSON of the members that have no column
}

func encode(rec session.Record) (c *recordColumns, err error) {
	c = &recordColumns{events: make([][]byte, len(rec.Events)), labels: encodeLabels(rec.Labels), consumed: []string{}, refused: [][]byte{}}
	if c.data, err = compact(rec.Data); err != nil {
		return nil, err
	}
	for i, ev := range rec.Events {
		if c.events[i], err = compact(ev.Data); err != nil {
			return nil, fmt.Errorf("event %d: %w", ev.Seq, err)
		}
	}
	for _, in := range rec.Consumed {
		if session.CheckID(in.ID) != nil || slices.Contains(c.consumed, in.ID) {
			return nil, notWaiting(in.ID)
		}
		c.consumed, c.refused = append(c.consumed, in.ID), append(c.refused, []byte(in.Refused))
	}
	c.meta, err = json.Marshal(session.Record{Status: rec.Status, Labels: rec.Labels, Consumed: rec.Consumed})
	return c, err
}

func compact(data []byte) ([]byte, error) {
	var b bytes.Buffer
	err := json.Compact(&b, data)
	return b.Bytes(), err
}

// encodeLabels returns the value of the column labels.
func encodeLabels(m map[string]string) []string {
	list := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, k+"="+strconv.QuoteToASCII(m[k]))
	}
	return list
}

func parseLabels(list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	m := make(map[string]string, len(list))
	for _, label := range list {
		k, quoted, _ := strings.Cut(label, "=")
		v, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("label %s: %w", label, err)
		}
		m[k] = v
	}
	return m, nil
}

// maxInline is the maximum size in bytes of data in a row; larger data is in the table payload.
const maxInline = 1 << 20

// selectData is the SQL of the column data of the row t, from the table payload if the data is large.
const selectData = `coalesce(t.data, (SELECT string_agg(p.data, '' ORDER BY p.part) FROM payload p WHERE p.ref = t.ref))`

// inlineOrPayload returns the values of the columns data and ref. It queues statements that store
// large data in pieces.
func inlineOrPayload(b *pgx.Batch, data []byte) (inline []byte, ref *string) {
	if len(data) <= maxInline {
		return data, nil
	}
	name, part := rand.Text(), 0
	for piece := range slices.Chunk(data, maxInline) {
		b.Queue("INSERT INTO payload (ref, part, data) VALUES ($1, $2, $3)", name, part, piece)
		part++
	}
	return nil, &name
}

// Close gives up the claim, and removes a session without records and inputs.
func (l *log) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	s := l.store
	if s.hub.closed.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), shortTimeout)
	defer cancel()
	err := s.try(ctx, func(ctx context.Context, _ bool) error {
		b := &pgx.Batch{}
		b.Queue("DELETE FROM session WHERE num = $1 AND token = $2 AND updated IS NULL", l.num, l.token)
		b.Queue("UPDATE session SET holder = NULL, token = NULL WHERE num = $1 AND token = $2", l.num, l.token)
		return s.batch(ctx, b, nil)
	})
	if err != nil {
		return fmt.Errorf("close session %q: its claim will expire after the store is closed: %w", l.last.ID, err)
	}
	return nil
}
