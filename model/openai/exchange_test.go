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
	// The idle connections of the shared transport end with their servers; its
	// goroutines may take a moment.
	goleak.VerifyTestMain(m)
}

var hi = &model.Request{Messages: []*message.Message{message.User("hi")}}

// kindOf returns the kind of a model error, "" for none and "?" for another.
func kindOf(err error) model.ErrorKind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e.Kind
	}
	return "?"
}

// TestConnectionsAreKept: ten answers one after the other take one connection,
// whether they were streamed or not, and errors too.
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

// TestCancelEndsTheRequest: cancelling ends the request at once, at whatever point, and the
// server learns of it.
func TestCancelEndsTheRequest(t *testing.T) {
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
			time.AfterFunc(20*time.Millisecond, cancel) // the request has come; whenever it fires, the answer is not complete
			return row.turn
		}))
		_, _, err := model.Collect(newModel(t, s, openai.Config{}).Generate(ctx, hi))
		if !errors.Is(err, context.Canceled) || kindOf(err) != "?" {
			t.Errorf("%s: %v", row.why, err)
		}
		s.Close() // returns once the server's handlers have, which wait for the client to go
	}
}

// TestBreakEndsTheRequest: whoever stops ranging is not kept by a server that is silent.
func TestBreakEndsTheRequest(t *testing.T) {
	s := openaitest.New(t, openaitest.Text(strings.Repeat("word ", 100)).HangAfter(2000))
	for _, err := range newModel(t, s, openai.Config{}).Generate(t.Context(), hi) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
}

// TestModelNames: go-openai refuses some names by itself; the server decides.
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

// TestCutConnection cuts a streamed answer off at every byte: the outcome is
// the whole answer or a connection error, never a shorter success.
func TestCutConnection(t *testing.T) {
	turn := openaitest.Text("Hello you").Calls(openaitest.Call{Name: "add", Args: `{"a":1}`})
	s := openaitest.New(t, turn)
	whole, _, err := model.Collect(newModel(t, s, openai.Config{}).Generate(t.Context(), hi))
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n += 7 {
		s := openaitest.New(t, turn.CutAfter(n))
		msg, fin, err := model.Collect(newModel(t, s, openai.Config{}).Generate(t.Context(), hi))
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

// TestUsageThatNeverComes: once the model has finished, a lost connection takes
// nothing away.
func TestUsageThatNeverComes(t *testing.T) {
	const body = "data: {\"choices\":[{\"delta\":{\"content\":\"whole\"},\"finish_reason\":\"stop\"}]}\n\n"
	s := openaitest.New(t, openaitest.Raw("text/event-stream", body+"data: {\"cho").CutAfter(len(body)+5))
	msg, fin, err := model.Collect(newModel(t, s, openai.Config{}).Generate(t.Context(), hi))
	if err != nil || msg.Text() != "whole" || fin.Reason != model.FinishStop {
		t.Errorf("%v, %v, %v", msg, fin, err)
	}
}

// TestUnreachable: without a listener, the error is one that may succeed on a retry.
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

// TestWrongScheme: the error says what to change.
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

// TestRetries goes through the decorators and the wire.
func TestRetries(t *testing.T) {
	s := openaitest.New(t, openaitest.RateLimit("7"), openaitest.Broken(),
		openaitest.Text("lost").CutAfter(50), openaitest.Text("hello"))
	var waits []time.Duration
	m := middleware.Retry(newModel(t, s, openai.Config{}), middleware.RetryConfig{
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

// TestRedirect: the body is sent again where a gateway redirects to.
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

// TestHeaders holds what is sent beside the body: the key, the headers of the caller, which
// replace ours, and what kind of answer is wanted.
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

// TestIDsAreUniqueInTheConversation: a server that starts with call_0 in each
// answer.
func TestIDsAreUniqueInTheConversation(t *testing.T) {
	s := openaitest.New(t, openaitest.Always(openaitest.Calls(openaitest.Call{ID: "call_0", Name: "add", Args: "{}"})))
	m := newModel(t, s, openai.Config{})
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

// TestNew has the configurations that New refuses, and some that look alike.
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
	} {
		_, err := openai.New(row.cfg)
		if (err == nil) != (row.want == "") || (err != nil && !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%+v: %v, want %q", row.cfg, err, row.want)
		}
	}
}

// TestFromEnv makes a call with what the environment says.
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

// TestNilClient: a nil *http.Client is none, whatever the interface around it says.
func TestNilClient(t *testing.T) {
	s := openaitest.New(t, openaitest.Text("hello"))
	if msg, _, err := model.Collect(newModel(t, s, openai.Config{HTTPClient: (*http.Client)(nil)}).Generate(t.Context(), hi)); err != nil || msg.Text() != "hello" {
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
