package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/model/replay"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-a-very-secret-key-0123456789"

// A fakeT is a T that records failures and runs cleanups on request.
type fakeT struct {
	failures []string
	cleanups []func()
}

func (r *fakeT) Helper()           {}
func (r *fakeT) Cleanup(fn func()) { r.cleanups = append(r.cleanups, fn) }
func (r *fakeT) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}
func (r *fakeT) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

// end runs the cleanups and returns the failures.
func (r *fakeT) end() string {
	for _, fn := range r.cleanups {
		fn()
	}
	return strings.Join(r.failures, "\n")
}

// converse runs an agent with a tool against a server, and returns all deltas and messages,
// as the model client read them.
func converse(t *testing.T, client *http.Client, url, task string) (string, error) {
	t.Helper()
	m, err := openai.New(openai.Config{Model: "test", BaseURL: url, Key: key, HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	type in struct{ A, B int }
	add := tool.Must(tool.New("add", "Adds two numbers.", func(_ context.Context, in in) (int, error) { return in.A + in.B, nil }))
	n := 0
	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(add), Policy: permission.Policy{Mode: permission.ModeBypass},
		Seams: agent.Seams{NewID: func(prefix string) string { n++; return fmt.Sprint(prefix, n) }}})
	if err != nil {
		t.Fatal(err)
	}
	var events strings.Builder
	for ev, err := range a.Run(t.Context(), new(agent.State), agent.Say(task)) {
		if err != nil {
			return events.String(), err
		}
		switch ev := ev.(type) {
		case *event.TextDelta:
			fmt.Fprintf(&events, "%q ", ev.Text)
		case *event.Message:
			data, err := json.Marshal(ev.Message.Blocks)
			fmt.Fprintf(&events, "\n%s %v\n", data, err)
		case *event.Retry:
			fmt.Fprintf(&events, "retry %s\n", ev.Error)
		case *event.Discard:
			fmt.Fprintf(&events, "discard %s\n", ev.Error)
		}
	}
	return events.String(), nil
}

// TestConversation records an agent that uses real HTTP, with a rate limit
// and a stream that ends early, and plays it back without a server.
func TestConversation(t *testing.T) {
	server := openaitest.New(t,
		openaitest.RateLimit("0"),
		openaitest.Text("Let me see what that comes to, and then I will tell you.").CutAfter(700),
		openaitest.Calls(openaitest.Call{ID: "call_a", Name: "add", Args: `{"A":2,"B":3}`}, openaitest.Call{ID: "call_b", Name: "add", Args: `{"A":4,"B":5}`}),
		openaitest.Text("They are 5 and 9.\r\n<done> ü"),
	).RequireKey(key)
	file := filepath.Join(t.TempDir(), "sums.json")

	rec := new(fakeT)
	want, err := converse(t, replay.Test(rec, file, true), server.URL, "What are 2+3 and 4+5?")
	if err != nil {
		t.Fatal(err)
	}
	if got := rec.end(); got != "" {
		t.Fatal(got)
	}
	for _, part := range []string{"retry", "They are 5 and 9", "call_b"} {
		if !strings.Contains(want, part) {
			t.Fatalf("the conversation has no %q:\n%s", part, want)
		}
	}
	server.Close()

	rec = new(fakeT)
	got, err := converse(t, replay.Test(rec, file, false), "http://127.0.0.1:1/v1", "What are 2+3 and 4+5?")
	if err != nil || got != want {
		t.Errorf("played:\n%s\n%v\nrecorded:\n%s", got, err, want)
	}
	if got := rec.end(); got != "" {
		t.Error(got)
	}

	data, err := os.ReadFile(file)
	if err != nil || bytes.Contains(data, []byte("secret")) || bytes.Contains(data, []byte("127.0.0.1")) {
		t.Errorf("the file contains the key or the address: %v\n%s", err, data)
	}
}

// TestMismatch plays a recording for another question.
func TestMismatch(t *testing.T) {
	server := openaitest.New(t, openaitest.Text("Hello."))
	file := filepath.Join(t.TempDir(), "hello.json")
	rec := new(fakeT)
	if _, err := converse(t, replay.Test(rec, file, true), server.URL, "Hello, how are you today?"); err != nil {
		t.Fatal(err)
	}
	rec.end()

	rec = new(fakeT)
	events, err := converse(t, replay.Test(rec, file, false), server.URL, "Hello, how are you tonight?")
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindInvalidRequest || strings.Contains(events, "retry") {
		t.Errorf("%v\n%s", err, events)
	}
	for _, want := range []string{"messages[0].content", "you today?", "you tonight?", "request 1, POST /v1/chat/completions"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %q: %v", want, err)
		}
	}
	if got := rec.end(); !strings.Contains(got, "did not make 1 of the recorded requests") {
		t.Errorf("%q", got)
	}
}

// send makes a request and returns its answer as text: the status, the type and the body.
func send(t *testing.T, rt http.RoundTripper, method, url, body string, header ...string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s %s", resp.StatusCode, resp.Header.Get("Content-Type"), data), err
}

// echo is a server that repeats the request in a body that is not valid UTF-8.
func echo(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", r.Header.Get("X-Want"))
		w.Header().Set("Set-Cookie", "session=very-secret-cookie")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s\xff%s", r.Method, r.Header.Get("Authorization"), body)
	}))
	t.Cleanup(s.Close)
	return s
}

// TestMatching plays requests that are equal, differently written or different from the recorded
// ones.
func TestMatching(t *testing.T) {
	s := echo(t)
	file := filepath.Join(t.TempDir(), "echo.json")
	r := replay.Record(file, replay.Config{})
	var recorded []string
	for _, body := range []string{`{"a":1,"b":[1.50,"x"]}`, `{"a":2}`, `{"a":1,"b":[1.50,"x"]}`, "not JSON", ""} {
		out, err := send(t, r, "POST", s.URL+"/v1/x?n=1", body, "X-Want", "text/plain", "Accept-Encoding", "gzip")
		if err != nil {
			t.Fatal(err)
		}
		recorded = append(recorded, out)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := replay.Play(file, replay.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		method, path, body string
		want               int // index of the recorded exchange, or -1
		err                string
	}{
		{"POST", "/v1/x", "", 4, ""},
		{"POST", "/v1/x?n=2", " { \"b\": [1.50, \"x\"],\n\"a\": 1 } ", 0, ""},
		{"POST", "/v1/x", `{"a":3}`, -1, "a: recorded 2, now 3"},
		{"GET", "/v1/x", `{"a":2}`, -1, "recorded POST /v1/x, now GET /v1/x"},
		{"POST", "/v1/y", `{"a":2}`, -1, "recorded POST /v1/x, now POST /v1/y"},
		{"POST", "/v1/x", `{"a":1,"b":[1.5,"x"]}`, -1, "b[0]: recorded 1.50, now 1.5"},
		{"POST", "/v1/x", `{"a":1,"b":[1.50,"x",null],"c":"d"}`, -1, "b[2]: recorded nothing, now null\n\tc: recorded nothing, now \"d\""},
		{"POST", "/v1/x", "not  JSON", -1, "recorded not JSON, now not  JSON"},
		{"POST", "/v1/x", "not JSON", 3, ""},
		{"POST", "/v1/x", `{"a":1,"b":[1.50,"x"]}`, 2, ""},
		{"POST", "/v1/x", `{"a":1,"b":[1.50,"x"]}`, -1, "recorded 2 times"},
		{"POST", "/v1/x", `{"a":2}`, 1, ""},
		{"POST", "/v1/x", `{"a":4}`, -1, "a: recorded 2, now 4"},
	} {
		got, err := send(t, p, row.method, "https://other.example"+row.path, row.body)
		switch {
		case row.want >= 0 && (err != nil || got != recorded[row.want]):
			t.Errorf("%s: %q, %v, want %q", row.body, got, err, recorded[row.want])
		case row.want < 0 && (err == nil || !strings.Contains(err.Error(), row.err)):
			t.Errorf("%s: %v, want %q", row.body, err, row.err)
		}
	}
	if left := p.Unplayed(); len(left) > 0 {
		t.Errorf("not played: %q", left)
	}
}

// TestSecrets puts secrets in all parts of a request, and the server repeats them.
func TestSecrets(t *testing.T) {
	s := echo(t)
	file := filepath.Join(t.TempDir(), "secrets.json")
	r := replay.Record(file, replay.Config{Rewrite: func(body []byte) []byte {
		return bytes.ReplaceAll(body, []byte("Ada Lovelace"), []byte("somebody"))
	}})
	url := strings.Replace(s.URL, "http://", "http://user:url-password-secret@", 1) + "/bot/" + key + "?api_key=query-secret&x=1"
	body := fmt.Sprintf(`{"said":"my key is %s and url-password-secret, query-secret, header-secret: Ada Lovelace","short":"1234567"}`, key)
	got, err := send(t, r, "POST", url, body, "Authorization", "Bearer "+key, "X-Goog-Api-Key", "header-secret", "X-Auth-Pin", "1234567")
	if err != nil || !strings.Contains(got, key) || !strings.Contains(got, "Ada Lovelace") {
		t.Errorf("the client did not get the original response: %q, %v", got, err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Exchanges []struct {
			Request  any
			Response struct{ Body struct{ Base64 []byte } }
		}
	}
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	all := string(data) + string(f.Exchanges[0].Response.Body.Base64)
	for _, secret := range []string{"secret", "Lovelace", "127.0.0.1", "Cookie"} {
		if strings.Contains(all, secret) {
			t.Errorf("the file contains %q:\n%s", secret, all)
		}
	}
	if n := strings.Count(all, "REDACTED"); n != 1+4+1+4 {
		t.Errorf("REDACTED occurs %d times:\n%s", n, all)
	}
	if !strings.Contains(all, "1234567") || !strings.Contains(all, "somebody") {
		t.Errorf("too much was redacted:\n%s", all)
	}
}

// TestEscapedSecrets: a key whose characters are escaped in JSON is found, and a password is found as a whole.
func TestEscapedSecrets(t *testing.T) {
	s := echo(t)
	file := filepath.Join(t.TempDir(), "secrets.json")
	r := replay.Record(file, replay.Config{})
	url := strings.Replace(s.URL, "http://", "http://user:first;four@", 1)
	body := `{"a":"k<y+1\/2345","b":"k\u003Cy\u002b1/2345","c":"k\u003cy+1/2345","d":"first;four"}`
	if _, err := send(t, r, "POST", url, body, "X-Api-Key", "k<y+1/2345"); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Exchanges []struct {
			Response struct{ Body struct{ Base64 []byte } }
		}
	}
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	all := string(data) + string(f.Exchanges[0].Response.Body.Base64)
	if strings.Contains(all, "2345") || strings.Contains(all, "four") || strings.Count(all, "REDACTED") != 8 {
		t.Errorf("the file contains a secret:\n%s", all)
	}
}

// TestResetHasNoAddress: the error of a reset connection is recorded without the addresses, which differ each time.
func TestResetHasNoAddress(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(buf, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
		if err := errors.Join(buf.Flush(), conn.(*net.TCPConn).SetLinger(0), conn.Close()); err != nil { // resets the connection
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "reset.json")
	r := replay.Record(file, replay.Config{})
	if _, err := send(t, r, "GET", s.URL+"/", ""); err == nil {
		t.Error("the connection was not reset")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(file); err != nil || strings.Contains(string(data), "127.0.0.1") {
		t.Errorf("%v\n%s", err, data)
	}
}

// TestBrokenResponses records failures and plays them: each ends in the same way.
func TestBrokenResponses(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/cut":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
		case "/gzip":
			w.Header().Set("Content-Encoding", "br")
			fmt.Fprint(w, "?")
		case "/long":
			fmt.Fprint(w, strings.Repeat("long ", 1000))
		}
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "broken.json")
	r := replay.Record(file, replay.Config{})
	if _, err := send(t, r, "GET", s.URL+"/cut", ""); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
	if _, err := send(t, r, "GET", s.URL+"/gzip", ""); err == nil {
		t.Error("a compressed response was accepted")
	}
	if _, err := send(t, r, "GET", "http://127.0.0.1:1/", ""); err == nil {
		t.Error("port 1 has a server")
	}
	first := make([]byte, 9)
	resp, err := (&http.Client{Transport: r}).Get(s.URL + "/long")
	if err == nil {
		_, err = io.ReadFull(resp.Body, first)
		err = errors.Join(err, resp.Body.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}

	p, err := replay.Play(file, replay.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ path, want, err string }{
		{"/cut", "half", "unexpected EOF"},
		{"/gzip", "", "encoded with br"},
		{"/", "", "connection refused"},
		{"/long", string(first), "client closed the response"},
	} {
		got, err := send(t, p, "GET", "http://x"+row.path, "")
		if !strings.HasSuffix(got, row.want) || err == nil || !strings.Contains(err.Error(), row.err) {
			t.Errorf("%s: %q, %v", row.path, got, err)
		}
	}
}

// TestCancelled: a request whose context has ended is not answered and plays nothing.
func TestCancelled(t *testing.T) {
	s := echo(t)
	file := filepath.Join(t.TempDir(), "one.json")
	r := replay.Record(file, replay.Config{})
	if _, err := send(t, r, "GET", s.URL+"/one", ""); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := replay.Play(file, replay.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://x/one", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.RoundTrip(req); !errors.Is(err, context.Canceled) || len(p.Unplayed()) != 1 {
		t.Errorf("%v; not played: %q", err, p.Unplayed())
	}
}

// TestConcurrent records and plays many concurrent requests; each gets its own answer.
func TestConcurrent(t *testing.T) {
	s := echo(t)
	file := filepath.Join(t.TempDir(), "many.json")
	r := replay.Record(file, replay.Config{})
	each := func(rt http.RoundTripper) {
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				body := fmt.Sprint(i)
				if got, err := send(t, rt, "POST", s.URL, body); err != nil || !strings.HasSuffix(got, "\xff"+body) {
					t.Errorf("%q, %v", got, err)
				}
			})
		}
		wg.Wait()
	}
	each(r)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := replay.Play(file, replay.Config{})
	if err != nil {
		t.Fatal(err)
	}
	each(p)
}

// A transport is an http.RoundTripper that calls a function.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestFailureAfterClose: a failure after Close is not recorded.
func TestFailureAfterClose(t *testing.T) {
	sent, closed, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	file := filepath.Join(t.TempDir(), "late.json")
	r := replay.Record(file, replay.Config{Next: transport(func(*http.Request) (*http.Response, error) {
		close(sent)
		<-closed
		return nil, errors.New("too late")
	})})
	go func() {
		defer close(done)
		_, _ = send(t, r, "GET", "http://x/slow", "")
	}()
	<-sent
	var files [2]string
	for i := range files {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = string(data)
		if i == 0 {
			close(closed)
			<-done
		}
	}
	if files[0] != files[1] || !strings.Contains(files[0], "no response") {
		t.Errorf("closed:\n%s\nclosed again:\n%s", files[0], files[1])
	}
}

// TestFileRefused has files that are not recordings, and a folder that does not exist.
func TestFileRefused(t *testing.T) {
	dir := t.TempDir()
	for _, row := range []struct{ data, want string }{
		{"", "unexpected end"},
		{`{}`, "record it again"},
		{`{"kitbag_replay":2,"exchanges":7}`, "record it again"},
		{`{"kitbag_replay":1,"exchanges":[null]}`, "exchange 1"},
		{`{"kitbag_replay":1,"exchanges":[{"request":{"method":"GET"}}]}`, "exchange 1"},
		{`{"kitbag_replay":1,"exchanges":[{"error":"x","response":{"status":200}}]}`, "exchange 1"},
	} {
		file := filepath.Join(dir, "x.json")
		if err := os.WriteFile(file, []byte(row.data), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := replay.Play(file, replay.Config{}); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.data, err, row.want)
		}
	}
	if _, err := replay.Play(filepath.Join(dir, "none"), replay.Config{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := replay.Record(filepath.Join(dir, "no", "folder"), replay.Config{}).Close(); err == nil {
		t.Error("a recording was saved in a folder that does not exist")
	}
}

// Record once with the real server, then play without it.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "Hello from the network.")
	}))
	dir, err := os.MkdirTemp("", "replay")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "hello.json")
	get := func(rt http.RoundTripper) {
		resp, err := (&http.Client{Transport: rt}).Get(server.URL + "/hello")
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		fmt.Println(string(data), err)
	}

	r := replay.Record(file, replay.Config{})
	get(r)
	if err := r.Close(); err != nil {
		panic(err)
	}
	server.Close()

	p, err := replay.Play(file, replay.Config{})
	if err != nil {
		panic(err)
	}
	get(p)
	// Output:
	// Hello from the network. <nil>
	// Hello from the network. <nil>
}
