package pggateway

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// An Audit is an [io.Writer] for the audit log of a gateway. It is safe for concurrent use.
type Audit struct {
	pool *pgxpool.Pool

	mu     sync.Mutex
	failed time.Time // when the last failed attempt was made
	err    error
}

// retryEvery is how long Write fails immediately after the database could not be reached, so that calls do not wait for
// it one after the other.
const retryEvery = time.Second

const auditSchema = `
SELECT pg_advisory_xact_lock(hashtext('kitbag_audit'));
CREATE TABLE IF NOT EXISTS kitbag_audit (
	id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	stored timestamptz NOT NULL DEFAULT now(),
	record text NOT NULL -- not jsonb, which does not accept all JSON: a client could make a call that cannot be stored
);`

// OpenAudit opens the database of an audit log, and creates its table kitbag_audit. A row has a record, as text that can
// be cast to jsonb unless a client has sent JSON that Postgres cannot read, and the time at which it was stored. Any
// number of gateways can use the table. Nothing removes rows.
func OpenAudit(ctx context.Context, conn string) (*Audit, error) {
	pool, err := connect(ctx, conn, auditSchema, "kitbag_audit")
	if err != nil {
		return nil, err
	}
	return &Audit{pool: pool}, nil
}

// Close closes the connections.
func (a *Audit) Close() error {
	a.pool.Close()
	return nil
}

// Write stores lines of JSON: all, or on an error none. But if the connection is lost while the database answers, Write
// returns an error although the lines may be stored; a caller that repeats them then stores them twice.
func (a *Audit) Write(lines []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil && time.Since(a.failed) < retryEvery {
		return 0, a.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var batch pgx.Batch
	for line := range bytes.Lines(lines) {
		batch.Queue(`INSERT INTO kitbag_audit (record) VALUES ($1)`, string(bytes.ToValidUTF8(bytes.TrimSpace(line), []byte("\ufffd"))))
	}
	if err := a.pool.SendBatch(ctx, &batch).Close(); err != nil { // one transaction
		a.failed, a.err = time.Now(), fmt.Errorf("postgres/pggateway: store records of the audit log: %w", err)
		return 0, a.err
	}
	a.err = nil
	return len(lines), nil
}

// connect opens a pool of connections and creates a table.
func connect(ctx context.Context, conn, schema, table string) (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("postgres/pggateway: %w", err)
	}
	if _, err := pool.Exec(ctx, schema); err != nil {
		pool.Close()
		return nil, fmt.Errorf("postgres/pggateway: create the table %s: %w", table, err)
	}
	return pool, nil
}
