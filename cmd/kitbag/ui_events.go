package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
)

// An eventLog stores the events of a conversation next to its session file, for "kitbag ui". It is not sealed, so it
// only affects what is shown and where a copy may begin.
type eventLog struct {
	dir   string   // a session.Dir whose ids are those of States, since another session may replace the file
	begin position // when the session file was opened

	log    session.Log // nil until the first save
	seq    int64       // of the last record
	warn   func(string)
	failed bool // nothing more is stored: events after a gap would not match the records
}

// A position is the length of a conversation when a record was written.
type position struct {
	Messages   int `json:"messages"`
	Generation int `json:"generation,omitempty"`
}

func eventDir(path string) string { return path + ".events" }

func positionOf(st *agent.State) position { return position{len(st.Messages), st.Generation} }

// save stores the events of a State that was just saved. The conversation does not depend on them: if they cannot be
// stored, the user is warned once.
func (l *eventLog) save(ctx context.Context, st *agent.State) {
	if l.failed {
		return
	}
	ctx = context.WithoutCancel(ctx) // the State is saved, and these files are local
	err := l.open(ctx, st.ID)
	if err == nil {
		err = l.append(ctx, positionOf(st), st.Saving().Events)
	}
	if err != nil {
		l.failed = true
		l.warn(fmt.Sprintf("kitbag ui will not show the times and steps from here on, as they cannot be stored in %s: %v; the conversation itself is saved", l.dir, err))
	}
}

func (l *eventLog) open(ctx context.Context, id string) error {
	if l.log != nil {
		return nil
	}
	store, err := session.Dir(l.dir)
	if err != nil {
		return err
	}
	if l.log, err = store.Open(ctx, id); err != nil {
		return err
	}
	recs, err := l.log.Load(ctx)
	if err != nil {
		return err
	}
	if len(recs) > 0 {
		l.seq = recs[len(recs)-1].Seq
	} else if l.begin != (position{}) { // the file is from a version that stored no events
		return l.append(ctx, l.begin, nil)
	}
	return nil
}

func (l *eventLog) append(ctx context.Context, at position, events []event.Event) error {
	data, err := json.Marshal(at)
	if err != nil {
		return err
	}
	rec := session.Record{Seq: l.seq + 1, Whole: true, Data: data, Status: session.StatusWorking}
	for _, ev := range events {
		if data, err = json.Marshal(ev); err != nil {
			return err
		}
		rec.Events = append(rec.Events, session.Event{Seq: ev.Head().Seq, Data: data})
		if end, ok := ev.(*event.End); ok {
			rec.Status = session.StatusEnded // it may also wait, which only the State says
			if end.Reason == event.EndError {
				rec.Status = session.StatusFailed
			}
		}
	}
	if err := l.log.Append(ctx, rec); err != nil {
		return err
	}
	l.seq++
	return nil
}

func (l *eventLog) close() {
	if l.log == nil {
		return
	}
	if err := l.log.Close(); err != nil && !l.failed {
		l.warn(fmt.Sprintf("the events in %s may be incomplete for kitbag ui: %v", l.dir, err))
	}
}

// withEvents returns a conversation that also stores its events.
func withEvents(s *session.Session, path string, warn func(string)) *conversation {
	l := &eventLog{dir: eventDir(path), begin: positionOf(s.State), warn: warn}
	save := func(ctx context.Context, st *agent.State) error {
		err := s.Save(ctx, st)
		if err == nil {
			l.save(ctx, st)
		}
		return err
	}
	return &conversation{State: s.State, path: path, save: save, close: func() error { l.close(); return s.Close() }}
}

// eventsOf returns the store with the events of a session file, and the Info of the session with the id; ok is false if
// the file has no events.
func eventsOf(ctx context.Context, path, id string) (store session.Store, about session.Info, ok bool) {
	if dir, err := os.Stat(eventDir(path)); err != nil || !dir.IsDir() { // session.Dir would create it
		return nil, about, false
	}
	store, err := session.Dir(eventDir(path))
	if err != nil {
		return nil, about, false
	}
	about, _, err = store.(session.Reader).Read(ctx, id, 0)
	return store, about, err == nil
}
