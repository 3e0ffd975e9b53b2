package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/internal/lazy"
)

// ErrConflict is wrapped by the errors that say that another writer has the
// session open, or has changed it since it was loaded. Nothing was stored; open
// the session again to continue from what the other has left.
var ErrConflict = errors.New("another writer has the session")

// ErrGone is wrapped by the errors for records and events that a store does not
// keep any more. Read the session as it is now, and watch it from there.
var ErrGone = errors.New("the store does not keep it any more")

// A Store keeps sessions by id. It must be safe for concurrent use. What it can
// do beside that is said by the interfaces [Inbox], [Watcher] and [Reader].
// Package sessiontest has the tests that every Store must pass.
type Store interface {
	// Open opens a session for writing. An id that the store does not have is
	// a new session, which exists from its first record or input on. A store may
	// refuse with [ErrConflict] a session that is open already; one that does not
	// refuses the second writer in [Log.Append].
	Open(ctx context.Context, id string) (Log, error)

	// List returns the sessions that q selects, those stored last first. Its cost
	// does not depend on how long the conversations are.
	List(ctx context.Context, q Query) (Page, error)

	// Delete removes a session with all its records, events and inputs. The error
	// for one that does not exist is [fs.ErrNotExist]; that for one that is open,
	// if the store can tell, is ErrConflict. A log that was open nevertheless must
	// not store anything more.
	Delete(ctx context.Context, id string) error
}

// A Log is a session that is open: a list of records that only grows. It is
// for one goroutine at a time.
type Log interface {
	// Load returns the last whole record and those after it, in order, without
	// their events: all that is needed to continue. A new session has none.
	Load(ctx context.Context) ([]Record, error)

	// Append stores a record with all that is in it, in one transaction, so that it
	// outlives the process, or returns an error. The record's Seq must follow that
	// of the last one that is stored, by whomever: otherwise the error is
	// ErrConflict and nothing is stored. A record for which [CheckRecord] fails is
	// not stored either, nor is one whose data are not JSON, or that takes an input
	// that does not wait. After any other error it is unknown whether it was; the
	// log takes no more records then, and must be opened again.
	Append(ctx context.Context, rec Record) error

	// Close lets others open the session.
	Close() error
}

// A Record is one saved step of a session: what changed, and what becomes true
// with it. What Data holds is the business of this package and may be any JSON
// for a Store.
type Record struct {
	Seq   int64           `json:"seq"`             // 1, 2, 3 …
	Whole bool            `json:"whole,omitempty"` // what came before is not needed to load the session
	Data  json.RawMessage `json:"data"`

	Status Status            `json:"status,omitempty"` // of the session from now on
	Labels map[string]string `json:"labels,omitempty"` // of the session from now on: all of them
	Took   []Taken           `json:"took,omitempty"`   // inputs that wait in the inbox no more; only of an [Inbox]
	Events []Event           `json:"-"`                // in the order of their numbers; only of a [Watcher]
}

// An Event is an event of the agent as JSON; package event decodes it.
type Event struct {
	Seq  int64           `json:"seq"` // its number within the session; they ascend, with gaps
	Data json.RawMessage `json:"data"`

	// Record is the number of the record that holds the event. A Watcher sets it.
	Record int64 `json:"-"`
}

// Taken says what became of an input.
type Taken struct {
	ID      string `json:"id"`
	Refused string `json:"refused,omitempty"` // why the input had no effect; empty if it had one
}

// Status says where a session is.
type Status string

// The statuses. That of a session is empty if an older version of this package
// stored it last, or if it has no record yet.
const (
	StatusWorking   Status = "working"   // a run is under way
	StatusWaiting   Status = "waiting"   // for a person, or for the host
	StatusEnded     Status = "ended"     // its last run was completed, interrupted or stopped by a limit
	StatusFailed    Status = "failed"    // its last run ended with an error
	StatusAbandoned Status = "abandoned" // a run was under way, and no writer has the session open: it was cut off
)

// Info is what a list of sessions says of each.
type Info struct {
	ID      string
	Updated time.Time // when the last record was stored, or the first input
	Seq     int64     // of the last record; 0 if there is none
	Event   int64     // the number of the last event; 0 if there is none
	Status  Status
	Labels  map[string]string
	Inputs  int // that wait in the inbox
}

// A Query selects sessions. The zero Query selects all.
type Query struct {
	Status []Status          // one of these, if there are any
	Labels map[string]string // all of these, and perhaps others
	Since  time.Time         // updated then or later, if not zero
	Before time.Time         // updated earlier than this, if not zero
	Inputs bool              // only those for which inputs wait

	Limit int    // at most so many sessions; 0 means 100, and more than 1000 means 1000
	After string // Next of the Page before; empty for the first page
}

// A Page is a part of the sessions that a [Query] selects: those updated last
// first, and by id where that is the same. A session that is updated while the pages
// are read moves to the front: the reader may miss it, and never gets it twice.
type Page struct {
	Infos []Info
	Next  string // for Query.After; empty if there are no more
}

// Size returns how many sessions a page of q may have.
func (q Query) Size() int { return min(cmp.Or(max(q.Limit, 0), 100), 1000) }

// Start returns where the page begins: after the session with this time and id.
// ok is false for the first page.
func (q Query) Start() (updated time.Time, id string, ok bool, err error) {
	if q.After == "" {
		return time.Time{}, "", false, nil
	}
	stamp, id, _ := strings.Cut(q.After, "/")
	updated, err = time.Parse(time.RFC3339Nano, stamp)
	if err != nil || CheckID(id) != nil {
		return time.Time{}, "", false, fmt.Errorf("Query.After %.80q is not the Next of a Page; leave it empty for the first page", q.After)
	}
	return updated, id, true, nil
}

// Cursor returns the [Page.Next] of a page that ends with this session.
func (in Info) Cursor() string { return in.Updated.UTC().Format(time.RFC3339Nano) + "/" + in.ID }

// Matches reports whether q selects a session, on whichever page.
func (q Query) Matches(in Info) bool {
	for k, v := range q.Labels {
		if got, ok := in.Labels[k]; !ok || got != v {
			return false
		}
	}
	return (len(q.Status) == 0 || slices.Contains(q.Status, in.Status)) &&
		(q.Since.IsZero() || !in.Updated.Before(q.Since)) &&
		(q.Before.IsZero() || in.Updated.Before(q.Before)) &&
		(!q.Inputs || in.Inputs > 0)
}

// Page returns the page of q, for a store that has all its sessions at hand.
func (q Query) Page(all []Info) (Page, error) {
	updated, id, ok, err := q.Start()
	if err != nil {
		return Page{}, err
	}
	start := Info{ID: id, Updated: updated}
	var infos []Info
	for _, in := range all {
		if q.Matches(in) && (!ok || compareInfos(start, in) < 0) {
			infos = append(infos, in)
		}
	}
	slices.SortFunc(infos, compareInfos)
	if len(infos) <= q.Size() {
		return Page{Infos: infos}, nil
	}
	infos = infos[:q.Size()]
	return Page{infos, infos[len(infos)-1].Cursor()}, nil
}

func compareInfos(a, b Info) int {
	return cmp.Or(b.Updated.Compare(a.Updated), cmp.Compare(a.ID, b.ID))
}

var idPattern = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// CheckID reports whether id may be the id of a session, or of an input: 1 to 128
// letters and digits of ASCII, '.', '_' and '-', of which the first is a letter or
// digit. So it is a plain file name everywhere. A Store checks the ids it is given.
func CheckID(id string) error {
	if !idPattern().MatchString(id) {
		return fmt.Errorf("id %.140q: it must be 1 to 128 letters, digits, '.', '_' or '-', and begin with a letter or digit", id)
	}
	return nil
}

// Labels are for a store's index, and so are small.
const (
	maxLabels     = 16
	maxLabelValue = 256
)

// CheckRecord reports whether rec may be stored when last is what the store has of
// the session: its number follows, the first record is whole, the numbers of its
// events ascend, and its labels are at most 16, with a key like an id and a value
// of at most 256 bytes. A Store calls it in [Log.Append]. A gap in the numbers of
// records is an [ErrConflict]: another writer was here, and what rec changes is
// not what the last record left.
func CheckRecord(rec Record, last Info) error {
	switch {
	case rec.Seq != last.Seq+1:
		return fmt.Errorf("record %d after record %d: %w; open the session again to continue from what it stored", rec.Seq, last.Seq, ErrConflict)
	case last.Seq == 0 && !rec.Whole:
		return errors.New("the first record of a session must be whole")
	case len(rec.Labels) > maxLabels:
		return fmt.Errorf("the session has %d labels; use at most %d", len(rec.Labels), maxLabels)
	}
	for _, k := range slices.Sorted(maps.Keys(rec.Labels)) {
		if err := CheckID(k); err != nil {
			return fmt.Errorf("label: %w", err)
		}
		if v := rec.Labels[k]; len(v) > maxLabelValue || !utf8.ValidString(v) {
			return fmt.Errorf("label %s: its value must be UTF-8 and have at most %d bytes", k, maxLabelValue)
		}
	}
	number := last.Event
	for _, ev := range rec.Events {
		if ev.Seq <= number {
			return fmt.Errorf("record %d: event %d after event %d: the numbers of events must ascend", rec.Seq, ev.Seq, number)
		}
		number = ev.Seq
	}
	return nil
}
