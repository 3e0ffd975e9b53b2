// Package postgres keeps sessions in a Postgres database, for any number of processes on
// any number of machines.
//
//	store, err := postgres.Open(ctx, "postgres://agents@db.example.com/agents", postgres.Options{})
//	defer store.Close()
//	s, err := session.Open(ctx, store, "customer-7")
//
// The tables are in a schema of their own, which Open makes. It brings those of an older
// version up to date while other processes work with them. Every save is one round trip
// to the database; neither its cost nor that of any other statement depends on how long
// the conversation is.
//
// # Writers
//
// A session has one writer at a time. Opening it claims it; the claim is renewed as long
// as the store is open, and expires [Options.Claim] after the process has died. Until then
// others get [session.ErrConflict]. A process that was too slow, and has lost a claim to
// another, gets it at its next save, and stores nothing. Expiry is by the database's
// clock: those of the machines do not matter.
//
// # When the database is away
//
// Each operation waits for a database that cannot be reached, as when it is restarted, at
// most for [Options.Wait], and a save is stored once whatever happened to the connection.
// So a run waits, and then continues. After a restart of the database, claims are valid for
// their whole time again, so that no writer loses one to another that was quicker.
//
// # Watching
//
// A Store is also a [session.Inbox], a [session.Watcher] and a [session.Reader]. Events are
// stored with the save that makes them true, in one transaction. A watcher in another
// process usually gets one some milliseconds after that (LISTEN, NOTIFY), and at the latest
// two seconds. It holds no connection of its own; a store needs one beside its pool. There
// are no deltas among them, as a [session.Watcher] yields only what a restart would find: in
// another process the text of a message is seen when it is complete.
//
// Everything is kept until its session is deleted, or [Store.Prune] removes it.
//
// # Trust
//
// The tables hold what was said and read, in the clear, as package session says of files.
// Who can write to them speaks as the user and, unless the agent seals its States, as the model; a
// role for [Options.ReadOnly] can read all of it.
//
// It is a module of its own, so that only who uses it has the driver among its dependencies.
package postgres

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

	// ReadOnly is for List, Read and Watch only. The role needs no more than to read the
	// tables, and the database may be a standby.
	ReadOnly bool

	// Claim is how long after its death a process keeps the sessions that it had open; 0
	// means 15 s. Less than 100 ms is an error.
	Claim time.Duration

	// Wait is how long an operation waits for a database that cannot be reached; 0 means
	// one minute, and less than 0 not at all.
	Wait time.Duration
}

var schemaPattern = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

func (o Options) check() (Options, error) {
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
	holder string // names this store in claims
	hub    *hub
	stop   func() // ends what runs in the background
}

var (
	_ session.Store   = (*Store)(nil)
	_ session.Inbox   = (*Store)(nil)
	_ session.Watcher = (*Store)(nil)
	_ session.Reader  = (*Store)(nil)
)

// Open opens the database with a connection string, a URL or key=value pairs, of libpq;
// pool_max_conns is also known. It does not wait for a database that is away. One whose schema has
// tables of another program, or of a newer version with which this one cannot work
// ([agent.ErrNewerState]), is an error and stays as it is.
func Open(ctx context.Context, conn string, opts Options) (*Store, error) {
	opts, err := opts.check()
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
	settings["synchronous_commit"] = cmp.Or(settings["synchronous_commit"], "on")
	settings["default_transaction_isolation"] = "read committed" // on which the claims rely
	if opts.ReadOnly {
		settings["default_transaction_read_only"] = "on"
	}
	first, err := pgx.ConnectConfig(ctx, config.ConnConfig.Copy())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(prepare(ctx, first, opts.Schema, opts.ReadOnly), first.Close(ctx)); err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	s := &Store{opts: opts, pool: pool, holder: rand.Text(), hub: newHub()}
	s.start(config.ConnConfig)
	return s, nil
}

// Close closes the store. Logs that are open must not be used any more, but to close them;
// what they had claimed is free.
func (s *Store) Close() error {
	if !s.hub.close() {
		return nil
	}
	s.stop()
	var err error
	if !s.opts.ReadOnly {
		ctx, cancel := context.WithTimeout(context.Background(), closeFor)
		defer cancel()
		err = s.try(ctx, func(ctx context.Context, _ bool) error {
			_, err := s.pool.Exec(ctx, "DELETE FROM holder WHERE id = $1", s.holder)
			return err
		})
	}
	s.pool.Close()
	if err != nil {
		return fmt.Errorf("session database: claims are left to expire: %w", err)
	}
	return nil
}

// usable reports whether an operation on a session may begin.
func (s *Store) usable(ctx context.Context, id string) error {
	err := errors.Join(ctx.Err(), session.CheckID(id))
	if err == nil && s.hub.isClosed() {
		return errClosed
	}
	return err
}

// writable also refuses a store that only reads.
func (s *Store) writable(ctx context.Context, id string) error {
	if err := s.usable(ctx, id); err != nil || !s.opts.ReadOnly {
		return err
	}
	return fmt.Errorf("session %q: the store only reads; open it without Options.ReadOnly: %w", id, errors.ErrUnsupported)
}

var errClosed = fmt.Errorf("the store is closed: %w", fs.ErrClosed)

// A querier is a connection, a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}
