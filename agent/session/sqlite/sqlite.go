// Package sqlite keeps sessions in a SQLite database.
//
//	store, err := sqlite.Open("sessions.db")
//	defer store.Close()
//	s, err := session.Open(ctx, store, "customer-7")
//
// The database may be used by several processes of one machine at a time. A
// session may be open more than once; of two that append to it, the second
// gets [session.ErrConflict]. What was stored outlives a crash of the program
// and of the machine (WAL, synchronous=FULL).
//
// It is a module of its own, so that only who uses it has the driver, which is
// written in Go, among its dependencies.
package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
)

// A database says by applicationID that it is ours, and by schemaVersion how
// its tables are.
const (
	applicationID = 0x6b697462 // "kitb"
	schemaVersion = 1
)

// A session is known by its number, which is not used again after the session
// was deleted: a writer that does not know of that finds nothing to append to.
const schema = `
CREATE TABLE session (
	num     INTEGER PRIMARY KEY AUTOINCREMENT,
	id      TEXT NOT NULL UNIQUE,
	updated INTEGER NOT NULL -- Unix time in microseconds
) STRICT;
CREATE TABLE record (
	num   INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
	seq   INTEGER NOT NULL,
	whole INTEGER NOT NULL,
	data  BLOB NOT NULL,
	PRIMARY KEY (num, seq)
) STRICT, WITHOUT ROWID;`

// A Store is a session.Store in a database. It is safe for concurrent use.
type Store struct{ db *sql.DB }

var _ session.Store = (*Store)(nil)

// Open opens the database at path. A missing file is made, with mode 0600. A
// database that is not of this package, or that a newer version made
// ([agent.ErrNewerState]), is an error and stays as it is.
func Open(path string) (*Store, error) {
	store, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("session database %s: %w", path, err)
	}
	return store, nil
}

func open(path string) (_ *Store, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite would make it for all to read
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{
		"_pragma": {"busy_timeout(10000)", "foreign_keys(1)", "synchronous(FULL)"},
		"_txlock": {"immediate"},
	}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	store := &Store{db}
	if err := store.prepare(context.Background()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return store, nil
}

// prepare makes the tables in an empty database and refuses one it does not
// know.
func (s *Store) prepare(ctx context.Context) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		var app, version, tables int
		row := tx.QueryRowContext(ctx, `SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
			FROM pragma_application_id, pragma_user_version`)
		if err := row.Scan(&app, &version, &tables); err != nil {
			return err
		}
		switch {
		case app == 0 && version == 0 && tables == 0:
			_, err := tx.ExecContext(ctx, fmt.Sprintf("%s; PRAGMA application_id=%d; PRAGMA user_version=%d", schema, applicationID, schemaVersion))
			return err
		case app != applicationID:
			return errors.New("it is a database of something else")
		case version > schemaVersion:
			return fmt.Errorf("%w: its version is %d, this program reads up to %d; update the program", agent.ErrNewerState, version, schemaVersion)
		}
		return nil
	})
	if err == nil {
		_, err = s.db.ExecContext(ctx, "PRAGMA journal_mode=WAL") // not within a transaction
	}
	return err
}

// tx runs fn in a transaction, which is the only one that writes.
func (s *Store) tx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Close closes the database. Logs that are open must not be used any more.
func (s *Store) Close() error { return s.db.Close() }

// Open opens a session. It never returns [session.ErrConflict]: a second
// writer is refused when it appends.
func (s *Store) Open(ctx context.Context, id string) (session.Log, error) {
	if err := errors.Join(ctx.Err(), session.CheckID(id)); err != nil {
		return nil, err
	}
	l := &log{store: s, id: id}
	err := s.db.QueryRowContext(ctx, "SELECT num FROM session WHERE id = ?", id).Scan(&l.num)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("open session %q: %w", id, err)
	}
	return l, nil
}

// List returns the sessions, sorted by id.
func (s *Store) List(ctx context.Context) (infos []session.Info, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT id, updated FROM session ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id string
		var updated int64
		if err := rows.Scan(&id, &updated); err != nil {
			return nil, err
		}
		infos = append(infos, session.Info{ID: id, Updated: time.UnixMicro(updated)})
	}
	return infos, rows.Err()
}

// Delete removes a session, also one that is open.
func (s *Store) Delete(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), session.CheckID(id)); err != nil {
		return err
	}
	res, err := s.db.ExecContext(ctx, "DELETE FROM session WHERE id = ?", id)
	if err != nil {
		return fmt.Errorf("delete session %q: %w", id, err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(fmt.Errorf("session %q: %w", id, fs.ErrNotExist), err)
	}
	return nil
}

// log is a session that is open.
type log struct {
	store  *Store
	id     string
	num    int64 // 0 for a new session
	closed bool
}

func (l *log) usable(ctx context.Context) error {
	if l.closed {
		return fmt.Errorf("session %q: %w", l.id, fs.ErrClosed)
	}
	return ctx.Err()
}

func (l *log) Load(ctx context.Context) (recs []session.Record, err error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	rows, err := l.store.db.QueryContext(ctx, "SELECT seq, whole, data FROM record WHERE num = ? ORDER BY seq", l.num)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var rec session.Record
		var data []byte
		if err := rows.Scan(&rec.Seq, &rec.Whole, &data); err != nil {
			return nil, err
		}
		rec.Data = data
		recs = append(recs, rec)
	}
	return recs, rows.Err()
}

func (l *log) Append(ctx context.Context, rec session.Record) error {
	if err := l.usable(ctx); err != nil {
		return err
	}
	var data bytes.Buffer
	if err := json.Compact(&data, rec.Data); err != nil {
		return err
	}
	num := l.num
	err := l.store.tx(ctx, func(tx *sql.Tx) error {
		var err error
		if num, err = l.next(ctx, tx, rec); err != nil {
			return err
		}
		if rec.Whole {
			if _, err := tx.ExecContext(ctx, "DELETE FROM record WHERE num = ?", num); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, "UPDATE session SET updated = ? WHERE num = ?", time.Now().UnixMicro(), num); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO record (num, seq, whole, data) VALUES (?, ?, ?, ?)", num, rec.Seq, rec.Whole, data.Bytes())
		return err
	})
	if err != nil {
		return fmt.Errorf("session %q: record %d: %w", l.id, rec.Seq, err)
	}
	l.num = num
	return nil
}

// next returns the number of the session, which it makes if it is new, if rec
// may be its next record.
func (l *log) next(ctx context.Context, tx *sql.Tx, rec session.Record) (int64, error) {
	var num, last int64
	err := tx.QueryRowContext(ctx, `SELECT num, (SELECT max(seq) FROM record WHERE record.num = session.num)
		FROM session WHERE id = ?`, l.id).Scan(&num, &last)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	switch {
	case num != l.num || rec.Seq != last+1:
		return 0, session.ErrConflict
	case num != 0:
		return num, nil
	case !rec.Whole:
		return 0, errors.New("the first record of a session must be whole")
	}
	res, err := tx.ExecContext(ctx, "INSERT INTO session (id, updated) VALUES (?, 0)", l.id)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

func (l *log) Close() error {
	l.closed = true
	return nil
}
