package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
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
		{`[]`, 400, "request body"},
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

// TestSealed says of a sealed session who has its key, and does not copy it.
func TestSealed(t *testing.T) {
	s := session.Memory()
	open, err := session.Open(t.Context(), s, "sealed")
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Config{Model: scripted.New(scripted.Say("Hello.")), Toolkit: toolkit.Of(), Save: open.Save, Key: []byte("sixteen bytes or more")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Reply(t.Context(), open.State, agent.Say("Who is there?")); err != nil {
		t.Fatal(err)
	}
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	c, base := client(t, s, inspect.Options{Note: func(session.Info) string { return "It is kept." }})
	var got struct{ Notes []string }
	get(t, c, base+"api/sessions/sealed", &got)
	if len(got.Notes) != 2 || got.Notes[0] != "It is kept." || !strings.Contains(got.Notes[1], "only its program has") {
		t.Errorf("the notes are %q", got.Notes)
	}
	if text, code := body(t, c, "POST", base+"api/sessions/sealed/fork", `{}`); code != http.StatusBadRequest || !strings.Contains(text, "sealed") {
		t.Errorf("%d %s", code, text)
	}
}

// A withoutInbox is a store that takes no inputs.
type withoutInbox struct {
	session.Store
	session.Reader
}

// TestForkRefuses refuses what a copy cannot have, before it is stored.
func TestForkRefuses(t *testing.T) {
	s := store(t, "first")
	c, base := client(t, withoutInbox{s, s.(session.Reader)}, inspect.Options{})
	for send, want := range map[string]string{
		`{"to":"copy","say":"And now?"}`: "without a message",
		`{"to":"copy","run":true}`:       "leave out model, settings and run",
		`{"to":"copy","model":"small"}`:  "leave out model, settings and run",
	} {
		if got, code := body(t, c, "POST", base+"api/sessions/first/fork", send); code != http.StatusBadRequest || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s", send, code, got)
		}
	}
	if got, code := body(t, c, "GET", base+"api/sessions/copy", ""); code != http.StatusNotFound {
		t.Errorf("there is a copy: %d %s", code, got)
	}
}

// TestVariantOf only reads a State.
func TestVariantOf(t *testing.T) {
	st := &agent.State{ID: "s"}
	if with, err := inspect.VariantOf(st); err != nil || with != (inspect.Variant{}) || len(st.Tools.Keys()) > 0 {
		t.Errorf("%+v, %v; the State has %q", with, err, st.Tools.Keys())
	}
}

// reply lets an agent answer a message in the session s.
func reply(t *testing.T, store session.Store, text string) {
	t.Helper()
	s, err := session.Open(t.Context(), store, "s")
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Config{Model: scripted.New(scripted.Say("Hello.")), Toolkit: toolkit.Of(), Save: s.Save})
	if err == nil {
		_, err = a.Reply(t.Context(), s.State, agent.Say(text))
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestSameID shows the new session with the id of one that was deleted.
func TestSameID(t *testing.T) {
	s := session.Memory()
	c, base := client(t, s, inspect.Options{})
	for _, text := range []string{"One.", "Two."} {
		if err := s.Delete(t.Context(), "s"); err != nil && text != "One." {
			t.Fatal(err)
		}
		reply(t, s, text)
		if list, _ := body(t, c, "GET", base+"api/sessions", ""); !strings.Contains(list, text) {
			t.Errorf("%q is not in %s", text, list)
		}
	}
}

// A prunedStore has dropped the events up to a number, as a Postgres store does.
type prunedStore struct {
	session.Store
	session.Reader
	session.Watcher
	dropped int64
}

func (s *prunedStore) Watch(ctx context.Context, id string, after int64) iter.Seq2[session.Event, error] {
	if after < s.dropped {
		return func(yield func(session.Event, error) bool) { yield(session.Event{}, session.ErrGone) }
	}
	return s.Watcher.Watch(ctx, id, after)
}

// TestPruned shows the messages of a session whose first events were dropped, and the events after them.
func TestPruned(t *testing.T) {
	inner := session.Memory()
	s := &prunedStore{inner, inner.(session.Reader), inner.(session.Watcher), 0}
	reply(t, inner, "One.")
	reply(t, inner, "Two.")
	s.dropped = 3
	c, base := client(t, s, inspect.Options{})
	check := func(path, want string) {
		t.Helper()
		if got, code := body(t, c, "GET", base+"api/sessions/s/"+path, ""); code != http.StatusOK || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s, want %s", path, code, got, want)
		}
	}
	check("compare?with=s", `"rows":4`)
	check("rows?n=9", `"total":4`)
	check("details?row=2", "Two.")
	check("find?q=two&from=0", `{"row":2}`)
	check("export?as=jsonl", "One.")
	reply(t, inner, "Three.")
	check("find?q=three&from=0", `{"row":5}`) // of the second message; a run begins before it
	check("details?row=5", "Three.")
	check("groups", `"total":1`)
}

// TestEditedRule refuses rules about other tools, which the agent would refuse after Keep has stored them.
func TestEditedRule(t *testing.T) {
	s := session.Memory()
	look, err := tool.New("look", "Looks.", func(context.Context, struct{}) (string, error) { return "", nil })
	if err != nil {
		t.Fatal(err)
	}
	open, err := session.Open(t.Context(), s, "s")
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Config{Model: scripted.New(scripted.Call("look", nil)), Toolkit: toolkit.Of(look), Save: open.Save})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = a.Reply(t.Context(), open.State, agent.Say("Look.")); err == nil {
		t.Fatal("the call does not wait")
	}
	q := open.State.Pending()[0].(*event.Approval)
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	var kept []permission.Rule
	c, base := client(t, s, inspect.Options{Keep: func(_ context.Context, _ string, rules []permission.Rule) error {
		kept = append(kept, rules...)
		return nil
	}})
	for _, rule := range []string{"look*", "*", "book", "look"} {
		send := fmt.Sprintf(`{"call":%q,"question":%d,"allow":true,"keep":true,"rules":[%q]}`, q.Call, q.Question, rule)
		want := http.StatusBadRequest
		if rule == "look" {
			want = http.StatusOK
		}
		if got, code := body(t, c, "POST", base+"api/sessions/s/answer", send); code != want {
			t.Errorf("%s: %d %s", rule, code, got)
		}
	}
	if len(kept) != 1 || kept[0].Tool != "look" {
		t.Errorf("these rules are kept: %v", kept)
	}
}

// TestCompare shows a copy next to the original, from before they differ.
func TestCompare(t *testing.T) {
	s := session.Memory()
	a, err := agent.New(agent.Config{Model: scripted.New(scripted.Repeat(scripted.Say("Hello."))), Toolkit: toolkit.Of(), Save: session.Save})
	if err != nil {
		t.Fatal(err)
	}
	for id, said := range map[string]string{"a": "One.", "b": "Two."} {
		open, err := session.Open(t.Context(), s, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"Hi.", said} {
			if _, err := a.Reply(open.Context(t.Context()), open.State, agent.Say(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := open.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c, base := client(t, s, inspect.Options{})
	var got struct {
		Sums  []struct{ Rows, Models int }
		Pairs []struct {
			A, B struct{ Text string }
			Same bool
		}
	}
	compare := func(other string) (differ string) {
		get(t, c, base+"api/sessions/a/compare?with="+other, &got)
		for _, p := range got.Pairs {
			if !p.Same {
				differ += p.A.Text + p.B.Text
			}
		}
		return differ
	}
	if text, code := body(t, c, "POST", base+"api/sessions/a/fork", `{"to":"copy"}`); code != http.StatusOK {
		t.Fatal(text)
	}
	if differ := compare("copy"); differ != "" { // its rows are made of messages
		t.Errorf("the copy differs in %q", differ)
	}
	got.Pairs = nil
	differ := compare("b")
	if len(got.Sums) != 2 || got.Sums[0].Models != 2 || got.Sums[1].Rows != 8 || len(got.Pairs) != 8 || differ != "One.Two." {
		t.Errorf("%+v", got)
	}
	for _, path := range []string{"a/compare?with=none", "none/compare?with=a"} {
		if _, code := body(t, c, "GET", base+"api/sessions/"+path, ""); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}
