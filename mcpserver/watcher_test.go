package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A newsroom is a store that supports updates and completions.
type newsroom struct {
	store
	mu      sync.Mutex
	watched map[string][]func()
	stopped int
	twice   bool // a watch was stopped more than once
	last    sync.WaitGroup
}

func (n *newsroom) Watch(_ context.Context, v mcpupstream.View, uri string, updated func()) ([]string, func(), error) {
	if uri == "book://none" {
		return nil, nil, fmt.Errorf("the newsroom: %w", mcpupstream.ErrNotFound)
	}
	n.mu.Lock()
	n.watched[uri] = append(n.watched[uri], updated)
	n.mu.Unlock()
	if strings.HasPrefix(uri, "book://last/") { // all of these at the same time
		n.last.Done()
		n.last.Wait()
	}
	stopped := false
	return []string{"zoo"}, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.twice = n.twice || stopped
		n.stopped, stopped = n.stopped+1, true
	}, nil
}

func (n *newsroom) Complete(_ context.Context, kind mcpupstream.Kind, _ mcpupstream.View, name string, arg mcpupstream.Argument) ([]string, int, error) {
	switch name {
	case "book://none":
		return nil, 0, mcpupstream.ErrNotFound
	case "book://closed":
		return nil, 0, &mcpupstream.RequestError{Code: -32099, Message: "closed", Data: json.RawMessage(`{"until":9}`)}
	case "book://many":
		return make([]string, 101), 0, nil
	}
	return []string{fmt.Sprint(kind, " ", name, " ", arg)}, 7, nil
}

// update calls the functions of all watches, including stopped ones.
func (n *newsroom) update(uri string) {
	n.mu.Lock()
	all := n.watched[uri]
	n.mu.Unlock()
	for _, fn := range all {
		fn()
	}
}

func (n *newsroom) stops(t *testing.T, want int) {
	t.Helper()
	got := 0
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		n.mu.Lock()
		got = n.stopped
		n.mu.Unlock()
		if got == want {
			return
		}
	}
	t.Errorf("%d watches were stopped, want %d", got, want)
}

func newNewsroom(t *testing.T) (*newsroom, *mcpserver.Server) {
	t.Helper()
	n := &newsroom{watched: map[string][]func(){}}
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{named("get")}}, Groups: []toolkit.Group{{Name: "zoo", Description: "Z.", Tools: []tool.Tool{named("lion")}}}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := mcpserver.Config{Toolkit: tk, Policy: open}
	mcpupstream.Attach(&cfg, n)
	return n, serve(t, cfg)
}

// TestWatcher checks that clients that have subscribed are notified of updates of upstream servers if they can
// see the item, and that watches end when clients unsubscribe, leave or exceed the limit.
func TestWatcher(t *testing.T) {
	n, s := newNewsroom(t)
	o, _ := dialOld(t, listen(t, s), "", nil)
	o.send(oldInitialize)
	ask := func(method, uri string) string {
		return o.send(`{"jsonrpc":"2.0","id":1,"method":"resources/` + method + `","params":{"uri":"` + uri + `"}}`)
	}
	if got := ask("subscribe", "book://none"); !strings.Contains(got, "-32002") {
		t.Errorf("%s", got)
	}
	for i := range 1000 {
		if got := ask("subscribe", fmt.Sprint("book://", i)); !strings.Contains(got, `"result":{}`) {
			t.Fatalf("%d: %s", i, got)
		}
	}
	if got := ask("subscribe", "book://one-too-many"); !strings.Contains(got, "subscribed to too many") || len(n.watched) != 1000 {
		t.Errorf("%s, %d watched", got, len(n.watched))
	}
	n.stops(t, 0)
	ask("subscribe", "book://7") // replaces the first watch
	n.stops(t, 1)
	ask("unsubscribe", "book://8")
	n.stops(t, 2)
	n.update("book://9") // its group is closed
	o.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"reset_tools","arguments":{"zoo":true}}}`)
	n.update("book://8")
	n.update("book://7")
	for got := ""; !strings.Contains(got, "book://7"); {
		if _, got = o.next(); strings.Contains(got, "book://8") || strings.Contains(got, "book://9") {
			t.Errorf("received %s", got)
		}
	}
	o.leave()
	n.stops(t, 1001)
}

// TestUpdatesOfClosedGroups checks that clients are not notified of updates of a resource while its group is closed.
func TestUpdatesOfClosedGroups(t *testing.T) {
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{named("get")}}, Groups: []toolkit.Group{{Name: "zoo", Description: "Z.", Tools: []tool.Tool{named("lion")}}}})
	if err != nil {
		t.Fatal(err)
	}
	read := func(context.Context, string, map[string]string) ([]byte, error) { return nil, nil }
	s := serve(t, mcpserver.Config{Toolkit: tk, Policy: open, Resources: []mcpserver.Resource{
		{URI: "x://animal/{n}", Groups: []string{"zoo"}, Read: read}, {URI: "x://basic", Read: read}}})
	o, _ := dialOld(t, listen(t, s), "", nil)
	o.send(oldInitialize)
	ask := func(method, params string) {
		o.post(t.Context(), `{"jsonrpc":"2.0","id":"asked","method":"`+method+`","params":`+params+`}`)
		for got := ""; !strings.Contains(got, `"id":"asked"`); {
			_, got = o.next()
		}
	}
	updates := func() string {
		s.ResourceUpdated("x://animal/1")
		s.ResourceUpdated("x://basic")
		all := ""
		for !strings.Contains(all, "x://basic") {
			_, got := o.next()
			all += got
		}
		o.post(t.Context(), `{"jsonrpc":"2.0","id":"end","method":"ping"}`)
		for got := ""; !strings.Contains(got, `"id":"end"`); all += got {
			_, got = o.next()
		}
		return all
	}
	ask("tools/call", `{"name":"reset_tools","arguments":{"zoo":true}}`)
	ask("resources/subscribe", `{"uri":"x://animal/1"}`)
	ask("resources/subscribe", `{"uri":"x://basic"}`)
	for _, zoo := range []string{"true", "false", "true"} {
		ask("tools/call", `{"name":"reset_tools","arguments":{"zoo":`+zoo+`}}`)
		if got := updates(); strings.Contains(got, "x://animal/1") != (zoo == "true") {
			t.Errorf("open %s: %s", zoo, got)
		}
	}
}

// TestLastWatched checks that if two clients subscribe at the same time and only one more subscription is
// allowed, one is rejected and its watch is stopped once.
func TestLastWatched(t *testing.T) {
	n, s := newNewsroom(t)
	o, _ := dialOld(t, listen(t, s), "", nil)
	o.send(oldInitialize)
	for i := range 999 {
		o.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"book://%d"}}`, i))
	}
	n.last.Add(2)
	var answers string
	for i := range 2 {
		o.post(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":"last %d","method":"resources/subscribe","params":{"uri":"book://last/%d"}}`, i, i))
	}
	for range 2 {
		_, got := o.next()
		answers += got
	}
	if strings.Count(answers, "subscribed to too many") != 1 || strings.Count(answers, `"result":{}`) != 1 {
		t.Errorf("%s", answers)
	}
	o.leave()
	n.stops(t, 1001)
	if err := s.Close(); err != nil || n.twice {
		t.Errorf("a watch was stopped twice; %v", err)
	}
}

// TestWatchedBytes checks that a subscription does not keep the request in memory.
func TestWatchedBytes(t *testing.T) {
	_, s := newNewsroom(t)
	o, _ := dialOld(t, listen(t, s), "", nil)
	o.send(oldInitialize)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	ask := func(uri, more string) string {
		return o.send(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"` + uri + `","_meta":{"more":"` + more + `"}}}`)
	}
	if got := ask("book://"+strings.Repeat("x", 8<<10), ""); !strings.Contains(got, "-32602") {
		t.Errorf("a long URI: %.200s", got)
	}
	more := strings.Repeat("x", 1<<18)
	before := heap()
	for i := range 40 {
		if got := ask(fmt.Sprint("book://", i), more); !strings.Contains(got, `"result":{}`) {
			t.Fatal(got)
		}
	}
	if after := heap(); after > before+5<<20 {
		t.Errorf("40 subscriptions use %d bytes", after-before)
	}
}

// TestCompleter checks completions for items of upstream servers.
func TestCompleter(t *testing.T) {
	_, s := newNewsroom(t)
	w := newWire(t, listen(t, s))
	w.initialize(`{}`)
	for _, row := range []struct{ ref, want string }{
		{`{"type":"ref/prompt","name":"book://1"}`, `{"completion":{"hasMore":true,"total":7,"values":["prompts book://1 {who A map[lang:de]}"]}}`},
		{`{"type":"ref/resource","uri":"book://1"}`, `"values":["resourceTemplates book://1 {who A map[lang:de]}"]}}`},
		{`{"type":"ref/other","uri":"book://1"}`, "-32602"},
		{`{"type":"ref/prompt","name":"book://none"}`, `unknown prompt \"book://none\"`},
		{`{"type":"ref/prompt","name":"book://closed"}`, `{"code":-32099,"message":"closed","data":{"until":9}}`},
		{`{"type":"ref/prompt","name":"book://many"}`, `{"completion":{"hasMore":true,"values":["","",`}, // the total is unknown
	} {
		got := strings.Join(w.rpc("completion/complete", `{"ref":`+row.ref+`,"argument":{"name":"who","value":"A"},"context":{"arguments":{"lang":"de"}}}`), "")
		if !strings.Contains(got, row.want) || strings.Count(got, `""`) > 100 {
			t.Errorf("%s: %s, want %s", row.ref, got, row.want)
		}
	}
}

// TestWatcherShare checks that one credential cannot use up the subscriptions that all clients share, however
// many sessions it uses, and that subscriptions are available again when a session ends.
func TestWatcherShare(t *testing.T) {
	n := &newsroom{watched: map[string][]func(){}}
	cfg := mcpserver.Config{Toolkit: toolkit.Of(named("get")), Policy: open, Credentials: []mcpserver.Credential{
		{Name: "anna", Token: tokenA}, {Name: "otto", Token: tokenB},
	}}
	mcpupstream.Attach(&cfg, n)
	s := serve(t, cfg)
	url := listen(t, s)
	session := func(token string) *wire {
		w := newWire(t, url)
		w.token = token
		w.initialize(`{}`)
		return w
	}
	subscribe := func(w *wire, from, to int) (done int) {
		for i := from; i < to; i++ {
			_, got := w.post(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":"book://%d"}}`, i+1, i))
			if strings.Contains(strings.Join(got, ""), `"result":{}`) {
				done++
			}
		}
		return done
	}
	first := session(tokenA)
	got := subscribe(first, 0, 1000) + subscribe(session(tokenA), 0, 1000) + subscribe(session(tokenA), 0, 510)
	if got != 2500 {
		t.Errorf("anna has %d subscriptions, want a quarter of 10,000", got)
	}
	otto := session(tokenB)
	if got := subscribe(otto, 0, 10); got != 10 {
		t.Errorf("otto has %d subscriptions, want 10", got)
	}
	first.delete()
	n.stops(t, 1000)
	again := 0
	for w, end := session(tokenA), time.Now().Add(5*time.Second); again < 10 && time.Now().Before(end); {
		again += subscribe(w, again, 10)
	}
	if again != 10 {
		t.Errorf("%d subscriptions after a session of anna's has ended, want 10", again)
	}
}
