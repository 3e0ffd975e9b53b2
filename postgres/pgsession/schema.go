package pgsession

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kitbag-go/kitbag/agent"
)

// formatName is in the table format, and marks a schema of this package.
const formatName = "kitbag sessions"

// A migration upgrades the tables of one version to the next. It only adds to them, because programs of older versions
// may use them meanwhile.
type migration struct {
	oldest int // the oldest version of a program that can use the upgraded tables
	sql    string
}

// A session is identified by its number, which is not reused after the session was deleted. Columns of
// text contain only ASCII, so that the database's encoding does not matter; values over maxInline are in
// pieces in the table payload.
//
// A claim is a session's holder and token. The table holder says until when a holder is alive, so that one update
// renews all claims of a process.
var migrations = []migration{{1, `
CREATE TABLE session (
	num     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id      text COLLATE "C" UNIQUE,      -- NULL when the session was deleted
	updated timestamptz,                  -- NULL until there is a record or an input
	seq     bigint NOT NULL DEFAULT 0,    -- the last record
	event   bigint NOT NULL DEFAULT 0,    -- the last event
	sent    bigint NOT NULL DEFAULT 0,    -- how many inputs were ever sent
	inputs  bigint NOT NULL DEFAULT 0,    -- how many of them wait
	gone    bigint NOT NULL DEFAULT 0,    -- the last event that is not kept any more
	first   bigint NOT NULL DEFAULT 1,    -- the first record that is kept
	whole   bigint NOT NULL DEFAULT 0,    -- the last whole record
	status  text NOT NULL DEFAULT '',
	labels  text[] NOT NULL DEFAULT '{}', -- each key=value, the value quoted as in Go
	holder  text,                         -- the store that has the session open
	token   text                          -- the log that has it open
) WITH (fillfactor = 80);
CREATE INDEX session_updated ON session (updated DESC, id) WHERE updated IS NOT NULL;
CREATE INDEX session_status ON session (status, updated DESC, id) WHERE updated IS NOT NULL;
CREATE INDEX session_inputs ON session (updated DESC, id) WHERE inputs > 0;
CREATE INDEX session_first ON session (num) WHERE first < whole;
CREATE INDEX session_unborn ON session (num) WHERE updated IS NULL;
CREATE INDEX session_labels ON session USING gin (labels);
CREATE TABLE holder (
	id      text PRIMARY KEY,
	expires timestamptz NOT NULL,
	term    interval NOT NULL
);
CREATE TABLE record (
	num   bigint NOT NULL,
	seq   bigint NOT NULL,
	whole boolean NOT NULL,
	event bigint NOT NULL,      -- the last event up to this record
	at    timestamptz NOT NULL,
	meta  bytea NOT NULL,       -- JSON: the other members of the record
	data  bytea,
	ref   text,                 -- the rows of payload with the data, if data is NULL
	PRIMARY KEY (num, seq)
);
CREATE INDEX record_whole ON record (num, seq) WHERE whole;
CREATE TABLE event (
	num    bigint NOT NULL,
	seq    bigint NOT NULL,
	record bigint NOT NULL,
	data   bytea,
	ref    text,
	PRIMARY KEY (num, seq)
);
CREATE TABLE input (
	num     bigint NOT NULL,
	n       bigint NOT NULL,           -- 1, 2, 3 … in the order of sending
	id      text COLLATE "C" NOT NULL,
	token   text NOT NULL,             -- identifies the call of Send
	sent    timestamptz NOT NULL,
	record  bigint NOT NULL DEFAULT 0, -- the record that consumed it; 0 while it waits
	refused bytea NOT NULL DEFAULT '',
	data    bytea,
	ref     text,
	PRIMARY KEY (num, n),
	UNIQUE (num, id)
);
CREATE INDEX input_waiting ON input (num, n) WHERE record = 0;
CREATE TABLE payload (
	ref  text NOT NULL,
	part integer NOT NULL,
	data bytea NOT NULL,
	PRIMARY KEY (ref, part)
);`}, {1, `
ALTER TABLE format ADD COLUMN secret text; -- in the name of the channel of deltas`}}

// prepare creates the tables, or upgrades them to this version. If readOnly is true, it only checks their version.
func prepare(ctx context.Context, conn *pgx.Conn, schema string, readOnly bool) error {
	version, err := inspect(ctx, conn, schema)
	if err != nil || version >= len(migrations) { // inspect accepts a newer version only if this program can use it
		return err
	}
	if readOnly {
		return fmt.Errorf("its tables are of version %d, this program reads version %d; open it once without Options.ReadOnly", version, len(migrations))
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Other processes wait until one has migrated.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", formatName+" in "+schema); err != nil {
			return err
		}
		version, err := inspect(ctx, tx, schema)
		if err != nil {
			return err
		}
		return migrate(ctx, tx, schema, version)
	})
}

func migrate(ctx context.Context, tx pgx.Tx, schema string, version int) error {
	if version == 0 {
		_, err := tx.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{schema}.Sanitize())
		if hasCode(err, "42501") { // insufficient_privilege, also where the schema exists
			return fmt.Errorf("%w; let a role that may create schemas open it first, or set Options.Schema to a schema that this role owns", err)
		}
		if err == nil {
			_, err = tx.Exec(ctx, "CREATE TABLE format (name text NOT NULL, version integer NOT NULL, oldest integer NOT NULL)")
		}
		if err == nil {
			_, err = tx.Exec(ctx, "INSERT INTO format VALUES ($1, 0, 0)", formatName)
		}
		if err != nil {
			return err
		}
	}
	for ; version < len(migrations); version++ {
		if _, err := tx.Exec(ctx, migrations[version].sql); err != nil {
			return fmt.Errorf("upgrade the tables from version %d to %d: %w", version, version+1, err)
		}
		if _, err := tx.Exec(ctx, "UPDATE format SET version = $1, oldest = $2", version+1, migrations[version].oldest); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, "UPDATE format SET secret = $1 WHERE secret IS NULL", rand.Text())
	return err
}

// inspect returns the version of the tables in a schema, 0 if it is empty or missing.
func inspect(ctx context.Context, q querier, schema string) (version int, err error) {
	var hasFormat bool
	var relations int
	err = q.QueryRow(ctx, `SELECT count(*) FILTER (WHERE relname = 'format') > 0, count(*)
		FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = $1`, schema).Scan(&hasFormat, &relations)
	if err != nil || relations == 0 {
		return 0, err
	}
	var name string
	var oldest int
	if hasFormat {
		err = q.QueryRow(ctx, "SELECT name, version, oldest FROM format").Scan(&name, &version, &oldest)
	}
	switch {
	case hasCode(err, "42703", "42809"), errors.Is(err, pgx.ErrNoRows), err == nil && name != formatName: // undefined_column, wrong_object_type
		return 0, fmt.Errorf("the schema %q has tables of another program; choose another name in Options.Schema", schema)
	case err != nil:
		return 0, err
	case oldest > len(migrations):
		return 0, fmt.Errorf("%w: its tables are of version %d, which programs of version %d and later can use, and this one is of version %d; update the program",
			agent.ErrNewerState, version, oldest, len(migrations))
	}
	return version, nil
}

// hasCode reports whether err is an error that the server reports with one of these codes.
func hasCode(err error, codes ...string) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(codes, pg.Code)
}
