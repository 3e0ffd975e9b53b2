package agui_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agui"
	"github.com/kitbag-go/kitbag/agui/internal/desk"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestNew checks the errors of configurations.
func TestNew(t *testing.T) {
	good := desk.Config(session.Memory(), nil)
	for want, change := range map[string]func(*agui.Config){
		"Config.Store is nil":   func(c *agui.Config) { c.Store = nil },
		"not a session.Inbox":   func(c *agui.Config) { c.Store = struct{ session.Store }{c.Store} },
		"Config.Agent":          func(c *agui.Config) { c.Agent = agent.Config{} },
		"both Config.Agent and": func(c *agui.Config) { c.Engine = &worker{} },
	} {
		cfg := good
		change(&cfg)
		if _, err := agui.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, not %q", err, want)
		}
	}
}

// A worker is an engine: it runs sessions of a store as another process would.
type worker struct {
	store session.Store
	cfg   agent.Config
	wg    sync.WaitGroup
}

func (w *worker) Send(ctx context.Context, id, input string, in agent.Input) (bool, error) {
	accepted, err := session.Send(ctx, w.store, id, input, in)
	if err == nil {
		w.wg.Go(func() { w.run(id) })
	}
	return accepted, err
}

func (w *worker) run(id string) {
	for {
		s, err := session.Open(context.Background(), w.store, id)
		if errors.Is(err, session.ErrConflict) {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			panic(err)
		}
		a, err := agui.Agent(context.Background(), w.cfg, s)
		if err != nil {
			panic(err)
		}
		n, publishes := w.store.(session.Notifier)
		for ev, err := range s.Run(context.Background(), a) {
			if err != nil { // it is stored
				break
			}
			if data, err := json.Marshal(ev); err == nil && publishes {
				n.Publish(id, session.Event{Seq: ev.Head().Seq, Data: data})
			}
		}
		if err := s.Close(); err != nil {
			panic(err)
		}
		return
	}
}

// viaEngine has a worker run the sessions of a replica.
func viaEngine(t *testing.T, store session.Store) func(*agui.Config) {
	w := &worker{store: store}
	t.Cleanup(w.wg.Wait)
	return func(c *agui.Config) {
		w.cfg = c.Agent
		w.cfg.Save = session.Save
		c.Agent, c.Engine = agent.Config{}, w
	}
}

// A notifier is a store that passes on what the worker publishes.
type notifier struct {
	session.Store
	session.Inbox
	session.Watcher
	session.Reader

	mu   sync.Mutex
	live map[string]chan session.Event
}

func (*notifier) Changed(context.Context, string, bool) <-chan struct{} { return nil }

func (n *notifier) Publish(id string, ev session.Event) { n.Live(context.Background(), id) <- ev }

func (n *notifier) Live(_ context.Context, id string) chan session.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.live[id] == nil {
		n.live[id] = make(chan session.Event, 1000)
	}
	return n.live[id]
}

// TestEngine compares what comes from an engine with what comes from the handler's own loop: the same, but for what
// is discarded. If the store passes deltas on, the text is streamed.
func TestEngine(t *testing.T) {
	m := session.Memory()
	passing := &notifier{Store: m, Inbox: m.(session.Inbox), Watcher: m.(session.Watcher), Reader: m.(session.Reader), live: map[string]chan session.Event{}}
	for name, store := range map[string]session.Store{"whole": session.Memory(), "deltas": notifies{passing}} {
		own, other := newReplica(t, session.Memory()), newReplica(t, store, viaEngine(t, store))
		for i, s := range streams {
			thread, more := fmt.Sprint(name, i), []string{}
			if s.more != "" {
				more = append(more, s.more)
			}
			got, want := other.run(thread, "m1", s.text, more...), own.run(thread, "m1", s.text, more...)
			if kept(t, got) != kept(t, want) {
				t.Errorf("%s: %q:\n%s\nwant\n%s", name, s.text, kept(t, got), kept(t, want))
			}
		}
		// Deltas that are late are discarded. The other rows compare ids, so that this is not repeated before them.
		streamed := false
		for try := 0; try < 50 && !streamed; try++ {
			streamed = len(other.run(fmt.Sprint(name, "again", try), "m1", "long")) > 20
			if name != "deltas" {
				break
			}
		}
		if streamed != (name == "deltas") {
			t.Errorf("%s: the text was streamed: %v", name, streamed)
		}
		call := last(t, other.run("c", "m1", "send it")).data["outcome"].(map[string]any)["interrupts"].([]any)[0].(map[string]any)["id"]
		answer := fmt.Sprintf(`"resume":[{"interruptId":%q,"status":"resolved","payload":{"approved":true}}]`, call)
		if got := kinds(other.run("c", "", "", answer)); !strings.Contains(got, "TOOL_CALL_RESULT") || !strings.HasSuffix(got, "RUN_FINISHED") {
			t.Errorf("after the answer: %s", got)
		}
		note := `"tools":[{"name":"note","description":"Is not the agent's."},{"name":"paint","description":"Paints."}]`
		if got := normal(t, other.run("names", "m1", "tools", note)); !strings.Contains(got, "I have reset_tools note send wait clerk paint.") {
			t.Errorf("with a name that the agent has: %s", got)
		}
	}
}

// TestLateDeltas has the deltas of a message arrive after a client has got the beginning of the whole message, and was
// cut off.
func TestLateDeltas(t *testing.T) {
	m := session.Memory()
	n := &notifier{Store: m, Inbox: m.(session.Inbox), Watcher: m.(session.Watcher), Reader: m.(session.Reader), live: map[string]chan session.Event{}}
	r := newReplica(t, m, viaEngine(t, m)) // the worker does not publish
	want := normal(t, r.run("want", "m1", "long"))
	all := r.run("t", "m1", "long")
	at := slices.IndexFunc(all, func(f frame) bool { return f.kind() == "TEXT_MESSAGE_CONTENT" })
	for ev, err := range session.Watch(t.Context(), m, "t", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := ev.(*event.ModelStart); ok {
			delta := &event.TextDelta{Header: event.Header{Type: event.TypeOf(&event.TextDelta{}), Seq: start.Seq + 1, Time: start.Time, Run: start.Run}, Message: all[at].data["messageId"].(string), Block: "b", Text: "All work"}
			data, err := json.Marshal(delta)
			if err != nil {
				t.Fatal(err)
			}
			n.Publish("t", session.Event{Seq: delta.Seq, Data: data})
			break
		}
	}
	store := late{notifies{n}}
	rest := newReplica(t, store, viaEngine(t, store)).stream("GET", "?threadId=t", "", "Last-Event-ID", all[at].id)
	if got := strings.ReplaceAll(normal(t, append(all[:at+1:at+1], rest...)), `"t"`, `"want"`); messages(got) != messages(want) {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

// messages leaves the ids out.
func messages(events string) string {
	return regexp.MustCompile(`"(msg|call)-[0-9]+"`).ReplaceAllString(events, "id")
}

// late yields events only when those that were published have been received.
type late struct{ notifies }

func (l late) Watch(ctx context.Context, id string, after int64) iter.Seq2[session.Event, error] {
	for len(l.notifier.Live(ctx, id)) > 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond)
	return l.notifier.Watch(ctx, id, after)
}

// notifies makes the channel of Live one that only receives.
type notifies struct{ *notifier }

func (n notifies) Live(ctx context.Context, id string) <-chan session.Event {
	return n.notifier.Live(ctx, id)
}

func ceiling(r *http.Request) (toolkit.Ceiling, error) {
	switch r.Header.Get("X-Grant") {
	case "all":
		return toolkit.Only("*"), nil
	case "":
		return toolkit.Ceiling{}, errors.New("no grant")
	}
	return toolkit.Only(r.Header.Get("X-Grant")), nil
}

// TestCeiling checks that a request uses no more than it may.
func TestCeiling(t *testing.T) {
	for name, change := range map[string]func(*testing.T, session.Store) func(*agui.Config){
		"loop": func(*testing.T, session.Store) func(*agui.Config) { return func(*agui.Config) {} }, "engine": viaEngine,
	} {
		t.Run(name, func(t *testing.T) { checkCeiling(t, change) })
	}
}

func checkCeiling(t *testing.T, change func(*testing.T, session.Store) func(*agui.Config)) {
	store := session.Memory()
	r := newReplica(t, store, change(t, store), func(c *agui.Config) {
		c.Ceiling = ceiling
		c.Session = func(r *http.Request, thread string) (string, error) {
			if thread == "theirs" {
				return "", errors.New("not the owner")
			}
			return "tenant-" + thread, nil
		}
	})
	for _, row := range []struct{ thread, grant, want string }{
		{"a", "all", "I have reset_tools note send wait clerk."},
		{"a", "extra", "I have reset_tools."},
		{"a", "nothing", "I have ."},
		{"a", "basic", "I have note send wait clerk."},
	} {
		text := ""
		for _, f := range r.stream("POST", "", request(row.thread, "m-"+row.grant, "tools"), "X-Grant", row.grant) {
			if f.kind() == "TEXT_MESSAGE_CONTENT" {
				text += f.data["delta"].(string)
			}
		}
		if text != row.want {
			t.Errorf("with %q: %q, not %q", row.grant, text, row.want)
		}
	}
	for thread, grant := range map[string]string{"a": "", "theirs": "all"} {
		res := r.do("POST", "", request(thread, "m9", "tools"), "X-Grant", grant)
		res.Body.Close()
		if res.StatusCode != http.StatusForbidden {
			t.Errorf("thread %s with %q: %s", thread, grant, res.Status)
		}
	}

	// A run in progress keeps its ceiling, and the message of a request with another one is not accepted.
	res := r.do("POST", "", request("b", "m1", "wait"), "X-Grant", "basic")
	defer res.Body.Close()
	frames(t, res.Body, func(f frame) bool { return f.kind() != "TOOL_CALL_END" })
	if got := last(t, r.stream("POST", "", request("b", "m2", "tools"), "X-Grant", "all")); got.data["code"] != "busy" {
		t.Errorf("a request with another ceiling gets %v", got.data)
	}
	r.release <- struct{}{}
	if got := last(t, r.stream("POST", "", request("b", "m3", "tools"), "X-Grant", "basic")); got.kind() != "RUN_FINISHED" {
		t.Errorf("a request with the same ceiling gets %v", got.data)
	}
}

// TestDisconnect disconnects a client. The run continues; a message that comes meanwhile waits, and its stream has
// both.
func TestDisconnect(t *testing.T) {
	store := session.Memory()
	r := newReplica(t, store)
	res := r.do("POST", "", request("t", "m1", "wait"))
	frames(t, res.Body, func(f frame) bool { return f.kind() != "TOOL_CALL_END" })
	res.Body.Close()
	done := make(chan []frame)
	go func() { done <- r.run("t", "m2", "hello") }()
	for entries := []session.Entry(nil); len(entries) == 0; { // until it waits
		var err error
		if entries, err = store.(session.Inbox).Inputs(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
	}
	r.release <- struct{}{}
	list := <-done
	if got := normal(t, list); !strings.Contains(got, "Done: waited.") || !strings.Contains(got, `You said \"hello\".`) || last(t, list).kind() != "RUN_FINISHED" {
		t.Errorf("the second stream is\n%s", got)
	}
}

// TestSlow lets a client read nothing while the run writes more than fits anywhere.
func TestSlow(t *testing.T) {
	store := session.Memory()
	r := newReplica(t, store)
	res := r.do("POST", "", request("t", "m1", "huge"))
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	for range 6000 { // the run does not wait for the client
		if _, info, err := session.Read(t.Context(), store, "t", 0); err == nil && info.Status == session.StatusEnded {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the run waits for a client that does not read")
}

// TestCancel cancels a run in progress; cancelling again changes nothing.
func TestCancel(t *testing.T) {
	r := newReplica(t, session.Memory())
	done := make(chan []frame)
	go func() { done <- r.run("t", "m1", "wait") }()
	for {
		res := r.do("DELETE", "?threadId=t", "")
		res.Body.Close()
		if res.StatusCode != http.StatusNoContent {
			t.Fatalf("DELETE: %s", res.Status)
		}
		select {
		case list := <-done:
			if end := last(t, list); fmt.Sprint(end.data["outcome"]) != "map[type:cancelled]" {
				t.Errorf("the end is %v", end.data)
			}
			if got := last(t, r.run("t", "m2", "hello")); fmt.Sprint(got.data["outcome"]) != "map[type:success]" {
				t.Errorf("the next run ends with %v", got.data)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestHTTP checks what is refused before the body is read.
func TestHTTP(t *testing.T) {
	r := newReplica(t, session.Memory(), func(c *agui.Config) { c.MaxBody, c.MaxTools = 1000, -1 })
	for _, row := range []struct {
		method, query, body string
		header              []string
		status              int
	}{
		{"POST", "", request("t", "m", "hello"), []string{"Content-Type", "text/plain"}, 415},
		{"POST", "", request("t", "m", strings.Repeat("x", 1000)), nil, 413},
		{"POST", "", request("t", "m", "hello", paint), nil, 400},
		{"GET", "?threadId=t", "", []string{"Last-Event-ID", "x"}, 404},
		{"POST", "", request("t", "m", "hello"), nil, 200},
		{"GET", "?threadId=t", "", []string{"Last-Event-ID", "x"}, 400},
		{"GET", "?threadId=t", "", []string{"Last-Event-ID", "r~m~0~0~99~0~" + strings.Repeat("x", 2000) + "~a~t~0~0~0"}, 400},
		{"GET", "?threadId=t", "", []string{"Last-Event-ID", "r~m~0~0~9223372036854775807~0"}, 400},
		{"GET", "?threadId=t", "", []string{"Last-Event-ID", "r~~9223372036854775807~0~9223372036854775807~0"}, 400},
		{"GET", "?threadId=t&runId=a%20b", "", nil, 400},
	} {
		res := r.do(row.method, row.query, row.body, row.header...)
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != row.status {
			t.Errorf("%s %s %.80s %q: %s, not %d: %s", row.method, row.query, row.body, row.header, res.Status, row.status, text)
		}
	}
}

// A broken is a store that cannot read events.
type broken struct {
	session.Store
	session.Inbox
	session.Reader
}

func (broken) Watch(context.Context, string, int64) iter.Seq2[session.Event, error] {
	return func(yield func(session.Event, error) bool) { yield(session.Event{}, errors.New("disk failure")) }
}

// TestBrokenStream checks that a stream that fails after its beginning ends there: it has no HTTP error in it.
func TestBrokenStream(t *testing.T) {
	m := session.Memory()
	r := newReplica(t, broken{m, m.(session.Inbox), m.(session.Reader)}, func(c *agui.Config) { c.Log = slog.New(slog.DiscardHandler) })
	res := r.do("POST", "", request("t", "m1", "hello"))
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(text); !strings.HasPrefix(got, "data: ") || strings.Contains(got, `{"error":`) {
		t.Errorf("the stream is\n%s", got)
	}
}

// TestShutdown waits for the run in progress, and refuses others.
func TestShutdown(t *testing.T) {
	r := newReplica(t, session.Memory())
	res := r.do("POST", "", request("t", "m1", "wait"))
	defer res.Body.Close()
	frames(t, res.Body, func(f frame) bool { return f.kind() != "TOOL_CALL_END" })
	done := make(chan error)
	go func() { done <- r.handler.Shutdown(context.Background()) }()
	for {
		again := r.do("POST", "", request("u", "m1", "hello"))
		again.Body.Close()
		if again.StatusCode == http.StatusServiceUnavailable {
			break
		}
	}
	r.release <- struct{}{}
	if err := <-done; err != nil {
		t.Error(err)
	}
	var list []frame
	frames(t, res.Body, func(f frame) bool { list = append(list, f); return true })
	if got := last(t, list); got.kind() != "RUN_FINISHED" {
		t.Errorf("the stream ends with %v", got.data)
	}
}
