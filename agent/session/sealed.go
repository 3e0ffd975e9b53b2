package session

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
)

// ErrUnsealed is wrapped by the errors of a store of [Sealed] for what was not stored with its
// key.
var ErrUnsealed = errors.New("its seal is missing or wrong: " +
	"it was not saved with this key, or was changed since")

// minKey is the minimum size of a key in bytes: an attacker cannot try all keys of 128 bits.
const minKey = 16

// Sealed returns a store that keeps sessions in another store so that only programs with the key
// can change them: each record, event and input gets a seal (HMAC-SHA256). Reading a record or an
// event whose seal is missing or wrong fails with [ErrUnsealed]. The seal of a record covers the
// session's id, the record, and the record before it. That of an event covers the event, the number
// of its record, and the number of the event before it, so that [Watch] finds that an event is
// missing when a later one follows. Key must have at least 16 bytes, from crypto/rand. The other
// store must be an [Inbox], a [Watcher] and a [Reader]; if it is a [Notifier], so is the result.
//
// An input without a valid seal has no effect: [Session.Run] consumes it with the reason
// ([Entry.Refused]). So an answer in the inbox is from a program that has the key.
//
// The seals do not cover:
//
//   - age: anyone who can write to the other store can delete a session, or replace it with an
//     older version of it. An input that the older version has not consumed can then take effect
//     again: a call that the user has approved can run twice.
//   - [Store.List] and the events of [Notifier.Live]: they are a hint; to be sure, read the session.
//   - secrecy: anyone who can read the other store can read the sessions there, without the key.
//     That is also the way to look at a session whose seal is wrong.
//   - the policy and the tools of the agent, unlike [agent.Config.Key]: each run may have others.
func Sealed(store Store, key []byte) (Store, error) {
	if len(key) < minKey {
		return nil, fmt.Errorf("session.Sealed: the key has %d bytes; use at least %d, from crypto/rand",
			len(key), minKey)
	}
	s := &sealed{Store: store, key: bytes.Clone(key)} // the caller may erase its key
	var isInbox, isWatcher, isReader bool
	s.inbox, isInbox = store.(Inbox)
	s.watcher, isWatcher = store.(Watcher)
	s.reader, isReader = store.(Reader)
	if !isInbox || !isWatcher || !isReader {
		return nil, fmt.Errorf("session.Sealed: a store of type %T is not an Inbox, a Watcher and a Reader; "+
			"implement these interfaces", store)
	}
	if n, ok := store.(Notifier); ok {
		return struct {
			*sealed
			Notifier
		}{s, n}, nil
	}
	return s, nil
}

type sealed struct {
	Store   // has List and Delete
	inbox   Inbox
	watcher Watcher
	reader  Reader
	key     []byte
}

// A seal is a member of the JSON of a record, an event or an input. Other programs ignore the
// member, so they can read a sealed session.
type seal struct {
	MAC   string `json:"mac"`
	After string `json:"after,omitempty"` // of a record: the MAC of the record before it
	Event int64  `json:"event,omitempty"` // the last event in or before the record, or before the event
	Value bool   `json:"value,omitempty"` // the JSON was no object, and is the member "value" of one
}

const (
	sealMember  = `"kitbag_seal":`
	valuePrefix = `{"value":`
)

// A sealedPart is what a seal covers: a record without its events, an event or an input. The
// kinds differ in the fields that they set.
type sealedPart struct {
	Session string
	Record  Record // of an event only its number
	Event   int64
	Input   string
	Data    json.RawMessage // of an event or an input
	Seal    seal            // without the MAC
}

func (s *sealed) eventPart(id string, record int64, ev Event) sealedPart {
	return sealedPart{Session: id, Record: Record{Seq: record}, Event: ev.Seq, Data: ev.Data}
}

// mac returns the MAC of p. JSON that differs only in white space or escapes, which a store may
// change, has the same MAC.
func (s *sealed) mac(p sealedPart) (string, error) {
	p.Seal.MAC = ""
	data, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	// json.Marshal writes invalid UTF-8 as \ufffd, but after loading, the same text has the
	// character itself.
	data = bytes.ReplaceAll(data, []byte("\uFFFD"), []byte(`\ufffd`))
	h := hmac.New(sha256.New, s.key)
	h.Write(data)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)), nil
}

// add returns the data of p, which data points to, with p.Seal and its MAC as the last member.
func (s *sealed) add(p *sealedPart, data *json.RawMessage) (json.RawMessage, error) {
	object, err := json.Marshal(*data) // compact
	if err != nil || len(*data) == 0 {
		return nil, errors.Join(errors.New("the data is not valid JSON"), err)
	}
	*data = object
	p.Seal.Value = object[0] != '{'
	if p.Seal.MAC, err = s.mac(*p); err != nil {
		return nil, err
	}
	member, err := json.Marshal(p.Seal)
	if err != nil {
		return nil, err
	}
	if p.Seal.Value {
		object = append(append([]byte(valuePrefix), object...), '}')
	}
	comma := ","
	if len(object) == len("{}") {
		comma = ""
	}
	return fmt.Appendf(nil, "%s%s%s%s}", object[:len(object)-1], comma, sealMember, member), nil
}

// remove splits what add returned, into data and p.Seal, and checks the seal.
func (s *sealed) remove(p *sealedPart, data *json.RawMessage) error {
	body, member, ok := cutLast(*data, sealMember)
	member, isObject := bytes.CutSuffix(member, []byte("}"))
	if !ok || !isObject || json.Unmarshal(member, &p.Seal) != nil {
		return ErrUnsealed
	}
	body = append(bytes.TrimSuffix(bytes.Clone(body), []byte(",")), '}')
	if p.Seal.Value {
		body = bytes.TrimSuffix(bytes.TrimPrefix(body, []byte(valuePrefix)), []byte("}"))
	}
	*data = body
	want, err := s.mac(*p)
	if err != nil || !hmac.Equal([]byte(want), []byte(p.Seal.MAC)) {
		return ErrUnsealed
	}
	return nil
}

// cutLast slices s around the last instance of sep.
func cutLast(s []byte, sep string) (before, after []byte, found bool) {
	if i := bytes.LastIndex(s, []byte(sep)); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, nil, false
}

// check removes the seals of records, which are the last whole one and those after it, and
// returns that of the last.
func (s *sealed) check(id string, recs []Record) (last seal, err error) {
	for i := range recs {
		p := sealedPart{Session: id, Record: recs[i]}
		err := s.remove(&p, &p.Record.Data)
		if err == nil && i > 0 && p.Seal.After != last.MAC {
			err = ErrUnsealed
		}
		if err != nil {
			return seal{}, fmt.Errorf("record %d: %w", recs[i].Seq, err)
		}
		recs[i], last = p.Record, p.Seal
	}
	return last, nil
}

func (s *sealed) Open(ctx context.Context, id string) (Log, error) {
	log, err := s.Store.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	return &sealedLog{Log: log, store: s, id: id}, nil
}

type sealedLog struct {
	Log
	store  *sealed
	id     string
	loaded bool
	last   seal // of the last record; valid if loaded
}

func (l *sealedLog) Load(ctx context.Context) ([]Record, error) {
	recs, err := l.Log.Load(ctx)
	if err != nil {
		return nil, err
	}
	if l.last, err = l.store.check(l.id, recs); err != nil {
		return nil, err
	}
	l.loaded = true
	return recs, nil
}

func (l *sealedLog) Append(ctx context.Context, rec Record) error {
	if !l.loaded {
		if _, err := l.Load(ctx); err != nil {
			return err
		}
	}
	p := sealedPart{Session: l.id, Record: rec, Seal: seal{After: l.last.MAC, Event: l.last.Event}}
	events := make([]Event, len(rec.Events))
	for i, ev := range rec.Events {
		e := l.store.eventPart(l.id, rec.Seq, ev)
		e.Seal.Event = p.Seal.Event
		data, err := l.store.add(&e, &e.Data)
		if err != nil {
			return fmt.Errorf("event %d: %w", ev.Seq, err)
		}
		events[i] = Event{Seq: ev.Seq, Data: data}
		p.Seal.Event = ev.Seq
	}
	data, err := l.store.add(&p, &p.Record.Data)
	if err != nil {
		return fmt.Errorf("record %d: %w", rec.Seq, err)
	}
	rec.Data, rec.Events = data, events
	if err := l.Log.Append(ctx, rec); err != nil {
		return err
	}
	l.last = p.Seal
	return nil
}

func (s *sealed) Read(ctx context.Context, id string, seq int64) (Info, []Record, error) {
	in, recs, err := s.reader.Read(ctx, id, 0)
	if err != nil {
		return Info{}, nil, err
	}
	last, err := s.check(id, recs)
	if err == nil && !isInfoOf(in, recs, last) {
		err = fmt.Errorf("its summary: %w", ErrUnsealed)
	}
	if err != nil {
		return Info{}, nil, fmt.Errorf("session %q: %w", id, err)
	}
	if seq == 0 || seq == in.Seq {
		return in, recs, nil
	}
	_, recs, err = s.reader.Read(ctx, id, seq)
	if err != nil {
		return Info{}, nil, err
	}
	if _, err = s.check(id, recs); err == nil && recs[len(recs)-1].Seq != seq {
		err = ErrUnsealed
	}
	if err != nil {
		return Info{}, nil, fmt.Errorf("session %q: %w", id, err)
	}
	return in, recs, nil
}

// isInfoOf reports whether in describes a session whose newest records are recs, the last of them
// with this seal.
func isInfoOf(in Info, recs []Record, last seal) bool {
	if len(recs) == 0 {
		return in.Seq == 0
	}
	rec := recs[len(recs)-1]
	if in.Status == StatusAbandoned {
		in.Status = StatusWorking
	}
	numbersAgree := in.Seq == rec.Seq && in.Event == last.Event
	return numbersAgree && in.Status == rec.Status && maps.Equal(in.Labels, rec.Labels)
}

func (s *sealed) Watch(ctx context.Context, id string, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		seq := int64(-1) // of the last event; -1 before the first
		for ev, err := range s.watcher.Watch(ctx, id, after) {
			if err == nil {
				p := s.eventPart(id, ev.Record, ev)
				err = s.remove(&p, &p.Data)
				follows := p.Seal.Event == seq || seq < 0 && p.Seal.Event <= max(after, 0)
				if err == nil && !follows {
					err = ErrUnsealed
				}
				if err != nil {
					err = fmt.Errorf("watch session %q: event %d: %w", id, ev.Seq, err)
				}
				seq, ev = ev.Seq, Event{Seq: ev.Seq, Data: p.Data, Record: ev.Record}
			}
			if err != nil {
				yield(Event{}, err)
				return
			}
			if !yield(ev, nil) {
				return
			}
		}
	}
}

func (s *sealed) Send(ctx context.Context, id string, in Entry) (bool, error) {
	if err := in.Check(0); err != nil {
		return false, fmt.Errorf("session %q: %w", id, err)
	}
	p := sealedPart{Session: id, Input: in.ID, Data: in.Data}
	data, err := s.add(&p, &p.Data)
	if err != nil {
		return false, fmt.Errorf("session %q: input %s: %w", id, in.ID, err)
	}
	return s.inbox.Send(ctx, id, Entry{ID: in.ID, Data: data})
}

func (s *sealed) Inputs(ctx context.Context, id string) ([]Entry, error) {
	entries, err := s.inbox.Inputs(ctx, id)
	for i := range entries {
		s.checkEntry(id, &entries[i])
	}
	return entries, err
}

func (s *sealed) Input(ctx context.Context, id, input string) (Entry, error) {
	e, err := s.inbox.Input(ctx, id, input)
	if err == nil {
		s.checkEntry(id, &e)
	}
	return e, err
}

// checkEntry removes the seal of an input, or refuses the input.
func (s *sealed) checkEntry(id string, e *Entry) {
	p := sealedPart{Session: id, Input: e.ID, Data: e.Data}
	if err := s.remove(&p, &p.Data); err != nil {
		if e.Refused == "" {
			e.Refused = err.Error()
		}
		return
	}
	e.Data = p.Data
}
