package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type verdict struct {
	City  string `json:"city"`
	Score int    `json:"score" jsonschema:"minimum=1,maximum=5"`
}

func TestReplyAs(t *testing.T) {
	want := verdict{"Graz", 4}
	good := calls(`f final_answer {"city":"Graz","score":4}`)
	for _, row := range []struct {
		name  string
		turns []turn
		ran   string
		err   error
	}{
		{"at once", []turn{good}, "", nil},
		{"after tools", []turn{calls(`c1 note {"path":"a"}`), good}, "note:a", nil},
		{"with a tool call", []turn{calls(`c1 note {"path":"a"}`, `f final_answer {"city":"Graz","score":4}`)}, "note:a", nil},
		{"after text", []turn{says("It is Graz."), good}, "", nil},
		{"forced", []turn{says("It is Graz."), says("Graz!"), good}, "", nil},
		{"invalid first", []turn{calls(`f final_answer {"city":"Graz","score":9}`), good}, "", nil},
		{"at the limit", []turn{calls(`c1 note {"path":"a"}`), calls(`c2 note {"path":"b"}`), calls(`c3 note {"path":"c"}`), calls(`c4 note {"path":"d"}`), good}, "note:a note:b note:c note:d", nil},
		{"never at the limit", []turn{calls(`c1 note {"path":"a"}`), calls(`c2 note {"path":"b"}`), calls(`c3 note {"path":"c"}`), calls(`c4 note {"path":"d"}`), says("?")}, "note:a note:b note:c note:d", ErrLimit},
	} {
		t.Run(row.name, func(t *testing.T) {
			var j journal
			a, w := newAgent(t, Config{Policy: permission.Policy{Rules: []permission.Rule{{Tool: "note", Behavior: permission.Allow}}},
				Limits: Limits{Steps: 4}, Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}, row.turns...)
			var st State
			got, err := ReplyAs[verdict](t.Context(), a, &st, Say("Where to?"))
			if !errors.Is(err, row.err) || row.err == nil && (err != nil || got != want) {
				t.Fatalf("%+v, %v", got, err)
			}
			checkState(t, &st)
			if !st.Done() || !reload(t, &st).Done() {
				t.Error("the conversation has its answer, but Done is false")
			}
			equal(t, "ran", j.String(), row.ran)
			if row.name == "forced" {
				equal(t, "choice", w.reqs[2].Choice, model.ToolChoice{Mode: model.ChoiceNamed, Name: finalName})
			}
			w.turns = []turn{says("plain again")}
			if reply, err := a.Reply(t.Context(), &st, Say("thanks")); err != nil || reply.Text() != "plain again" || len(w.reqs[len(w.reqs)-1].Tools) != 1 {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

func TestReplyAsOtherTypes(t *testing.T) {
	a, _ := newAgent(t, Config{}, calls(`f final_answer {"value":["a","b"]}`))
	list, err := ReplyAs[[]string](t.Context(), a, new(State), Say("List."))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "list", list, []string{"a", "b"})
	a, _ = newAgent(t, Config{}, calls(`f final_answer {"value":"2026-01-02T00:00:00Z"}`))
	day, err := ReplyAs[time.Time](t.Context(), a, new(State), Say("When?")) // a struct that does not encode to an object
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "time", day, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	if _, err := ReplyAs[chan int](t.Context(), a, new(State), Say("?")); err == nil {
		t.Error("a channel was accepted as the type of an answer")
	}
}

func TestReplyAsWaits(t *testing.T) {
	var j journal
	a, w := newAgent(t, Config{Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}, calls(`c1 note {"path":"a"}`))
	var st State
	if _, err := ReplyAs[verdict](t.Context(), a, &st, Say("Where to?")); !errors.Is(err, ErrWaiting) {
		t.Fatal(err)
	}
	w.turns = []turn{calls(`f final_answer {"city":"Graz","score":4}`)}
	got, err := ReplyAs[verdict](t.Context(), a, reload(t, &st), event.Confirm{Call: "c1", Allow: true})
	if err != nil || got.City != "Graz" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestReplyAsAtTheCallLimit gives the answer when no more calls are allowed.
func TestReplyAsAtTheCallLimit(t *testing.T) {
	good := calls(`f final_answer {"city":"Graz","score":4}`)
	for name, turns := range map[string][]turn{
		"in the last batch":                {calls(`c1 note {"path":"a"}`, `f final_answer {"city":"Graz","score":4}`)},
		"when the tool choice requires it": {calls(`c1 note {"path":"a"}`), good},
	} {
		var j journal
		a, _ := newAgent(t, Config{Policy: bypass, Limits: Limits{ToolCalls: 1}, Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}, turns...)
		if got, err := ReplyAs[verdict](t.Context(), a, new(State), Say("Where to?")); err != nil || got.City != "Graz" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestReplyAsTakenName has a tool with the name that ReplyAs needs.
func TestReplyAsTakenName(t *testing.T) {
	var j journal
	a, w := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(noting(&j, finalName, tool.Options{}))}, says("Graz"))
	if _, err := ReplyAs[verdict](t.Context(), a, new(State), Say("Where to?")); err == nil || !strings.Contains(err.Error(), "rename") {
		t.Error(err)
	}
	equal(t, "requests", len(w.reqs), 0)
	if _, err := a.Reply(t.Context(), new(State), Say("Where to?")); err != nil {
		t.Error(err)
	}
}

// TestReplyAsTakesOver continues from a save before the final
// answer was processed.
func TestReplyAsTakesOver(t *testing.T) {
	var saved *State
	cfg := Config{}
	cfg.Save = func(_ context.Context, st *State) error {
		if saved == nil && len(st.loop.Open) == 1 {
			saved = reload(t, st)
		}
		return nil
	}
	a, _ := newAgent(t, cfg, calls(`f final_answer {"city":"Graz","score":4}`))
	for range 2 {
		st := new(State)
		in := []Input{Say("Where to?")}
		if saved != nil {
			st, in = saved, nil
		}
		if got, err := ReplyAs[verdict](t.Context(), a, st, in...); err != nil || got.City != "Graz" {
			t.Errorf("%+v, %v", got, err)
		}
	}
}
