package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// An Inbox is a [Store] that keeps what is to be said to a session until the
// session takes it: words, answers to its questions, an interrupt. Any process may
// send. An input has an id, by which it is accepted once, ever. It waits until a
// record takes it ([Record.Took]); as that is one transaction with what the input
// changed, a crash neither loses an input nor makes it take effect twice.
type Inbox interface {
	// Send gives an input to a session, and returns when it will outlive the
	// process. accepted is false, and nothing is stored, if the session was given
	// one with that id before, whether or not it has been taken. A session that does
	// not exist begins with it. An entry for which [CheckEntry] fails is an error.
	Send(ctx context.Context, session string, in Entry) (accepted bool, err error)

	// Inputs returns the inputs that wait, in the order in which they were sent.
	Inputs(ctx context.Context, session string) ([]Entry, error)

	// Input returns one input, which may have been taken. The error for one that
	// was never sent is [fs.ErrNotExist].
	Input(ctx context.Context, session, id string) (Entry, error)
}

// An Entry is an input in an [Inbox].
type Entry struct {
	ID   string          `json:"id"`   // see [CheckID]
	Data json.RawMessage `json:"data"` // what [Send] makes of an input of the agent

	// The rest is set by the Inbox.
	Sent    time.Time `json:"sent"`
	Record  int64     `json:"-"` // the number of the record that took it; 0 while it waits
	Refused string    `json:"-"` // why it had no effect: see [Taken]
}

// ErrFull is wrapped by the error for an input for which an inbox has no room.
var ErrFull = errors.New("the inbox is full")

// What an inbox holds at most.
const (
	maxEntry   = 8 << 20
	maxWaiting = 256
)

// CheckEntry reports whether an inbox in which some inputs wait may accept one
// more: its id is one, its data are JSON of at most 8 MiB, and less than 256 wait
// ([ErrFull]). An Inbox calls it in Send, unless it has the id already.
func CheckEntry(in Entry, waiting int) error {
	switch {
	case CheckID(in.ID) != nil:
		return fmt.Errorf("input: %w", CheckID(in.ID))
	case len(in.Data) > maxEntry:
		return fmt.Errorf("input %s has %d bytes; at most %d are accepted: send less, or where it can be read", in.ID, len(in.Data), maxEntry)
	case !json.Valid(in.Data):
		return fmt.Errorf("input %s: its data are not JSON", in.ID)
	case waiting >= maxWaiting:
		return fmt.Errorf("input %s: %w: %d inputs wait; run the session, then send it again", in.ID, ErrFull, waiting)
	}
	return nil
}
