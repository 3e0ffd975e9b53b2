package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agui"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
)

// TestServer asks for a transfer, and answers the question in another process.
func TestServer(t *testing.T) {
	dir := t.TempDir()
	first := serve(t, dir, scripted.Call("send_money", transfer{"the landlord", 700}))
	for _, token := range []string{"", "secre", "secrets", "secret"} {
		if status, _ := first.post(t, token, `{}`); (status == http.StatusUnauthorized) == (token == "secret") {
			t.Errorf("with the token %q the status is %d", token, status)
		}
	}
	_, events := first.post(t, "secret", `{"threadId": "rent", "runId": "run-1", "messages": [{"id": "m1", "role": "user", "content": "Pay the rent."}]}`)
	id := regexp.MustCompile(`"interrupts":\[\{"id":"([^"]*)"`).FindStringSubmatch(events)
	if id == nil {
		t.Fatalf("the first stream has no interrupt: %s", events)
	}
	if err := first.handler.Shutdown(t.Context()); err != nil { // as long as it runs, it might take the answer
		t.Fatal(err)
	}
	second := serve(t, dir, scripted.Say("The rent is paid."))
	_, events = second.post(t, "secret", `{"threadId": "rent", "runId": "run-2", "messages": [], "resume": [{"interruptId": "`+id[1]+`", "status": "resolved", "payload": {"approved": true}}]}`)
	for _, want := range []string{"sent 700 € to the landlord", `"paid."`, `"outcome":{"type":"success"}`} {
		if !strings.Contains(events, want) {
			t.Errorf("the second stream has no %s: %s", want, events)
		}
	}
}

type client struct {
	url     string
	handler *agui.Handler
}

func serve(t *testing.T, dir string, turns ...scripted.Turn) client {
	t.Helper()
	var m model.Model = scripted.Test(t, turns...)
	store, err := session.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	h, err := newHandler(m, store)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(authenticate("secret", h))
	t.Cleanup(srv.Close)
	return client{srv.URL, h}
}

func (c client) post(t *testing.T, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest("POST", c.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}
