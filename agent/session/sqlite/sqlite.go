// Package sqlite stores sessions in a SQLite database.
//
//	store, err := sqlite.Open("sessions.db")
//	defer store.Close()
//	s, err := session.Open(ctx, store, "customer-7")
//
// The database may be used by several processes of one machine at a time. A session may be open more than once; if
// two writers append to it, the second one gets [session.ErrConflict]. Stored data survives a crash of the program
// and of the machine (WAL, synchronous=FULL). Every record, event and input is kept until its session is deleted.
//
// A Store is also a [session.Inbox], a [session.Watcher], which yields an event of another process at most 100 ms
// after it was stored, and a [session.Reader]. A working session counts as abandoned 30 s after its process has died.
//
// The package is a separate module, so that only programs that use it depend on the driver, which is written in Go.
package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
)

// applicationID marks a database of this package, and schemaVersion is the version of its tables.
const (
	applicationID = 0x6b697462 // "kitb"
	schemaVersion = 2
)

// schemas[v] upgrades a database of version v to the next version.
//
// num identifies a session in all tables, and is not reused after the session was deleted: a writer that does not know
// of the deletion finds nothing to append to.
var schemas = [schemaVersion]string{`
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
) STRICT, WITHOUT ROWID;`, `
ALTER TABLE session ADD COLUMN status TEXT NOT NULL DEFAULT '';
ALTER TABLE session ADD COLUMN labels TEXT NOT NULL DEFAULT '{}'; -- JSON
ALTER TABLE session ADD COLUMN holder TEXT NOT NULL DEFAULT '';   -- the store that claims the session
ALTER TABLE session ADD COLUMN expires INTEGER NOT NULL DEFAULT 0; -- when the claim ends, in microseconds
ALTER TABLE record ADD COLUMN meta TEXT NOT NULL DEFAULT '{}'; -- JSON: the record's members without a column
CREATE INDEX session_updated ON session (updated DESC, id);
CREATE INDEX session_status ON session (status, updated DESC, id);
CREATE INDEX record_whole ON record (num, seq) WHERE whole;
CREATE TABLE label (
	num   INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
	key   TEXT NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY (num, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX label_value ON label (key, value, num);
CREATE TABLE event (
	num    INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
	seq    INTEGER NOT NULL,
	record INTEGER NOT NULL,
	data   BLOB NOT NULL,
	PRIMARY KEY (num, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE input (
	num     INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
	n       INTEGER NOT NULL,
	id      TEXT NOT NULL,
	data    BLOB NOT NULL,
	sent    INTEGER NOT NULL,           -- in microseconds
	record  INTEGER NOT NULL DEFAULT 0, -- the record that consumed the input; 0 while the input waits
	refused TEXT NOT NULL DEFAULT '',
	PRIMARY KEY (num, n),
	UNIQUE (num, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX input_waiting ON input (num, n) WHERE record = 0;`}

// A Store is a session.Store in a database. It is safe for concurrent use.
type Store struct {
	db      *sql.DB
	holder  string // identifies this store in claims
	changed signal

	mu           sync.Mutex
	closed       bool
	openLogs     map[*log]int64 // with the numbers of their sessions
	stopRenewing func()         // ends the goroutine that renews claims while a log is open; call it without mu
}

var (
	_ session.Store   = (*Store)(nil)
	_ session.Inbox   = (*Store)(nil)
	_ session.Watcher = (*Store)(nil)
	_ session.Reader  = (*Store)(nil)
)

// Open opens the database at path. A missing file is created, with mode 0600. A database of another program, or of
// a newer version ([agent.ErrNewerState]), is an error and stays unchanged.
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
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite would make the file readable for everyone
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{
		"_pragma": {"busy_timeout(10000)", "foreign_keys(1)", "synchronous(FULL)"}, // waits up to 10 s for other writers
		"_txlock": {"immediate"},
	}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	store := &Store{db: db, holder: rand.Text(), openLogs: map[*log]int64{}, changed: signal{ch: make(chan struct{})}}
	if err := store.prepare(context.Background()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return store, nil
}

// prepare creates the tables in an empty database, and upgrades the tables of an older version.
func (s *Store) prepare(ctx context.Context) error {
	err := s.write(ctx, func(tx *sql.Tx) error {
		var app, version, tables int
		row := tx.QueryRowContext(ctx, `SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
			FROM pragma_application_id, pragma_user_version`)
		if err := row.Scan(&app, &version, &tables); err != nil {
			return err
		}
		switch {
		case app == 0 && version == 0 && tables == 0: // a new file
		case app != applicationID || version < 1:
			return errors.New("the database belongs to another program")
		case version > schemaVersion:
			return fmt.Errorf("%w: its version is %d, this program reads up to %d; update the program", agent.ErrNewerState, version, schemaVersion)
		case version == schemaVersion:
			return nil
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("%s; PRAGMA application_id=%d; PRAGMA user_version=%d",
			strings.Join(schemas[version:], "\n"), applicationID, schemaVersion))
		return err
	})
	if err == nil {
		_, err = s.db.ExecContext(ctx, "PRAGMA journal_mode=WAL") // not within a transaction
	}
	return err
}

// write runs fn in a transaction that may write. SQLite runs one such transaction at a time.
func (s *Store) write(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// read runs fn in a transaction on a snapshot, which blocks no writer.
func (s *Store) read(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	return errors.Join(fn(tx), tx.Rollback())
}

// Close closes the database. Open logs must not be used any more, except to close them.
func (s *Store) Close() error {
	s.mu.Lock()
	wasClosed, isRenewing := s.closed, len(s.openLogs) > 0
	s.closed = true
	s.mu.Unlock()
	if wasClosed {
		return nil
	}
	if isRenewing {
		s.stopRenewing()
	}
	_, err := s.db.Exec("UPDATE session SET expires = 0 WHERE holder = ? AND expires <> 0", s.holder)
	return errors.Join(err, s.db.Close())
}

// Delete removes a session, even an open one.
func (s *Store) Delete(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), session.CheckID(id)); err != nil {
		return err
	}
	res, err := s.db.ExecContext(ctx, "DELETE FROM session WHERE id = ?", id)
	if err != nil {
		return fmt.Errorf("delete session %q: %w", id, err)
	}
	s.changed.wake()
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(fmt.Errorf("session %q: %w", id, fs.ErrNotExist), err)
	}
	return nil
}

// A signal wakes the goroutines that wait for a change in this process.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func (s *signal) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ch)
	s.ch = make(chan struct{})
}

// next returns a channel that is closed at the next change.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ch
}

// numberOf returns the number of a session, 0 if there is none.
func numberOf(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, id string) (num int64, err error) {
	err = q.QueryRowContext(ctx, "SELECT num FROM session WHERE id = ?", id).Scan(&num)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return num, err
}

// forEach calls scan for each row until it fails, and closes rows.
func forEach(rows *sql.Rows, scan func() error) error {
	for rows.Next() {
		if err := scan(); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}
