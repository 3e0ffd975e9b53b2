// Package anthropictest is a server of the Messages API for tests. It implements the real protocol
// over HTTP, streamed or not as requested, answers each request with the next [Turn], and refuses
// with status 400 what the real server would: see [Validate].
//
//	s := anthropictest.New(t,
//		anthropictest.Calls(anthropictest.Call{Name: "add", Args: `{"a":1,"b":2}`}),
//		anthropictest.RateLimit("1"),
//		anthropictest.Text("It is 3."),
//	)
//	m, err := anthropic.New(anthropic.Config{BaseURL: s.URL, Model: "test"})
//
// [Serve] starts a server outside of a test.
package anthropictest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/kitbag-go/kitbag/internal/wiretest"
)

// A Server answers requests with its turns, in order of arrival. It is safe for concurrent use.
type Server struct {
	URL string // the base URL for a client

	wiretest.Server[Request, Turn]

	key string // required of clients; empty accepts any
}

// A Request is a request of a client, decoded and as received. It must not be changed. If the
// request is invalid, only Header and Body are set.
type Request struct {
	Header   http.Header
	Body     json.RawMessage
	Model    string
	Stream   bool
	System   json.RawMessage
	Messages []Message
	Tools    []Tool

	number   int    // of the request, from 1
	prefix   string // identifies everything before the answer, for signatures
	thoughts int    // number of thinking blocks in the paused answer that the request continues
}

// A Message is a message of a request. A content that is a string is one block.
type Message struct {
	Role    string
	Content Content
}

// Content is the content of a message.
type Content []Block

// UnmarshalJSON reads blocks, or a string.
func (c *Content) UnmarshalJSON(data []byte) error {
	if text, err := wiretest.DecodeString(data); err == nil {
		*c = Content{{Type: "text", Text: text}}
		return nil
	}
	return json.Unmarshal(data, (*[]Block)(c))
}

// Text returns the texts of the blocks.
func (c Content) Text() (s string) {
	for _, b := range c {
		s += b.Text
	}
	return s
}

// A Block is a block of a message; only some members are decoded.
type Block struct {
	Type         string
	Text         string
	Thinking     string
	ID           string
	Name         string
	Input        json.RawMessage
	ToolUseID    string `json:"tool_use_id"`
	Content      Content
	IsError      bool            `json:"is_error"`
	CacheControl json.RawMessage `json:"cache_control"`
}

// A Tool is a tool of a request.
type Tool struct {
	Name, Description string
	InputSchema       json.RawMessage `json:"input_schema"`
}

// A T is the part of *testing.T that [New] uses.
type T = wiretest.T

// New starts a server that ends with the test. The test fails for an invalid request, for a
// request after the last turn, and for unused turns.
func New(t T, turns ...Turn) *Server {
	t.Helper()
	s := Serve(turns...)
	s.CloseWith(t, "anthropictest")
	return s
}

// Serve starts a server on a port of the loopback interface. The caller closes it.
func Serve(turns ...Turn) *Server {
	s := new(Server)
	s.URL = s.Start(turns, func(t *Turn) *plan { return &t.plan }, s.serve)
	return s
}

// RequireKey makes the server refuse other keys with status 401. Such a refusal is not a
// fault, as a test may want it.
func (s *Server) RequireKey(key string) *Server {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.key = key
	return s
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client closed the connection
	}
	req, turn, refusal := s.next(r, body)
	if refusal != nil {
		writeError(w, refusal)
		return
	}
	turn.answer(w, r, req, s.Closed)
}

// A refusal is an answer without a turn.
type refusal struct {
	status int
	kind   string
	error
}

// next records a request and returns the turn that answers it, or a refusal.
func (s *Server) next(r *http.Request, body []byte) (*Request, Turn, *refusal) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	req := &Request{Header: r.Header.Clone(), Body: body}
	req.number = s.Record(req)
	refuse := func(status int, kind string, err error) (*Request, Turn, *refusal) {
		s.Fault(err)
		return nil, Turn{}, &refusal{status, kind, err}
	}
	if s.key != "" && r.Header.Get("X-Api-Key") != s.key {
		return nil, Turn{}, &refusal{http.StatusUnauthorized, "authentication_error",
			errors.New("invalid x-api-key")}
	}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/messages" {
		return refuse(http.StatusNotFound, "not_found_error",
			fmt.Errorf("%s %s: Not found", r.Method, r.URL.Path))
	}
	if err := checkHeader(r.Header); err != nil {
		return refuse(http.StatusBadRequest, "invalid_request_error", err)
	}
	prefix, thoughts, err := validate(body, betasOf(r.Header))
	if err == nil {
		err = json.Unmarshal(body, req)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "invalid_request_error", err)
	}
	req.prefix, req.thoughts = prefix, thoughts
	turn, status, err := s.Next(req)
	if err != nil {
		kind := "invalid_request_error"
		if status != http.StatusBadRequest {
			kind = "api_error"
		}
		return refuse(status, kind, err)
	}
	return req, turn, nil
}

// checkHeader checks the headers that the API requires ("API overview", "Required headers").
func checkHeader(h http.Header) error {
	switch {
	case h.Get("Anthropic-Version") != "2023-06-01":
		return fmt.Errorf("anthropic-version: %q is not a valid version",
			h.Get("Anthropic-Version"))
	case h.Get("Content-Type") != "application/json":
		return fmt.Errorf("content-type: %q is not application/json", h.Get("Content-Type"))
	}
	return nil
}

// betasOf returns the beta features that a request asks for.
func betasOf(h http.Header) (betas []string) {
	for _, v := range h.Values("Anthropic-Beta") {
		for beta := range strings.SplitSeq(v, ",") {
			betas = append(betas, strings.TrimSpace(beta))
		}
	}
	return betas
}

// writeError answers with a refusal.
func writeError(w http.ResponseWriter, r *refusal) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	_ = json.NewEncoder(w).Encode(fault(r.kind, r.Error()))
}
