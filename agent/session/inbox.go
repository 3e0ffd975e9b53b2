package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// An Inbox is a [Store] that keeps the inputs for a session until the session consumes them: messages, answers
// to its questions, an interrupt. Any process may send. An input has an id, and is accepted only once. The input waits
// until a record consumes it ([Record.Consumed]); since that record also contains the changes that the input made, a
// crash neither loses an input nor makes it take effect twice.
type Inbox interface {
	// Send sends an input to a session, and returns when the input is stored durably. accepted is false,
	// and nothing is stored, if the session received an input with that id before, whether or not it was
	// consumed. A session that does not exist is created. An entry for which [Entry.Check] fails is an error.
	Send(ctx context.Context, session string, in Entry) (accepted bool, err error)

	// Inputs returns the inputs that wait, in the order in which they were sent.
	Inputs(ctx context.Context, session string) ([]Entry, error)

	// Input returns one input, which may have been consumed. The error for an input that was never sent is
	// [fs.ErrNotExist].
	Input(ctx context.Context, session, id string) (Entry, error)
}

// An Entry is an input in an [Inbox].
type Entry struct {
	ID   string          `json:"id"`   // see [CheckID]
	Data json.RawMessage `json:"data"` // the agent's input, as encoded by [Send]

	// The Inbox sets the following fields.
	Sent    time.Time `json:"sent"`
	Record  int64     `json:"-"` // the number of the record that consumed the input; 0 while the input waits
	Refused string    `json:"-"` // why the input had no effect, or, while it waits, will have none: see [ConsumedInput]
}

// ErrFull is wrapped by the error for an input to a full inbox.
var ErrFull = errors.New("the inbox is full")

// The limits of an inbox.
const (
	maxEntry   = 8 << 20 // bytes of Entry.Data
	maxWaiting = 256     // inputs
)

// Check returns an error if an inbox with the given number of waiting inputs may not accept the entry: its id must be
// valid, its data must be JSON of at most 8 MiB, and fewer than 256 inputs may wait ([ErrFull]). [Inbox.Send] calls
// Check, unless an input with that id was sent before.
func (in Entry) Check(waiting int) error {
	switch {
	case CheckID(in.ID) != nil:
		return fmt.Errorf("input: %w", CheckID(in.ID))
	case len(in.Data) > maxEntry:
		return fmt.Errorf("input %s has %d bytes; at most %d are accepted: send less, or a reference to it", in.ID, len(in.Data), maxEntry)
	case !json.Valid(in.Data):
		return fmt.Errorf("input %s: its data is not valid JSON", in.ID)
	case waiting >= maxWaiting:
		return fmt.Errorf("input %s: %w: %d inputs wait; run the session, then send it again", in.ID, ErrFull, waiting)
	}
	return nil
}
