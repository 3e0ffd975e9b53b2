package inspect

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A slowStore yields an event each second, and fails once after the first one if err is set.
type slowStore struct {
	session.Store
	session.Reader
	session.Watcher
	err error
}

func (s *slowStore) Watch(ctx context.Context, id string, after int64) iter.Seq2[session.Event, error] {
	return func(yield func(session.Event, error) bool) {
		for ev, err := range s.Watcher.Watch(ctx, id, after) {
			if !yield(ev, err) || err != nil {
				return
			}
			time.Sleep(time.Second)
			if err, s.err = s.err, nil; err != nil {
				yield(session.Event{}, err)
				return
			}
		}
	}
}

// newSlowStore returns a handler of a slow store with a session.
func newSlowStore(t *testing.T, err error) *Handler {
	t.Helper()
	store := session.Memory()
	s, openErr := session.Open(t.Context(), store, "s")
	if openErr != nil {
		t.Fatal(openErr)
	}
	a, agentErr := agent.New(agent.Config{Model: scripted.New(scripted.Say("Hello.")), Toolkit: toolkit.Of(), Save: s.Save})
	if agentErr != nil {
		t.Fatal(agentErr)
	}
	if _, err := a.Reply(t.Context(), s.State, agent.Say("Hello.")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	h, newErr := New(&slowStore{store, store.(session.Reader), store.(session.Watcher), err}, Options{})
	if newErr != nil {
		t.Fatal(newErr)
	}
	return h
}

// TestExportOfSlowStore exports all events, however long the store takes.
func TestExportOfSlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSlowStore(t, nil)
		defer h.Close()
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/api/sessions/s/export?as=jsonl", nil)
		r.AddCookie(&http.Cookie{Name: cookieName, Value: h.cookie()})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Body.String(); strings.Count(got, "\n") != 5 || !strings.Contains(got, `"type":"end"`) {
			t.Errorf("status %d: %s", w.Code, got)
		}
	})
}

// TestStoreComesBack follows a session again after its store has failed.
func TestStoreComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSlowStore(t, errors.New("the connection was lost"))
		defer h.Close()
		f, release := h.feed("s")
		defer release()
		time.Sleep(2 * time.Second)
		if v, err := f.look("", 0, 10); err != nil || v.problem != "the connection was lost" {
			t.Errorf("the problem is %q, %v", v.problem, err)
		}
		time.Sleep(time.Minute)
		if v, err := f.look("", 0, 10); err != nil || v.problem != "" || len(v.rows) == 0 || v.rows[len(v.rows)-1].Kind != kindEnd {
			t.Errorf("then: %+v, %v", v, err)
		}
	})
}

// TestDeleted says that a session that is watched was deleted.
func TestDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSlowStore(t, nil)
		defer h.Close()
		f, release := h.feed("s")
		defer release()
		time.Sleep(time.Minute)
		if err := h.store.Delete(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if v, err := f.look("", 0, 10); err != nil || v.problem != "the session does not exist any more" || len(v.rows) == 0 {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// TestNotYet shows a session that begins while it is watched.
func TestNotYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newSlowStore(t, nil)
		defer slow.Close()
		inner := slow.store.(*slowStore).Store
		h, err := New(session.Memory(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		f, release := h.feed("s")
		defer release()
		time.Sleep(time.Second)
		if v, err := f.look("", 0, 10); err != nil || v.problem == "" {
			t.Errorf("there is a session: %+v, %v", v, err)
		}
		_, recs, err := inner.(session.Reader).Read(t.Context(), "s", 1)
		if err != nil {
			t.Fatal(err)
		}
		log, err := h.store.Open(t.Context(), "s")
		if err == nil {
			recs[0].Events = []session.Event{{Seq: 1, Data: []byte(`{"seq":1,"type":"run_start"}`)}}
			err = errors.Join(log.Append(t.Context(), recs[0]), log.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if v, err := f.look("", 0, 10); err != nil || v.problem != "" || v.total != 1 {
			t.Errorf("then: %+v, %v", v, err)
		}
	})
}

// A slowReader takes a second to read a session.
type slowReader struct {
	session.Store
	session.Reader
}

func (s *slowReader) Read(ctx context.Context, id string, seq int64) (session.Info, []session.Record, error) {
	time.Sleep(time.Second)
	return s.Reader.Read(ctx, id, seq)
}

// TestSlowWithoutEvents compares a session that has no events, however long the store takes to read it.
func TestSlowWithoutEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newSlowStore(t, nil)
		slow.Close()
		inner := slow.store.(*slowStore)
		h, err := New(&slowReader{inner.Store, inner.Reader}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		f, release, err := h.wholeFeed(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if v, err := f.look("", 0, 10); err != nil || v.total != 2 {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// A brokenWriter is a response that takes nothing.
type brokenWriter struct{ http.ResponseWriter }

func (brokenWriter) Write([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// TestGonePage ends the request of a page that takes no more events, and not those of others.
func TestGonePage(t *testing.T) {
	h, err := New(session.Memory(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var b hub
	idle := func(ctx context.Context) { <-ctx.Done() }
	intact, cancel := context.WithCancel(t.Context())
	defer cancel()
	rec := httptest.NewRecorder()
	defer b.join(h, &page{rec, cancel}, "list", idle)()
	gone, cancel := context.WithCancel(t.Context())
	defer b.join(h, &page{brokenWriter{rec}, cancel}, "list", idle)()
	<-gone.Done()
	b.send("list", update{Total: 7})
	if intact.Err() != nil || strings.Count(rec.Body.String(), "event: list\n") != 2 {
		t.Errorf("%v, %s", intact.Err(), rec.Body)
	}
}

// TestPageSize adds up the files of the page.
func TestPageSize(t *testing.T) {
	var size int64
	err := fs.WalkDir(pageFiles, ".", func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	if err != nil || size > 300_000 {
		t.Errorf("the page has %d bytes, %v", size, err)
	}
	t.Logf("%d bytes", size)
}
