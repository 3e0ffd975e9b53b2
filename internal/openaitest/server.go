// Package openaitest has a server of chat completions and of the Responses API for tests. It
// implements the real protocols over HTTP, streamed or not as requested, answers each request with the next
// [Turn], and rejects with status 400 what a strict server would reject: see [Validate] and
// [ValidateResponses].
//
//	s := openaitest.New(t,
//		openaitest.Calls(openaitest.Call{Name: "add", Args: `{"a":1,"b":2}`}),
//		openaitest.RateLimit("1"),
//		openaitest.Text("It is 3."),
//	)
//	m, err := openai.New(openai.Config{BaseURL: s.URL, Model: "test"})
//
// [Serve] starts a server outside of a test.
package openaitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/kitbag-go/kitbag/internal/wiretest"
)

// A Server answers requests with its turns, in order of arrival. It is safe for concurrent
// use.
type Server struct {
	URL string // the base URL for a client, ending in /v1

	wiretest.Server[Request, Turn]

	allow  []string
	key    string // empty for any
	refuse func(path string, body []byte) (status int, text string)
}

// A Request is a request of a client. It must not be changed. For
// an invalid one only Header and Body are set.
type Request struct {
	Header   http.Header
	Body     json.RawMessage
	Model    string
	Stream   bool
	Messages []Message // input of the Responses API is converted
	Tools    []Tool

	number    int      // of the request, from 1
	responses bool     // uses the Responses API
	added     []string // the names of Tools that were added in the course of the conversation; each is in a namespace of its name
}

// A Message is a message of a request. Content is a JSON string or array of
// parts, nil if it was not sent.
type Message struct {
	Role       string
	Content    json.RawMessage
	ToolCallID string     `json:"tool_call_id"`
	ToolCalls  []ToolCall `json:"tool_calls"`
}

// Text returns the content: the string, or the texts of the parts.
func (m Message) Text() string {
	var s string
	if json.Unmarshal(m.Content, &s) == nil {
		return s
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(m.Content, &parts)
	for _, p := range parts {
		s += p.Text
	}
	return s
}

// A ToolCall is a call in a request's assistant message.
type ToolCall struct {
	ID       string
	Function struct{ Name, Arguments string }
}

// A Tool is a tool of a request.
type Tool struct {
	Function struct {
		Name, Description string
		Parameters        json.RawMessage
	}
}

// A T is the part of *testing.T that [New] uses.
type T = wiretest.T

// New starts a server that ends with the test. The test fails for an invalid request, for a
// request after the last turn, and for unused turns.
func New(t T, turns ...Turn) *Server {
	t.Helper()
	s := Serve(turns...)
	s.CloseWith(t, "openaitest")
	return s
}

// Serve starts a server on a port of the loopback interface. The caller closes it.
func Serve(turns ...Turn) *Server {
	s := new(Server)
	s.URL = s.Start(turns, func(t *Turn) *plan { return &t.plan }, s.serve) + "/v1"
	return s
}

// Allow adds members of messages, calls and requests that this server accepts in addition
// to OpenAI's, such as "reasoning_content".
func (s *Server) Allow(names ...string) *Server {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.allow = append(s.allow, names...)
	return s
}

// RequireKey makes the server reject other keys with status 401. Such a request is not a fault.
func (s *Server) RequireKey(key string) *Server {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.key = key
	return s
}

// Refuse makes the server refuse requests for which fn returns a status other than 0, with a text. Such a request is not
// a fault, and uses no turn.
func (s *Server) Refuse(fn func(path string, body []byte) (status int, text string)) *Server {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.refuse = fn
	return s
}

// serve answers one request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client closed the connection
	}
	req, turn, refusal := s.next(r, body)
	if refusal != nil {
		writeError(w, refusal.status, refusal.Error())
		return
	}
	turn.answer(w, r, req, s.Closed)
}

// A refusal is an error response to a request that gets no turn.
type refusal struct {
	status int
	error
}

// next records a request and returns the turn that answers it, or a refusal.
func (s *Server) next(r *http.Request, body []byte) (*Request, Turn, *refusal) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	req := &Request{Header: r.Header.Clone(), Body: body}
	req.number = s.Record(req)
	refuse := func(status int, err error) (*Request, Turn, *refusal) {
		s.Fault(err)
		return nil, Turn{}, &refusal{status, err}
	}
	if s.refuse != nil {
		if status, text := s.refuse(r.URL.Path, body); status != 0 {
			return nil, Turn{}, &refusal{status, errors.New(text)}
		}
	}
	req.responses = strings.HasSuffix(r.URL.Path, responsesPath)
	if r.Method != http.MethodPost || !req.responses && !strings.HasSuffix(r.URL.Path, "/chat/completions") {
		return refuse(http.StatusNotFound, fmt.Errorf("%s %s is not POST …/chat/completions or …/responses", r.Method, r.URL.Path))
	}
	if s.key != "" && r.Header.Get("Authorization") != "Bearer "+s.key {
		return nil, Turn{}, &refusal{http.StatusUnauthorized, fmt.Errorf("incorrect API key")}
	}
	if ct := r.Header.Get("Content-Type"); ct != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, fmt.Errorf("Content-Type is %q, not application/json", ct))
	}
	validate := Validate
	if req.responses {
		validate = ValidateResponses
	}
	if err := validate(body, s.allow...); err != nil {
		return refuse(http.StatusBadRequest, err)
	}
	if err := json.Unmarshal(body, req); err != nil {
		return refuse(http.StatusBadRequest, err)
	}
	if req.responses {
		if err := req.readInput(); err != nil {
			return refuse(http.StatusBadRequest, err)
		}
	}
	turn, status, err := s.Next(req)
	if err != nil {
		return refuse(status, err)
	}
	return req, turn, nil
}

// writeError answers with an error in OpenAI's form.
func writeError(w http.ResponseWriter, status int, text string) {
	kind := "invalid_request_error"
	if status == http.StatusUnauthorized {
		kind = "authentication_error"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": text, "type": kind}})
}
