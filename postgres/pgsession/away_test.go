package pgsession_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/internal/pgtest"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/postgres/pgsession"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// ownServer starts a server that the test may stop.
func ownServer(t *testing.T) (*pgtest.Server, place) {
	t.Helper()
	s, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, place{s.URL(), schema()}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAway stops the database during a tool call, for longer than a claim lasts, and kills
// it while it is idle. The run waits, a watcher gets each event once, and no other process takes over the
// session.
func TestAway(t *testing.T) {
	const claim = 2 * time.Second // much more than a busy machine keeps a process waiting
	server, p := ownServer(t)
	opts := pgsession.Options{Claim: claim}
	store, other := open(t, p, opts), open(t, p, opts)
	var restart sync.WaitGroup
	t.Cleanup(restart.Wait)
	stop := func(how func() error, away time.Duration) {
		restart.Wait()
		must(t, how())
		restart.Go(func() {
			time.Sleep(away)
			if err := server.Start(); err != nil {
				t.Error(err)
			}
		})
	}
	calls := 0
	work := tool.Must(tool.New("work", "Works.", func(context.Context, struct{}) (string, error) {
		if calls++; calls == 1 {
			stop(server.Stop, claim+claim/2)
		}
		return "ok", nil
	}, tool.Options{}))
	a, err := agent.New(agent.Config{Toolkit: toolkit.Of(work), Save: session.Save,
		Policy: permission.Policy{Rules: []permission.Rule{{Tool: "work", Behavior: permission.Allow}}},
		Model:  scripted.New(scripted.Call("work", struct{}{}), scripted.Call("work", struct{}{}), scripted.Say("Done."))})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	seen := make(chan []string)
	go func() {
		var names []string
		for ev, err := range session.Watch(ctx, other, "x", 0) {
			if err != nil {
				t.Error(err)
				break
			}
			names = append(names, event.TypeOf(ev))
			if _, ok := ev.(*event.End); ok {
				break
			}
		}
		seen <- names
	}()
	opened := make(chan int)
	ended := make(chan struct{})
	go func() { // a process that keeps trying to open the session
		n := 0
		for {
			select {
			case <-ended:
				opened <- n
				return
			default:
			}
			if log, err := other.Open(ctx, "x"); err == nil {
				n++
				_ = log.Close()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	s, err := session.Open(ctx, store, "x")
	for ; errors.Is(err, session.ErrConflict); s, err = session.Open(ctx, store, "x") {
		time.Sleep(time.Millisecond)
	}
	must(t, err)
	before := time.Now()
	reply, err := a.Reply(s.Context(ctx), s.State, agent.Say("Work."))
	if err != nil || reply.Text() != "Done." || calls != 2 {
		t.Errorf("the run: %v, %v, %d calls", reply, err, calls)
	}
	if took := time.Since(before); took < claim {
		t.Errorf("the run took %v and did not wait", took)
	}
	close(ended)
	if n := <-opened; n > 1 { // once, before the writer opened it
		t.Errorf("the session was opened %d times by another", n)
	}
	must(t, s.Close())
	want := strings.Join(storedEvents(t, store, "x"), " ")
	if got := strings.Join(<-seen, " "); got != want || want == "" {
		t.Errorf("the watcher has seen\n%s, stored are\n%s", got, want)
	}

	stop(server.Kill, claim/2) // kills all its processes; it recovers from its log
	st, in, err := session.Read(ctx, store, "x", 0)
	if err != nil || in.Status != session.StatusEnded || len(st.Messages) != 6 {
		t.Errorf("after a crash: %+v, %d messages, %v", in, len(st.Messages), err)
	}
}

func storedEvents(t *testing.T, store *pgsession.Store, id string) (names []string) {
	t.Helper()
	_, in, err := session.Read(t.Context(), store, id, 0)
	must(t, err)
	for ev, err := range session.Watch(t.Context(), store, id, 0) {
		must(t, err)
		names = append(names, event.TypeOf(ev))
		if ev.Head().Seq == in.Event {
			break
		}
	}
	return names
}

// TestAwayTooLong: while the database is away for long, each operation ends with an error that has the remedy. Nothing
// that was stored is lost.
func TestAwayTooLong(t *testing.T) {
	const wait = 300 * time.Millisecond
	server, p := ownServer(t)
	store := open(t, p, pgsession.Options{Wait: wait, Claim: 100 * time.Millisecond})
	log := openLog(t, store, "x")
	appendTo(t, log, record(1))
	must(t, server.Stop())
	ctx := t.Context()
	watch := func() error {
		for _, err := range store.Watch(ctx, "x", 1) {
			return err
		}
		return nil
	}
	for name, do := range map[string]func() error{
		"append": func() error { return log.Append(ctx, record(2)) },
		"load":   func() error { _, err := log.Load(ctx); return err },
		"open":   func() error { _, err := store.Open(ctx, "y"); return err },
		"list":   func() error { _, err := store.List(ctx, session.Query{}); return err },
		"read":   func() error { _, _, err := store.Read(ctx, "x", 0); return err },
		"send":   func() error { _, err := store.Send(ctx, "x", session.Entry{ID: "1", Data: []byte("1")}); return err },
		"inputs": func() error { _, err := store.Inputs(ctx, "x"); return err },
		"input":  func() error { _, err := store.Input(ctx, "x", "1"); return err },
		"delete": func() error { return store.Delete(ctx, "x") },
		"prune":  func() error { _, err := store.Prune(ctx, pgsession.Retention{Sessions: time.Hour}); return err },
		"watch":  watch,
	} {
		begin := time.Now()
		err := do()
		if err == nil || !strings.Contains(err.Error(), "could not be reached") || !strings.Contains(err.Error(), "Options.Wait") || errors.Is(err, session.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(begin); took > 20*wait {
			t.Errorf("%s took %v", name, took)
		}
	}
	gone, cancel := context.WithTimeout(ctx, wait/10)
	defer cancel()
	if _, err := store.List(gone, session.Query{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a context that ends: %v", err)
	}
	if _, err := pgsession.Open(ctx, p.url, pgsession.Options{}); err == nil {
		t.Error("a database that is away was opened")
	}
	must(t, server.Start())
	if err := log.Append(ctx, record(2)); err == nil || !strings.Contains(err.Error(), "open the session again") {
		t.Errorf("a log whose end is unknown: %v", err)
	}
	var err error
	for range 100 { // the old log is still open
		if err = log.Close(); err == nil {
			log, err = store.Open(ctx, "x")
		}
		if err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	must(t, err)
	defer log.Close()
	if recs, err := log.Load(ctx); err != nil || len(recs) != 1 {
		t.Errorf("the session holds %v, %v", recs, err)
	}
	appendTo(t, log, record(2))
}
