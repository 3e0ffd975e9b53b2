package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
)

const (
	ada   = "0123456789abcdef"
	bob   = "abcdef0123456789"
	guest = "a-guest-of-the-house"
)

func TestUsers(t *testing.T) {
	b := &bank{accounts: map[string]int{"ada": 1000, "bob": 5}}
	// The model calls the tool that the message names, and then returns the tool's result.
	m := scripted.New(scripted.Repeat(scripted.Func(func(req *model.Request) (scripted.Turn, error) {
		last := req.Messages[len(req.Messages)-1]
		if last.Role == message.RoleUser {
			name, args, _ := strings.Cut(last.Text(), " ")
			return scripted.Call(name, json.RawMessage(args)), nil
		}
		return scripted.Say("done"), nil
	})))
	s, err := newServer(m, b, t.TempDir(), map[string]user{ada: {"ada", "owner"}, bob: {"bob", "owner"}, guest: {"guest", "guest"}})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /chat/{id}", s)
	h := httptest.NewServer(mux)
	defer h.Close()

	say := func(token, body string, status int) response {
		t.Helper()
		return post(t, h.URL, token, body, status)
	}
	say("", `{"text": "balance {}"}`, http.StatusUnauthorized)
	say("an unknown token", `{"text": "balance {}"}`, http.StatusUnauthorized)
	say(bob, `{"text": ""}`, http.StatusBadRequest)
	say(ada, `{"text": "balance {}"}`, http.StatusOK)
	if got := say(guest, `{"text": "pay {\"to\": \"guest\", \"euros\": 9}"}`, http.StatusOK); got.Text != "done" || b.accounts["guest"] != 0 {
		t.Errorf("a guest pays: %+v, %v", got, b.accounts)
	}
	asked := say(ada, `{"text": "pay {\"to\": \"bob\", \"euros\": 100}"}`, http.StatusOK)
	if asked.Text != "" || len(asked.Pending) != 1 || b.accounts["bob"] != 5 {
		t.Fatalf("an owner pays without a question: %+v, %v", asked, b.accounts)
	}
	question := asked.Pending[0].(*event.Approval).Question
	// The conversation of another user with the same id is a different one.
	say(bob, `{"call": "call_2", "allow": true}`, http.StatusNotFound)
	say(ada, `{"call": "call_2", "question": 9999, "allow": true}`, http.StatusNotFound)
	if got := say(ada, fmt.Sprintf(`{"call": "call_2", "question": %d, "allow": true}`, question), http.StatusOK); got.Text != "done" || b.accounts["bob"] != 105 || b.accounts["ada"] != 900 {
		t.Errorf("the payment was allowed: %+v, %v", got, b.accounts)
	}
}

func TestBusy(t *testing.T) {
	s := &server{busy: map[string]int{}}
	for i, row := range []struct {
		name string
		want bool
	}{{"ada", true}, {"ada", true}, {"ada", false}, {"bob", true}} {
		if got := s.enter(row.name); got != row.want {
			t.Errorf("request %d, of %s: %v", i+1, row.name, got)
		}
	}
	s.leave("ada")
	if !s.enter("ada") {
		t.Error("a request that has ended still counts")
	}
}

func TestTokens(t *testing.T) {
	if _, err := newServer(scripted.New(), &bank{}, t.TempDir(), map[string]user{"": {"ada", "owner"}}); err == nil || !strings.Contains(err.Error(), "token of ada") {
		t.Errorf("an empty token: %v", err)
	}
}

func post(t *testing.T, url, token, body string, status int) response {
	t.Helper()
	req, err := http.NewRequest("POST", url+"/chat/one", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		t.Fatalf("status %d, want %d: %s (%v)", res.StatusCode, status, data, err)
	}
	var got struct {
		Text    string
		Pending []json.RawMessage
	}
	if status == http.StatusOK {
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
	}
	r := response{Text: got.Text}
	for _, data := range got.Pending {
		ev, err := event.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		r.Pending = append(r.Pending, ev)
	}
	return r
}
