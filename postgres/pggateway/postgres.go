// Package pggateway keeps the shared data of the replicas of an MCP server in a Postgres database.
//
//	shared, err := pggateway.Open(ctx, "postgres://mcp@db.example.com/mcp")
//	defer shared.Close()
//	server, err := mcpserver.New(mcpserver.Config{…, Replicas: &mcpserver.Replicas{Shared: shared, URL: "http://10.0.0.7:8080/"}})
//
// The data is in one table, kitbag_mcp, which Open creates. Its rows are small: the row of a session is written when a
// request has changed the session; each replica writes one row twice a second, and about once a second a row for each
// credential that is in use. Rows expire by the database's clock.
//
// The table contains the keys with which replicas seal tickets: whoever can read it can forge a client's answers,
// and whoever can write to it can act as any client. Give the server's role a database, or a schema in its
// search_path, that no one else can read.
//
// An [Audit] keeps the audit log of gateways. It can be in another database, whose role needs only to create the table and to
// insert.
package pggateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kitbag-go/kitbag/mcpserver"
)

// A Shared is a [mcpserver.Shared] in a database. It is safe for concurrent use.
type Shared struct {
	pool *pgxpool.Pool
	stop context.CancelFunc
	done chan struct{} // closed when sweep has ended
}

var _ mcpserver.Shared = (*Shared)(nil)

const (
	// timeout is the limit for one operation. A replica that cannot reach the database for longer is replaced by the others.
	timeout = 5 * time.Second

	// sweepEvery is how often expired rows are removed.
	sweepEvery = time.Minute
)

// Replicas that start at the same time wait for each other's lock.
const schema = `
SELECT pg_advisory_xact_lock(hashtext('kitbag_mcp'));
CREATE TABLE IF NOT EXISTS kitbag_mcp (
	key     text PRIMARY KEY,
	value   bytea NOT NULL,
	expires timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS kitbag_mcp_expires ON kitbag_mcp (expires);`

// Open opens the database with a connection string of libpq, which may also have pool_max_conns. The caller must
// call Close after closing the server.
func Open(ctx context.Context, conn string) (*Shared, error) {
	pool, err := connect(ctx, conn, schema, "kitbag_mcp")
	if err != nil {
		return nil, err
	}
	sweeping, stop := context.WithCancel(context.Background())
	s := &Shared{pool: pool, stop: stop, done: make(chan struct{})}
	go s.sweep(sweeping)
	return s, nil
}

// Close closes the connections.
func (s *Shared) Close() error {
	s.stop()
	<-s.done
	s.pool.Close()
	return nil
}

// sweep removes expired rows.
func (s *Shared) sweep(ctx context.Context) {
	defer close(s.done)
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_, _ = s.pool.Exec(ctx, `DELETE FROM kitbag_mcp WHERE expires < now()`) // on failure the next sweep removes them
		case <-ctx.Done():
			return
		}
	}
}

// Get implements [mcpserver.Shared].
func (s *Shared) Get(ctx context.Context, key string) (value []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = s.pool.QueryRow(ctx, `SELECT value FROM kitbag_mcp WHERE key = $1 AND expires >= now()`, key).Scan(&value)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("postgres/pggateway: get %q: %w", key, err)
	}
	return value, nil
}

// Swap implements [mcpserver.Shared]. If the connection is lost, it may return an error although it has swapped.
func (s *Shared) Swap(ctx context.Context, key string, old, new []byte, ttl time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var query string
	args := []any{key}
	switch {
	case old == nil && new == nil:
		query = `SELECT 1 WHERE NOT EXISTS (SELECT FROM kitbag_mcp WHERE key = $1 AND expires >= now())`
	case old == nil:
		query = `INSERT INTO kitbag_mcp VALUES ($1, $2, now() + $3) ON CONFLICT (key) DO UPDATE
			SET value = EXCLUDED.value, expires = EXCLUDED.expires WHERE kitbag_mcp.expires < now()`
		args = append(args, new, ttl)
	case new == nil:
		query = `DELETE FROM kitbag_mcp WHERE key = $1 AND value = $2 AND expires >= now()`
		args = append(args, old)
	default:
		query = `UPDATE kitbag_mcp SET value = $2, expires = now() + $3 WHERE key = $1 AND value = $4 AND expires >= now()`
		args = append(args, new, ttl, old)
	}
	tag, err := s.pool.Exec(ctx, query, args...)
	if err != nil {
		return false, fmt.Errorf("postgres/pggateway: swap %q: %w", key, err)
	}
	return tag.RowsAffected() == 1, nil
}
