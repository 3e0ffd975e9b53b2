package mcpgateway_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
)

// updates waits until a client was notified of n updates of resources, and returns their URIs.
func (w *wire) updates(n int) (all []string) {
	w.t.Helper()
	notices := w.notices
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		for _, m := range append(notices, w.pinged()...) {
			if _, uri, ok := strings.Cut(m, `"method":"notifications/resources/updated","params":{"uri":"`); ok {
				uri, _, _ = strings.Cut(uri, `"`)
				all = append(all, uri)
			}
		}
		if notices, w.notices = nil, nil; len(all) >= n || time.Now().After(end) {
			return all
		}
	}
}

// lines are the methods of the requests about subscriptions that a server received.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.all = nil }()
	return strings.Join(l.all, " ")
}

// recording records these requests of a server in sent; lose closes the connection.
func recording(cfg *mcpclient.Server) (sent *lines, lose func()) {
	sent = new(lines)
	dial := cfg.Transport.(mcpclient.Dial)
	var mu sync.Mutex
	var last io.Closer
	cfg.Transport = mcpclient.Dial(func(ctx context.Context) (io.ReadWriteCloser, error) {
		conn, err := dial(ctx)
		mu.Lock()
		last = conn
		mu.Unlock()
		return &tap{ReadWriteCloser: conn, sent: func(method, _ string) {
			if of, ok := strings.CutPrefix(method, "resources/"); ok && strings.HasSuffix(of, "subscribe") {
				sent.mu.Lock()
				defer sent.mu.Unlock()
				sent.all = append(sent.all, of)
			}
		}}, err
	})
	return sent, func() {
		mu.Lock()
		defer mu.Unlock()
		_ = last.Close()
	}
}

// TestSubscriptions checks that sessions are notified of the updates that they have subscribed to, as long as
// they see the resource, whatever era the server is of, and that this continues after the server has restarted.
func TestSubscriptions(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			up := library(t, "a")
			up.Options.Protocol = version
			sent, lose := recording(&up.Server)
			g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{up.Server, library(t, "b").Server}})
			anna, otto, none := newWire(t, g), newWire(t, g), newWire(t, g)
			subscribe := func(w *wire, uri, want string) {
				t.Helper()
				if got := w.rpc("resources/subscribe", `{"uri":"`+uri+`"}`); !strings.Contains(got, want) {
					t.Errorf("%s: %s, want %s", uri, got, want)
				}
			}
			update := func(when, ofAnna, ofOtto string, uris ...string) {
				t.Helper()
				for _, uri := range uris {
					up.server.ResourceUpdated(uri)
				}
				wires, wants := []*wire{anna, otto, none}, []string{ofAnna, ofOtto, ""}
				var got [3][]string
				for i, w := range wires {
					got[i] = w.updates(len(strings.Fields(wants[i])))
				}
				time.Sleep(250 * time.Millisecond) // for notifications that should not arrive; updates are collected for 200 ms
				for i, w := range wires {
					// Two notifications count as one, unless none should arrive: an update during a new subscription need not be
					// collected.
					all := slices.Compact(slices.Sorted(slices.Values(append(got[i], w.updates(0)...))))
					if uris := strings.Join(all, " "); uris != wants[i] {
						t.Errorf("%s: client %d was notified of %q, want %q", when, i, uris, wants[i])
					}
				}
			}
			for _, w := range []*wire{anna, otto} {
				w.tool("reset_tools", map[string]bool{"a": true})
				subscribe(w, "mcp://a/book://a", "{}")
			}
			subscribe(anna, "mcp://a/book://a", "{}") // again
			subscribe(anna, "mcp://a/book://shelf/7", "{}")
			subscribe(anna, "mcp://b/book://b", "-32002")
			subscribe(none, "mcp://a/book://a", "-32002")
			if version >= "2026" { // subscriptions are collected, and reported as updated when they are established
				anna.updates(2)
				time.Sleep(time.Second)
				anna.updates(0)
				otto.updates(0)
			}
			update("both", "mcp://a/book://a", "mcp://a/book://a", "book://a", "book://a", "book://both")
			update("one", "mcp://a/book://shelf/7", "", "book://shelf/7")
			anna.tool("reset_tools", map[string]bool{})
			update("her group is closed", "", "mcp://a/book://a", "book://a", "book://shelf/7")
			anna.tool("reset_tools", map[string]bool{"a": true})
			otto.rpc("resources/unsubscribe", `{"uri":"mcp://a/book://a"}`)
			update("he has unsubscribed", "mcp://a/book://a", "", "book://a")
			if got := sent.take(); version < "2026" && got != "subscribe subscribe" {
				t.Errorf("the server was sent %s", got)
			}
			lose()
			update("the server is back", "mcp://a/book://a mcp://a/book://shelf/7", "") // the resources may have changed
			update("updates continue", "mcp://a/book://a", "", "book://a")
			_ = anna.conn.Close()
			if version < "2026" {
				for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
					sent.mu.Lock()
					got := strings.Join(slices.Sorted(slices.Values(sent.all)), " ")
					sent.mu.Unlock()
					if got == "subscribe subscribe unsubscribe unsubscribe" {
						break
					}
					if time.Now().After(end) {
						t.Fatalf("when no client is subscribed any more the server was sent %s", got)
					}
				}
			}
		})
	}
}

// TestSubscriptionsListened checks the subscriptions of a client without sessions, which are all in one request.
func TestSubscriptionsListened(t *testing.T) {
	up := library(t, "a")
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{up.Server}})
	conn, err := dial(g.Server)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lines := make(chan string)
	go func() {
		defer close(lines)
		buf := make([]byte, 1<<16)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			lines <- string(buf[:n])
		}
	}()
	fmt.Fprintln(conn, `{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["mcp://a/book://a","mcp://b/x"]},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
	if got := <-lines; !strings.Contains(got, `"resourceSubscriptions":["mcp://a/book://a"]`) {
		t.Fatalf("acknowledged: %s", got)
	}
	up.server.ResourceUpdated("book://a")
	if got := <-lines; !strings.Contains(got, `notifications/resources/updated`) || !strings.Contains(got, `"uri":"mcp://a/book://a"`) {
		t.Errorf("received %s", got)
	}
}

// TestNotWatched checks the errors for a server that does not announce updates, and for a server that rejects a
// subscription.
func TestNotWatched(t *testing.T) {
	mute := lister("mute", map[string]string{"resources/list": `{"resources":[{"uri":"x://a","name":"a"}]}`})
	refuses := scripted("refuses", `[]`, says(""))
	refuses.Transport = mcpclient.Dial((&tap{dial: refuses.Transport.(mcpclient.Dial), capabilities: `"resources":{"subscribe":true},`,
		results: map[string]string{"resources/list": `{"resources":[{"uri":"x://a","name":"a"}]}`, "resources/subscribe": "refusal"}}).connect)
	w := newWire(t, newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{mute, refuses}, Initial: []string{"mute", "refuses"}}))
	for uri, want := range map[string]string{"mcp://mute/x://a": "does not announce", "mcp://refuses/x://a": "-32099"} {
		if got := w.rpc("resources/subscribe", `{"uri":"`+uri+`"}`); !strings.Contains(got, want) {
			t.Errorf("%s: %s", uri, got)
		}
	}
}

// TestCompletions checks that the servers complete arguments, for clients that see the prompt or template.
func TestCompletions(t *testing.T) {
	many := func(_ context.Context, typed string, others map[string]string) ([]string, error) {
		if typed == "bad" {
			return []string{"a\u202eb", strings.Repeat("x", 5000), "good"}, nil
		}
		var out []string
		for i := range 150 {
			out = append(out, fmt.Sprint(typed, others["lang"], i))
		}
		return out, nil
	}
	up := library(t, "a", func(cfg *mcpserver.Config) {
		cfg.Prompts[0].Arguments[0].Complete = many
		cfg.Resources[2].Arguments = []mcpserver.Argument{{Name: "id", Complete: many}}
	})
	mute := lister("mute", map[string]string{"prompts/list": `{"prompts":[{"name":"p"}]}`})
	evil := lister("evil", map[string]string{"prompts/list": `{"prompts":[{"name":"p"}]}`, "completion/complete": `{"completion":{"values":7}}`})
	evil.Transport = mcpclient.Dial((&tap{dial: evil.Transport.(mcpclient.Dial), capabilities: `"completions":{},`}).connect)
	records := make(chan mcpserver.Record, 100)
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{up.Server, mute, evil},
		Serve: mcpgateway.ServeOptions{Policy: open, Audit: func(r mcpserver.Record) { records <- r }}})
	w := newWire(t, g)
	prompt := func(name, typed string) string {
		return `{"ref":{"type":"ref/prompt","name":"` + name + `"},"argument":{"name":"who","value":"` + typed + `"},"context":{"arguments":{"lang":"-de-"}}}`
	}
	shelf := `{"ref":{"type":"ref/resource","uri":"mcp://a/book://shelf/{id}"},"argument":{"name":"id","value":"4"}}`
	for _, params := range []string{prompt("a__greet", "B"), shelf} {
		if got := w.rpc("completion/complete", params); !strings.Contains(got, "unknown ") || up.starts.Load() != 0 {
			t.Errorf("while the group is closed: %s", got)
		}
	}
	w.tool("reset_tools", map[string]bool{"a": true, "mute": true, "evil": true})
	for _, row := range []struct{ params, want string }{
		{prompt("a__greet", "B"), `{"completion":{"hasMore":true,"total":150,"values":["B-de-0","B-de-1",`},
		{prompt("a__greet", "bad"), `"values":["good"]}`},
		{shelf, `"hasMore":true,"total":150,"values":["40","41",`},
		{prompt("a__none", "B"), "unknown prompt"},
		{prompt("greet", "B"), "unknown prompt"},
		{prompt("mute__p", "B"), `"values":[]`},
		{prompt("evil__p", "B"), "cannot be read"},
	} {
		got := w.rpc("completion/complete", row.params)
		if !strings.Contains(got, row.want) || strings.Count(got, `",`) > 100 {
			t.Errorf("%s: %s, want %s", row.params, got, row.want)
		}
	}
	for r := range records {
		if r.Tool == "completion/complete" && r.Outcome == mcpserver.OutcomeSuccess {
			if want := `"value":"B"`; !strings.Contains(string(r.Input), want) {
				t.Errorf("recorded: %s", r.Input)
			}
			break
		}
	}
}
