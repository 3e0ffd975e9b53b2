package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
)

// TestChat asks for a transfer, answers in another process, and checks the stored conversation.
func TestChat(t *testing.T) {
	dir := t.TempDir()
	first := serve(t, dir, scripted.Call("send_money", transfer{"the landlord", 700}))
	events := first.post(t, `{"text": "Pay the rent."}`, http.StatusOK)
	if got := strings.Join(types(events), " "); !strings.HasSuffix(got, "approval end") || !strings.Contains(events, `"reason":"waiting"`) {
		t.Fatalf("the first stream is %s", got)
	}

	second := serve(t, dir, scripted.Say("The rent is paid."))
	if got := second.get(t, "/chat/rent"); !strings.Contains(got, `"name":"send_money"`) || !strings.Contains(got, "Pay the rent.") {
		t.Errorf("the conversation is %s", got)
	}
	second.post(t, `{"call": "call_9", "allow": true}`, http.StatusNotFound)
	if got := second.post(t, `{"text": "Hello?"}`, http.StatusConflict); got != "answer the question first\n" {
		t.Errorf("a message before the answer is rejected with %q", got)
	}
	second.post(t, `{"call": "call_1", "allow": true}`, http.StatusNotFound) // does not answer an open question
	second.post(t, `{"call": "call_1", "question": 9999, "allow": true}`, http.StatusNotFound)
	events = second.post(t, answer(t, events, `"allow": true`), http.StatusOK)
	if !strings.Contains(events, "sent 700 € to the landlord") || !strings.Contains(events, `"text":"The rent is paid."`) {
		t.Errorf("the second stream is %s", events)
	}
	if got := second.get(t, "/chat/rent"); !strings.Contains(got, "The rent is paid.") || !strings.Contains(got, `"pending":null`) && !strings.Contains(got, `"pending":[]`) {
		t.Errorf("the conversation is %s", got)
	}
}

// TestReload reads a conversation while the model runs.
func TestReload(t *testing.T) {
	var s client
	var shown string
	s = serve(t, t.TempDir(), scripted.Func(func(*model.Request) (scripted.Turn, error) {
		shown = s.get(t, "/chat/rent")
		return scripted.Say("Good morning."), nil
	}))
	if got := s.get(t, "/chat/rent"); !strings.Contains(got, `"said":[]`) {
		t.Errorf("a new conversation is %s", got)
	}
	s.post(t, `{"text": ""}`, http.StatusBadRequest)
	s.post(t, `{"text": "Hello"}`, http.StatusOK)
	if !strings.Contains(shown, `"status":"working"`) || !strings.Contains(shown, `"text":"Hello"`) {
		t.Errorf("during the run the conversation is %s", shown)
	}
	if got := s.get(t, "/chat/rent"); !strings.Contains(got, `"status":"ended"`) || !strings.Contains(got, "Good morning.") {
		t.Errorf("after the run the conversation is %s", got)
	}
}

// TestFollow reads the events of a conversation that follow one of them, as a page does after it has lost its
// connection.
func TestFollow(t *testing.T) {
	s := serve(t, t.TempDir(), scripted.Say("Good morning."))
	s.post(t, `{"text": "Hello"}`, http.StatusOK)
	req, err := http.NewRequest("GET", s.url+"/chat/rent/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", "1")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var got string
	for in := bufio.NewScanner(res.Body); in.Scan(); {
		if got += in.Text() + "\n"; strings.Contains(in.Text(), `"type":"end"`) {
			break
		}
	}
	if !strings.Contains(got, "\nevent: message\n") || !strings.Contains(got, "Good morning.") || strings.Contains(got, "id: 1\n") {
		t.Errorf("the events are %s", got)
	}
}

func TestRefusal(t *testing.T) {
	s := serve(t, t.TempDir(), scripted.Call("send_money", transfer{"a stranger", 1}), scripted.Say("I did not.").Expect(scripted.LastContains("not him")))
	asked := s.post(t, `{"text": "Pay."}`, http.StatusOK)
	if events := s.post(t, answer(t, asked, `"reason": "not him"`), http.StatusOK); strings.Contains(events, "sent 1") || !strings.Contains(events, "I did not.") {
		t.Errorf("the stream is %s", events)
	}
}

func TestOtherSites(t *testing.T) {
	s := serve(t, t.TempDir())
	req, err := http.NewRequest("POST", s.url+"/chat/rent", strings.NewReader(`{"text": "Pay."}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("a request of another site is answered %s", res.Status)
	}
}

// TestPage checks that the page reads events in the form in which they are sent, and that there are events of
// the types that it shows.
func TestPage(t *testing.T) {
	s := serve(t, t.TempDir(), scripted.Call("send_money", transfer{"a", 1}), scripted.Say("Done."))
	page := s.get(t, "/")
	if !strings.Contains(page, "call: q.call, question: q.question") {
		t.Error("the page does not say which question it answers")
	}
	asked := s.post(t, `{"text": "Pay."}`, http.StatusOK)
	all := types(asked + s.post(t, answer(t, asked, `"allow": true`), http.StatusOK))
	shown := regexp.MustCompile(`(?m)^\t(\w+): (?:e =>|ask)`).FindAllStringSubmatch(page, -1)
	if len(shown) != 5 {
		t.Fatalf("the page shows %q", shown)
	}
	for _, m := range shown {
		if !strings.Contains(" "+strings.Join(all, " ")+" ", " "+m[1]+" ") {
			t.Errorf("no event has the type %s, which the page shows; there are %q", m[1], all)
		}
	}
}

// answer returns the answer to the question in the events.
func answer(t *testing.T, events, answer string) string {
	t.Helper()
	q := regexp.MustCompile(`"question":\d+`).FindString(events)
	if q == "" {
		t.Fatalf("no question in %s", events)
	}
	return `{"call": "call_1", ` + q + `, ` + answer + `}`
}

type client struct{ url string }

func serve(t *testing.T, dir string, turns ...scripted.Turn) client {
	t.Helper()
	store, err := session.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServer(scripted.New(turns...), store)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.handler())
	t.Cleanup(h.Close)
	return client{h.URL}
}

func (c client) post(t *testing.T, body string, status int) string {
	t.Helper()
	res, err := http.Post(c.url+"/chat/rent", "application/json", strings.NewReader(body))
	return text(t, res, err, status)
}

func (c client) get(t *testing.T, path string) string {
	t.Helper()
	res, err := http.Get(c.url + path)
	return text(t, res, err, http.StatusOK)
}

func text(t *testing.T, res *http.Response, err error, status int) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		t.Fatalf("status %d, want %d: %s (%v)", res.StatusCode, status, data, err)
	}
	return string(data)
}

// types returns the types of events, and checks their numbers.
func types(stream string) []string {
	var list []string
	for i, e := range regexp.MustCompile(`(?m)^id: (\d+)\nevent: (\w+)\ndata: \{.*\}\n\n`).FindAllStringSubmatch(stream, -1) {
		if e[1] != fmt.Sprint(i+1) {
			return []string{"the number of event", fmt.Sprint(i), "is", e[1]}
		}
		list = append(list, e[2])
	}
	return list
}
