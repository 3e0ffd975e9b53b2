package mcpserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

const (
	tokenA = "aaaaaaaaaaaaaaaaaaaaaaaa"
	tokenB = "bbbbbbbbbbbbbbbbbbbbbbbb"
)

const listBody = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`

func TestAdmission(t *testing.T) {
	cfg := mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open, Hosts: []string{"tools.example.com"}, Origins: []string{"https://app.example.com"},
		Limits: mcpserver.Limits{Request: 1000}}
	local := listen(t, serve(t, cfg))
	cfg.Limits.Request = 0
	roomy := listen(t, serve(t, cfg))
	cfg.Credentials = []mcpserver.Credential{{Name: "anna", Token: tokenA}}
	guarded := listen(t, serve(t, cfg))
	initialize := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`
	for _, row := range []struct {
		url, token string
		header     map[string]string
		body       string
		want       int
	}{
		{local, "", nil, initialize, 200},
		{local, "", map[string]string{"Host": "evil.example.com"}, initialize, 403},
		{local, "", map[string]string{"Host": "evil.example.com:80"}, initialize, 403},
		{local, "", map[string]string{"Host": "127.0.0.1.evil.example.com"}, initialize, 403},
		{local, "", map[string]string{"Host": "tools.example.com:8080"}, initialize, 200},
		{local, "", map[string]string{"Host": "[::1]:9"}, initialize, 200},
		{local, "", map[string]string{"Origin": "https://evil.example.com"}, initialize, 403},
		{local, "", map[string]string{"Origin": "https://app.example.com"}, initialize, 200},
		{local, "", map[string]string{"Origin": "https://app.example.com.evil.com"}, initialize, 403},
		{local, "", map[string]string{"Origin": "http://localhost:3000"}, initialize, 200},
		{local, "", map[string]string{"Origin": "null"}, initialize, 403},
		{local, "", map[string]string{"Content-Type": "text/plain"}, initialize, 415},
		{local, "", nil, strings.Repeat(" ", 1001), 413},
		{local, "", nil, strings.Repeat("[", 900), 400},
		{roomy, "", nil, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":` + strings.Repeat(`{"a":`, 1<<19), 400},
		{local, "", nil, `{"jsonrpc":"2.0","id":[1],"method":"ping"}`, 400},
		{local, "", nil, `{"jsonrpc":"1.0","id":1,"method":"ping"}`, 400},
		{local, "", nil, listBody, 400}, // no session
		{local, "", map[string]string{"Mcp-Session-Id": "made-up"}, listBody, 404},
		{local, "", map[string]string{"Mcp-Protocol-Version": "1999-01-01"}, listBody, 400},
		{local, "", map[string]string{"Mcp-Protocol-Version": "2026-07-28"}, listBody, 400}, // no _meta
		{guarded, "", nil, initialize, 401},
		{guarded, tokenB, nil, initialize, 401},
		{guarded, tokenA[:23], nil, initialize, 401},
		{guarded, tokenA, nil, initialize, 200},
		{guarded, tokenA, map[string]string{"Authorization": "Basic " + tokenA}, initialize, 401},
	} {
		w := newWire(t, row.url)
		w.token, w.header = row.token, row.header
		if got, out := w.post(t.Context(), row.body); got != row.want {
			t.Errorf("%v %.40s: status %d %q, want %d", row.header, row.body, got, out, row.want)
		}
	}
}

// TestOutside checks a connection from another machine, without credentials.
func TestOutside(t *testing.T) {
	h := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk}).Handler()
	for _, row := range []struct {
		addr net.Addr
		want int
	}{
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, 403},
		{nil, 403},
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, 415},
		{&net.UnixAddr{}, 415},
	} {
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, row.addr), http.MethodPost, "http://localhost/", nil)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != row.want {
			t.Errorf("%v: %d, want %d", row.addr, w.Code, row.want)
		}
	}
}

// TestOtherSessions checks that a client cannot use, see, cancel or end another client's session, with its id
// or without it.
func TestOtherSessions(t *testing.T) {
	fx := newFixture(t)
	s := serve(t, mcpserver.Config{Toolkit: fx.tk, Policy: open, Credentials: []mcpserver.Credential{
		{Name: "anna", Token: tokenA}, {Name: "otto", Token: tokenB, Ceiling: toolkit.Only("aviary")},
	}})
	url := listen(t, s)
	anna, otto := newWire(t, url), newWire(t, url)
	anna.token, otto.token = tokenA, tokenB
	anna.initialize(`{}`)
	otto.initialize(`{}`)
	done := make(chan []string, 1)
	go func() {
		_, got := anna.post(t.Context(), `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"slow","arguments":{"ms":300}}}`)
		done <- got
	}()
	<-fx.started
	const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`
	if status, _ := otto.post(t.Context(), cancel); status != 202 {
		t.Errorf("otto cancels in his own session: %d", status)
	}
	own := otto.session
	otto.session = anna.session
	for _, body := range []string{cancel, listBody, `{"jsonrpc":"2.0","id":5,"result":{"action":"accept"}}`} {
		if status, got := otto.post(t.Context(), body); status != 404 {
			t.Errorf("otto with anna's session: %d %q", status, got)
		}
	}
	for _, method := range []string{http.MethodDelete, http.MethodGet} {
		req, _ := http.NewRequestWithContext(t.Context(), method, url, nil)
		req.Header.Set("Authorization", "Bearer "+tokenB)
		req.Header.Set("Mcp-Session-Id", anna.session)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 404 {
			t.Errorf("otto, %s of anna's session: %d", method, res.StatusCode)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	// A client without sessions shares no request ids with other clients.
	modern := newWire(t, url)
	modern.token, modern.header = tokenB, map[string]string{"Mcp-Protocol-Version": "2026-07-28"}
	modern.post(t.Context(), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
	if err := <-fx.ended; err != nil {
		t.Errorf("anna's call was cancelled: %v", err)
	}
	if got := <-done; len(got) != 1 || !strings.Contains(got[0], "done") {
		t.Errorf("anna's call: %q", got)
	}
	// otto's ceiling applies whatever groups he opens.
	otto.session = own
	_, got := otto.post(t.Context(), listBody)
	if strings.Contains(got[0], "zoo") || strings.Contains(got[0], "slow") {
		t.Errorf("otto sees a tool above his ceiling: %s", got[0])
	}
	_, got = otto.post(t.Context(), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"lion"}}`)
	if !strings.Contains(got[0], `"isError":true`) || strings.Contains(got[0], "zoo") {
		t.Errorf("otto calls lion: %s", got[0])
	}
}

// TestCancel checks that a client can cancel its call: by a notification, by disconnecting, or by ending its session.
func TestCancel(t *testing.T) {
	const slow = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"slow","arguments":{"ms":60000}}}`
	for name, how := range map[string]func(w *wire, leave func()){
		"notification": func(w *wire, _ func()) {
			w.post(t.Context(), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
		},
		"leaving": func(_ *wire, leave func()) { leave() },
		"delete": func(w *wire, _ func()) {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, w.url, nil)
			req.Header.Set("Mcp-Session-Id", w.session)
			if res, err := w.client.Do(req); err == nil {
				_ = res.Body.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fx := newFixture(t)
			w := newWire(t, listen(t, serve(t, mcpserver.Config{Toolkit: fx.tk, Policy: open, Limits: mcpserver.Limits{Resume: 50 * time.Millisecond}})))
			w.initialize(`{}`)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			done := make(chan []string, 1)
			go func() {
				_, got := w.post(ctx, slow)
				done <- got
			}()
			<-fx.started
			if status, got := w.post(t.Context(), slow); len(got) != 1 || !strings.Contains(got[0], "in use by a request") {
				t.Errorf("a duplicate id: %d %q", status, got)
			}
			how(w, leave)
			if err := <-fx.ended; err == nil {
				t.Error("the call was not cancelled")
			}
			if got := <-done; len(got) != 0 {
				t.Errorf("a cancelled call was answered: %q", got)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	fx := newFixture(t)
	s := serve(t, mcpserver.Config{Toolkit: fx.tk, Policy: open, Limits: mcpserver.Limits{Sessions: 2, Calls: 2, Idle: time.Nanosecond, Resume: 50 * time.Millisecond}})
	url := listen(t, s)
	first := newWire(t, url)
	first.initialize(`{}`)
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	for i := range 2 {
		go func() {
			first.post(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"slow","arguments":{"ms":60000}}}`, 10+i))
			ended <- struct{}{}
		}()
		<-fx.started
	}
	if _, got := first.post(t.Context(), listBody); len(got) != 1 || !strings.Contains(got[0], "requests in flight") {
		t.Errorf("a third call: %q", got)
	}
	// The busy session stays; idle ones are ended for new ones.
	for range 5 {
		newWire(t, url).initialize(`{}`)
	}
	leave()
	<-ended
	<-ended
	<-fx.ended
	<-fx.ended
	if status, got := first.post(t.Context(), listBody); status != 200 {
		t.Errorf("the busy session was dropped: %d %q", status, got)
	}
}

// TestSessionsFull checks that a new session is rejected when no session is idle.
func TestSessionsFull(t *testing.T) {
	url := listen(t, serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Limits: mcpserver.Limits{Sessions: 1}}))
	newWire(t, url).initialize(`{}`)
	status, got := newWire(t, url).post(t.Context(), `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	if status != 503 || len(got) != 1 || !strings.Contains(got[0], "try again later") {
		t.Errorf("%d %q", status, got)
	}
}

// TestShare checks that one credential cannot use up the sessions or the requests in flight that all clients share.
func TestShare(t *testing.T) {
	fx := newFixture(t)
	const token = "0123456789abcdef"
	s := serve(t, mcpserver.Config{Toolkit: fx.tk, Policy: open, Limits: mcpserver.Limits{Sessions: 12, Calls: 1, Resume: 50 * time.Millisecond},
		Credentials: []mcpserver.Credential{{Name: "anna", Token: token + "anna"}, {Name: "otto", Token: token + "otto"}}})
	url := listen(t, s)
	client := func(name string) *wire {
		w := newWire(t, url)
		w.token = token + name
		return w
	}
	const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`
	var annas []*wire
	for range 20 {
		w := client("anna")
		if status, _ := w.post(t.Context(), hello); status == 200 {
			annas = append(annas, w)
		}
	}
	if len(annas) != 3 {
		t.Errorf("anna has %d sessions, want a quarter of 12", len(annas))
	}
	otto := client("otto")
	otto.initialize(`{}`)
	// A session is available again when one has ended.
	req := annas[0].request(t.Context(), "")
	req.Method = http.MethodDelete
	if res, err := annas[0].client.Do(req); err != nil || res.StatusCode != http.StatusNoContent {
		t.Fatal(res, err)
	}
	annas[0] = client("anna")
	annas[0].initialize(`{}`)

	// Requests without sessions and with sessions count together.
	modern := func(w *wire, id int) (int, []string) {
		w.header = map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "slow"}
		return w.post(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"slow","arguments":{"ms":%d},`+
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, id, 500))
	}
	var wg sync.WaitGroup
	var ran, refused atomic.Int64
	for i := range 20 {
		w := annas[i%3]
		if i >= 3 {
			w = client("anna")
		}
		wg.Go(func() {
			var got []string
			if i < 3 {
				_, got = w.post(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"slow","arguments":{"ms":500}}}`, 10+i))
			} else {
				_, got = modern(w, i)
			}
			if strings.Contains(strings.Join(got, ""), "too many requests") {
				refused.Add(1)
			} else {
				ran.Add(1)
			}
		})
	}
	for range 16 {
		<-fx.started
	}
	if _, got := otto.post(t.Context(), listBody); len(got) != 1 || strings.Contains(got[0], "error") {
		t.Errorf("otto, while anna calls: %q", got)
	}
	wg.Wait()
	if ran.Load() != 16 || refused.Load() != 4 {
		t.Errorf("%d calls of anna ran and %d were rejected, want 16 and 4", ran.Load(), refused.Load())
	}
}

// TestSlowReader checks that the call of a client that does not read ends, and that the server continues.
func TestSlowReader(t *testing.T) {
	ended := make(chan error, 1)
	flood := tool.Must(tool.NewStream("flood", "Floods.", func(ctx context.Context, _ none) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			text := strings.Repeat("x", 4000)
			for ctx.Err() == nil && yield(tool.Chunk{Block: &message.Text{ID: "x", Text: text}, ForUser: true}, nil) {
			}
			ended <- ctx.Err()
		}
	}))
	s := serve(t, mcpserver.Config{Toolkit: toolkit.Of(flood), Policy: open, Limits: mcpserver.Limits{Write: 200 * time.Millisecond, Resume: 50 * time.Millisecond}})
	h := httptest.NewUnstartedServer(s.Handler())
	h.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			_ = c.(*net.TCPConn).SetWriteBuffer(4 << 10) // otherwise the kernel would buffer everything
		}
	}
	h.Start()
	t.Cleanup(h.Close)
	url := h.URL
	w := newWire(t, url)
	w.initialize(`{}`)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(1 << 10); err != nil {
		t.Fatal(err)
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"flood","_meta":{"progressToken":1}}}`
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", w.session, len(body), body)
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the call continues although the client does not read")
	}
	if status, _ := w.post(t.Context(), listBody); status != 200 {
		t.Errorf("the session is gone: %d", status)
	}
}

// TestControlNames checks that New rejects a tool with the name of a control tool, including those of the list
// for clients without sessions.
func TestControlNames(t *testing.T) {
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{named("search_tools")}},
		Groups: []toolkit.Group{{Name: "g", Description: "G.", Tools: []tool.Tool{named("x")}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mcpserver.New(mcpserver.Config{Toolkit: tk, Name: "n", Version: "1"}); err == nil || !strings.Contains(err.Error(), "search_tools") {
		t.Errorf("a tool named like a control tool of the static list: %v", err)
	}
}

// A referring tool has a schema that refers to something outside it, and asks for a form.
type referring struct{ name, input, form string }

func (r referring) Info() tool.Info {
	return tool.Info{Name: r.name, Description: "Refers.", Input: json.RawMessage(r.input)}
}

func (r referring) Call(ctx context.Context, _ tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		a, err := host.From(ctx).Elicit(ctx, host.Elicitation{Message: "x?", Schema: json.RawMessage(r.form)})
		yield(tool.Text(fmt.Sprint("answered ", a.Content)), err)
	}
}

// TestReferences checks that references in the schemas of tools and forms are neither read nor fetched, for all
// calls and answers.
func TestReferences(t *testing.T) {
	var fetched atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetched.Add(1)
		fmt.Fprint(w, `{"const":"hunter2"}`)
	}))
	defer web.Close()
	file := filepath.Join(t.TempDir(), "secret.json")
	if err := os.WriteFile(file, []byte(`{"const":"hunter2"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"file://" + file, file, web.URL} {
		schema, plain := fmt.Sprintf(`{"type":"object","properties":{"x":{"type":"string","$ref":%q}}}`, ref), `{"type":"object"}`
		tk := toolkit.Of(referring{"refers", schema, plain}, referring{"asks", plain, schema})
		url := listen(t, serve(t, mcpserver.Config{Toolkit: tk, Policy: open}))
		// Sent by hand, because our client would reject both.
		m := newModern(t, url, "", `{"elicitation":{}}`)
		for name, extra := range map[string]string{
			"refers": `,"arguments":{"x":"b"}`,
			"asks":   `,"inputResponses":{"question-1":{"action":"accept","content":{"x":"b"}}}`,
		} {
			if _, got := m.send(t.Context(), "tools/call", name, extra); strings.Contains(got, "hunter2") || !strings.Contains(got, "no URLLoader registered") {
				t.Errorf("%s, %s: %s", ref, name, got)
			}
		}
	}
	if fetched.Load() != 0 {
		t.Errorf("the schema was fetched %d times", fetched.Load())
	}
}

func TestConfig(t *testing.T) {
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{named("x")}}, Groups: []toolkit.Group{{Name: "g", Description: "G.", Tools: []tool.Tool{named("y")}}}})
	if err != nil {
		t.Fatal(err)
	}
	deny := func(rule string) *permission.Policy {
		return &permission.Policy{Rules: []permission.Rule{{Tool: rule, Behavior: permission.Deny}}}
	}
	for _, row := range []struct {
		cfg  mcpserver.Config
		want string
	}{
		{mcpserver.Config{Name: "n", Version: "1"}, "Toolkit is nil"},
		{mcpserver.Config{Toolkit: tk, Version: "1"}, "Name or Config.Version"},
		{mcpserver.Config{Toolkit: tk, Name: "n", Version: "1", PageSize: -1}, "PageSize"},
		{mcpserver.Config{Toolkit: tk, Name: "n", Version: "1", Credentials: []mcpserver.Credential{{Token: tokenA}}}, "has no name"},
		{mcpserver.Config{Toolkit: tk, Name: "n", Version: "1", Credentials: []mcpserver.Credential{{Name: "a", Token: "short"}}}, "shorter than 16"},
		{mcpserver.Config{Toolkit: tk, Name: "n", Version: "1", Credentials: []mcpserver.Credential{{Name: "a", Token: tokenA}, {Name: "b", Token: tokenA}}}, "as another credential"},
		{mcpserver.Config{Toolkit: tk, Name: "n", Version: "1", Policy: deny("X")}, `there is no tool "X"; did you mean x?`},
		{mcpserver.Config{Toolkit: tk, Name: "n", Version: "1", Policy: deny("call_tol")}, "did you mean call_tool?"},
		{mcpserver.Config{Toolkit: tk, Name: "n", Version: "1", Policy: deny("Skil")}, "did you mean Skill?"},
		{mcpserver.Config{Toolkit: tk, Name: "n", Version: "1", Credentials: []mcpserver.Credential{{Name: "a", Token: tokenA, Policy: deny("X")}}}, `the policy of credential "a": rule "X"`},
	} {
		if _, err := mcpserver.New(row.cfg); err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), tokenA) {
			t.Errorf("%v, want %q", err, row.want)
		}
	}
	for _, rule := range []string{"x", "call_tool", "Skill", "*", "mcp__trips__book", "x*"} {
		s, err := mcpserver.New(mcpserver.Config{Toolkit: tk, Name: "n", Version: "1", Policy: deny(rule)})
		if err != nil {
			t.Errorf("%s: %v", rule, err)
			continue
		}
		_ = s.Close()
	}
}
