package sessiontest

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kitbag-go/kitbag/agent/session"
)

// Inbox tests that a store fulfils the contract of [session.Inbox].
func Inbox(t *testing.T, open Opener) {
	run(t, open, []test{
		{"an input waits until it is consumed", (*suite).inputs},
		{"an id is accepted once", (*suite).acceptedOnce},
		{"a refused input", (*suite).refused},
		{"a record consumes only waiting inputs", (*suite).consumesWaiting},
		{"an input creates a session", (*suite).inputCreates},
		{"inputs are deleted with their session", (*suite).inputsDeleted},
		{"limits of an inbox", (*suite).inboxLimits},
		{"concurrent senders", (*suite).senders},
	})
}

func (s *suite) inbox() session.Inbox { return as[session.Inbox](s.T, s.store) }

func entry(id string) session.Entry {
	return session.Entry{ID: id, Data: fmt.Appendf(nil, `{"id":%q}`, id)}
}

// send sends an input to a session, and checks whether the input is accepted.
func (s *suite) send(to, id string, want bool) {
	s.Helper()
	if accepted, err := s.inbox().Send(s.Context(), to, entry(id)); err != nil || accepted != want {
		s.Fatalf("send %s to %s: %v, %v, want %v", id, to, accepted, err, want)
	}
}

// expectWaiting checks which inputs of a session wait, in the store and in a second store for the same directory.
func (s *suite) expectWaiting(id, want string) {
	s.Helper()
	for i, store := range []session.Store{s.store, s.second()} {
		entries, err := as[session.Inbox](s.T, store).Inputs(s.Context(), id)
		if err != nil {
			s.Fatal(err)
		}
		var ids []string
		for _, e := range entries {
			ids = append(ids, e.ID)
			if string(e.Data) != string(entry(e.ID).Data) || e.Sent.IsZero() || e.Record != 0 || e.Refused != "" {
				s.Errorf("the input %s is %+v", e.ID, e)
			}
		}
		if got := strings.Join(ids, " "); got != want {
			s.Errorf("store %d: the inputs %q wait, want %q", i+1, got, want)
		}
	}
}

// consuming returns a record that consumes inputs.
func consuming(seq int, whole bool, ids ...string) session.Record {
	rec := record(seq, whole, fmt.Sprint(seq))
	for _, id := range ids {
		rec.Consumed = append(rec.Consumed, session.ConsumedInput{ID: id})
	}
	return rec
}

func (s *suite) inputs() {
	log := s.open("a")
	s.append(log, record(1, true, `{}`))
	s.expectWaiting("a", "")
	for _, id := range []string{"z", "b", "in.1", "A"} { // not in the order of their ids
		s.send("a", id, true)
	}
	s.expectWaiting("a", "z b in.1 A")
	s.expectWaiting("b", "")
	if in := s.info("a"); in.Inputs != 4 {
		s.Errorf("the list says that %d inputs wait", in.Inputs)
	}
	s.append(log, consuming(2, false, "b", "z"))
	s.expectWaiting("a", "in.1 A")
	s.append(log, record(3, false, `3`), consuming(4, true, "A"))
	s.expectWaiting("a", "in.1")
	s.send("a", "new", true)
	s.expectWaiting("a", "in.1 new")
	if got := s.listIDs(session.Query{Inputs: true}); !slices.Equal(got, []string{"a"}) {
		s.Errorf("the sessions with waiting inputs are %v", got)
	}
	s.close(log)
	log = s.open("a")
	s.append(log, consuming(5, false, "in.1", "new"))
	s.expectWaiting("a", "")
	if in := s.info("a"); in.Inputs != 0 {
		s.Errorf("the list says that %d inputs wait", in.Inputs)
	}
	s.close(log)
}

// acceptedOnce checks that an input is accepted only once, even after it was consumed, and in another process.
func (s *suite) acceptedOnce() {
	s.send("a", "1", true)
	s.send("a", "1", false)
	s.send("b", "1", true)
	log := s.open("a")
	s.append(log, consuming(1, true, "1"))
	s.send("a", "1", false)
	s.append(log, record(2, true, `{}`)) // makes record 1, which consumed the input, unneeded
	s.close(log)
	s.send("a", "1", false)
	if accepted, err := as[session.Inbox](s.T, s.second()).Send(s.Context(), "a", entry("1")); accepted || err != nil {
		s.Errorf("in another process: %v, %v", accepted, err)
	}
	s.expectWaiting("a", "")
	s.expectWaiting("b", "1")
}

func (s *suite) refused() {
	s.send("a", "1", true)
	s.send("a", "2", true)
	rec := consuming(1, true, "1", "2")
	rec.Consumed[1].Refused = "no call waits for it"
	s.appendTo("a", rec)
	s.expectWaiting("a", "")
	for _, store := range []session.Store{s.store, s.second()} {
		for id, refused := range map[string]string{"1": "", "2": "no call waits for it"} {
			e, err := as[session.Inbox](s.T, store).Input(s.Context(), "a", id)
			if err != nil || e.ID != id || e.Record != 1 || e.Refused != refused || string(e.Data) != string(entry(id).Data) {
				s.Errorf("the input %s is %+v, %v", id, e, err)
			}
		}
	}
	s.send("a", "3", true)
	if e, err := s.inbox().Input(s.Context(), "a", "3"); err != nil || e.Record != 0 {
		s.Errorf("an input that waits is %+v, %v", e, err)
	}
	for _, id := range []string{"a", "unknown"} {
		if _, err := s.inbox().Input(s.Context(), id, "unknown"); !errors.Is(err, fs.ErrNotExist) {
			s.Errorf("an input that was not sent: %v, want fs.ErrNotExist", err)
		}
	}
}

// consumesWaiting checks that nothing is stored of a record that consumes an input that does not wait.
func (s *suite) consumesWaiting() {
	s.send("a", "1", true)
	log := s.open("a")
	for _, bad := range []session.Record{consuming(1, true, "2"), consuming(1, true, "1", "1"), consuming(1, true, "1", "")} {
		if err := log.Append(s.Context(), bad); err == nil {
			s.Errorf("a record that consumes %v was stored", bad.Consumed)
		}
		s.expectWaiting("a", "1")
	}
	s.append(log, consuming(1, true, "1"))
	if err := log.Append(s.Context(), consuming(2, false, "1")); err == nil {
		s.Error("an input was consumed twice")
	}
	s.close(log)
	log = s.open("a")
	if err := log.Append(s.Context(), consuming(2, false, "1")); err == nil {
		s.Error("an input was consumed twice, by another writer")
	}
	s.append(log, record(2, false, `2`))
	s.expectRecords(log, "a", consuming(1, true, "1"), record(2, false, `2`))
}

// inputCreates sends an input to a session that does not exist.
func (s *suite) inputCreates() {
	s.send("a", "1", true)
	if in := s.info("a"); in.Inputs != 1 || in.Seq != 0 || in.Status != "" || in.Updated.IsZero() {
		s.Errorf("the list says %+v", in)
	}
	first := s.info("a").Updated
	s.send("a", "0", true)
	if in := s.info("a"); !in.Updated.Equal(first) {
		s.Errorf("the session was updated at %s, and after another input at %s", first, in.Updated)
	}
	log := s.open("a")
	if recs, err := log.Load(s.Context()); err != nil || len(recs) > 0 {
		s.Errorf("a session with an input holds %v, %v", recs, err)
	}
	s.close(log) // does not remove the session, which has inputs
	s.expectWaiting("a", "1 0")
	log = s.open("a")
	s.append(log, consuming(1, true, "1"))
	s.expectRecords(log, "a", consuming(1, true, "1"))
}

func (s *suite) inputsDeleted() {
	s.send("a", "1", true) // a session with only inputs
	s.send("b", "1", true)
	s.appendTo("b", consuming(1, true, "1"))
	s.send("b", "2", true)
	for _, id := range []string{"a", "b"} {
		if err := s.store.Delete(s.Context(), id); err != nil {
			s.Fatal(err)
		}
		s.expectWaiting(id, "")
		if err := s.store.Delete(s.Context(), id); !errors.Is(err, fs.ErrNotExist) {
			s.Errorf("delete %s again: %v, want fs.ErrNotExist", id, err)
		}
		s.send(id, "1", true) // to a new session
		s.expectWaiting(id, "1")
	}
}

func (s *suite) inboxLimits() {
	box := s.inbox()
	const maxData, maxWaiting = 8 << 20, 256 // see session.Entry.Check
	for name, in := range map[string]session.Entry{
		"no id":     {Data: []byte(`{}`)},
		"a bad id":  {ID: "a/b", Data: []byte(`{}`)},
		"no data":   {ID: "x"},
		"not JSON":  {ID: "x", Data: []byte(`{"`)},
		"too large": {ID: "x", Data: fmt.Appendf(nil, `%q`, strings.Repeat("x", maxData))},
	} {
		if accepted, err := box.Send(s.Context(), "a", in); err == nil || accepted {
			s.Errorf("%s was accepted", name)
		}
	}
	if _, err := box.Send(s.Context(), "../a", entry("1")); !errors.Is(err, fs.ErrInvalid) {
		s.Errorf("an input for ../a: %v, want fs.ErrInvalid", err)
	}
	if ids := s.listIDs(session.Query{}); len(ids) > 0 {
		s.Errorf("the store lists %v", ids)
	}
	large := session.Entry{ID: "large", Data: fmt.Appendf(nil, `%q`, strings.Repeat("x", 1<<20))}
	if accepted, err := box.Send(s.Context(), "a", large); err != nil || !accepted {
		s.Errorf("an input of 1 MiB: %v, %v", accepted, err)
	}
	for i := range maxWaiting {
		s.send("b", fmt.Sprint(i), true)
	}
	if _, err := box.Send(s.Context(), "b", entry("more")); !errors.Is(err, session.ErrFull) {
		s.Errorf("an input to a full inbox: %v, want ErrFull", err)
	}
	s.send("b", "255", false) // no ErrFull, since the inbox has this input
	log := s.open("b")
	s.append(log, consuming(1, true, "7")) // makes room
	s.send("b", "more", true)
	s.close(log)
}

// senders sends the same ids concurrently while a writer consumes them.
func (s *suite) senders() {
	const senders, inputs = 4, 25
	other := as[session.Inbox](s.T, s.second())
	var accepted atomic.Int64
	var wg sync.WaitGroup
	for n := range senders {
		wg.Go(func() {
			box := s.inbox()
			if n%2 == 1 {
				box = other
			}
			for i := range inputs {
				ok, err := box.Send(s.Context(), "a", entry(fmt.Sprint(i)))
				if err != nil {
					s.Error(err)
				}
				if ok {
					accepted.Add(1)
				}
			}
		})
	}
	log := s.open("a")
	seen := map[string]bool{}
	for seq := 1; len(seen) < inputs && !s.Failed(); {
		waiting, err := s.inbox().Inputs(s.Context(), "a")
		if err != nil {
			s.Fatal(err)
		}
		var ids []string
		for _, e := range waiting {
			if seen[e.ID] {
				s.Errorf("the input %s waits again", e.ID)
			}
			seen[e.ID] = true
			ids = append(ids, e.ID)
		}
		if len(ids) > 0 {
			s.append(log, consuming(seq, seq == 1, ids...))
			seq++
		}
	}
	wg.Wait()
	s.close(log)
	s.expectWaiting("a", "")
	if accepted.Load() != inputs {
		s.Errorf("%d inputs were accepted, want %d", accepted.Load(), inputs)
	}
}
