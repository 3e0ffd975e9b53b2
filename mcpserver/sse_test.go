package mcpserver_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// An oldWire is a client of HTTP+SSE that sends requests by hand.
type oldWire struct {
	*wire
	base   string
	events *bufio.Reader
	leave  context.CancelFunc
}

// dialOld opens a stream and reads the URL for posts from it. It returns the status if that is not 200.
func dialOld(t *testing.T, url, token string, header map[string]string) (*oldWire, int) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	o := &oldWire{wire: newWire(t, url), base: url, leave: leave}
	o.token, o.header = token, header
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := o.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		return nil, res.StatusCode
	}
	o.events = bufio.NewReader(res.Body)
	kind, endpoint := o.next()
	if kind != "endpoint" || !strings.HasPrefix(endpoint, "/") {
		t.Fatalf("first event %q: %q", kind, endpoint)
	}
	o.url = strings.Join(strings.SplitN(url, "/", 4)[:3], "/") + endpoint
	return o, 200
}

// next returns the next event; both are empty at the end of the stream. Heartbeats, which a slow machine may get
// between any two messages, are comments and not events.
func (o *oldWire) next() (kind, data string) { return nextEvent(o.events) }

// send posts a message and returns the next message of the stream.
func (o *oldWire) send(body string) string {
	o.t.Helper()
	if status, got := o.post(o.t.Context(), body); status != http.StatusAccepted {
		o.t.Fatalf("%s: %d %q", body, status, got)
	}
	_, data := o.next()
	return data
}

const oldInitialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{}}}`

// TestOldTransport checks that all messages come on the stream, in order.
func TestOldTransport(t *testing.T) {
	s := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open})
	mux := http.NewServeMux()
	mux.Handle("/a/", http.StripPrefix("/a", s.Handler()))
	o, _ := dialOld(t, listenTo(t, mux, s)+"/a/sse", "", nil)
	for _, row := range []struct{ body, want string }{
		{oldInitialize, `"protocolVersion":"2024-11-05"`},
		{listBody, `"reset_tools"`},
		{`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"reset_tools","arguments":{"zoo":true}}}`, "notifications/tools/list_changed"},
	} {
		if got := o.send(row.body); !strings.Contains(got, row.want) {
			t.Errorf("%s: %s, want %s", row.body, got, row.want)
		}
	}
	if _, got := o.next(); !strings.Contains(got, "Open now: zoo") {
		t.Errorf("the result of the call: %s", got)
	}
	if got := o.send(listBody); !strings.Contains(got, `"lion"`) {
		t.Errorf("the list after it: %s", got)
	}
}

// TestOldTransportGuards checks the same guards as for streamable HTTP: who may connect, how many sessions
// there can be, and who may use a session.
func TestOldTransportGuards(t *testing.T) {
	fx := newFixture(t)
	s := serve(t, mcpserver.Config{Toolkit: fx.tk, Policy: open, Limits: mcpserver.Limits{Sessions: 2, Request: 1000},
		Credentials: []mcpserver.Credential{{Name: "anna", Token: tokenA}, {Name: "otto", Token: tokenB}}})
	url := listen(t, s) + "/sse"
	for _, row := range []struct {
		token  string
		header map[string]string
		want   int
	}{
		{"", nil, 401},
		{"wrong", nil, 401},
		{tokenA, map[string]string{"Origin": "https://evil.example.com"}, 403},
	} {
		if _, got := dialOld(t, url, row.token, row.header); got != row.want {
			t.Errorf("%q %v: %d, want %d", row.token, row.header, got, row.want)
		}
	}
	anna, _ := dialOld(t, url, tokenA, nil)
	otto, _ := dialOld(t, url, tokenB, nil)
	if _, got := dialOld(t, url, tokenA, nil); got != 503 {
		t.Errorf("a third session: %d", got)
	}
	anna.send(oldInitialize)
	const slow = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"slow","arguments":{"ms":60000}}}`
	if status, _ := anna.post(t.Context(), slow); status != 202 {
		t.Fatal(status)
	}
	<-fx.started
	const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`
	endpoint := otto.url
	otto.url = anna.url
	for why, status := range map[string]int{listBody: 404, cancel: 404, `{"jsonrpc":"2.0","id":"ask-1","result":{}}`: 404, strings.Repeat(" ", 1001): 413, "[]": 400} {
		if got, _ := otto.post(t.Context(), why); got != status {
			t.Errorf("otto posts %.40q to anna's session: %d, want %d", why, got, status)
		}
	}
	otto.url = endpoint
	if status, _ := otto.post(t.Context(), cancel); status != 202 {
		t.Errorf("otto cancels in his own session: %d", status)
	}
	// The id cannot be used in the new transport, where no stream would carry the answers.
	otto.url, otto.session = url, endpoint[strings.Index(endpoint, "=")+1:]
	if status, _ := otto.post(t.Context(), listBody); status != 404 {
		t.Errorf("the session in the new transport: %d", status)
	}
	select {
	case err := <-fx.ended:
		t.Fatalf("anna's call ended: %v", err)
	default:
	}
	anna.leave() // ends the session, and with it the call
	if err := <-fx.ended; err == nil {
		t.Error("the call was not cancelled")
	}
	for status := 0; status != 404; { // once the server has noticed
		status, _ = anna.post(t.Context(), listBody)
	}
}

// TestOldTransportEnds checks that the stream ends when the server does.
func TestOldTransportEnds(t *testing.T) {
	s := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open})
	o, _ := dialOld(t, listen(t, s), "", nil)
	o.send(oldInitialize)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(o.events); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
}

// TestOldTransportIsLeft checks that the handler of a stream returns when all calls of its session have ended,
// so that [http.Server.Shutdown] waits for calls, and nothing writes to a response that has ended.
func TestOldTransportIsLeft(t *testing.T) {
	began, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	stubborn := tool.Must(tool.New("stubborn", "Ignores that it is cancelled.", func(context.Context, none) (string, error) {
		close(began)
		<-goOn
		close(ended)
		return "", nil
	}))
	s := serve(t, mcpserver.Config{Toolkit: toolkit.Of(stubborn), Policy: open})
	returned := make(chan struct{})
	url := listenTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Handler().ServeHTTP(w, r)
		if r.Method != http.MethodGet {
			return
		}
		select {
		case <-ended:
		default:
			t.Error("the handler has returned, but the call continues")
		}
		close(returned)
	}), s)
	o, _ := dialOld(t, url, "", nil)
	o.send(oldInitialize)
	if status, _ := o.post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"stubborn"}}`); status != 202 {
		t.Fatal(status)
	}
	<-began
	o.leave()
	for status := 0; status != 404; { // once the server has noticed
		status, _ = o.post(t.Context(), listBody)
	}
	time.Sleep(20 * time.Millisecond) // time for the handler to return, which would be wrong
	close(goOn)
	<-returned
}
