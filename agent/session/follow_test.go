package session_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
)

// TestFollow watches a session that its store has open: the events are those that were saved, not decoded again. A
// watcher that falls behind, and one whose session is closed and opened again, miss none.
func TestFollow(t *testing.T) {
	store, err := session.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log, err := store.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	seq, last := int64(0), int64(600)
	add := func(n int) {
		t.Helper()
		for range n {
			seq++
			rec := session.Record{Seq: seq, Whole: seq == 1, Data: []byte(`{}`), Events: []session.Event{{Seq: seq, Data: []byte(`{"type":"test"}`)}}}
			if err := log.Append(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var want int64
	for ev, err := range store.(session.Watcher).Watch(ctx, "a", 0) {
		if want++; err != nil || ev.Seq != want || ev.Record != want {
			t.Fatalf("%+v, %v; want number %d", ev, err, want)
		}
		switch ev.Seq {
		case 1:
			time.AfterFunc(20*time.Millisecond, func() { add(1) })
		case 2: // by the log
			add(300)
		case 302: // by the file
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			if log, err = store.Open(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			add(int(last - seq))
		}
		if ev.Seq == last {
			break
		}
	}
	if err := errors.Join(log.Close(), ctx.Err()); err != nil {
		t.Fatal(err)
	}
}
