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

// A herald is a server that tells of updates of resources.
type herald struct {
	mu   sync.Mutex
	told []string // what it is asked for
	say  func(string)
	gone string // refused, too
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
			h.told = append(h.told, strings.TrimPrefix(msg.Method, "resources/")+" "+p.URI)
			reply(msg.result(`{}`))
		default:
			if !polite(msg, reply, `[]`) && msg.ID != nil {
				reply(msg.fail(codeMethodNotFound, "it only tells"))
			}
		}
	}
}

func (h *herald) asked() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.told = nil }()
	slices.Sort(h.told)
	return strings.Join(h.told, ", ")
}

// TestWatchResource: a server is told once of what several want to hear of, and each hears of
// updates once, of parts as of the whole, also after the server has died.
func TestWatchResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h herald
		c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, h.script(`{"resources":{"subscribe":true}}`))
		heard := map[string]int{}
		watch := func(name, uri string) func() {
			stop, err := c.WatchResource(t.Context(), uri, func() { heard[name]++ })
			if err != nil {
				t.Fatal(err)
			}
			return stop
		}
		dir, twice, file := watch("dir", "x://a/"), watch("twice", "x://a/"), watch("file", "x://a/b")
		for _, row := range []struct {
			does        func()
			asked, want string
		}{
			{func() {}, "subscribe x://a/, subscribe x://a/b", "map[]"},
			{func() { h.update("x://a/", "x://a/", "x://ab", "y://z", strings.Repeat("x", 10_000)) }, "", "map[dir:1 twice:1]"},
			{func() { h.update("x://a/b") }, "", "map[dir:1 file:1 twice:1]"},
			{func() { h.update("x://a/b/c/d"); twice(); twice() }, "", "map[dir:1 file:1]"},
			{func() { h.say(hangUp); time.Sleep(time.Minute) }, "subscribe x://a/, subscribe x://a/b", "map[dir:1 file:1]"},
			{func() { h.update("x://a/b") }, "", "map[dir:1 file:1]"},
			{func() { dir(); time.Sleep(time.Second); dir = watch("dir", "x://a/") }, "subscribe x://a/, unsubscribe x://a/", "map[]"},
			{func() { dir(); dir = watch("dir", "x://a/"); h.update("x://a/") }, "", "map[dir:1]"},
			{func() { dir(); file(); time.Sleep(time.Second); h.update("x://a/b") }, "unsubscribe x://a/, unsubscribe x://a/b", "map[]"},
		} {
			row.does()
			time.Sleep(20 * time.Second) // beyond what updates are collected for
			synctest.Wait()
			if asked, got := h.asked(), fmt.Sprint(heard); asked != row.asked || got != row.want {
				t.Errorf("the server was asked %q, heard %s; want %q, %s", asked, got, row.asked, row.want)
			}
			clear(heard)
		}
		watch("gone", "gone")
		h.mu.Lock()
		h.gone = "gone"
		h.mu.Unlock()
		h.say(hangUp)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := fmt.Sprint(heard); got != "map[gone:1]" {
			t.Errorf("a resource that cannot be subscribed to any more: heard %s", got)
		}
		if _, err := c.WatchResource(t.Context(), "refused", func() {}); !hasCode(err, -32002) {
			t.Errorf("refused: %v", err)
		}
		synctest.Wait()
		c.Close()
		if n := len(c.watches.all); n != 1 { // gone
			t.Errorf("%d watches are left", n)
		}
	})
}

// update says that resources were updated.
func (h *herald) update(uris ...string) {
	for _, uri := range uris {
		h.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `"}}`)
	}
}

// TestListenToAll: in the new era one request is for all that is watched, and a new one is
// made when that changes, however the server acknowledges it.
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
					polite(msg, reply, `[]`)
				}
			})
			heard := 0
			for _, uri := range []string{"a", "b", "a"} {
				if _, err := c.WatchResource(t.Context(), uri, func() { heard++ }); err != nil {
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
			if got != "[a] [a b]" || heard != 4 { // each of a and b when it stands, and both who watch a
				t.Errorf("acknowledged by %s: listened to %s, heard %d", ack, got, heard)
			}
			c.Close()
		})
	}
}

// TestListenRefused: a resource that the server does not take costs the others nothing, nor
// does one that comes later.
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
					reply(msg.fail(codeInvalidParams, "there is no bad"))
				} else {
					for _, uri := range uris {
						standing[uri]++
					}
					reply(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"resourceSubscriptions":[]}}}`)
				}
			default:
				polite(msg, reply, `[]`)
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

// TestUpdatedCosts: what a server says of a resource is not copied for each of its parents.
func TestUpdatedCosts(t *testing.T) {
	ws := newWatches()
	if _, err := ws.join("srv", "x://a", new(func())); err != nil {
		t.Fatal(err)
	}
	deep := strings.Repeat("/", maxUpdatedURI)
	if n := testing.AllocsPerRun(10, func() { ws.updated(deep) }); n > 10 {
		t.Errorf("%v allocations", n)
	}
}

// TestCannotWatch: what cannot be watched is an error, and so is too much.
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
			c.watches.all[fmt.Sprint(i)] = &watch{}
		}
		if _, err := c.WatchResource(t.Context(), "x://a", func() {}); err == nil || !strings.Contains(err.Error(), "are watched") {
			t.Errorf("one too many: %v", err)
		}
		c.Close()
	})
}
