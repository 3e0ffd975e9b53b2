package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/tool"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The idle connections of the shared transport end with their servers; their
	// goroutines may take a moment.
	goleak.VerifyTestMain(m)
}

var hi = &model.Request{Messages: []*message.Message{message.User("hi")}}

// kindOf returns the kind of a model error, "" for no error and "?" for another error.
func kindOf(err error) model.ErrorKind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e.Kind
	}
	return "?"
}

// TestConnectionsAreKept: ten requests, one after the other, use one connection,
// also for answers that are not streamed and for errors.
func TestConnectionsAreKept(t *testing.T) {
	for _, row := range []struct {
		why  string
		turn openaitest.Turn
		cfg  openai.Config
	}{
		{"streams", openaitest.Text(strings.Repeat("word ", 500)), openai.Config{}},
		{"whole answers", openaitest.Text("hello"), openai.Config{NoStream: true}},
		{"errors", openaitest.Broken(), openai.Config{}},
		{"no [DONE]", openaitest.Raw("text/event-stream", "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n"), openai.Config{}},
	} {
		s := openaitest.New(t, openaitest.Always(row.turn))
		m := newModel(t, s, row.cfg)
		for range 10 {
			_, _, _ = model.Collect(m.Generate(t.Context(), hi))
		}
		if n := s.Connections(); n != 1 {
			t.Errorf("%s: %d connections", row.why, n)
		}
	}
}

// TestCancelEndsTheRequest: cancelling ends the request at once, at any point, and the
// server notices.
func TestCancelEndsTheRequest(t *testing.T) { onBothAPIs(t, testCancelEndsTheRequest) }

func testCancelEndsTheRequest(t *testing.T, cfg openai.Config) {
	for _, row := range []struct {
		why  string
		turn openaitest.Turn
	}{
		{"before the header", openaitest.Hang()},
		{"before the first event", openaitest.Text("hello").HangAfter(0)},
		{"in the middle", openaitest.Text(strings.Repeat("word ", 100)).HangAfter(2000)},
		{"in a slow stream", openaitest.Text(strings.Repeat("word ", 1000)).Slow(5 * time.Millisecond)},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		s := openaitest.New(t, openaitest.Func(func(*openaitest.Request) openaitest.Turn {
			time.AfterFunc(20*time.Millisecond, cancel) // no answer is complete by then
			return row.turn
		}))
		_, _, err := model.Collect(newModel(t, s, cfg).Generate(ctx, hi))
		if !errors.Is(err, context.Canceled) || kindOf(err) != "?" {
			t.Errorf("%s: %v", row.why, err)
		}
		s.Close() // waits for the server's handlers, which wait for the client to disconnect
	}
}

// TestBreakEndsTheRequest: a consumer that stops ranging does not wait for a silent server.
func TestBreakEndsTheRequest(t *testing.T) { onBothAPIs(t, testBreakEndsTheRequest) }

func testBreakEndsTheRequest(t *testing.T, cfg openai.Config) {
	s := openaitest.New(t, openaitest.Text(strings.Repeat("word ", 100)).HangAfter(2000))
	for _, err := range newModel(t, s, cfg).Generate(t.Context(), hi) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
}

// TestModelNames: go-openai rejects some names itself; here the server decides.
func TestModelNames(t *testing.T) {
	for _, name := range []string{"gpt-3.5-turbo-instruct", "text-davinci-003", "o1", "gpt-6-sol"} {
		s := openaitest.New(t, openaitest.Text("hello"))
		m, err := openai.New(openai.Config{Model: name, BaseURL: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		temperature := 0.3
		req := &model.Request{Messages: hi.Messages, Temperature: &temperature, Tools: []tool.Info{{Name: "add"}},
			Extra: map[string]json.RawMessage{"reasoning_effort": json.RawMessage(`"high"`)}}
		if _, _, err := model.Collect(m.Generate(t.Context(), req)); err != nil || s.Requests()[0].Model != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCutConnection cuts a streamed answer off at many points: the result is
// the whole answer or a connection error, never a shorter answer.
func TestCutConnection(t *testing.T) { onBothAPIs(t, testCutConnection) }

func testCutConnection(t *testing.T, cfg openai.Config) {
	turn := openaitest.Text("Hello you").Calls(openaitest.Call{Name: "add", Args: `{"a":1}`})
	s := openaitest.New(t, turn)
	whole, _, err := model.Collect(newModel(t, s, cfg).Generate(t.Context(), hi))
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n += 7 {
		s := openaitest.New(t, turn.CutAfter(n))
		msg, fin, err := model.Collect(newModel(t, s, cfg).Generate(t.Context(), hi))
		switch {
		case err == nil && fin.Reason == model.FinishToolCalls && msg.Text() == whole.Text() && len(msg.ToolCalls()) == 1 && string(msg.ToolCalls()[0].Input) == `{"a":1}`:
			if n < 1000 {
				t.Fatalf("a success after %d bytes", n)
			}
			return
		case kindOf(err) != model.KindConnection:
			t.Fatalf("after %d bytes: %v, %v, %v", n, msg, fin, err)
		}
	}
}

// TestUsageThatNeverComes: a connection that is lost after the finish reason loses
// nothing of the answer.
func TestUsageThatNeverComes(t *testing.T) {
	const body = "data: {\"choices\":[{\"delta\":{\"content\":\"whole\"},\"finish_reason\":\"stop\"}]}\n\n"
	s := openaitest.New(t, openaitest.Raw("text/event-stream", body+"data: {\"cho").CutAfter(len(body)+5))
	msg, fin, err := model.Collect(newModel(t, s, openai.Config{}).Generate(t.Context(), hi))
	if err != nil || msg.Text() != "whole" || fin.Reason != model.FinishStop {
		t.Errorf("%v, %v, %v", msg, fin, err)
	}
}

// TestUnreachable: without a listener the error is a connection error, which is retried.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	l.Close()
	m, err := openai.New(openai.Config{Model: "m", BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := model.Collect(m.Generate(t.Context(), hi)); kindOf(err) != model.KindConnection || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}

// TestWrongScheme: the error for https in place of http says so.
func TestWrongScheme(t *testing.T) {
	s := openaitest.New(t)
	m, err := openai.New(openai.Config{Model: "m", Key: "k", BaseURL: strings.Replace(s.URL, "http:", "https:", 1)})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := model.Collect(m.Generate(t.Context(), hi)); kindOf(err) != model.KindConnection || !strings.Contains(err.Error(), "HTTP response to HTTPS client") {
		t.Error(err)
	}
}

// TestRetries sends the same body in each retry, and waits as Retry-After says.
func TestRetries(t *testing.T) { onBothAPIs(t, testRetries) }

func testRetries(t *testing.T, cfg openai.Config) {
	s := openaitest.New(t, openaitest.RateLimit("7"), openaitest.Broken(),
		openaitest.Text("lost").CutAfter(50), openaitest.Text("hello"))
	var waits []time.Duration
	m := middleware.Retry(newModel(t, s, cfg), middleware.RetryConfig{
		Random: func() float64 { return 0 },
		Sleep:  func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil },
	})
	msg, _, err := model.Collect(m.Generate(t.Context(), hi))
	if err != nil || msg.Text() != "hello" || len(waits) != 3 || waits[0] != 7*time.Second {
		t.Errorf("%v, %v, %v", msg.Text(), err, waits)
	}
	first := s.Requests()[0].Body
	for i, r := range s.Requests() {
		if string(r.Body) != string(first) {
			t.Errorf("request %d differs from the first", i+1)
		}
	}
}

// TestRedirect: the body is sent again to the target of a gateway's redirect.
func TestRedirect(t *testing.T) {
	s := openaitest.New(t, openaitest.Text("hello"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gateway := &http.Server{Handler: http.RedirectHandler(s.URL+"/chat/completions", http.StatusPermanentRedirect)}
	go func() { _ = gateway.Serve(l) }()
	defer gateway.Close()
	m, err := openai.New(openai.Config{Model: "m", BaseURL: "http://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if msg, _, err := model.Collect(m.Generate(t.Context(), hi)); err != nil || msg.Text() != "hello" {
		t.Error(err)
	}
}

// TestKeyStays: a key in a header is not sent to another host, to which a server redirects, and an error in an answer with
// status 200 does not contain it. A client of the caller that does not say how to handle redirects follows none either.
func TestKeyStays(t *testing.T) {
	const key = "secret-key-1"
	own := &http.Client{Transport: new(http.Transport)}
	defer own.CloseIdleConnections()
	for _, client := range []*http.Client{nil, own} {
		other := openaitest.New(t)
		elsewhere := strings.Replace(other.URL, "127.0.0.1", "localhost", 1) + "/chat/completions"
		s := openaitest.New(t,
			openaitest.Status(http.StatusPermanentRedirect, "", "Location", elsewhere),
			openaitest.Status(200, `{"error":{"message":"bad key `+key+`"}}`))
		m := newModel(t, s, openai.Config{API: openai.APIChat, Header: http.Header{"Ocp-Subscription-Key": {key}}, HTTPClient: client})
		for _, want := range []string{"set Config.BaseURL (OPENAI_BASE_URL)", "bad key [redacted]"} {
			if _, _, err := model.Collect(m.Generate(t.Context(), hi)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		if n := len(other.Requests()); n > 0 {
			t.Errorf("the other host got %d requests", n)
		}
	}
}

// TestBreakBeforeFailure: a consumer that has stopped gets no error.
func TestBreakBeforeFailure(t *testing.T) {
	s := openaitest.New(t, openaitest.Status(200, `{"id":"r","status":"failed","output":[{"type":"message","id":"m","content":[{"type":"output_text","text":"hi"}]}]}`))
	for range newModel(t, s, openai.Config{API: openai.APIResponses}).Generate(t.Context(), hi) {
		break
	}
}

// TestHeaders checks the key, the caller's headers, which
// replace ours, and Accept.
func TestHeaders(t *testing.T) {
	s := openaitest.New(t, openaitest.Text("a"), openaitest.Text("b")).RequireKey("secret")
	m := newModel(t, s, openai.Config{Key: "secret", Header: http.Header{"X-Title": {"kitbag"}}})
	if _, _, err := model.Collect(m.Generate(t.Context(), hi)); err != nil {
		t.Error(err)
	}
	m = newModel(t, s, openai.Config{NoStream: true, Key: "replaced", Header: http.Header{"authorization": {"Bearer secret"}}})
	if _, _, err := model.Collect(m.Generate(t.Context(), hi)); err != nil {
		t.Error(err)
	}
	m = newModel(t, s, openai.Config{Key: "wrong"})
	if _, _, err := model.Collect(m.Generate(t.Context(), hi)); kindOf(err) != model.KindAuthentication || strings.Contains(err.Error(), "wrong") {
		t.Error(err)
	}
	streamed, whole := s.Requests()[0].Header, s.Requests()[1].Header
	if streamed.Get("X-Title") != "kitbag" || streamed.Get("Accept") != "text/event-stream" || whole.Get("Accept") != "application/json" {
		t.Errorf("%v, %v", streamed, whole)
	}
}

// TestIDsAreUniqueInTheConversation: the server uses the id call_0 in each
// answer; its strict check of requests fails on a duplicate.
func TestIDsAreUniqueInTheConversation(t *testing.T) {
	onBothAPIs(t, testIDsAreUniqueInTheConversation)
}

func testIDsAreUniqueInTheConversation(t *testing.T, cfg openai.Config) {
	s := openaitest.New(t, openaitest.Always(openaitest.Calls(openaitest.Call{ID: "call_0", Name: "add", Args: "{}"})))
	m := newModel(t, s, cfg)
	msgs := []*message.Message{message.User("hi")}
	for range 5 {
		msg, _, err := model.Collect(m.Generate(t.Context(), &model.Request{Messages: msgs}))
		if err != nil {
			t.Fatal(err)
		}
		call := msg.ToolCalls()[0]
		msgs = append(msgs, msg, &message.Message{Role: message.RoleTool, Blocks: message.Blocks{
			&message.ToolResult{ID: call.ID, Name: call.Name, Blocks: message.Blocks{&message.Text{Text: "5"}}}}})
	}
}

// TestNew has configurations that New rejects, and similar ones that it accepts.
func TestNew(t *testing.T) {
	for _, row := range []struct {
		cfg  openai.Config
		want string // a part of the error; empty for none
	}{
		{openai.Config{Model: "m", Key: "k"}, ""},
		{openai.Config{Key: "k"}, "KITBAG_MODEL"},
		{openai.Config{Model: "m"}, "OPENAI_API_KEY"},
		{openai.Config{Model: "m", BaseURL: "https://llm.example.org/v1"}, "no key for llm.example.org"},
		{openai.Config{Model: "m", BaseURL: "https://llm.example.org/v1", Header: http.Header{"Api-Key": {"k"}}}, ""},
		{openai.Config{Model: "m", BaseURL: "https://llm.example.org/v1", Header: http.Header{"api-key": {"k"}}}, ""},
		{openai.Config{Model: "m", BaseURL: "http://localhost:11434/v1/"}, ""},
		{openai.Config{Model: "m", BaseURL: "http://[::1]:8080"}, ""},
		{openai.Config{Model: "m", BaseURL: "http://10.1.2.3/v1"}, ""},
		{openai.Config{Model: "m", BaseURL: "http://8.8.8.8/v1"}, "no key"},
		{openai.Config{Model: "m", BaseURL: "http://ollama:11434"}, ""},
		{openai.Config{Model: "m", BaseURL: "http://host.docker.internal"}, ""},
		{openai.Config{Model: "m", Key: "k", BaseURL: "llm.example.org/v1"}, "not an http or https URL"},
		{openai.Config{Model: "m", Key: "k", BaseURL: "ftp://llm.example.org"}, "not an http or https URL"},
		{openai.Config{Model: "m", Key: "k", BaseURL: "user:secret@llm.example.org?key=secret"}, `"llm.example.org" is not an http or https URL`},
		{openai.Config{Model: "m", Key: "k", BaseURL: "ftp://user:secret@llm.example.org"}, `"ftp://llm.example.org" is not`},
		{openai.Config{Model: "m", Key: "k", IdleTimeout: -time.Second}, "IdleTimeout -1s; they must not be negative"},
	} {
		_, err := openai.New(row.cfg)
		if (err == nil) != (row.want == "") || (err != nil && !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%+v: %v, want %q", row.cfg, err, row.want)
		}
	}
}

// TestFromEnv makes a call with a model that the environment configures.
func TestFromEnv(t *testing.T) {
	s := openaitest.New(t, openaitest.Text("hello")).RequireKey("secret")
	t.Setenv("OPENAI_BASE_URL", s.URL+"/")
	t.Setenv("OPENAI_API_KEY", "secret")
	t.Setenv("KITBAG_MODEL", "m-1")
	m, err := openai.FromEnv()
	if err != nil || m.Name() != "m-1" {
		t.Fatal(err)
	}
	if msg, _, err := model.Collect(m.Generate(t.Context(), hi)); err != nil || msg.Text() != "hello" {
		t.Error(err)
	}
}

// TestRequestStartsWhenRanged: nothing is sent for a sequence that is not ranged over.
func TestRequestStartsWhenRanged(t *testing.T) {
	s := openaitest.New(t)
	newModel(t, s, openai.Config{}).Generate(t.Context(), hi)
	if len(s.Requests()) != 0 {
		t.Error("a request was sent")
	}
}

// TestExtraWithSpaces: white space around the JSON of an extra does not matter.
func TestExtraWithSpaces(t *testing.T) {
	onBothAPIs(t, func(t *testing.T, cfg openai.Config) {
		s := openaitest.New(t, openaitest.Text("ok"))
		cfg.Extra = map[string]json.RawMessage{"temperature": json.RawMessage(" null"), "reasoning_effort": json.RawMessage("null\n")}
		req := &model.Request{Messages: hi.Messages, Temperature: new(0.5)}
		if _, _, err := model.Collect(newModel(t, s, cfg).Generate(t.Context(), req)); err != nil {
			t.Fatal(err)
		}
		if body := string(s.Requests()[0].Body); strings.Contains(body, "null") || strings.Contains(body, "effort") {
			t.Error(body)
		}
	})
}
