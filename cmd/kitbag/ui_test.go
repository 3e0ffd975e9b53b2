package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agent/session/sqlite"
	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A uiClient is a browser that has opened the URL of "kitbag ui".
type uiClient struct {
	*testing.T
	http http.Client
	base string
}

// startUI runs "kitbag ui" until the end of the test.
func startUI(t *testing.T, args ...string) *uiClient {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, stdout := io.Pipe()
	var stderr bytes.Buffer
	done := make(chan int)
	go func() {
		done <- run(ctx, append([]string{"ui"}, args...), strings.NewReader(""), stdout, &stderr)
		stdout.Close()
	}()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &uiClient{T: t, http: http.Client{Jar: jar, Transport: &http.Transport{}}}
	t.Cleanup(func() {
		c.http.CloseIdleConnections()
		stop()
		if code := <-done; code != exitInterrupted && code != exitDone {
			t.Errorf("exit code %d: %s", code, stderr.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no URL: %v, %s", err, stderr.String())
	}
	url := strings.TrimSpace(line)
	c.base, _, _ = strings.Cut(url, "?")
	resp, err := c.http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("%s: status %d", url, resp.StatusCode)
	}
	return c
}

// call makes a request and decodes the answer.
func (c *uiClient) call(method, path, body string, into any) {
	c.Helper()
	r, err := http.NewRequest(method, c.base+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(r)
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		c.Fatalf("%s %s: status %d: %s %v", method, path, resp.StatusCode, data, err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		c.Fatal(err)
	}
}

// TestUIAnswers answers a question of "kitbag run" in the page, after which the run continues.
func TestUIAnswers(t *testing.T) {
	dir := workspace(t)
	serve(t, openaitest.Calls(openaitest.Call{ID: "call_7", Name: "Bash", Args: `{"command":"touch made"}`}), openaitest.Text("fine"))
	if got := kitbag(t.Context(), "run", "--session", "s.json", "make it"); got.code != exitWaiting {
		t.Fatalf("%+v", got)
	}
	c := startUI(t, "--store", "s.json")
	var inbox struct {
		Questions []struct {
			Session, Call, Tool string
			Question            int64
		}
	}
	c.call("GET", "api/inbox", "", &inbox)
	if len(inbox.Questions) != 1 || inbox.Questions[0].Tool != "Bash" || inbox.Questions[0].Session != "s" {
		t.Fatalf("%+v", inbox)
	}
	answer, err := json.Marshal(map[string]any{"call": "call_7", "question": inbox.Questions[0].Question, "allow": true})
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Accepted bool }
	c.call("POST", "api/sessions/s/answer", string(answer), &got)
	if !got.Accepted {
		t.Error("the answer is not accepted")
	}
	var s struct{ Status, Restart string }
	for end := time.Now().Add(20 * time.Second); s.Status != "ended"; time.Sleep(20 * time.Millisecond) {
		c.call("GET", "api/sessions/s", "", &s)
		if time.Now().After(end) {
			t.Fatalf("the run does not end: %+v", s)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
		t.Error(err)
	}
	var rows struct{ Rows []struct{ Kind, Text string } }
	c.call("GET", "api/sessions/s/rows?n=100", "", &rows)
	if n := len(rows.Rows); n == 0 || rows.Rows[n-1].Text != "fine" {
		t.Errorf("the timeline is %+v", rows)
	}
}

// TestUIStores shows sessions of each kind of store.
func TestUIStores(t *testing.T) {
	workspace(t)
	fill := func(store session.Store) {
		t.Helper()
		s, err := session.Open(t.Context(), store, "customer-7")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		a, err := agent.New(agent.Config{Model: scripted.New(scripted.Say("Hello.")), Toolkit: toolkit.Of(), Save: s.Save})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Reply(t.Context(), s.State, agent.Say("Who is there?")); err != nil {
			t.Fatal(err)
		}
	}
	logs, err := session.Dir("logs")
	if err != nil {
		t.Fatal(err)
	}
	fill(logs)
	db, err := sqlite.Open("sessions.db")
	if err != nil {
		t.Fatal(err)
	}
	fill(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		store string
		want  int
	}{{"logs", 1}, {"sessions.db", 1}, {"", 0}} {
		var list struct{ Sessions []struct{ Title string } }
		startUI(t, "--store", row.store).call("GET", "api/sessions", "", &list)
		if len(list.Sessions) != row.want || row.want > 0 && list.Sessions[0].Title != "Who is there?" {
			t.Errorf("--store %q: %+v", row.store, list)
		}
	}
}

func TestUIUsage(t *testing.T) {
	workspace(t)
	if err := os.WriteFile("notes.txt", []byte("not a database"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--store", "missing"}, exitError, "name a directory"},
		{[]string{"--store", "notes.txt"}, exitError, "neither a SQLite database nor a session file"},
		{[]string{"--addr", "8080"}, exitUsage, "HOST:PORT"},
		{[]string{"--session", "s.json"}, exitUsage, "use --store s.json"},
	} {
		got := kitbag(t.Context(), append([]string{"ui"}, row.args...)...)
		if got.code != row.code || !strings.Contains(got.stderr, row.want) {
			t.Errorf("%v: %+v", row.args, got)
		}
	}
}
