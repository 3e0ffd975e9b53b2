package sessiontest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
)

// Watcher tests that a store fulfils the contract of [session.Watcher].
func Watcher(t *testing.T, open Opener) {
	run(t, open, []test{
		{"events by number", (*suite).events},
		{"events as they are stored", (*suite).live},
		{"a session that comes later", (*suite).comesLater},
		{"a session that is deleted", (*suite).watchDeleted},
		{"a context that ends", (*suite).watchContext},
		{"ids", (*suite).watchIDs},
	})
}

func (s *suite) watcher() session.Watcher { return as[session.Watcher](s.T, s.store) }

// maxDelay is the maximum delay of an event on a busy machine.
const maxDelay = 30 * time.Second

// follow watches a session, and returns the numbers of the events after number after, up to number last.
func follow(t *testing.T, store session.Store, id string, after, last int64) []int64 {
	t.Helper()
	if last <= after {
		return nil // Watch would wait
	}
	ctx, cancel := context.WithTimeout(t.Context(), maxDelay)
	defer cancel()
	var got []int64
	for ev, err := range as[session.Watcher](t, store).Watch(ctx, id, after) {
		if err != nil {
			t.Errorf("after %d events: %v", len(got), err)
			break
		}
		if string(ev.Data) != string(eventOf(ev.Seq).Data) {
			t.Errorf("event %d is %s", ev.Seq, ev.Data)
		}
		if got = append(got, ev.Seq); ev.Seq >= last {
			break
		}
	}
	return got
}

func withEvents(seq int, whole bool, numbers ...int64) session.Record {
	rec := record(seq, whole, fmt.Sprint(seq))
	for _, n := range numbers {
		rec.Events = append(rec.Events, eventOf(n))
	}
	return rec
}

func (s *suite) events() {
	log := s.open("a")
	s.append(log, withEvents(1, true, 1, 2, 3), withEvents(2, false), withEvents(3, false, 7, 9), withEvents(4, true, 1_000_010), withEvents(5, false, 1_000_011))
	all := []int64{1, 2, 3, 7, 9, 1_000_010, 1_000_011}
	if in := s.info("a"); in.Event != 1_000_011 {
		s.Errorf("the list says that the last event is %d", in.Event)
	}
	for _, store := range []session.Store{s.store, s.second()} {
		for after := int64(-1); after < 12; after++ {
			want := slices.DeleteFunc(slices.Clone(all), func(n int64) bool { return n <= after })
			if got := follow(s.T, store, "a", after, 1_000_011); !slices.Equal(got, want) {
				s.Errorf("after %d: %v, want %v", after, got, want)
			}
		}
	}
	records := map[int64]int64{} // by event
	events := s.watcher().Watch(s.Context(), "a", 2)
	for range 2 { // the sequence may be ranged again
		for ev, err := range events {
			if err != nil {
				s.Fatal(err)
			}
			if records[ev.Seq] = ev.Record; ev.Seq == 1_000_011 {
				break
			}
		}
	}
	if fmt.Sprint(records) != "map[3:1 7:3 9:3 1000010:4 1000011:5]" {
		s.Errorf("the records of the events are %v", records)
	}
	s.close(log)
}

// live has several watchers, in this store and others for the same directory, watch a session that is written, closed
// and opened again.
func (s *suite) live() {
	const records = 60
	last := int64(3 * records)
	stores := []session.Store{s.store, s.store, s.second(), s.second()}
	got := make([][]int64, len(stores))
	var wg sync.WaitGroup
	for i, store := range stores {
		wg.Go(func() { got[i] = follow(s.T, store, "a", int64(10*i), last) })
	}
	var want []int64
	log := s.open("a")
	for i := 1; i <= records; i++ {
		n := int64(3 * i) // so that the numbers have gaps
		rec := withEvents(i, i%10 == 1, n-1, n)
		s.append(log, rec)
		want = append(want, n-1, n)
		if i%7 == 0 {
			s.close(log)
			log = s.open("a")
		}
	}
	wg.Wait()
	s.close(log)
	for i := range stores {
		wantAfter := slices.DeleteFunc(slices.Clone(want), func(n int64) bool { return n <= int64(10*i) })
		if !slices.Equal(got[i], wantAfter) {
			s.Errorf("watcher %d has seen\n%v, want\n%v", i, got[i], wantAfter)
		}
	}
}

func (s *suite) comesLater() {
	var got []int64
	var wg sync.WaitGroup
	wg.Go(func() { got = follow(s.T, s.store, "a", 0, 2) })
	time.Sleep(10 * time.Millisecond)
	s.close(s.open("a")) // stores nothing, so the watcher must still wait
	time.Sleep(10 * time.Millisecond)
	log := s.open("a")
	s.append(log, withEvents(1, true, 1, 2))
	wg.Wait()
	s.close(log)
	if !slices.Equal(got, []int64{1, 2}) {
		s.Errorf("the watcher has seen %v", got)
	}
}

// watchDeleted deletes a session, and creates another one with the same id.
func (s *suite) watchDeleted() {
	s.appendTo("a", withEvents(1, true, 1))
	ctx, cancel := context.WithTimeout(s.Context(), maxDelay)
	defer cancel()
	var watchErr error
	for ev, err := range s.watcher().Watch(ctx, "a", 0) {
		if watchErr = err; err != nil {
			break
		}
		if ev.Seq != 1 {
			s.Errorf("event %d of another session", ev.Seq)
		}
		if err := s.store.Delete(s.Context(), "a"); err != nil {
			s.Fatal(err)
		}
		s.appendTo("a", withEvents(1, true, 5))
	}
	if !errors.Is(watchErr, fs.ErrNotExist) {
		s.Errorf("the watcher ends with %v, want fs.ErrNotExist", watchErr)
	}
}

func (s *suite) watchContext() {
	cause := errors.New("enough")
	s.appendTo("a", withEvents(1, true, 1))
	for _, id := range []string{"a", "unknown"} {
		ctx, cancel := context.WithCancelCause(s.Context())
		timer := time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
		errCount := 0
		for _, err := range s.watcher().Watch(ctx, id, 1) {
			if errCount++; !errors.Is(err, cause) {
				s.Errorf("%s: the watcher ends with %v", id, err)
			}
		}
		timer.Stop()
		if errCount != 1 {
			s.Errorf("%s: the watcher yields %d errors, want 1", id, errCount)
		}
	}
}

func (s *suite) watchIDs() {
	for _, id := range []string{"", "..", "a/b"} {
		for _, err := range s.watcher().Watch(s.Context(), id, 0) {
			if !errors.Is(err, fs.ErrInvalid) {
				s.Errorf("watch the id %q: %v, want fs.ErrInvalid", id, err)
			}
		}
	}
}
