package pgsession_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/postgres/pgsession"
)

// TestNotifier checks that a store is notified of the changes that another makes, and does not have to poll for them.
func TestNotifier(t *testing.T) {
	p := newPlace(t)
	worker, web := open(t, p, pgsession.Options{}), open(t, p, pgsession.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	sent, stored := web.Changed(ctx, "x", true), web.Changed(ctx, "x", false)
	arrives := func(ch <-chan struct{}) {
		t.Helper()
		select {
		case <-ch:
		case <-time.After(30 * time.Second):
			t.Fatal("no notification")
		}
	}
	log := openLog(t, worker, "x")
	begin := time.Now()
	const n = 20
	for i := range int64(n) {
		appendTo(t, log, record(i+1))
		arrives(stored)
		must(t, second(worker.Send(t.Context(), "x", session.Entry{ID: "in" + string(rune('a'+i)), Data: json.RawMessage("1")})))
		arrives(sent)
	}
	if mean := time.Since(begin) / (2 * n); mean > 400*time.Millisecond { // half a second without notifications
		t.Errorf("a change takes %v on average", mean)
	}
	cancel()

	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	live := web.Live(ctx, "x")
	for len(live) == 0 { // until the store listens
		worker.Publish("x", session.Event{Seq: 1, Data: json.RawMessage(`"first"`)})
		time.Sleep(20 * time.Millisecond)
	}
	worker.Publish("y", session.Event{Seq: 2, Data: json.RawMessage(`2`)})
	worker.Publish("x", session.Event{Seq: 2, Data: json.RawMessage(`"ä [1]"`)})
	worker.Publish("x", session.Event{Seq: 3, Data: json.RawMessage(`"` + string(slices.Repeat([]byte("x"), 9000)) + `"`)}) // too large
	worker.Publish("x", session.Event{Seq: 4, Data: json.RawMessage(`4`)})
	var got []int64
	for ev := range live {
		if ev.Seq == 2 && string(ev.Data) != `"ä [1]"` {
			t.Errorf("event 2 is %s", ev.Data)
		}
		if ev.Seq > 1 {
			got = append(got, ev.Seq)
		}
		if ev.Seq == 4 {
			break
		}
	}
	if !slices.Equal(got, []int64{2, 4}) {
		t.Errorf("got events %v", got)
	}
}
