package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"

	"github.com/kitbag-go/kitbag/agent"
)

// A Reader is a [Store] that can read a session without opening it, independently of writers.
type Reader interface {
	// Read returns the current Info of a session, and the records that [Log.Load] returned when record seq was the
	// last one; 0 means the newest. It fails with [fs.ErrNotExist] if the session or the record does not exist, and
	// with [ErrGone] if the record is no longer kept.
	Read(ctx context.Context, id string, seq int64) (Info, []Record, error)
}

// Read returns a session's stored State: the newest, or, if seq is not 0, the one after the record with that
// number. The session may be open and is not opened: to continue it, use [Open]. Read fails if the store is not
// a [Reader]. The events after this State have numbers above [Info.Event].
func Read(ctx context.Context, store Store, id string, seq int64) (*agent.State, Info, error) {
	r, ok := store.(Reader)
	if !ok {
		return nil, Info{}, unsupported(store, "Reader", "open the session")
	}
	in, recs, err := r.Read(ctx, id, seq)
	if err != nil {
		return nil, Info{}, err
	}
	st, err := decode(id, recs)
	if err != nil {
		return nil, Info{}, fmt.Errorf("session %q: %w", id, err)
	}
	return st, in, nil
}

// unsupported is the error for a store that does not implement an optional interface.
func unsupported(store Store, iface, remedy string) error {
	return fmt.Errorf("session: a store of type %T is not a session.%s; %s, or use Dir, Memory or package sqlite", store, iface, remedy)
}

// Fork copies a session's State after the record with number seq, or its newest State if seq is 0, to a new
// session. To find the record of an event, range over store.(session.Watcher).Watch and use [Event.Record];
// [Watch] yields only the events themselves. The copy has the conversation and the labels, but neither the
// events nor the inputs. Calls that were running at that record count as interrupted, as after a crash. Fork
// fails if the store is not a [Reader], with [ErrConflict] if session to exists, and if the State is sealed
// ([agent.Config.Key]): a seal is valid for one session only.
func Fork(ctx context.Context, store Store, from, to string, seq int64) error {
	r, ok := store.(Reader)
	if !ok {
		return unsupported(store, "Reader", "copy the State")
	}
	_, recs, err := r.Read(ctx, from, seq)
	if err != nil {
		return err
	}
	if err := fork(ctx, store, r, to, recs); err != nil {
		return fmt.Errorf("fork session %q to %q: %w", from, to, err)
	}
	return nil
}

// ForkBefore copies a session in its state before a message was added, like [Fork]. Run the copy to get another
// answer in place of the model's message, or send it another message in place of the user's. ForkBefore fails with
// [fs.ErrNotExist] if no event has added the message, and if the store is not a [Watcher]. If the first record
// added the message, ForkBefore does nothing: the new session begins with the next input that is sent to it.
func ForkBefore(ctx context.Context, store Store, from, to, message string) error {
	w, ok := store.(Watcher)
	if !ok {
		return unsupported(store, "Watcher", "name a record to Fork")
	}
	_, in, err := Read(ctx, store, from, 0)
	if err != nil {
		return err
	}
	notAdded := fmt.Errorf("session %q: no event has added the message %q: %w", from, message, fs.ErrNotExist)
	if in.Event == 0 { // Watch would wait for an event
		return notAdded
	}
	for raw, err := range w.Watch(ctx, from, 0) {
		if err != nil {
			return err
		}
		var added struct {
			Type    string
			Message struct{ ID string }
		}
		// In events of other types, message may be an id.
		if json.Unmarshal(raw.Data, &added) == nil && added.Type == "message" && added.Message.ID == message {
			if raw.Record == 1 {
				return nil
			}
			return Fork(ctx, store, from, to, raw.Record-1)
		}
		if raw.Seq >= in.Event {
			break
		}
	}
	return notAdded
}

// fork stores the State after recs as the first record of session to.
func fork(ctx context.Context, store Store, r Reader, to string, recs []Record) error {
	if len(recs) == 0 {
		return errors.New("the session has no records")
	}
	data, err := replay(recs)
	if err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	if members["seal"] != nil {
		return errors.New("the State is sealed with agent.Config.Key; the seal covers the session id, so a copy would be refused")
	}
	if members["id"], err = json.Marshal(to); err != nil {
		return err
	}
	if data, err = json.Marshal(members); err != nil {
		return err
	}
	st, err := decode(to, []Record{{Seq: 1, Whole: true, Data: data}})
	if err != nil {
		return err
	}
	if data, err = st.MarshalJSON(); err != nil {
		return err
	}
	last := recs[len(recs)-1]
	log, err := store.Open(ctx, to)
	if err != nil {
		return err
	}
	// Also a session that has only inputs exists: the inputs were not meant for the copy.
	_, _, err = r.Read(ctx, to, 0)
	if err == nil {
		err = existsError(to)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, log.Close())
	}
	err = log.Append(ctx, Record{Seq: 1, Whole: true, Data: data, Status: last.Status, Labels: maps.Clone(last.Labels)})
	return errors.Join(err, log.Close())
}

// An existsError names a session that a copy would overwrite. It is an [ErrConflict], but has its own text, since
// the session may have no other writer.
type existsError string

func (e existsError) Error() string {
	return fmt.Sprintf("session %q exists; fork to an id that does not", string(e))
}

func (existsError) Unwrap() error { return ErrConflict }
