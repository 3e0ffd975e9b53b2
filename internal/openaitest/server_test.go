package openaitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const question = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`

// post returns the status and the body; the error is that of reading it.
func post(t *testing.T, s *Server, body string) (int, string, error) {
	t.Helper()
	resp, err := http.Post(s.URL+"/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

// TestServe checks each kind of answer on the wire.
func TestServe(t *testing.T) {
	streamed := strings.Replace(question, "{", `{"stream":true,`, 1)
	for _, row := range []struct {
		name   string
		turn   Turn
		body   string
		status int
		want   []string // parts of the answer, in order
	}{
		{"whole text", Text("hello"), question, 200, []string{`"message":{"content":"hello"`, `"prompt_tokens":10`}},
		{"streamed text", Text("hello you"), streamed, 200, []string{`"content":"hello"`, `"content":" you"`, `"finish_reason":"stop"`, `"choices":[]`, "[DONE]"}},
		{"calls", Calls(Call{Name: "a", Args: "{}"}), streamed, 200, []string{`"id":"call_a_0"`, `"arguments":"{}"`, `"finish_reason":"tool_calls"`}},
		{"interleaved calls", Calls(Call{Name: "a", Args: `{"long":1}`}, Call{Name: "b", Args: `{"long":2}`}).Interleave(), streamed, 200,
			[]string{`"name":"a"`, `"name":"b"`, `"index":0`, `"index":1`, `"index":0`, `"index":1`}},
		{"all at once", Text("x").Reasoning("hm").Calls(Call{ID: "c1", Name: "a", Args: "{}"}).Finish("length").Usage(Usage{Prompt: 7}), question, 200,
			[]string{`"finish_reason":"length"`, `"reasoning_content":"hm"`, `"id":"c1"`, `"prompt_tokens":7`}},
		{"a rate limit", RateLimit("3"), question, 429, []string{"rate_limit_exceeded"}},
		{"a failure", Broken(), question, 500, []string{"server_error"}},
		{"raw", Raw("text/event-stream", "data: x\n\n"), question, 200, []string{"data: x"}},
		{"a function", Func(func(r *Request) Turn { return Text(r.Model + r.Messages[0].Text()) }), question, 200, []string{`"mhi"`}},
		{"slowly", Text("hello").Slow(time.Millisecond), streamed, 200, []string{"hello", "[DONE]"}},
	} {
		s := New(t, row.turn)
		status, body, err := post(t, s, row.body)
		if err != nil || status != row.status {
			t.Errorf("%s: status %d, %v", row.name, status, err)
		}
		rest := body
		for _, part := range row.want {
			_, after, ok := strings.Cut(rest, part)
			if !ok {
				t.Errorf("%s: no %s in\n%s", row.name, part, body)
			}
			rest = after
		}
	}
}

// TestCutConnections: a cut answer is an error for its reader, and the server keeps serving.
func TestCutConnections(t *testing.T) {
	s := New(t, Text("hello").CutAfter(20), Raw("text/plain", "whole").CutAfter(5), Text("hello"))
	for _, want := range []string{`{"choices":[{"finish`, "whole"} {
		if _, body, err := post(t, s, question); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(want, body) {
			t.Errorf("%q, %v", body, err)
		}
	}
	if _, _, err := post(t, s, question); err != nil {
		t.Error(err)
	}
}

// TestHangs: the answer stops until the client gives up.
func TestHangs(t *testing.T) {
	for _, turn := range []Turn{Hang(), Text("hello").HangAfter(10), Text("hello").Slow(time.Hour)} {
		ctx, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		s := New(t, Func(func(*Request) Turn {
			time.AfterFunc(30*time.Millisecond, giveUp) // not before the server has the request
			return turn
		}))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/chat/completions", strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err == nil {
			t.Error("an answer came")
		}
	}
}

// A fakeT records how a test would fail.
type fakeT struct {
	errors   []string
	cleanups []func()
}

func (f *fakeT) Helper()                      {}
func (f *fakeT) Errorf(s string, args ...any) { f.errors = append(f.errors, fmt.Sprintf(s, args...)) }
func (f *fakeT) Cleanup(fn func())            { f.cleanups = append(f.cleanups, fn) }

// TestNewReports checks how the test fails for mistakes of a client or of the turns.
func TestNewReports(t *testing.T) {
	no := func(*Request) error { return errors.New("no") }
	for _, row := range []struct {
		name     string
		turns    []Turn
		requests []string
		status   int    // of the last answer
		want     string // part of the only error; empty for none
	}{
		{"all turns used", []Turn{Text("a")}, []string{question}, 200, ""},
		{"an unused turn", []Turn{Text("a"), Text("b")}, []string{question}, 200, "1 of 2 turns were not used"},
		{"too many requests", []Turn{Text("a")}, []string{question, question}, 501, "request 2: no turn is left"},
		{"always", []Turn{Text("a"), Always(Text("b"))}, []string{question, question, question}, 200, ""},
		{"an invalid request", nil, []string{`{"model":"m"}`}, 400, "request 1: messages"},
		{"an expectation", []Turn{Text("a").Expect(no)}, []string{question}, 400, "request 1: failed Expect: no"},
	} {
		f := &fakeT{}
		s := New(f, row.turns...)
		status := 0
		for _, body := range row.requests {
			status, _, _ = post(t, s, body)
		}
		for _, fn := range f.cleanups {
			fn()
		}
		if status != row.status || len(s.Requests()) != len(row.requests) {
			t.Errorf("%s: status %d, %d requests", row.name, status, len(s.Requests()))
		}
		if (row.want == "" && len(f.errors) > 0) || (row.want != "" && (len(f.errors) != 1 || !strings.Contains(f.errors[0], row.want))) {
			t.Errorf("%s: reported %q, want %q", row.name, f.errors, row.want)
		}
	}
}

// TestRefusals checks requests that are rejected without using a turn.
func TestRefusals(t *testing.T) {
	s := Serve(Text("a")).RequireKey("k")
	defer s.Close()
	for _, row := range []struct {
		path, contentType, key string
		status                 int
	}{
		{"/chat/completions", "application/json", "wrong", 401},
		{"/chat/completions", "text/plain", "k", 415},
		{"/completions", "application/json", "k", 404},
		{"/chat/completions", "application/json", "k", 200},
	} {
		req, err := http.NewRequest(http.MethodPost, s.URL+row.path, strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", row.contentType)
		req.Header.Set("Authorization", "Bearer "+row.key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != row.status {
			t.Errorf("%v: status %d", row, resp.StatusCode)
		}
	}
	if s.Connections() < 1 {
		t.Error("no connection counted")
	}
}

// TestMessageText: Text returns the text of each form of content.
func TestMessageText(t *testing.T) {
	var r Request
	dec := json.NewDecoder(bytes.NewReader([]byte(`{"messages":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},{"type":"image_url"},{"type":"text","text":"c"}]},{"role":"assistant"}]}`)))
	if err := dec.Decode(&r); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"a", "bc", ""} {
		if got := r.Messages[i].Text(); got != want {
			t.Errorf("%d: %q, want %q", i, got, want)
		}
	}
}
