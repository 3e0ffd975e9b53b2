package sessiontest

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"github.com/kitbag-go/kitbag/agent/session"
)

// Reader tests that a store fulfils the contract of [session.Reader].
func Reader(t *testing.T, open Opener) {
	run(t, open, []test{
		{"read while a writer writes", (*suite).reads},
		{"read an earlier record", (*suite).readsEarlier},
		{"read missing sessions and records", (*suite).readsMissing},
		{"fork", (*suite).forks},
	})
}

func (s *suite) reader() session.Reader { return as[session.Reader](s.T, s.store) }

func (s *suite) reads() {
	log := s.open("a")
	one := record(1, true, `{}`)
	one.Status, one.Labels = session.StatusWorking, map[string]string{"tenant": "anna"}
	one.Events = []session.Event{eventOf(1), eventOf(4)}
	s.append(log, one)
	two := record(2, false, `2`)
	for _, store := range []session.Store{s.store, s.second()} {
		in, recs, err := as[session.Reader](s.T, store).Read(s.Context(), "a", 0)
		if err != nil {
			s.Fatal(err)
		}
		if in.ID != "a" || in.Seq != 1 || in.Event != 4 || in.Status != session.StatusWorking || in.Labels["tenant"] != "anna" || in.Updated.IsZero() {
			s.Errorf("the reader returns %+v", in)
		}
		if len(recs) != 1 || show(recs) != "1 true {}" || recs[0].Labels["tenant"] != "anna" || recs[0].Status != session.StatusWorking || len(recs[0].Events) > 0 {
			s.Errorf("the reader returns %+v", recs)
		}
	}
	s.append(log, two) // the readers have not taken the session from its writer
	if _, recs, err := s.reader().Read(s.Context(), "a", 0); err != nil || show(recs) != "1 true {}\n2 false 2" {
		s.Errorf("the reader returns %v, %v", recs, err)
	}
	s.expectRecords(log, "a", one, two)
}

// readsEarlier reads the State after each record. A store may have dropped the records before the last whole record, 6.
func (s *suite) readsEarlier() {
	isWhole := map[int]bool{1: true, 4: true, 6: true}
	for seq := 1; seq <= 7; seq++ {
		s.appendTo("a", withEvents(seq, isWhole[seq], int64(seq)))
	}
	// The first row is of record 0, which means the newest.
	for seq, want := range []string{"6 true 6\n7 false 7", "1 true 1", "1 true 1\n2 false 2", "1 true 1\n2 false 2\n3 false 3",
		"4 true 4", "4 true 4\n5 false 5", "6 true 6", "6 true 6\n7 false 7"} {
		in, recs, err := s.reader().Read(s.Context(), "a", int64(seq))
		switch {
		case errors.Is(err, session.ErrGone) && 0 < seq && seq < 6:
		case err != nil || in.Seq != 7 || in.Event != 7:
			s.Errorf("record %d: %+v, %v", seq, in, err)
		case show(recs) != want:
			s.Errorf("record %d: the reader returns\n%s\nwant\n%s", seq, show(recs), want)
		}
	}
}

func (s *suite) readsMissing() {
	log := s.open("a")
	s.open("empty")
	s.append(log, record(1, true, `{}`))
	s.close(log)
	for _, row := range []struct {
		id  string
		seq int64
	}{{"unknown", 0}, {"empty", 0}, {"unknown", 1}, {"a", 2}, {"a", -1}} {
		if _, _, err := s.reader().Read(s.Context(), row.id, row.seq); !errors.Is(err, fs.ErrNotExist) {
			s.Errorf("record %d of %s: %v, want fs.ErrNotExist", row.seq, row.id, err)
		}
	}
	if _, _, err := s.reader().Read(s.Context(), "../a", 0); err == nil || errors.Is(err, fs.ErrNotExist) {
		s.Errorf("the id ../a: %v", err)
	}
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if _, _, err := s.reader().Read(ctx, "a", 0); !errors.Is(err, context.Canceled) {
		s.Errorf("read: %v", err)
	}
	if box, ok := s.store.(session.Inbox); ok { // a session that has only inputs
		if _, err := box.Send(s.Context(), "new", entry("1")); err != nil {
			s.Fatal(err)
		}
		if in, recs, err := s.reader().Read(s.Context(), "new", 0); err != nil || len(recs) > 0 || in.Inputs != 1 {
			s.Errorf("a session with an input: %+v, %v, %v", in, recs, err)
		}
	}
}

// forks copies an open session with session.Fork.
func (s *suite) forks() {
	a, err := session.Open(s.Context(), s.store, "a")
	if err != nil {
		s.Fatal(err)
	}
	defer a.Close()
	for i := 1; i <= 3; i++ {
		a.State.Usage.Input = i
		if err := a.Save(s.Context(), a.State); err != nil {
			s.Fatal(err)
		}
	}
	for _, row := range []struct {
		seq  int64
		to   string
		want int
	}{{2, "b", 2}, {0, "c", 3}, {1, "d", 1}} {
		if err := session.Fork(s.Context(), s.store, "a", row.to, row.seq); err != nil {
			s.Errorf("fork at record %d: %v", row.seq, err)
			continue
		}
		st, in, err := session.Read(s.Context(), s.store, row.to, 0)
		if err != nil || st.ID != row.to || st.Usage.Input != row.want || in.Seq != 1 || in.Event != 0 {
			s.Errorf("a fork at record %d is %+v, %+v, %v", row.seq, st, in, err)
		}
		if st, _, err := session.Read(s.Context(), s.store, "a", row.seq); err != nil || st.ID != "a" || st.Usage.Input != row.want {
			s.Errorf("record %d: %+v, %v", row.seq, st, err)
		}
	}
	for _, row := range []struct {
		from, to string
		seq      int64
		want     error
	}{{"a", "b", 0, session.ErrConflict}, {"a", "a", 0, session.ErrConflict}, {"x", "y", 0, fs.ErrNotExist}, {"a", "y", 4, fs.ErrNotExist}} {
		if err := session.Fork(s.Context(), s.store, row.from, row.to, row.seq); !errors.Is(err, row.want) {
			s.Errorf("fork %+v: %v", row, err)
		}
	}
	if err := session.Fork(s.Context(), s.store, "a", "../y", 0); err == nil {
		s.Error("Fork accepted the id ../y")
	}
	b, err := session.Open(s.Context(), s.store, "b")
	if err != nil {
		s.Fatal(err)
	}
	defer b.Close()
	// The original and a copy can both continue.
	b.State.Usage.Input = 20
	a.State.Usage.Input = 10
	if err := errors.Join(b.Save(s.Context(), b.State), a.Save(s.Context(), a.State)); err != nil {
		s.Error(err)
	}
	for id, want := range map[string]int{"a": 10, "b": 20, "c": 3} {
		if st, _, err := session.Read(s.Context(), s.store, id, 0); err != nil || st.Usage.Input != want {
			s.Errorf("session %s: %+v, %v", id, st, err)
		}
	}
}
