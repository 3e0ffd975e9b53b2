package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"
)

// Memory returns a store that ends with the process. It keeps bytes, like the
// others, so that what a test loads has been encoded and decoded.
func Memory() Store { return &memory{sessions: map[string]*memorySession{}} }

type memory struct {
	mu       sync.Mutex
	sessions map[string]*memorySession // those that have a record, and those that are open
}

type memorySession struct {
	open    bool
	updated time.Time
	records []Record // the last whole one and those after it
}

func (m *memory) Open(ctx context.Context, id string) (Log, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	if s == nil { // which List does not show until it has a record
		s = new(memorySession)
		m.sessions[id] = s
	}
	if s.open {
		return nil, fmt.Errorf("session %q: %w", id, ErrConflict)
	}
	s.open = true
	return &memoryLog{m, s, id}, nil
}

func (m *memory) List(ctx context.Context) ([]Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var infos []Info
	for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
		if s := m.sessions[id]; len(s.records) > 0 {
			infos = append(infos, Info{ID: id, Updated: s.updated})
		}
	}
	return infos, ctx.Err()
}

func (m *memory) Delete(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch s := m.sessions[id]; {
	case s == nil:
		return fmt.Errorf("session %q: %w", id, fs.ErrNotExist)
	case s.open:
		return fmt.Errorf("session %q: %w", id, ErrConflict)
	}
	delete(m.sessions, id)
	return nil
}

// memoryLog is a session that was opened; closed when session is nil.
type memoryLog struct {
	store   *memory
	session *memorySession
	id      string
}

var errClosed = fmt.Errorf("the session is closed: %w", fs.ErrClosed)

func (l *memoryLog) Load(ctx context.Context) ([]Record, error) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.session == nil {
		return nil, errClosed
	}
	return slices.Clone(l.session.records), ctx.Err()
}

func (l *memoryLog) Append(ctx context.Context, rec Record) error {
	var data bytes.Buffer // the caller may use its bytes again
	if err := errors.Join(ctx.Err(), json.Compact(&data, rec.Data)); err != nil {
		return err
	}
	rec.Data = data.Bytes()
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	s := l.session
	if s == nil {
		return errClosed
	}
	last := int64(0)
	if n := len(s.records); n > 0 {
		last = s.records[n-1].Seq
	}
	if err := checkNext(rec, last); err != nil {
		return err
	}
	if rec.Whole {
		s.records = nil // no Load needs them
	}
	s.records = append(s.records, rec)
	s.updated = time.Now()
	return nil
}

// checkNext reports whether rec may follow the record with the number last. A gap
// means that another writer was here: what rec says is to change is not what the
// last record left.
func checkNext(rec Record, last int64) error {
	switch {
	case rec.Seq != last+1:
		return fmt.Errorf("record %d after record %d: %w", rec.Seq, last, ErrConflict)
	case last == 0 && !rec.Whole:
		return errors.New("the first record of a session must be whole")
	}
	return nil
}

func (l *memoryLog) Close() error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.session == nil {
		return nil
	}
	l.session.open = false
	if len(l.session.records) == 0 { // it never came to exist
		delete(l.store.sessions, l.id)
	}
	l.session = nil
	return nil
}
