package anthropic_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/anthropictest"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
)

// TestConnectionsAreKept: ten requests, one after the other, use one connection, also for answers
// that are not streamed and for errors.
func TestConnectionsAreKept(t *testing.T) {
	whole := `{"id":"msg_1","model":"m","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn"}`
	for why, turn := range map[string]anthropictest.Turn{
		"streams":       anthropictest.Text(strings.Repeat("word ", 500)),
		"calls":         anthropictest.Calls(addCall(`{"a":1}`)),
		"whole answers": anthropictest.Status(200, whole),
		"errors":        anthropictest.Overloaded(),
	} {
		s := anthropictest.New(t, anthropictest.Always(turn))
		m := newModel(t, s, anthropic.Config{})
		for range 10 {
			_, _, _ = ask(t, m, hi)
		}
		if n := s.Connections(); n != 1 {
			t.Errorf("%s: %d connections", why, n)
		}
	}
}

// TestHeader checks the header of a request, in which Config.Header replaces what the package sets.
func TestHeader(t *testing.T) {
	s := anthropictest.New(t, anthropictest.Always(anthropictest.Text("ok")))
	for range 2 { // the betas of a request do not stay for the next one
		m := newModel(t, s, anthropic.Config{Key: "k", Betas: []string{"b1"}, LateTools: &late,
			Header: http.Header{"x-api-key": {"other"}, "anthropic-beta": {"b0"}}})
		if _, _, err := ask(t, m, hi); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range s.Requests() {
		for name, want := range map[string]string{
			"Anthropic-Version": "2023-06-01",
			"Anthropic-Beta":    "b0, b1, inline-tools-2026-09-15",
			"X-Api-Key":         "other",
			"Content-Type":      "application/json",
			"Accept":            "text/event-stream",
			"Accept-Encoding":   "identity",
		} {
			if got := strings.Join(r.Header.Values(name), ", "); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
}

// TestKeyStaysWithOwnClient: a client that does not say how to handle redirects gets no redirect to
// another host, for which net/http would keep x-api-key; it follows one on the same host.
func TestKeyStaysWithOwnClient(t *testing.T) {
	other := anthropictest.New(t, anthropictest.Text("ok"))
	elsewhere := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	redirect := func(url string) anthropictest.Turn {
		return anthropictest.Status(http.StatusPermanentRedirect, "", "Location",
			url+"/v1/messages")
	}
	s := anthropictest.New(t, redirect(elsewhere), redirect(other.URL))
	client := &http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	m := newModel(t, s, anthropic.Config{Key: "sk-secret", HTTPClient: client})
	_, _, err := ask(t, m, hi)
	if err == nil || !strings.Contains(err.Error(), "to which") {
		t.Error(err)
	}
	if n := len(other.Requests()); n != 0 {
		t.Errorf("the other host got %d requests", n)
	}
	if _, _, err := ask(t, m, hi); err != nil {
		t.Error(err)
	}
	if client.CheckRedirect != nil {
		t.Error("the caller's client was changed")
	}
}

// A transport that is a function.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestSigningClient: a client needs no key if its transport may sign the requests.
func TestSigningClient(t *testing.T) {
	for _, plain := range []*http.Client{nil, {}, {Transport: new(http.Transport)}} {
		_, err := anthropic.New(anthropic.Config{Model: "m", HTTPClient: plain})
		if err == nil || !strings.Contains(err.Error(), "whose Transport signs") {
			t.Errorf("%+v: %v", plain, err)
		}
	}
	signing := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("X-Api-Key") != "" {
			t.Error("a key was sent")
		}
		body := io.NopCloser(strings.NewReader(`{"message":"The security token is invalid."}`))
		return &http.Response{StatusCode: 401, Header: http.Header{}, Body: body, Request: r}, nil
	})}
	m, err := anthropic.New(anthropic.Config{Model: "m", HTTPClient: signing})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = ask(t, m, hi)
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Kind != model.KindAuthentication ||
		!strings.Contains(e.Message, "the credentials of Config.HTTPClient") {
		t.Error(err)
	}
}

// TestEventLimit: an event that never becomes valid JSON fails at the limit, however long its lines
// are.
func TestEventLimit(t *testing.T) {
	for _, line := range []string{"data: [1,\n", "data: [\"" + strings.Repeat("x", 100<<10) +
		"\",\n", "data: [" + strings.Repeat("1,", 1<<20) + "\n"} {
		s := anthropictest.New(t, anthropictest.Raw(strings.Repeat(line, (2<<20)/len(line)+1)))
		_, _, err := ask(t, newModel(t, s, anthropic.Config{}), hi)
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindUpstream ||
			!strings.Contains(e.Message, "not valid JSON") {
			t.Errorf("%.20q: %v", line, err)
		}
	}
}
