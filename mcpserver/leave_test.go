package mcpserver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// local posts to a handler without a network, so that it can run in a synctest bubble.
func local(h http.Handler, session, body string) *httptest.ResponseRecorder {
	return localUntil(context.Background(), h, session, body)
}

// localUntil is local for a client that disconnects when ctx ends.
func localUntil(ctx context.Context, h http.Handler, session, body string, header ...string) *httptest.ResponseRecorder {
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

const initializeBody = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`

// TestIdleSessionsEnd checks that the session of a client that has left without ending it ends, with the data
// that tools keep for it, even if no other client connects.
func TestIdleSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept atomic.Int64
		keep := tool.Must(tool.New("keep", "Keeps something for the session.", func(ctx context.Context, _ none) (string, error) {
			kept.Add(1)
			go func() { <-mcpserver.SessionDone(ctx); kept.Add(-1) }()
			return "kept", nil
		}))
		s := serve(t, mcpserver.Config{Toolkit: toolkit.Of(keep), Policy: open, Limits: mcpserver.Limits{Idle: time.Hour}})
		h := s.Handler()
		session := local(h, "", initializeBody).Header().Get("Mcp-Session-Id")
		const keepBody = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"keep"}}`
		for range 3 { // a session that is in use stays, however old it is
			time.Sleep(50 * time.Minute)
			if w := local(h, session, keepBody); w.Code != 200 || !strings.Contains(w.Body.String(), "kept") {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		}
		time.Sleep(76 * time.Minute)
		synctest.Wait()
		if n := kept.Load(); n != 0 {
			t.Errorf("the data of %d sessions that are not in use is kept", n)
		}
		if w := local(h, session, keepBody); w.Code != http.StatusNotFound {
			t.Errorf("the session that has ended: %d %s", w.Code, w.Body)
		}
		// The next session ends in the same way.
		session = local(h, "", initializeBody).Header().Get("Mcp-Session-Id")
		local(h, session, keepBody)
		time.Sleep(76 * time.Minute)
		synctest.Wait()
		if n := kept.Load(); n != 0 {
			t.Errorf("the second time the data of %d sessions is kept", n)
		}
	})
}

// TestHeartbeats checks that an idle stream sends comments, because a proxy may close a stream without traffic
// and from 2026-07-28 on that would cancel its call. A client that does not accept events gets none.
func TestHeartbeats(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	for _, row := range []struct {
		why, method, name, params, accept string
		leaves                            time.Duration // when the client disconnects; 0 if it waits
		beats                             int
		want                              string
	}{
		{"listening", "subscriptions/listen", "", `"notifications":{"toolsListChanged":true},`, "text/event-stream", 110 * time.Second, 4, "acknowledged"},
		{"a long call", "tools/call", "slow", `"name":"slow","arguments":{"ms":60000},`, "application/json, text/event-stream", 0, 2, "done"},
		{"a quick call", "tools/call", "slow", `"name":"slow","arguments":{"ms":1},`, "application/json, text/event-stream", 0, 0, "done"},
		{"without events", "tools/call", "slow", `"name":"slow","arguments":{"ms":60000},`, "application/json", 0, 0, "done"},
		{"a session", "tools/call", "slow", `"name":"slow","arguments":{"ms":60000},`, "application/json, text/event-stream", 0, 0, "done"}, // the client can reconnect
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fx := newFixture(t)
				h := serve(t, mcpserver.Config{Toolkit: fx.tk, Policy: open}).Handler()
				ctx, leave := context.WithCancel(context.Background())
				defer leave()
				if row.leaves > 0 {
					time.AfterFunc(row.leaves, leave)
				}
				header := []string{"Accept", row.accept, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", row.method, "Mcp-Name", row.name}
				session, m := "", meta
				if row.why == "a session" {
					session, header, m = local(h, "", initializeBody).Header().Get("Mcp-Session-Id"), nil, `"_meta":{}`
				}
				got := localUntil(ctx, h, session, `{"jsonrpc":"2.0","id":1,"method":"`+row.method+`","params":{`+row.params+m+`}}`, header...)
				time.Sleep(time.Hour) // nothing is written to a stream that has ended
				if body := got.Body.String(); strings.Count(body, ":\n\n") != row.beats || !strings.Contains(body, row.want) {
					t.Errorf("%d %q, want %d beats and %q", got.Code, body, row.beats, row.want)
				}
			})
		})
	}
}

// TestPingIsUse checks that a client keeps its session if it only sends pings.
func TestPingIsUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Limits: mcpserver.Limits{Idle: time.Hour}}).Handler()
		session := local(h, "", initializeBody).Header().Get("Mcp-Session-Id")
		for i := range 4 {
			time.Sleep(50 * time.Minute)
			if w := local(h, session, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); w.Code != 200 {
				t.Fatalf("ping %d: %d %s", i, w.Code, w.Body)
			}
		}
	})
}

// TestRefusedInitialize checks that a failed handshake does not count as a session.
func TestRefusedInitialize(t *testing.T) {
	s := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Limits: mcpserver.Limits{Sessions: 2}})
	for i := range 5 {
		w := local(s.Handler(), "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"capabilities":{}}}`)
		if w.Code != 200 || !strings.Contains(w.Body.String(), "protocolVersion is missing") {
			t.Errorf("%d: %d %s", i, w.Code, w.Body)
		}
	}
	if w := local(s.Handler(), "", initializeBody); w.Code != 200 {
		t.Errorf("a valid handshake after that: %d %s", w.Code, w.Body)
	}
}

// TestStdioEnds checks that when its input has ended, a server waits neither for a subscription nor for answers
// that cannot come.
func TestStdioEnds(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	for name, row := range map[string]struct{ lines, until, want string }{
		"a subscription": {`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`,
			"acknowledged", `"id":1,"result"`},
		"a question": {strings.Replace(initializeBody, `"capabilities":{}`, `"capabilities":{"elicitation":{}}`, 1) + "\n" +
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet"}}`, "elicitation/create", "cancel"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ran atomic.Int64
				s := serve(t, mcpserver.Config{Toolkit: asking(&ran, nil), Policy: open})
				inR, inW := io.Pipe()
				outR, outW := io.Pipe()
				began := time.Now()
				go func() {
					if err := s.ServeStdio(context.Background(), inR, outW); err != nil {
						t.Error(err)
					}
					_ = outW.Close()
				}()
				go fmt.Fprintln(inW, row.lines)
				out := bufio.NewReader(outR)
				all, last := "", ""
				for !strings.Contains(last, row.until) {
					var err error
					if last, err = out.ReadString('\n'); err != nil {
						t.Fatal(err)
					}
				}
				_ = inW.Close()
				for line, err := out.ReadString('\n'); err == nil; line, err = out.ReadString('\n') {
					all += line
				}
				if d := time.Since(began); d != 0 {
					t.Errorf("it took %v", d)
				}
				if !strings.Contains(all, row.want) {
					t.Errorf("the output after the end of the input is %q, want %q in it", all, row.want)
				}
			})
		})
	}
}
