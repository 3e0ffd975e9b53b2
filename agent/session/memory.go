package session

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"
)

// Memory returns a store whose sessions end with the process. Like other stores it stores encoded data, so that a test
// which uses it also tests the encoding. It is an [Inbox], a [Watcher] and a [Reader], and keeps every record and event
// until the session is deleted.
func Memory() Store {
	return &memory{sessions: map[string]*memorySession{}, changed: make(chan struct{})}
}

type memory struct {
	mu       sync.Mutex
	sessions map[string]*memorySession // stored sessions and open ones
	changed  chan struct{}             // closed, and replaced, when any session changes
}

type memorySession struct {
	open    bool
	info    Info
	records []Record // record n at index n-1
	inputs  []Entry
}

var (
	_ Inbox   = (*memory)(nil)
	_ Watcher = (*memory)(nil)
	_ Reader  = (*memory)(nil)
)

// exists reports whether the session is stored: opening a new session does not store it.
func (s *memorySession) exists() bool { return s != nil && len(s.records)+len(s.inputs) > 0 }

func (s *memorySession) currentInfo() Info {
	in := s.info
	in.Labels = maps.Clone(in.Labels)
	in.Inputs = len(s.waiting())
	if in.Status == StatusWorking && !s.open {
		in.Status = StatusAbandoned
	}
	return in
}

// recordsUpTo returns the last whole record up to number seq and the records after it up to number seq.
func (s *memorySession) recordsUpTo(seq int64) []Record {
	recs := s.records[:seq]
	first := max(len(recs)-1, 0)
	for first > 0 && !recs[first].Whole {
		first--
	}
	recs = slices.Clone(recs[first:])
	for i := range recs {
		recs[i].Events = nil
	}
	return recs
}

// session returns a session. If the store does not have it, the result is a new session, which the caller may add to
// m.sessions. mu is held.
func (m *memory) session(id string) *memorySession {
	return cmp.Or(m.sessions[id], &memorySession{info: Info{ID: id}})
}

// notify wakes the watchers. mu is held.
func (m *memory) notify() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *memory) Open(ctx context.Context, id string) (Log, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.session(id)
	if s.open {
		return nil, fmt.Errorf("session %q: %w open; close it first, or use another session", id, ErrConflict)
	}
	s.open = true
	m.sessions[id] = s
	return &memoryLog{m, s, id}, nil
}

func (m *memory) List(ctx context.Context, q Query) (Page, error) {
	if err := ctx.Err(); err != nil {
		return Page{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var infos []Info
	for _, s := range m.sessions {
		if s.exists() {
			infos = append(infos, s.currentInfo())
		}
	}
	return q.Page(infos)
}

func (m *memory) Delete(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch s := m.sessions[id]; {
	case s != nil && s.open:
		return fmt.Errorf("delete session %q: %w open; close it first", id, ErrConflict)
	case !s.exists():
		return fmt.Errorf("session %q: %w", id, fs.ErrNotExist)
	}
	delete(m.sessions, id)
	m.notify()
	return nil
}

func (m *memory) Read(ctx context.Context, id string, seq int64) (Info, []Record, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return Info{}, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	if !s.exists() {
		return Info{}, nil, fmt.Errorf("session %q: %w", id, fs.ErrNotExist)
	}
	in := s.currentInfo()
	if seq == 0 {
		seq = in.Seq
	}
	if seq < 0 || seq > in.Seq {
		return Info{}, nil, noRecord(id, seq, in.Seq)
	}
	return in, s.recordsUpTo(seq), nil
}

// noRecord is the error for a record that does not exist yet.
func noRecord(id string, seq, last int64) error {
	return fmt.Errorf("session %q: record %d: %w: the last is %d", id, seq, fs.ErrNotExist, last)
}

func (m *memory) Watch(ctx context.Context, id string, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := CheckID(id); err != nil {
			yield(Event{}, err)
			return
		}
		var watched *memorySession // nil until the session exists
		readRecords := 0
		for {
			m.mu.Lock()
			current, changed := m.sessions[id], m.changed
			if watched == nil && current.exists() {
				watched = current
			}
			var recs []Record
			if watched != nil {
				recs = watched.records[readRecords:]
			}
			m.mu.Unlock()
			if watched != nil && current != watched {
				yield(Event{}, fmt.Errorf("session %q was deleted: %w", id, fs.ErrNotExist))
				return
			}
			readRecords += len(recs)
			for _, rec := range recs {
				for _, ev := range rec.Events {
					if ev.Record = rec.Seq; ev.Seq > after && !yield(ev, nil) {
						return
					}
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

// A memoryLog is an open session of a memory.
type memoryLog struct {
	store   *memory
	session *memorySession // nil when closed
	id      string
}

var errClosed = fmt.Errorf("the session is closed: %w", fs.ErrClosed)

func (l *memoryLog) Load(ctx context.Context) ([]Record, error) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.session == nil {
		return nil, errClosed
	}
	return l.session.recordsUpTo(l.session.info.Seq), ctx.Err()
}

func (l *memoryLog) Append(ctx context.Context, rec Record) error {
	rec, err := cloneRecord(rec)
	if err := errors.Join(ctx.Err(), err); err != nil {
		return err
	}
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	s := l.session
	if s == nil {
		return errClosed
	}
	if err := CheckRecord(rec, s.info); err != nil {
		return err
	}
	inputs, err := consume(s.inputs, rec)
	if err != nil {
		return err
	}
	s.inputs = inputs
	s.records = append(s.records, rec)
	s.info.update(rec, time.Now())
	l.store.notify()
	return nil
}

// update changes the Info of a session that has stored rec.
func (in *Info) update(rec Record, now time.Time) {
	in.Seq, in.Updated, in.Status, in.Labels = rec.Seq, now, rec.Status, rec.Labels
	if n := len(rec.Events); n > 0 {
		in.Event = rec.Events[n-1].Seq
	}
}

// consume returns a copy of inputs, with Record and Refused set for those that rec consumes.
func consume(inputs []Entry, rec Record) ([]Entry, error) {
	if len(rec.Consumed) == 0 {
		return inputs, nil
	}
	inputs = slices.Clone(inputs)
	for _, consumed := range rec.Consumed {
		i := slices.IndexFunc(inputs, func(e Entry) bool { return e.ID == consumed.ID && e.Record == 0 })
		if i < 0 {
			return nil, fmt.Errorf("record %d consumes the input %q, which is not waiting", rec.Seq, consumed.ID)
		}
		inputs[i].Record, inputs[i].Refused = rec.Seq, consumed.Refused
	}
	return inputs, nil
}

// cloneRecord returns a copy of rec with compact JSON. The copy shares no bytes that the caller of Append may reuse.
func cloneRecord(rec Record) (Record, error) {
	var err error
	if rec.Data, err = compact(rec.Data); err != nil {
		return rec, fmt.Errorf("record %d: %w", rec.Seq, err)
	}
	if rec.Events, err = cloneEvents(rec.Events); err != nil {
		return rec, err
	}
	for i := range rec.Events {
		rec.Events[i].decoded = nil // to save memory: Decode decodes Data
	}
	rec.Labels, rec.Consumed = maps.Clone(rec.Labels), slices.Clone(rec.Consumed)
	return rec, nil
}

// cloneEvents returns a copy of list with compact JSON. The copy shares only the bytes of events that a logKeeper
// encoded: these never change.
func cloneEvents(list []Event) ([]Event, error) {
	list = slices.Clone(list)
	for i, ev := range list {
		if ev.isDecoded() {
			continue
		}
		data, err := compact(ev.Data)
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", ev.Seq, err)
		}
		list[i] = Event{Seq: ev.Seq, Data: data}
	}
	return list, nil
}

func compact(data []byte) (json.RawMessage, error) {
	var b bytes.Buffer
	err := json.Compact(&b, data)
	return b.Bytes(), err
}

func (l *memoryLog) Close() error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.session == nil {
		return nil
	}
	l.session.open = false
	if !l.session.exists() {
		delete(l.store.sessions, l.id)
	}
	l.session = nil
	return nil
}

// waiting returns the inputs that no record has consumed.
func (s *memorySession) waiting() []Entry {
	return slices.DeleteFunc(slices.Clone(s.inputs), func(e Entry) bool { return e.Record != 0 })
}

func (m *memory) Send(ctx context.Context, id string, in Entry) (bool, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.session(id)
	if slices.ContainsFunc(s.inputs, func(e Entry) bool { return e.ID == in.ID }) {
		return false, nil
	}
	if err := in.Check(len(s.waiting())); err != nil {
		return false, fmt.Errorf("session %q: %w", id, err)
	}
	data, _ := compact(in.Data) // Check has validated it
	if !s.exists() {
		s.info.Updated = time.Now()
	}
	m.sessions[id] = s
	s.inputs = append(s.inputs, Entry{ID: in.ID, Data: data, Sent: time.Now()})
	m.notify()
	return true, nil
}

func (m *memory) Inputs(ctx context.Context, id string) ([]Entry, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.session(id).waiting(), nil
}

func (m *memory) Input(ctx context.Context, id, input string) (Entry, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return Entry{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	inputs := m.session(id).inputs
	if i := slices.IndexFunc(inputs, func(e Entry) bool { return e.ID == input }); i >= 0 {
		return inputs[i], nil
	}
	return Entry{}, noInput(id, input)
}

func noInput(id, input string) error {
	return fmt.Errorf("session %q: input %q: %w", id, input, fs.ErrNotExist)
}
