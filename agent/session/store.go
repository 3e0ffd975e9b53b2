package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kitbag-go/kitbag/internal/lazy"
)

// ErrConflict is wrapped by the errors that say that another writer has the
// session open, or has changed it since it was loaded. Nothing was stored; open
// the session again to go on from what the other has left.
var ErrConflict = errors.New("another writer has the session")

// A Store keeps sessions by id. It must be safe for concurrent use.
// Package sessiontest has the tests that every Store must pass.
type Store interface {
	// Open opens a session for writing. An id that the store does not have is
	// a new session, which exists from its first record on. A store may refuse
	// with [ErrConflict] a session that is open already; one that does not
	// refuses the second writer in [Log.Append].
	Open(ctx context.Context, id string) (Log, error)

	// List returns the sessions, sorted by id.
	List(ctx context.Context) ([]Info, error)

	// Delete removes a session. The error for one that does not exist is
	// [fs.ErrNotExist]; that for one that is open, if the store can tell, is
	// ErrConflict. A log that was open nevertheless must not store anything
	// more.
	Delete(ctx context.Context, id string) error
}

// A Log is a session that is open: a list of records that only grows. It is
// for one goroutine at a time.
type Log interface {
	// Load returns the last whole record and those after it, in order: all that
	// is needed. A new session has none.
	Load(ctx context.Context) ([]Record, error)

	// Append stores a record so that it outlives the process, or returns an
	// error. The record's Seq must follow that of the last one that is stored,
	// by whomever: otherwise the error is ErrConflict and nothing is stored.
	// After any other error it is unknown whether it was; the log takes no
	// more records then, and must be opened again.
	Append(ctx context.Context, rec Record) error

	// Close lets others open the session.
	Close() error
}

// A Record is one saved step of a session. What Data holds is the business of
// this package and may be any JSON for a Store.
type Record struct {
	Seq   int64           `json:"seq"`             // 1, 2, 3 …
	Whole bool            `json:"whole,omitempty"` // what came before is not needed
	Data  json.RawMessage `json:"data"`
}

// Info is what a list of sessions says of each.
type Info struct {
	ID      string
	Updated time.Time // when the last record was stored
}

var idPattern = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// CheckID reports whether id may be the id of a session: 1 to 128 letters and
// digits of ASCII, '.', '_' and '-', of which the first is a letter or digit.
// So it is a plain file name everywhere. A Store checks the ids it is given.
func CheckID(id string) error {
	if !idPattern().MatchString(id) {
		return fmt.Errorf("session id %.140q: it must be 1 to 128 letters, digits, '.', '_' or '-', and begin with a letter or digit", id)
	}
	return nil
}
