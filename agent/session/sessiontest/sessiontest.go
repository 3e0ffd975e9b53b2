// Package sessiontest tests implementations of [session.Store], and of its optional
// interfaces: [session.Inbox], [session.Watcher] and [session.Reader].
//
//	func TestStore(t *testing.T) {
//		open := func(dir string) (session.Store, error) { return newStore(dir) }
//		sessiontest.Run(t, open)
//		sessiontest.Inbox(t, open)
//		sessiontest.Watcher(t, open)
//		sessiontest.Reader(t, open)
//		sessiontest.Same(t, open)
//	}
//
//	func TestKill(t *testing.T) { sessiontest.Kill(t, open) }
//
// Each function opens stores in new directories, and may open the store in one directory twice, as two processes do. An
// [Opener] of stores that are not in directories must return an empty store for a new directory, and the same contents
// for the same directory.
package sessiontest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/kitbag-go/kitbag/agent/session"
)

// An Opener opens the store in a directory, or creates it. If the store has a method Close() error, the method is called
// when a test has ended.
type Opener func(dir string) (session.Store, error)

// Run tests that a store fulfils the contract of [session.Store].
func Run(t *testing.T, open Opener) {
	run(t, open, []test{
		{"records come back in order", (*suite).order},
		{"a whole record makes earlier records unneeded", (*suite).wholeRecords},
		{"a record must follow the last one", (*suite).sequence},
		{"limits of a record", (*suite).recordLimits},
		{"two writers cannot overwrite each other", (*suite).writers},
		{"sessions are independent", (*suite).independent},
		{"data is JSON and not shared", (*suite).data},
		{"list", (*suite).list},
		{"queries", (*suite).queries},
		{"pages", (*suite).pages},
		{"abandoned", (*suite).abandoned},
		{"delete", (*suite).deletes},
		{"ids", (*suite).ids},
		{"a context that has ended", (*suite).contextEnded},
		{"after close", (*suite).closed},
		{"concurrent writers", (*suite).concurrent},
	})
}

type test struct {
	name string
	fn   func(*suite)
}

func run(t *testing.T, open Opener, tests []test) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			test.fn(&suite{T: t, opener: open, dir: dir, store: openUntilEnd(t, open, dir)})
		})
	}
}

// openUntilEnd opens a store, and closes it at the end of the test.
func openUntilEnd(t *testing.T, open Opener, dir string) session.Store {
	t.Helper()
	store, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := store.(interface{ Close() error }); ok {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return store
}

// A suite is one test of a store.
type suite struct {
	*testing.T
	opener Opener // of store
	dir    string
	store  session.Store
}

// as returns the store as an optional interface. If the store does not implement it, the test fails.
func as[I any](t *testing.T, store session.Store) I {
	t.Helper()
	v, ok := store.(I)
	if !ok {
		t.Fatalf("%T does not implement %v", store, reflect.TypeFor[I]())
	}
	return v
}

// second opens the store a second time, as another process would.
func (s *suite) second() session.Store {
	s.Helper()
	return openUntilEnd(s.T, s.opener, s.dir)
}

func (s *suite) open(id string) session.Log {
	s.Helper()
	log, err := s.store.Open(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = log.Close() })
	return log
}

func (s *suite) close(log session.Log) {
	s.Helper()
	if err := log.Close(); err != nil {
		s.Fatal(err)
	}
}

func record(seq int, whole bool, data string) session.Record {
	return session.Record{Seq: int64(seq), Whole: whole, Data: json.RawMessage(data)}
}

func (s *suite) append(log session.Log, recs ...session.Record) {
	s.Helper()
	for _, rec := range recs {
		if err := log.Append(s.Context(), rec); err != nil {
			s.Fatalf("append record %d: %v", rec.Seq, err)
		}
	}
}

// appendTo opens a session, appends records and closes the session.
func (s *suite) appendTo(id string, recs ...session.Record) {
	s.Helper()
	log := s.open(id)
	s.append(log, recs...)
	s.close(log)
}

// expectRecords checks the records of a log, closes the log, and checks the records of the session opened again.
func (s *suite) expectRecords(log session.Log, id string, want ...session.Record) {
	s.Helper()
	for _, state := range []string{"open", "opened again"} {
		if state != "open" {
			s.close(log)
			log = s.open(id)
		}
		recs, err := log.Load(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		if got, want := show(recs), show(want); got != want {
			s.Errorf("session %s, %s, holds\n%s\nwant\n%s", id, state, got, want)
		}
	}
	s.close(log)
}

func show(recs []session.Record) string {
	var lines []string
	for _, r := range recs {
		lines = append(lines, fmt.Sprintf("%d %v %s", r.Seq, r.Whole, r.Data))
	}
	return strings.Join(lines, "\n")
}

func (s *suite) order() {
	log := s.open("a")
	recs, err := log.Load(s.Context())
	if err != nil || len(recs) > 0 {
		s.Fatalf("a new session holds %v, %v", recs, err)
	}
	one, two, three := record(1, true, `{"a":1}`), record(2, false, `[2]`), record(3, false, `"x"`)
	s.append(log, one, two)
	s.expectRecords(log, "a", one, two)
	log = s.open("a")
	s.append(log, three) // Append needs no Load before
	s.expectRecords(log, "a", one, two, three)
}

func (s *suite) wholeRecords() {
	log := s.open("a")
	four, five := record(4, true, `{"a":3}`), record(5, false, `{}`)
	s.append(log, record(1, true, `{}`), record(2, false, `1`), record(3, true, `{"a":2}`), four, five)
	s.expectRecords(log, "a", four, five)
}

func (s *suite) sequence() {
	log := s.open("a")
	if err := log.Append(s.Context(), record(1, false, `{}`)); err == nil {
		s.Error("a first record that is not whole was accepted")
	}
	one := record(1, true, `{}`)
	s.append(log, one)
	for _, seq := range []int{-1, 0, 1, 3} {
		for _, whole := range []bool{false, true} {
			if err := log.Append(s.Context(), record(seq, whole, `{}`)); !errors.Is(err, session.ErrConflict) {
				s.Errorf("record %d after record 1: %v, want ErrConflict", seq, err)
			}
		}
	}
	two := record(2, false, `2`)
	s.append(log, two)
	s.expectRecords(log, "a", one, two)
}

func (s *suite) writers() {
	a := s.open("a")
	one := record(1, true, `{}`)
	b, err := s.store.Open(s.Context(), "a")
	s.append(a, one)
	if err == nil { // if the store opens a session twice, the second log must not write
		err = b.Append(s.Context(), record(1, true, `"b"`))
		s.close(b)
	}
	if !errors.Is(err, session.ErrConflict) {
		s.Errorf("the second writer: %v, want ErrConflict", err)
	}
	two := record(2, false, `2`)
	s.append(a, two)
	s.expectRecords(a, "a", one, two)
}

func (s *suite) independent() {
	a, b := s.open("a"), s.open("b")
	s.append(a, record(1, true, `"a1"`))
	s.append(b, record(1, true, `"b1"`))
	s.append(a, record(2, false, `"a2"`))
	s.expectRecords(a, "a", record(1, true, `"a1"`), record(2, false, `"a2"`))
	s.expectRecords(b, "b", record(1, true, `"b1"`))
}

func (s *suite) data() {
	log := s.open("a")
	large := fmt.Sprintf("%q", strings.Repeat("0123456789abcdef", 1<<16))
	odd := `{"b":1,"a":"\u0000\n\r\u2028 ü 𝄞 -- \\","b2":1e400,"n":null}`
	buf := []byte(`"kept"`)
	s.append(log, record(1, true, odd), record(2, false, large), session.Record{Seq: 3, Data: buf})
	copy(buf, `"gone"`) // the store must have copied the data
	if err := log.Append(s.Context(), record(4, false, `{"cut`)); err == nil {
		s.Error("data that is not JSON was accepted")
	}
	s.close(log)
	log = s.open("a")
	s.append(log, record(4, false, "{\n\t\"x\": [1,\n2]\n}"))
	s.expectRecords(log, "a", record(1, true, odd), record(2, false, large), record(3, false, `"kept"`), record(4, false, `{"x":[1,2]}`))
}

func (s *suite) deletes() {
	if err := s.store.Delete(s.Context(), "a"); !errors.Is(err, fs.ErrNotExist) {
		s.Errorf("delete a session that does not exist: %v, want fs.ErrNotExist", err)
	}
	log := s.open("a")
	s.append(log, record(1, true, `{}`))
	err := s.store.Delete(s.Context(), "a")
	switch {
	case errors.Is(err, session.ErrConflict):
		s.append(log, record(2, false, `2`))
		s.close(log)
		if err := s.store.Delete(s.Context(), "a"); err != nil {
			s.Fatal(err)
		}
	case err != nil:
		s.Errorf("delete a session that is open: %v, want nil or ErrConflict", err)
	case log.Append(s.Context(), record(2, false, `2`)) == nil:
		s.Error("an open session was deleted, and its log still works")
	}
	s.close(log)
	log = s.open("a")
	s.append(log, record(1, true, `"new"`))
	s.expectRecords(log, "a", record(1, true, `"new"`))
}

func (s *suite) ids() {
	long := strings.Repeat("x", 128)
	s.close(s.open(long))
	for _, id := range []string{"", ".", "..", "../a", "a/b", `a\b`, "/a", ".hidden", "-flag", "a b", "a\n", "a\x00", "ä", "a:b", long + "x"} {
		if _, err := s.store.Open(s.Context(), id); !errors.Is(err, fs.ErrInvalid) {
			s.Errorf("open the id %q: %v, want fs.ErrInvalid", id, err)
		}
		if err := s.store.Delete(s.Context(), id); !errors.Is(err, fs.ErrInvalid) {
			s.Errorf("delete the id %q: %v, want fs.ErrInvalid", id, err)
		}
	}
}

func (s *suite) contextEnded() {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	log := s.open("a")
	s.append(log, record(1, true, `{}`))
	_, loadErr := log.Load(ctx)
	_, openErr := s.store.Open(ctx, "b")
	_, listErr := s.store.List(ctx, session.Query{})
	for operation, err := range map[string]error{"append": log.Append(ctx, record(2, false, `2`)), "load": loadErr,
		"open": openErr, "list": listErr, "delete": s.store.Delete(ctx, "a")} {
		if !errors.Is(err, context.Canceled) {
			s.Errorf("%s: %v", operation, err)
		}
	}
	s.expectRecords(log, "a", record(1, true, `{}`))
}

func (s *suite) closed() {
	log := s.open("a")
	s.append(log, record(1, true, `{}`))
	s.close(log)
	s.close(log) // Close may be called twice
	if err := log.Append(s.Context(), record(2, false, `2`)); err == nil {
		s.Error("a closed log accepted a record")
	}
	if _, err := log.Load(s.Context()); err == nil {
		s.Error("a closed log was read")
	}
}

func (s *suite) concurrent() {
	const writers, records = 8, 20
	var wg sync.WaitGroup
	wins := make([]int, records+1) // how many writers stored record i
	var mu sync.Mutex
	for w := range writers {
		wg.Go(func() {
			id := fmt.Sprintf("own%d", w)
			for i := 1; i <= records; i++ {
				s.appendOnce(id, i)
				if s.appendOnce("shared", i) {
					mu.Lock()
					wins[i]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for w := range writers {
		if n := s.length(fmt.Sprintf("own%d", w)); n != records {
			s.Errorf("session own%d holds %d records, want %d", w, n, records)
		}
	}
	stored := 0
	for i, n := range wins {
		if n > 1 {
			s.Errorf("record %d was stored by %d writers", i, n)
		}
		stored += n
	}
	if n := s.length("shared"); n != stored {
		s.Errorf("the shared session holds %d records, and %d were stored", n, stored)
	}
}

// appendOnce opens a session, appends record i and closes it. It reports whether the record was stored.
func (s *suite) appendOnce(id string, i int) bool {
	log, err := s.store.Open(s.Context(), id)
	if err == nil {
		err = log.Append(s.Context(), record(i, i == 1, fmt.Sprint(i)))
		err = errors.Join(err, log.Close())
	}
	if err != nil && !(errors.Is(err, session.ErrConflict) && id == "shared") {
		s.Errorf("%s: record %d: %v", id, i, err)
	}
	return err == nil
}

func (s *suite) length(id string) int {
	log := s.open(id)
	recs, err := log.Load(s.Context())
	if err != nil {
		s.Error(err)
	}
	for i, rec := range recs {
		if rec.Seq != int64(i+1) || !bytes.Equal(rec.Data, fmt.Append(nil, i+1)) {
			s.Errorf("%s: record %d is %v", id, i, rec)
		}
	}
	return len(recs)
}
