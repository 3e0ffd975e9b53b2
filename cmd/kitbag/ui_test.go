package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agent/session/sqlite"
	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A uiClient is a browser that has opened the URL of "kitbag ui".
type uiClient struct {
	*testing.T
	http http.Client
	base string
	url  string // with the token
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
		if _, token, _ := strings.Cut(c.url, "token="); token == "" || strings.Contains(stderr.String(), token) {
			t.Errorf("the token of %s is in the log: %s", c.url, stderr.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no URL: %v, %s", err, stderr.String())
	}
	url := strings.TrimSpace(line)
	c.base, _, _ = strings.Cut(url, "?")
	c.url = url
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
	status, data := c.send(method, path, body)
	if status != http.StatusOK {
		c.Fatalf("%s %s: status %d: %s", method, path, status, data)
	}
	if err := json.Unmarshal(data, into); err != nil {
		c.Fatal(err)
	}
}

// refused makes a POST that must fail, and returns the error.
func (c *uiClient) refused(path, body string) string {
	c.Helper()
	status, data := c.send("POST", path, body)
	if status == http.StatusOK {
		c.Errorf("POST %s succeeds: %s", path, data)
	}
	return string(data)
}

func (c *uiClient) send(method, path, body string) (status int, data []byte) {
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
	if data, err = io.ReadAll(resp.Body); err != nil {
		c.Fatal(err)
	}
	return resp.StatusCode, data
}

// TestUILogs makes requests that fail, with the token in them: neither what is logged nor an answer has it.
func TestUILogs(t *testing.T) {
	workspace(t)
	var logged bytes.Buffer
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	token, answers := "", ""
	t.Run("requests", func(t *testing.T) { // after which nothing logs any more
		c := startUI(t, "--addr", "127.0.0.1:0")
		_, token, _ = strings.Cut(c.url, "token=")
		address := strings.SplitN(c.url, "/", 4)[2]
		query := "/" + strings.SplitN(c.url, "/", 4)[3]
		for _, request := range []string{
			"GET " + query + " HTTP/1.1\r\nHost: attack.invalid\r\n\r\n",
			"GET " + query + "x HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"GET " + query + "&x=%zz HTTP/1.1\r\nHost: localhost\r\nReferer: " + c.url + "\r\n\r\n",
			"GET /other?token=" + token + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"POST " + query + " HTTP/1.1\r\nHost: localhost\r\nOrigin: " + c.url + "\r\nContent-Length: 9\r\n\r\n",
			"GET " + strings.Replace(query, "/?", "/api/sessions/x/rows?", 1) + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"GET " + query + " HTTP/9.9\r\n\r\n",
			query + "\x00\r\n\r\n",
		} {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			answer, _ := io.ReadAll(conn) // a server may reset the connection
			conn.Close()
			answers += string(answer)
		}
	})
	if token == "" || strings.Contains(answers, token) || !strings.Contains(answers, "421 Misdirected Request") || !strings.Contains(answers, "400 Bad Request") {
		t.Errorf("the answers are %s", answers)
	}
	if strings.Contains(logged.String(), token) {
		t.Errorf("the token is logged: %s", logged.String())
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
			Parts               []struct{ Command, Effects string }
		}
	}
	c.call("GET", "api/inbox", "", &inbox)
	if len(inbox.Questions) != 1 || inbox.Questions[0].Tool != "Bash" || inbox.Questions[0].Session != "s" {
		t.Fatalf("%+v", inbox)
	}
	if got := fmt.Sprint(inbox.Questions[0].Parts); got != "[{touch made write}]" {
		t.Errorf("the parts of the command are %s", got)
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
	c.waitFor("s", "ended")
	if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
		t.Error(err)
	}
	rows := c.rows("s", 8)
	var kinds []string
	for _, r := range rows {
		kinds = append(kinds, r.Kind)
		if (r.Kind == "model" || r.Kind == "tool") && (r.Start.IsZero() || r.End.Before(r.Start)) {
			t.Errorf("no times: %+v", r)
		}
	}
	if got, want := strings.Join(kinds, " "), "run user model tool end run model end"; got != want {
		t.Errorf("the timeline is %s, want %s", got, want)
	}
}

type uiRow struct {
	Kind, Text string
	Record     int64
	Start, End time.Time
}

// rows waits for the first n rows of a timeline.
func (c *uiClient) rows(id string, n int) []uiRow {
	c.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var out struct{ Rows []uiRow }
		c.call("GET", fmt.Sprintf("api/sessions/%s/rows?n=%d", id, n), "", &out)
		if len(out.Rows) == n || time.Now().After(end) {
			return out.Rows
		}
	}
}

// TestUIForks copies conversations of "kitbag run" with a question that is asked differently. The copy is sealed,
// and continues like the other.
func TestUIForks(t *testing.T) {
	workspace(t)
	serve(t, openaitest.Text("one"), openaitest.Text("two"), openaitest.Text("three"))
	for _, say := range []string{"first", "second"} {
		if got := kitbag(t.Context(), "run", "--session", "s.json", say); got.code != exitDone {
			t.Fatalf("%+v", got)
		}
	}
	c := startUI(t, "--store", "s.json")
	rows := c.rows("s", 8)
	var texts []string
	for _, r := range rows {
		if r.Text != "" {
			texts = append(texts, r.Text)
		}
	}
	if got := strings.Join(texts, " "); got != "first one second two" {
		t.Errorf("the timeline has %q", got)
	}
	before := rows[slices.IndexFunc(rows, func(r uiRow) bool { return r.Text == "second" })].Record - 1
	c.call("POST", "api/sessions/s/fork", fmt.Sprintf(`{"record":%d,"to":"t","say":"third"}`, before), &struct{}{})
	c.waitFor("t", "ended")
	st := openSession(t, "t")
	defer st.close()
	var got []string
	for _, m := range st.Messages {
		got = append(got, m.Text())
	}
	if text := strings.Join(got, " "); text != "first one third three" {
		t.Errorf("the copy is %q", text)
	}
	if st.Usage.Input != 20 {
		t.Errorf("the two model calls of the copy had %d tokens, want 20", st.Usage.Input)
	}
}

// TestUIOlderFile shows a session file of commit 1e2cba44, which had no seals: it is answered and copied only if the user
// trusts it.
func TestUIOlderFile(t *testing.T) {
	data, err := os.ReadFile("testdata/older/1e2cba44.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := workspace(t)
	serve(t, openaitest.Text("It is made."))
	if err := os.WriteFile("old.json", data, 0o600); err != nil {
		t.Fatal(err)
	}
	const answer, copied = `{"call":"call_2","allow":true,"rules":["Bash(touch made:*)"],"keep":true}`, `{"to":"copy"}`
	t.Run("not trusted", func(t *testing.T) {
		c := startUI(t, "--store", "old.json")
		var got struct {
			Status, Title string
			Notes         []string
			Waiting       []struct{ Call string }
		}
		c.call("GET", "api/sessions/old", "", &got)
		if got.Status != "waiting" || got.Title != "Run echo." || len(got.Waiting) != 1 || got.Waiting[0].Call != "call_2" || !strings.Contains(got.Notes[0], "--trust-session") {
			t.Errorf("%+v", got)
		}
		if rows := c.rows("old", 7); len(rows) != 7 || rows[3].Text != "The command says hello." {
			t.Errorf("%+v", rows)
		}
		for path, body := range map[string]string{"answer": answer, "fork": copied} {
			if text := c.refused("api/sessions/old/"+path, body); !strings.Contains(text, "--trust-session") {
				t.Errorf("%s: %s", path, text)
			}
		}
	})
	if _, err := os.Stat("copy.jsonl"); err == nil {
		t.Error("the copy was written")
	}
	if all, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(all) != 1 {
		t.Errorf("the directory has %q, %v", all, err)
	}
	t.Run("trusted", func(t *testing.T) {
		c := startUI(t, "--store", "old.json", "--trust-session")
		c.call("POST", "api/sessions/old/fork", copied, &struct{}{})
		c.call("POST", "api/sessions/old/answer", strings.ReplaceAll(answer, `"keep":true`, `"keep":false`), &struct{}{})
		c.waitFor("old", "ended")
	})
	for _, name := range []string{"old", "copy"} {
		if err := openSession(t, name).close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat("made"); err != nil {
		t.Error(err)
	}
}

// TestUIForged shows a session to which a record was added without the key: it is answered and copied only if the user
// trusts it.
func TestUIForged(t *testing.T) {
	dir := workspace(t)
	serve(t, openaitest.Calls(openaitest.Call{ID: "call_7", Name: "Bash", Args: `{"command":"touch made"}`}), openaitest.Text("It is made."))
	if got := kitbag(t.Context(), "run", "--session", "s", "make it"); got.code != exitWaiting {
		t.Fatalf("%+v", got)
	}
	s, err := session.Open(t.Context(), must(session.Dir(dir)), "s")
	if err != nil {
		t.Fatal(err)
	}
	s.State.Rules = append(s.State.Rules, permission.Rule{Tool: "Edit", Behavior: permission.Allow})
	if err := errors.Join(s.Save(t.Context(), s.State), s.Close()); err != nil {
		t.Fatal(err)
	}
	answer := fmt.Sprintf(`{"call":"call_7","question":%d,"allow":true}`, s.State.Pending()[0].(*event.Approval).Question)
	for _, store := range []string{"s", "."} {
		t.Run(store, func(t *testing.T) {
			c := startUI(t, "--store", store)
			var got struct{ Notes, Rules []string }
			c.call("GET", "api/sessions/s", "", &got)
			if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "--trust-session") || len(got.Rules) != 1 {
				t.Errorf("%+v", got)
			}
			if rows := c.rows("s", 5); len(rows) != 5 || rows[1].Text != "make it" {
				t.Errorf("%+v", rows)
			}
			for path, body := range map[string]string{"answer": answer, "fork": `{"to":"copy"}`, "resume": `{}`} {
				status, text := c.send("POST", "api/sessions/s/"+path, body)
				if path != "resume" && (status == http.StatusOK || !strings.Contains(string(text), "--trust-session")) {
					t.Errorf("%s: %d %s", path, status, text)
				}
			}
		})
	}
	if names := must(filepath.Glob("*")); len(names) != 1 || names[0] != "s.jsonl" {
		t.Errorf("the directory has %q", names)
	}
	t.Run("trusted", func(t *testing.T) {
		c := startUI(t, "--store", "s", "--trust-session")
		c.call("POST", "api/sessions/s/answer", answer, &struct{}{})
		c.waitFor("s", "ended")
	})
	if _, err := os.Stat("made"); err != nil {
		t.Error(err)
	}
}

// TestUIKeepsInputs: a message to a session is not lost if the agent cannot be created.
func TestUIKeepsInputs(t *testing.T) {
	workspace(t)
	t.Setenv("ANTHROPIC_API_KEY", "")
	s := serve(t, openaitest.Text("one"), openaitest.Text("two"))
	if got := kitbag(t.Context(), "run", "--session", "s.json", "first"); got.code != exitDone {
		t.Fatalf("%+v", got)
	}
	c := startUI(t, "--store", "s.json")
	c.call("POST", "api/sessions/s/fork", `{"to":"t","say":"second","model":"claude-opus"}`, &struct{}{})
	var state struct{ Restart string }
	for end := time.Now().Add(20 * time.Second); !strings.Contains(state.Restart, "ANTHROPIC_API_KEY"); time.Sleep(20 * time.Millisecond) {
		c.call("GET", "api/sessions/t", "", &state)
		if time.Now().After(end) {
			t.Fatalf("the error is not shown: %+v", state)
		}
	}
	t.Setenv("KITBAG_API", "chat") // so the model needs no such key
	c.call("POST", "api/sessions/t/resume", "{}", &struct{}{})
	c.waitFor("t", "ended")
	if n := len(s.Requests()); n != 2 {
		t.Fatalf("%d requests, want 2", n)
	}
	if got := s.Requests()[1].Messages; got[len(got)-1].Text() != "second" {
		t.Errorf("the model was sent %q", got[len(got)-1].Text())
	}
}

// TestUILink: the session of --store may be a link, as for "kitbag run --session".
func TestUILink(t *testing.T) {
	dir := workspace(t)
	serve(t, openaitest.Text("one"))
	if got := kitbag(t.Context(), "run", "--session", "s.json", "first"); got.code != exitDone {
		t.Fatalf("%+v", got)
	}
	if err := os.Symlink("s.jsonl", "link.jsonl"); err != nil {
		t.Fatal(err)
	}
	linked, _, err := openStore(t.Context(), filepath.Join(dir, "link.jsonl"), false)
	if err != nil {
		t.Fatal(err)
	}
	page, err := linked.List(t.Context(), session.Query{})
	if err != nil || len(page.Infos) != 1 || page.Infos[0].ID != "s" {
		t.Errorf("%v: %+v", err, page)
	}
	if err := openSession(t, "link").close(); err != nil {
		t.Error(err)
	}
}

// TestUICopyKeepsPolicy makes a copy that asks about all commands. Neither another "kitbag ui" nor "kitbag run" continues
// it with the usual rules, which allow this one.
func TestUICopyKeepsPolicy(t *testing.T) {
	dir := workspace(t)
	call := func(id, file string) openaitest.Turn {
		return openaitest.Calls(openaitest.Call{ID: id, Name: "Bash", Args: `{"command":"touch ` + file + `"}`})
	}
	serve(t, openaitest.Text("one"), call("call_1", "a"), call("call_2", "b"), call("call_3", "c"), openaitest.Text("stopped"))
	if got := kitbag(t.Context(), "run", "--session", "s.json", "first"); got.code != exitDone {
		t.Fatalf("%+v", got)
	}
	allow := []string{"--allow", "Bash(touch:*)"}
	type question struct {
		Call     string `json:"call"`
		Question int64  `json:"question"`
		Allow    bool   `json:"allow"`
	}
	waits := func(c *uiClient, call string) question {
		t.Helper()
		c.waitFor("t", "waiting")
		var s struct {
			Waiting []question
			Notes   []string
		}
		for end := time.Now().Add(20 * time.Second); len(s.Waiting) != 1 || s.Waiting[0].Call != call; time.Sleep(20 * time.Millisecond) {
			c.call("GET", "api/sessions/t", "", &s)
			if time.Now().After(end) {
				t.Fatalf("%s does not wait: %+v", call, s)
			}
		}
		if last := s.Notes[len(s.Notes)-1]; !strings.Contains(last, "always runs with") || !strings.Contains(last, "Bash") {
			t.Errorf("the notes are %q", s.Notes)
		}
		return s.Waiting[0]
	}
	t.Run("copy", func(t *testing.T) {
		c := startUI(t, append(allow, "--store", "s.json")...)
		c.call("POST", "api/sessions/s/fork", `{"to":"t","say":"second","settings":"{\"permissions\":{\"ask\":[\"Bash\"]}}"}`, &struct{}{})
		waits(c, "call_1")
	})
	t.Run("restart", func(t *testing.T) {
		c := startUI(t, append(allow, "--store", "t.json")...)
		q := waits(c, "call_1")
		q.Allow = true
		c.call("POST", "api/sessions/t/answer", string(must(json.Marshal(q))), &struct{}{})
		waits(c, "call_2")
	})
	got := kitbag(t.Context(), append([]string{"run", "--session", "t.json", "--answer", "call_2=allow"}, allow...)...)
	if got.code != exitWaiting || !strings.Contains(got.stderr, "its own mode and rules") {
		t.Errorf("%+v", got)
	}
	f := plainFlags()
	f.session, f.mode, f.allow = "t.json", "bypass", allow[1:]
	shown, err := runChat(t, f, "n\n/permissions\n/mode\n")
	if err != nil || strings.Count(shown.stderr, "mode: default") != 2 || !strings.Contains(shown.stderr, "ask   Bash (") || strings.Contains(shown.stderr, "allow Bash") {
		t.Errorf("%v: %+v", err, shown)
	}
	st := openSession(t, "t")
	defer st.close()
	flags := &agentFlags{mode: "bypass", allow: []string{"Bash"}, ask: []string{"Edit"}, deny: []string{"Bash(rm:*)"}}
	p := must(must(flags.withCopySettings(st.State, func(string) {})).policy())
	var rules []string
	for _, r := range p.Rules {
		rules = append(rules, fmt.Sprint(r.Behavior, " ", r))
	}
	if got := strings.Join(rules, ", "); p.Mode != permission.ModeDefault || got != "deny Bash(rm:*), ask Edit, ask Bash" {
		t.Errorf("with flags the mode is %q, and the rules are %s", p.Mode, got)
	}
	for file, want := range map[string]bool{"a": true, "b": true, "c": false} {
		if _, err := os.Stat(filepath.Join(dir, file)); (err == nil) != want {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// waitFor waits until a session has a status.
func (c *uiClient) waitFor(id, want string) {
	c.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var s struct {
			Status, Restart string
			Inputs          int // the run takes them before it begins
		}
		c.call("GET", "api/sessions/"+id, "", &s)
		if s.Status == want && s.Inputs == 0 {
			return
		}
		if time.Now().After(end) {
			c.Fatalf("%s does not become %s: %+v", id, want, s)
		}
	}
}

// fillStore stores a session.
func fillStore(t *testing.T, store session.Store) {
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

// TestUIStores shows sessions of each kind of store.
func TestUIStores(t *testing.T) {
	workspace(t)
	logs, err := session.Dir("logs")
	if err != nil {
		t.Fatal(err)
	}
	fillStore(t, logs)
	db, err := sqlite.Open("sessions.db")
	if err != nil {
		t.Fatal(err)
	}
	fillStore(t, db)
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
