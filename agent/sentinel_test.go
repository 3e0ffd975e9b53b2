package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestErrorsOfAnswers: an error names the waiting calls and why they wait, and hosts can distinguish the
// mistakes in an answer.
func TestErrorsOfAnswers(t *testing.T) {
	printer := tool.Must(tool.External[struct {
		Path string `json:"path"`
	}]("print", "Prints."))
	cfg := Config{Toolkit: toolkit.Of(plainTool("pay"), plainTool("look"), printer), Policy: permission.Policy{Rules: []permission.Rule{
		{Tool: "print", Behavior: permission.Allow}, {Tool: "look", Behavior: permission.Allow}, {Tool: "pay", Behavior: permission.Ask}}}}
	a, _ := newAgent(t, cfg, calls(`c1 look {"path":"a"}`, `c2 pay {"path":"b"}`, `c3 print {"path":"c"}`, `c4 pay {"path":"d"}`, `c5 pay {"path":"e"}`, `c6 pay {"path":"f"}`), says("done"))
	var st State
	if st.Done() {
		t.Error("an empty conversation is done")
	}
	_, err := a.Reply(t.Context(), &st, Say("go"))
	const want = "waiting for approval of pay (c2): asked by rule pay, for approval of pay (c4): asked by rule pay, for approval of pay (c5): asked by rule pay, and for 1 more; answer with Confirm"
	if !errors.Is(err, ErrWaiting) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	for _, row := range []struct {
		in   Input
		want error
	}{
		{Say("more"), ErrWaiting}, {event.Confirm{Call: "c9", Allow: true}, ErrNoCall}, {event.Result{Call: ""}, ErrNoCall},
		{event.Result{Call: "c3"}, ErrNotWaiting}, {event.Result{Call: "c2"}, ErrNotWaiting}, {event.Confirm{Call: "c1", Allow: true}, ErrNotWaiting},
	} {
		if _, err := a.Reply(t.Context(), &st, row.in); !errors.Is(err, row.want) {
			t.Errorf("%+v: %v, want %v", row.in, err, row.want)
		}
	}
	if st.Done() {
		t.Error("calls wait, but Done is true")
	}
	_, err = a.Reply(t.Context(), &st, event.Confirm{Call: "c2"}, event.Confirm{Call: "c4"}, event.Confirm{Call: "c5"}, event.Confirm{Call: "c6"})
	if !errors.Is(err, ErrWaiting) || !strings.HasPrefix(err.Error(), "waiting for the result of print (c3); answer with") {
		t.Errorf("the host has not delivered: %v", err)
	}
	if _, err := a.Reply(t.Context(), &st, event.Result{Call: "c3"}); err != nil {
		t.Fatal(err)
	}
	if !st.Done() {
		t.Error("the conversation has its answer, but Done is false")
	}
	if back := reload(t, &st); !back.Done() {
		t.Error("once loaded it is not done")
	}
}
