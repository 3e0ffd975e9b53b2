package agui_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agui"
	"github.com/kitbag-go/kitbag/agui/internal/desk"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestNew checks the errors of configurations.
func TestNew(t *testing.T) {
	good := desk.Config(session.Memory(), nil)
	for want, change := range map[string]func(*agui.Config){
		"Config.Store is nil":          func(c *agui.Config) { c.Store = nil },
		"not a session.Inbox":          func(c *agui.Config) { c.Store = struct{ session.Store }{c.Store} },
		"Config.Agent":                 func(c *agui.Config) { c.Agent = agent.Config{} },
		"both Config.Agent and":        func(c *agui.Config) { c.Engine = &worker{} },
		"Config.Ceiling has no effect": func(c *agui.Config) { c.Agent, c.Engine, c.Ceiling = agent.Config{}, &worker{}, ceiling },
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
	agent *agent.Agent
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
		for range s.Run(context.Background(), w.agent) {
		}
		if err := s.Close(); err != nil {
			panic(err)
		}
		return
	}
}

// TestEngine compares what comes from an engine with what comes from the handler's own loop: the same, but for what
// is discarded.
func TestEngine(t *testing.T) {
	own := newReplica(t, session.Memory())
	store := session.Memory()
	w := &worker{store: store}
	t.Cleanup(w.wg.Wait)
	other := newReplica(t, store, func(c *agui.Config) {
		a := c.Agent
		a.Save = session.Save
		var err error
		if w.agent, err = agent.New(a); err != nil {
			t.Fatal(err)
		}
		c.Agent, c.Engine = agent.Config{}, w
	})
	for i, s := range streams {
		if s.more != "" {
			continue
		}
		thread := fmt.Sprintf("t%d", i)
		got, want := other.run(thread, "m1", s.text), own.run(thread, "m1", s.text)
		if kept(t, got) != kept(t, want) {
			t.Errorf("%q:\n%s\nwant\n%s", s.text, kept(t, got), kept(t, want))
		}
	}
	res := other.do("POST", "", request("t", "m1", "hello", paint))
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); res.StatusCode != 400 || !strings.Contains(string(text), "no frontend tools") {
		t.Errorf("frontend tools: %s: %s", res.Status, text)
	}
	call := last(t, other.run("c", "m1", "send it")).data["outcome"].(map[string]any)["interrupts"].([]any)[0].(map[string]any)["id"]
	answer := fmt.Sprintf(`"resume":[{"interruptId":%q,"status":"resolved","payload":{"approved":true}}]`, call)
	if got := kinds(other.run("c", "", "", answer)); !strings.Contains(got, "TOOL_CALL_RESULT") || !strings.HasSuffix(got, "RUN_FINISHED") {
		t.Errorf("after the answer: %s", got)
	}
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
	r := newReplica(t, session.Memory(), func(c *agui.Config) {
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
