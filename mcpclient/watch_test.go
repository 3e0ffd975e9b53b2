package mcpclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A herald is a server that announces updates of resources.
type herald struct {
	mu       sync.Mutex
	requests []string // that it got
	say      func(string)
	gone     string // a resource that it refuses, too
}

func (h *herald) script(capabilities string) script {
	return func(msg request, reply func(string)) {
		h.mu.Lock()
		defer h.mu.Unlock()
		var p struct{ URI string }
		_ = json.Unmarshal(msg.Params, &p)
		switch msg.Method {
		case "initialize":
			h.say = reply
			reply(msg.result(`{"protocolVersion":"2025-11-25","capabilities":` + capabilities + `,"serverInfo":{"name":"herald","version":"1"}}`))
		case "resources/subscribe", "resources/unsubscribe":
			if p.URI == "refused" || p.URI == h.gone {
				reply(msg.fail(-32002, "there is none"))
				return
			}
			h.requests = append(h.requests, strings.TrimPrefix(msg.Method, "resources/")+" "+p.URI)
			reply(msg.result(`{}`))
		default:
			if !handleStandard(msg, reply, `[]`) && msg.ID != nil {
				reply(msg.fail(codeMethodNotFound, "not supported"))
			}
		}
	}
}

func (h *herald) takeRequests() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.requests = nil }()
	slices.Sort(h.requests)
	return strings.Join(h.requests, ", ")
}

// TestWatchResource checks that several watches of a resource cause one subscription, and that each is called
// once for an update of the resource or a part of it, even after the server has died.
func TestWatchResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h herald
		c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, h.script(`{"resources":{"subscribe":true}}`))
		calls := map[string]int{}
		watch := func(name, uri string) func() {
			stop, err := c.WatchResource(t.Context(), uri, func() { calls[name]++ })
			if err != nil {
				t.Fatal(err)
			}
			return stop
		}
		const again = "subscribe x://a/, unsubscribe x://a/"
		dir, twice, file := watch("dir", "x://a/"), watch("twice", "x://a/"), watch("file", "x://a/b")
		for _, row := range []struct {
			does               func()
			takeRequests, want string
		}{
			{func() {}, "subscribe x://a/, subscribe x://a/b", "map[]"},
			{func() { h.update("x://a/", "x://a/", "x://ab", "y://z", strings.Repeat("x", 10_000)) }, "", "map[dir:1 twice:1]"},
			{func() { h.update("x://a/b") }, "", "map[dir:1 file:1 twice:1]"},
			{func() { h.update("x://a/b/c/d"); twice(); twice() }, "", "map[dir:1 file:1]"},
			{func() { h.say(hangUp); time.Sleep(time.Minute) }, "subscribe x://a/, subscribe x://a/b", "map[dir:1 file:1]"},
			{func() { h.update("x://a/b") }, "", "map[dir:1 file:1]"},
			{func() { dir(); time.Sleep(time.Second); dir = watch("dir", "x://a/") }, again, "map[]"},
			{func() {
				dir()
				dir = watch("dir", "x://a/")
				synctest.Wait()
				if got := h.takeRequests(); got != "" && got != again { // it subscribes again if the first subscription has just ended
					t.Errorf("watched again at once: requests %q", got)
				}
				h.update("x://a/")
			}, "", "map[dir:1]"},
			{func() { dir(); file(); time.Sleep(time.Second); h.update("x://a/b") }, "unsubscribe x://a/, unsubscribe x://a/b", "map[]"},
		} {
			row.does()
			time.Sleep(20 * time.Second) // longer than updates are collected
			synctest.Wait()
			if takeRequests, got := h.takeRequests(), fmt.Sprint(calls); takeRequests != row.takeRequests || got != row.want {
				t.Errorf("requests %q, calls %s; want %q, %s", takeRequests, got, row.takeRequests, row.want)
			}
			clear(calls)
		}
		watch("gone", "gone")
		h.mu.Lock()
		h.gone = "gone"
		h.mu.Unlock()
		h.say(hangUp)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := fmt.Sprint(calls); got != "map[gone:1]" {
			t.Errorf("a resource that cannot be subscribed to any more: calls %s", got)
		}
		if _, err := c.WatchResource(t.Context(), "refused", func() {}); !hasCode(err, -32002) {
			t.Errorf("refused: %v", err)
		}
		synctest.Wait()
		c.Close()
		if n := len(c.cat.watches.all); n != 1 { // gone
			t.Errorf("%d watches are left", n)
		}
	})
}

// update announces updates of resources.
func (h *herald) update(uris ...string) {
	for _, uri := range uris {
		h.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `"}}`)
	}
}

// TestListenToAll checks that in the revisions without sessions one request covers all watched resources, and
// is replaced when they change, however the server acknowledges it.
func TestListenToAll(t *testing.T) {
	for _, ack := range []string{`{"resourceSubscriptions":["a"]}`, `{"toolsListChanged":false,"resourceSubscriptions":["a"]}`, `{}`, ""} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var listens []string
			var say func(string)
			c := memoryClient(t, Server{Options: Options{PingInterval: -1, Protocol: "2026-07-28"}}, func(msg request, reply func(string)) {
				mu.Lock()
				defer mu.Unlock()
				switch say = reply; msg.Method {
				case "server/discover":
					reply(msg.result(`{"supportedVersions":["2026-07-28"],"capabilities":{"resources":{"subscribe":true}}}`))
				case "subscriptions/listen":
					var p struct {
						Notifications struct{ ResourceSubscriptions []string }
					}
					_ = json.Unmarshal(msg.Params, &p)
					listens = append(listens, fmt.Sprint(p.Notifications.ResourceSubscriptions))
					if ack != "" {
						reply(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":` + ack + `}}`)
					}
				default:
					handleStandard(msg, reply, `[]`)
				}
			})
			calls := 0
			for _, uri := range []string{"a", "b", "a"} {
				if _, err := c.WatchResource(t.Context(), uri, func() { calls++ }); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
			}
			mu.Lock()
			got := strings.Join(slices.Compact(listens), " ")
			say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a"}}`)
			mu.Unlock()
			time.Sleep(time.Minute)
			synctest.Wait()
			if got != "[a] [a b]" || calls != 4 { // a and b when acknowledged, and both watches of a after the update
				t.Errorf("acknowledged by %s: listened to %s, %d calls", ack, got, calls)
			}
			c.Close()
		})
	}
}

// TestListenRefused checks that a refused resource does not affect the others, nor later ones.
func TestListenRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		standing := map[string]int{}
		c := memoryClient(t, Server{Options: Options{PingInterval: -1, Protocol: "2026-07-28"}}, func(msg request, reply func(string)) {
			mu.Lock()
			defer mu.Unlock()
			switch msg.Method {
			case "server/discover":
				reply(msg.result(`{"supportedVersions":["2026-07-28"],"capabilities":{"resources":{"subscribe":true}}}`))
			case "subscriptions/listen":
				var p struct {
					Notifications struct{ ResourceSubscriptions []string }
				}
				_ = json.Unmarshal(msg.Params, &p)
				if uris := p.Notifications.ResourceSubscriptions; slices.Contains(uris, "bad") {
					reply(msg.fail(codeInvalidParams, "unknown resource bad"))
				} else {
					for _, uri := range uris {
						standing[uri]++
					}
					reply(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"resourceSubscriptions":[]}}}`)
				}
			default:
				handleStandard(msg, reply, `[]`)
			}
		})
		for _, uri := range []string{"bad", "a", "b", "c"} {
			if _, err := c.WatchResource(t.Context(), uri, func() {}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		mu.Lock()
		got := fmt.Sprint(standing)
		mu.Unlock()
		if got != "map[a:3 b:2 c:1]" {
			t.Errorf("subscribed to %s", got)
		}
		c.Close()
	})
}

// TestUpdatedCosts checks that the URI of an update is not copied for each of its parents.
func TestUpdatedCosts(t *testing.T) {
	ws := &watchList{wake: make(chan struct{}, 1), all: map[string]*watch{}}
	if _, err := ws.addListener("srv", "x://a", new(func())); err != nil {
		t.Fatal(err)
	}
	deep := strings.Repeat("/", maxUpdatedURI)
	if n := testing.AllocsPerRun(10, func() { ws.markURIUpdated(deep) }); n > 10 {
		t.Errorf("%v allocations", n)
	}
}

// TestCannotWatch checks the errors for a server without subscriptions, a stateless client, and too many watches.
func TestCannotWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h herald
		able := `{"resources":{"subscribe":true}}`
		for capabilities, cfg := range map[string]Server{`{"resources":{}}`: {Options: Options{PingInterval: -1}}, able: {Options: Options{PingInterval: -1, Stateless: true}}} {
			c := memoryClient(t, cfg, h.script(capabilities))
			if _, err := c.WatchResource(t.Context(), "x://a", func() {}); !errors.Is(err, ErrNotWatched) {
				t.Errorf("%s, %v: %v", capabilities, cfg.Options.Stateless, err)
			}
			c.Close()
		}
		c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, h.script(able))
		for i := range maxWatched {
			c.cat.watches.all[fmt.Sprint(i)] = &watch{}
		}
		if _, err := c.WatchResource(t.Context(), "x://a", func() {}); err == nil || !strings.Contains(err.Error(), "are watched") {
			t.Errorf("one too many: %v", err)
		}
		c.Close()
	})
}
