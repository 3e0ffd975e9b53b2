package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"

	"github.com/kitbag-go/kitbag/agent"
)

// A Reader is a [Store] that reads a session without opening it: no writer is kept
// waiting or disturbed, and none keeps the reader waiting.
type Reader interface {
	// Read returns what the store says of a session now, and what [Log.Load] would
	// have returned when record seq was the last; 0 is the last now. The error for
	// what was not stored yet is [fs.ErrNotExist], for what is not kept any more
	// [ErrGone].
	Read(ctx context.Context, id string, seq int64) (Info, []Record, error)
}

// Read returns a session's State as it is stored, or as it was when the record with
// number seq was the last, if that is not 0. The session need not be closed and is
// not opened: to continue it, use [Open]. It fails if the store is not a [Reader].
// Events that follow the State are those above [Info.Event].
func Read(ctx context.Context, store Store, id string, seq int64) (*agent.State, Info, error) {
	r, ok := store.(Reader)
	if !ok {
		return nil, Info{}, lacks(store, "Reader", "open the session")
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

// lacks is the error for a store that cannot do something.
func lacks(store Store, what, remedy string) error {
	return fmt.Errorf("session: a store of type %T is not a session.%s; %s, or use Dir, Memory or package sqlite", store, what, remedy)
}

// Fork copies a session as it was when the record with number seq was the last, or as
// it is if seq is 0, to a session that does not exist. [Event.Record] says which
// record an event belongs to. The copy has the conversation and the labels, and
// neither the events nor the inputs; what the agent was doing at that moment was cut
// off, as by a crash. It fails if the store is not a [Reader], with [ErrConflict] if
// there is a session to, and if the State is sealed ([agent.Config.Key]): the seal
// is of one session.
func Fork(ctx context.Context, store Store, from, to string, seq int64) error {
	r, ok := store.(Reader)
	if !ok {
		return lacks(store, "Reader", "copy the State")
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

func fork(ctx context.Context, store Store, r Reader, to string, recs []Record) error {
	if len(recs) == 0 {
		return errors.New("it has no record yet")
	}
	data, err := replay(recs)
	if err != nil {
		return err
	}
	var copied map[string]json.RawMessage
	if err := json.Unmarshal(data, &copied); err != nil {
		return err
	}
	if copied["seal"] != nil {
		return errors.New("it is sealed with agent.Config.Key, which covers its id; a copy would be refused")
	}
	if copied["id"], err = json.Marshal(to); err != nil {
		return err
	}
	if data, err = json.Marshal(copied); err != nil {
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
	// Inputs may wait for a session that has no record yet: they are not for a copy.
	if in, _, missing := r.Read(ctx, to, 0); missing == nil {
		err = fmt.Errorf("there is a session %q, for which %d inputs wait: %w", to, in.Inputs, ErrConflict)
		return errors.Join(err, log.Close())
	} else if !errors.Is(missing, fs.ErrNotExist) {
		return errors.Join(missing, log.Close())
	}
	err = log.Append(ctx, Record{Seq: 1, Whole: true, Data: data, Status: last.Status, Labels: maps.Clone(last.Labels)})
	return errors.Join(err, log.Close())
}

// ReadFile returns the State in a file of [File], or of [SealedFile] if key is not nil,
// without opening it: the file may be open meanwhile. A missing file is an error.
func ReadFile(path string, key []byte) (*agent.State, error) {
	st, err := readFile(path, key)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", path, err)
	}
	return st, nil
}

func readFile(path string, key []byte) (*agent.State, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return decodeFile(data, key)
}
