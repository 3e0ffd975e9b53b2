// Package pgsession keeps sessions in a Postgres database, for any number of processes on any number of machines.
//
//	store, err := pgsession.Open(ctx, "postgres://agents@db.example.com/agents", pgsession.Options{})
//	defer store.Close()
//	s, err := session.Open(ctx, store, "customer-7")
//
// The tables are in a separate schema, which Open creates. Open upgrades tables of an older version while other
// processes use them. Every save is one round trip to the database; the cost of no statement depends on the length of
// the conversation.
//
// # Writers
//
// A session has one writer at a time. Opening it claims it; the claim is renewed as long as the store is open, and
// expires [Options.Claim] after the process has died. Until then other writers get [session.ErrConflict]. A process that
// was too slow and has lost its claim gets this error at its next save, and stores nothing. Claims expire by the
// database's clock, so the machines' clocks may differ.
//
// # When the database is unreachable
//
// While the database cannot be reached, for example because it is being restarted, each operation waits for at most
// [Options.Wait]. A save is stored exactly once, even if the connection was lost meanwhile. So a run pauses, and
// then continues. After a restart of the database the term of each claim starts again, so that no writer loses its
// session because another one reconnected first.
//
// # Watching
//
// A Store is also a [session.Inbox], a [session.Watcher], a [session.Reader] and a [session.Notifier]. Events are
// stored with the save that they belong to, in one transaction. A watcher in another process usually gets an event
// some milliseconds after the save (LISTEN, NOTIFY), and after two seconds at the latest. Watchers share one
// connection, which a store has in addition to its pool. A [session.Watcher] yields no deltas, because they are not
// stored; deltas that a worker publishes reach listeners in other processes within 50 ms, unless there are too many.
//
// Records, events and inputs are kept until the session is deleted or [Store.Prune] removes them.
//
// # Trust
//
// The tables contain whole conversations in clear text, like the files of package session. Anyone who can
// write to them can send messages as the user and, unless the agent seals its States, as the model; a
// role for [Options.ReadOnly] can read all of it. Other roles that can connect to the database can see
// the ids of sessions that change, because anyone may listen to a channel, but not the deltas.
//
// The package is a separate module, so that only programs that use it depend on the driver.
package pgsession

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kitbag-go/kitbag/agent/session"
)

// Options are for [Open]. The zero Options work.
type Options struct {
	// Schema is where the tables are; empty means "kitbag". It is at most 48 lower-case
	// letters, digits and '_', and does not begin with a digit.
	Schema string

	// ReadOnly allows only List, Read and Watch. The role needs only the right to read the
	// tables, and the database may be a standby.
	ReadOnly bool

	// Claim is the time for which a process that has died still has its open sessions; 0 means 15 s. Less than 100 ms is
	// an error.
	Claim time.Duration

	// Wait is how long an operation waits for a database that cannot be reached; 0 means
	// one minute, and less than 0 not at all.
	Wait time.Duration
}

// schemaPattern limits the length because the name of a channel, which contains the schema, has at most 63 bytes.
var schemaPattern = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// withDefaults returns o with the default values of its zero fields.
func (o Options) withDefaults() (Options, error) {
	o.Schema = cmp.Or(o.Schema, "kitbag")
	o.Claim = cmp.Or(o.Claim, 15*time.Second)
	o.Wait = max(cmp.Or(o.Wait, time.Minute), 0)
	switch {
	case !schemaPattern.MatchString(o.Schema):
		return o, fmt.Errorf("Options.Schema %q: it must be 1 to 48 lower-case letters, digits and '_', and not begin with a digit", o.Schema)
	case o.Claim < 100*time.Millisecond:
		return o, fmt.Errorf("Options.Claim %v: it must be 100ms or more, or 0 for the default", o.Claim)
	}
	return o, nil
}

// A Store is a session.Store in a database. It is safe for concurrent use.
type Store struct {
	opts   Options
	pool   *pgxpool.Pool
	holder string // identifies this store in claims
	secret string // part of the name of the channel of deltas
	hub    *hub
	stop   func() // stops the background goroutines
}

var (
	_ session.Store    = (*Store)(nil)
	_ session.Inbox    = (*Store)(nil)
	_ session.Watcher  = (*Store)(nil)
	_ session.Reader   = (*Store)(nil)
	_ session.Notifier = (*Store)(nil)
)

// Open opens the database with a connection string, a URL or key=value pairs, of libpq; pool_max_conns is also
// accepted. It does not wait for a database that cannot be reached. Tables of another program, or of a newer
// version with which this one cannot work ([agent.ErrNewerState]), are an error and stay unchanged.
func Open(ctx context.Context, conn string, opts Options) (*Store, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("session database: %w", err)
	}
	store, err := open(ctx, conn, opts)
	if err != nil {
		return nil, fmt.Errorf("session database: %w", err)
	}
	return store, nil
}

func open(ctx context.Context, conn string, opts Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(conn)
	if err != nil {
		return nil, err
	}
	settings := config.ConnConfig.RuntimeParams
	settings["search_path"] = opts.Schema
	settings["synchronous_commit"] = cmp.Or(settings["synchronous_commit"], "on") // unless conn says otherwise, a save is on the disk
	settings["default_transaction_isolation"] = "read committed"                  // a claim must see the result of another one for which it waited
	if opts.ReadOnly {
		settings["default_transaction_read_only"] = "on"
	}
	db, err := pgx.ConnectConfig(ctx, config.ConnConfig.Copy())
	if err != nil {
		return nil, err
	}
	var secret string
	err = prepare(ctx, db, opts.Schema, opts.ReadOnly)
	if err == nil {
		err = db.QueryRow(ctx, "SELECT secret FROM format").Scan(&secret)
	}
	if err := errors.Join(err, db.Close(ctx)); err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	s := &Store{opts: opts, pool: pool, holder: rand.Text(), secret: secret, hub: newHub()}
	s.start(config.ConnConfig)
	return s, nil
}

// Close closes the store, and gives up its claims. Logs that are open must not be used any more, except to close them.
func (s *Store) Close() error {
	if !s.hub.close() {
		return nil
	}
	s.stop()
	var err error
	if !s.opts.ReadOnly {
		ctx, cancel := context.WithTimeout(context.Background(), shortTimeout)
		defer cancel()
		err = s.try(ctx, func(ctx context.Context, _ bool) error {
			_, err := s.pool.Exec(ctx, "DELETE FROM holder WHERE id = $1", s.holder)
			return err
		})
	}
	s.pool.Close()
	if err != nil {
		return fmt.Errorf("session database: the claims could not be given up, and will expire: %w", err)
	}
	return nil
}

// usable returns an error if an operation on a session must not begin.
func (s *Store) usable(ctx context.Context, id string) error {
	err := errors.Join(ctx.Err(), session.CheckID(id))
	if err == nil && s.hub.closed.Load() {
		return errClosed
	}
	return err
}

// writable is like usable, for an operation that writes: a ReadOnly store refuses it.
func (s *Store) writable(ctx context.Context, id string) error {
	if err := s.usable(ctx, id); err != nil || !s.opts.ReadOnly {
		return err
	}
	return fmt.Errorf("session %q: the store is read-only; open it without Options.ReadOnly: %w", id, errors.ErrUnsupported)
}

var errClosed = fmt.Errorf("the store is closed: %w", fs.ErrClosed)

// A querier is a connection, a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}
