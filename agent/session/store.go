package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/internal/lazy"
)

// ErrConflict is wrapped by the errors for a session that another writer has open, or has changed since it was
// loaded. Nothing was stored; open the session again to continue from what the other writer stored.
var ErrConflict = errors.New("another writer has the session")

// ErrGone is wrapped by the errors for records and events that a store has dropped. Read the session's newest
// State, and watch it from there.
var ErrGone = errors.New("no longer in the store")

// A Store stores sessions by id. It must be safe for concurrent use. It may also implement the interfaces
// [Inbox], [Watcher] and [Reader]. Package sessiontest has the tests that every Store must pass.
type Store interface {
	// Open opens a session for writing. An id that the store does not have is a new session, which exists once
	// it has a record or an input. A store may refuse a session that is already open with [ErrConflict];
	// otherwise it refuses the second writer in [Log.Append].
	Open(ctx context.Context, id string) (Log, error)

	// List returns the sessions that q selects, the last stored first. Its cost does not depend on the length
	// of the conversations.
	List(ctx context.Context, q Query) (Page, error)

	// Delete removes a session with all its records, events and inputs. It fails with [fs.ErrNotExist] if the
	// session does not exist, and with ErrConflict if the store can detect that the session is open. If it cannot,
	// an open log must not store anything more.
	Delete(ctx context.Context, id string) error
}

// A Log is an open session: a list of records to which more can be appended. It is for one goroutine at a time.
type Log interface {
	// Load returns the last whole record and those after it, in order, without their events: everything that
	// is needed to continue. A new session has none.
	Load(ctx context.Context) ([]Record, error)

	// Append stores a record with everything in it, in one transaction, durably, or returns an error. The record's
	// Seq must follow the last stored Seq, whichever writer stored it: otherwise the error is ErrConflict and nothing
	// is stored. Append also refuses a record for which [CheckRecord] fails, whose data is not valid JSON, or that
	// consumes an input that is not waiting. After any other error it is unknown whether the record was stored; the
	// log then accepts no more records, and must be opened again.
	Append(ctx context.Context, rec Record) error

	// Close closes the session, so that other writers can open it.
	Close() error
}

// A Record is one saved step of a session: the change of the State, and the effects of the step. Data is defined
// by this package; a Store must accept any JSON in it.
type Record struct {
	Seq   int64           `json:"seq,omitempty"`   // 1, 2, 3 …
	Whole bool            `json:"whole,omitempty"` // the records before it are not needed to load the session
	Data  json.RawMessage `json:"data,omitempty"`

	Status   Status            `json:"status,omitempty"` // of the session after this record
	Labels   map[string]string `json:"labels,omitempty"` // all labels of the session after this record
	Consumed []ConsumedInput   `json:"took,omitempty"`   // inputs of the inbox that the record consumed; only of an [Inbox]
	Events   []Event           `json:"-"`                // in the order of their numbers; only of a [Watcher]
}

// An Event is an event of the agent as JSON.
type Event struct {
	Seq  int64           `json:"seq"` // increases within the session, with gaps
	Data json.RawMessage `json:"data"`

	// Record is the number of the record that contains the event. A Watcher sets it.
	Record int64 `json:"-"`

	// decoded is the event that this process encoded into Data. It is valid only while first is &Data[0], that is,
	// until Data is replaced.
	decoded event.Event
	first   *byte
}

// Decode returns the event. Other callers may get a pointer to the same event: do not change it.
func (e Event) Decode() (event.Event, error) {
	if e.isDecoded() {
		return e.decoded, nil
	}
	return event.Decode(e.Data)
}

func (e Event) isDecoded() bool {
	return e.decoded != nil && len(e.Data) > 0 && &e.Data[0] == e.first
}

// A ConsumedInput says which input was consumed, and with which result.
type ConsumedInput struct {
	ID      string `json:"id"`
	Refused string `json:"refused,omitempty"` // why the input had no effect; empty if it had one
}

// Status is the state of a session.
type Status string

// The statuses. The status of a session is empty if it was last stored by an older version of this package, if it
// has no record yet, or if a [Dir] cannot read it.
const (
	StatusWorking   Status = "working"   // a run is in progress
	StatusWaiting   Status = "waiting"   // waits for the user or the host
	StatusEnded     Status = "ended"     // its last run was completed, interrupted or stopped by a limit
	StatusFailed    Status = "failed"    // its last run ended with an error
	StatusAbandoned Status = "abandoned" // a run was in progress, and no writer has the session open: the run was cut off
)

// Info describes a stored session, without its conversation.
type Info struct {
	ID      string
	Updated time.Time // when the last record was stored; before the first record, when the first input was sent
	Seq     int64     // the number of the last record; 0 if there is none
	Event   int64     // the number of the last event; 0 if there is none
	Status  Status
	Labels  map[string]string
	Inputs  int // the number of waiting inputs
}

// A Query selects sessions. The zero Query selects all.
type Query struct {
	ID     string            // only the session with this id; empty for all
	Status []Status          // only sessions with one of these; empty for all
	Labels map[string]string // only sessions with all of these labels; nil for all
	Since  time.Time         // only sessions updated at this time or later; zero for all
	Before time.Time         // only sessions updated before this time; zero for all
	Inputs bool              // only sessions with waiting inputs

	Limit int    // the maximum number of sessions; 0 means 100, and more than 1000 means 1000
	After string // Next of the previous Page; empty for the first page
}

// A Page is a part of the sessions that a [Query] selects: the last updated first, in order of id if updated at the
// same time. A session that is updated while the pages are read moves to the front: the reader may miss the session,
// but never gets it twice.
type Page struct {
	Infos []Info
	Next  string // for Query.After; empty on the last page
}

// Size returns the maximum number of sessions on a page of q.
func (q Query) Size() int { return min(cmp.Or(max(q.Limit, 0), 100), 1000) }

// Start returns where the page begins: after the session with this time and id. ok is false for the first page.
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

// Cursor returns the [Page.Next] of a page that ends with the session in.
func (in Info) Cursor() string { return in.Updated.UTC().Format(time.RFC3339Nano) + "/" + in.ID }

// Matches reports whether q selects a session, whatever q.Limit and q.After are.
func (q Query) Matches(in Info) bool {
	for k, v := range q.Labels {
		if got, ok := in.Labels[k]; !ok || got != v {
			return false
		}
	}
	return (q.ID == "" || q.ID == in.ID) &&
		(len(q.Status) == 0 || slices.Contains(q.Status, in.Status)) &&
		(q.Since.IsZero() || !in.Updated.Before(q.Since)) &&
		(q.Before.IsZero() || in.Updated.Before(q.Before)) &&
		(!q.Inputs || in.Inputs > 0)
}

// Page returns the page of q. all must include the page's sessions and the session after them, if there is one.
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

// compareInfos orders sessions as a [Page] does.
func compareInfos(a, b Info) int {
	return cmp.Or(b.Updated.Compare(a.Updated), cmp.Compare(a.ID, b.ID))
}

var idPattern = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// CheckID returns an [fs.ErrInvalid] if id is not a valid id of a session or an input: 1 to 128 ASCII letters and digits,
// '.', '_' and '-', of which the first is a letter or digit. So an id is a valid file name on every system. A Store
// checks the ids in calls of its methods.
func CheckID(id string) error {
	if !idPattern().MatchString(id) {
		return fmt.Errorf("id %.140q: %w: it must be 1 to 128 letters, digits, '.', '_' or '-', and begin with a letter or digit", id, fs.ErrInvalid)
	}
	return nil
}

// The limits of labels, which are small because a store may index them.
const (
	maxLabels     = 16
	maxLabelValue = 256
)

// CheckRecord returns an error if rec may not be the next record of a session with this Info. Its Seq must follow
// info.Seq; otherwise the error is [ErrConflict], since another writer has stored a record that rec does not take into
// account. The first record must be whole, the numbers of events must increase, and there may be at most 16 labels,
// with a key in the form of an id and a value of at most 256 bytes. A Store calls CheckRecord in [Log.Append].
func CheckRecord(rec Record, info Info) error {
	switch {
	case rec.Seq != info.Seq+1:
		return fmt.Errorf("record %d after record %d: %w; open the session again to continue from the last record", rec.Seq, info.Seq, ErrConflict)
	case info.Seq == 0 && !rec.Whole:
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
	lastEvent := info.Event
	for _, ev := range rec.Events {
		if ev.Seq <= lastEvent {
			return fmt.Errorf("record %d: event %d after event %d: the numbers of events must increase", rec.Seq, ev.Seq, lastEvent)
		}
		lastEvent = ev.Seq
	}
	return nil
}
