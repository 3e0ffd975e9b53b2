package inspect_test

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/toolkit"
)

// body returns the answer to a request, and its status.
func body(t *testing.T, c *http.Client, method, url, send string) (string, int) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(send))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), resp.StatusCode
}

// exportedTest compares the test that a session is exported as with exported_test.go, which runs with the others.
func exportedTest(t *testing.T, s session.Store, id string) {
	t.Helper()
	c, base := client(t, s, inspect.Options{})
	got, _ := body(t, c, "GET", base+"api/sessions/"+id+"/export?as=go", "")
	got = strings.Replace(got, "package session_test", "package inspect_test", 1)
	const golden = "exported_test.go"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || got != string(want) {
		t.Errorf("the test differs from %s (%v); run this one with -update and look at what changed:\n%s", golden, err, got)
	}
}

// TestFork copies a session up to each of its records, and continues one of the copies.
func TestFork(t *testing.T) {
	s := session.Memory()
	open, err := session.Open(t.Context(), s, "first")
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Config{Model: scripted.New(scripted.Repeat(scripted.Say("Hello."))), Toolkit: toolkit.Of(), Save: session.Save})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Reply(open.Context(t.Context()), open.State, agent.Say("Who is <b>there</b>?")); err != nil {
		t.Fatal(err)
	}
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	c, base := client(t, s, inspect.Options{})
	for _, row := range []struct {
		send string
		code int
		want string
	}{
		{`{"record":1,"to":"early"}`, 200, `{"id":"early"}`},
		{`{"to":"whole","say":"And now?"}`, 200, `{"id":"whole"}`},
		{`{"to":"whole"}`, 409, "exists"},
		{`{"to":"no/id"}`, 400, "must be 1 to 128"},
		{`{"record":99,"to":"x"}`, 404, "99"},
		{`[]`, 400, "what to copy"},
	} {
		if got, code := body(t, c, "POST", base+"api/sessions/first/fork", row.send); code != row.code || !strings.Contains(got, row.want) {
			t.Errorf("%s: %d %s", row.send, code, got)
		}
	}
	early, _, err := session.Read(t.Context(), s, "early", 0)
	if err != nil || len(early.Messages) != 1 {
		t.Errorf("the copy of the first record has %d messages: %v", len(early.Messages), err)
	}
	if inputs, err := s.(session.Inbox).Inputs(t.Context(), "whole"); err != nil || len(inputs) != 1 {
		t.Errorf("the message waits as %v, %v", inputs, err)
	}
	page, _ := body(t, c, "GET", base+"api/sessions/first/export?as=html", "")
	if !strings.Contains(page, "Who is &lt;b&gt;there&lt;/b&gt;?") || strings.Contains(page, "<b>") || !strings.Contains(page, "Hello.") {
		t.Errorf("the exported page is %s", page)
	}
	lines, _ := body(t, c, "GET", base+"api/sessions/first/export?as=jsonl", "")
	if n := strings.Count(lines, "\n"); n != 5 || !strings.Contains(lines, `"type":"end"`) {
		t.Errorf("there are %d events: %s", n, lines)
	}
	if _, code := body(t, c, "GET", base+"api/sessions/first/export?as=exe", ""); code != 400 {
		t.Errorf("an unknown form has the status %d", code)
	}
}
