package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
)

// minChanges is the size, in bytes, up to which changes never cause another whole record, however small the state is.
const minChanges = 256 << 10

// A logKeeper stores a State in a Log. Messages do not change once they are in the State, so the messages in the
// log are recognized by their pointers and not encoded again. The rest of the State, which is small, is compared with
// its last encoding.
type logKeeper struct {
	log         Log
	storeEvents bool // the store is a Watcher

	status Status            // of the last record; StatusEnded before the first
	labels map[string]string // of the last record
	given  map[string]bool   // by id: inputs from the inbox that the current run got and no record has consumed

	seq      int64              // of the last record
	messages []*message.Message // the messages in the log
	rest     *node              // the other members of the State in the log

	wholeSize   int // bytes of the last whole record
	changesSize int // bytes of the records after the last whole one
}

func newLogKeeper(store Store, log Log) *logKeeper {
	_, storeEvents := store.(Watcher)
	return &logKeeper{log: log, storeEvents: storeEvents, status: StatusEnded, given: map[string]bool{}, rest: &node{raw: json.RawMessage("{}")}}
}

// load reads the log into a State.
func (k *logKeeper) load(ctx context.Context, id string) (*agent.State, error) {
	recs, err := k.log.Load(ctx)
	if err != nil {
		return nil, err
	}
	st, err := decode(id, recs)
	if err != nil || len(recs) == 0 {
		return st, err
	}
	last := recs[len(recs)-1]
	k.seq, k.status, k.labels = last.Seq, last.Status, last.Labels
	k.wholeSize = len(recs[0].Data)
	for _, rec := range recs[1:] {
		k.changesSize += len(rec.Data)
	}
	// The State is encoded again, because an older program may have written the records: the next save must be
	// compared with what this program writes.
	k.messages = slices.Clone(st.Messages)
	k.rest, _, err = encode(st, len(st.Messages))
	return st, err
}

// decode returns the State after the records. The session id in the State must be id; it differs if a file was copied
// or renamed.
func decode(id string, recs []Record) (*agent.State, error) {
	st := &agent.State{ID: id}
	if len(recs) == 0 {
		return st, nil
	}
	data, err := replay(recs)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, st); err != nil {
		return nil, err
	}
	if st.ID != id {
		return nil, fmt.Errorf("the session contains the conversation %q; open it with that id", st.ID)
	}
	return st, nil
}

// replay returns the JSON of the State after the records.
func replay(recs []Record) ([]byte, error) {
	if !recs[0].Whole {
		return nil, fmt.Errorf("its first record, %d, is not whole; restore the store from a copy, or use another session", recs[0].Seq)
	}
	state := &node{raw: recs[0].Data}
	seq := recs[0].Seq
	for _, rec := range recs[1:] {
		if rec.Seq != seq+1 || rec.Whole {
			return nil, fmt.Errorf("record %d follows record %d; restore the store from a copy, or use another session", rec.Seq, seq)
		}
		var c change
		err := json.Unmarshal(rec.Data, &c)
		if err == nil {
			err = state.apply(&c)
		}
		if err != nil {
			return nil, fmt.Errorf("record %d does not match the records before it: %w; restore the store from a copy, or use another session", rec.Seq, err)
		}
		seq = rec.Seq
	}
	return json.Marshal(state)
}

// encode returns st in two parts: the members other than "messages", and the messages after the first n.
func encode(st *agent.State, n int) (rest *node, messages []json.RawMessage, err error) {
	data, err := st.MarshalFrom(n)
	if err != nil {
		return nil, nil, err
	}
	rest = &node{raw: data}
	if err := rest.parseMembers(); err != nil {
		return nil, nil, err
	}
	list := rest.members["messages"]
	delete(rest.members, "messages")
	if list == nil {
		return nil, nil, errors.New(`the state has no "messages"`)
	}
	rest.raw = nil
	err = list.parseItems()
	return rest, list.items, err
}

// save stores what has changed since the last save.
func (k *logKeeper) save(ctx context.Context, st *agent.State, labels map[string]string) error {
	rec, err := k.newRecord(st.Saving(), labels)
	if err != nil {
		return err
	}
	return k.storeChanges(ctx, st, rec)
}

// newRecord returns a record with everything except the change of the State, which storeChanges adds.
func (k *logKeeper) newRecord(saving agent.Saving, labels map[string]string) (Record, error) {
	rec := Record{Status: k.status, Labels: maps.Clone(labels)}
	for _, id := range saving.Inputs {
		if k.given[id] {
			rec.Consumed = append(rec.Consumed, ConsumedInput{ID: id})
		}
	}
	for _, ev := range saving.Events {
		rec.Status = statusAfter(ev)
		if !k.storeEvents {
			continue
		}
		data, err := json.Marshal(ev)
		if err != nil {
			return rec, fmt.Errorf("event %d: %w", ev.Head().Seq, err)
		}
		rec.Events = append(rec.Events, Event{Seq: ev.Head().Seq, Data: data, decoded: ev, first: &data[0]})
	}
	return rec, nil
}

// statusAfter returns the status of a session whose last event is ev.
func statusAfter(ev event.Event) Status {
	end, ok := ev.(*event.End)
	if !ok {
		return StatusWorking
	}
	switch end.Reason {
	case event.EndWaiting:
		return StatusWaiting
	case event.EndError:
		return StatusFailed
	}
	return StatusEnded
}

// storeChanges adds the change of the State to rec and appends rec, unless nothing has changed.
func (k *logKeeper) storeChanges(ctx context.Context, st *agent.State, rec Record) error {
	kept := 0 // the number of messages in the log that are still in the State: all, except after a compaction
	for kept < min(len(k.messages), len(st.Messages)) && k.messages[kept] == st.Messages[kept] {
		kept++
	}
	rest, added, err := encode(st, kept)
	if err != nil {
		return err
	}
	c, err := diff(k.rest, rest)
	if err != nil {
		return err
	}
	if drop := len(k.messages) - kept; drop > 0 || len(added) > 0 {
		c.Splice["messages"] = splice{At: kept, Drop: drop, Put: added}
	}
	noEffects := len(rec.Consumed)+len(rec.Events) == 0 && rec.Status == k.status && maps.Equal(rec.Labels, k.labels)
	if k.seq > 0 && c.empty() && noEffects { // the first record is always stored: it creates the session
		return nil
	}
	if err := k.append(ctx, st, c, rec); err != nil {
		return err
	}
	k.status, k.labels = rec.Status, rec.Labels
	for _, in := range rec.Consumed {
		delete(k.given, in.ID)
	}
	k.messages = append(k.messages[:kept], st.Messages[kept:]...)
	k.rest = rest
	return nil
}

// append appends rec with the change c, or with the whole State if rec is the first record or the changes have become
// larger than the State.
func (k *logKeeper) append(ctx context.Context, st *agent.State, c *change, rec Record) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	rec.Seq, rec.Data = k.seq+1, data
	rec.Whole = k.seq == 0 || k.changesSize+len(data) > max(minChanges, k.wholeSize)
	if rec.Whole {
		if rec.Data, err = st.MarshalJSON(); err != nil {
			return err
		}
	}
	if err := k.log.Append(ctx, rec); err != nil {
		return err
	}
	k.seq = rec.Seq
	k.changesSize += len(data)
	if rec.Whole {
		k.changesSize, k.wholeSize = 0, len(rec.Data)
	}
	return nil
}

func (k *logKeeper) close() error { return k.log.Close() }
