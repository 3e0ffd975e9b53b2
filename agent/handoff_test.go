package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A desk has two agents, front and clerk, that hand the conversation over to each other.
type desk struct {
	j     journal
	asked []string // the agent and its tools, for each request
	front *Agent
}

// newDesk returns a desk whose models answer with the results of answer. The clerk needs approval to pay.
func newDesk(t *testing.T, cfg Config, answer func(who string, req *model.Request) turn) *desk {
	t.Helper()
	d := new(desk)
	plays := func(a *Agent) *Agent {
		a.model = turnFunc(func(req *model.Request) turn {
			who, _, _ := strings.Cut(req.System, "\n")
			names := make([]string, len(req.Tools))
			for i, info := range req.Tools {
				names[i] = info.Name
			}
			d.asked = append(d.asked, who+": "+strings.Join(names, " "))
			return answer(who, req)
		})
		return a
	}
	must := func(tl tool.Tool, err error) tool.Tool {
		if err != nil {
			t.Fatal(err)
		}
		return tl
	}
	pay := noting(&d.j, "pay", tool.Options{})
	clerk, _ := newAgent(t, Config{Instructions: "clerk", Policy: allowing("back"),
		Toolkit: toolkit.Of(pay, must(Handoff("back", "Hands back.", nil)))})
	plays(clerk)
	cfg.Instructions = "front"
	if len(cfg.Policy.Rules) == 0 {
		cfg.Policy = allowing("clerk", "note", "back")
	}
	cfg.Toolkit = toolkit.Of(noting(&d.j, "note", tool.Options{}), must(Handoff("clerk", "Hands over.", clerk)), must(Handoff("back", "Hands back.", nil)))
	d.front, _ = newAgent(t, cfg)
	plays(d.front)
	return d
}

// service answers for a whole conversation: front takes a note and hands over, the clerk pays and hands back, front
// finishes.
func service(who string, req *model.Request) turn {
	last := req.Messages[len(req.Messages)-1]
	did := ""
	if rs := last.ToolResults(); len(rs) > 0 {
		did = rs[len(rs)-1].Name
	}
	switch who + " " + did {
	case "front ":
		return calls(`n1 note {"path":"a"}`, `h1 clerk {}`)
	case "clerk clerk":
		return calls(`p1 pay {"path":"b"}`)
	case "clerk pay":
		return calls(`b1 back {}`)
	}
	return says("done")
}

func TestHandoff(t *testing.T) {
	d := newDesk(t, Config{}, service)
	st := new(State)
	evs, err := play(t, d.front, st, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "end", endOf(t, evs).Reason, event.EndWaiting)
	equal(t, "handed to", st.HandedTo(), []string{"clerk"})
	st = reload(t, st)
	evs, err = play(t, d.front, st, st.Pending()[0].(*event.Approval).Allow())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "answer", endOf(t, evs).Text, "done")
	equal(t, "hand-offs", len(st.HandedTo()), 0)
	equal(t, "ran", d.j.String(), "note:a pay:b")
	equal(t, "asked", d.asked, []string{"front: note clerk back", "clerk: pay back", "clerk: pay back", "front: note clerk back"})
}

// TestHandoffStays: the next input goes to the agent that has the conversation.
func TestHandoffStays(t *testing.T) {
	d := newDesk(t, Config{}, func(who string, req *model.Request) turn {
		if who == "front" {
			return calls(`h1 clerk {}`)
		}
		return says("I am " + who)
	})
	st := new(State)
	for range 2 {
		r, err := d.front.Reply(t.Context(), st, Say("hello"))
		if err != nil || r.Text() != "I am clerk" {
			t.Fatal(r, err)
		}
		st = reload(t, st)
	}
	equal(t, "asked", d.asked, []string{"front: note clerk back", "clerk: pay back", "clerk: pay back"})

	v, err := ReplyAs[verdict](t.Context(), newDesk(t, Config{}, func(who string, _ *model.Request) turn {
		if who == "front" {
			return calls(`h1 clerk {}`)
		}
		return calls("f1 " + finalName + ` {"city":"Graz","score":4}`)
	}).front, new(State), Say("go"))
	if err != nil || v.City != "Graz" {
		t.Errorf("a typed answer: %+v, %v", v, err)
	}
}

// TestHandoffIsKilled stops the program after each save, and has another process continue: the agent
// that has the conversation according to the save is called next.
func TestHandoffIsKilled(t *testing.T) {
	for _, key := range [][]byte{nil, []byte(strings.Repeat("k", 32))} {
		approve := func(_ context.Context, q event.Approval) (event.Confirm, error) { return q.Allow(), nil }
		var saved [][]byte
		cfg := Config{Approve: approve, Key: key}
		cfg.Save = func(_ context.Context, st *State) error {
			data, err := json.Marshal(st)
			saved = append(saved, data)
			return err
		}
		whole := newDesk(t, cfg, service)
		if _, err := play(t, whole.front, new(State), Say("go")); err != nil {
			t.Fatal(err)
		}
		cfg.Save = nil
		asked := map[int]bool{}
		for i, data := range saved {
			st := new(State)
			if err := json.Unmarshal(data, st); err != nil {
				t.Fatal(err)
			}
			d := newDesk(t, cfg, service)
			evs, err := play(t, d.front, st)
			if err != nil || endOf(t, evs).Reason != event.EndCompleted || len(st.HandedTo()) > 0 {
				t.Fatalf("save %d: %v, handed to %q", i, err, st.HandedTo())
			}
			n := len(d.asked)
			asked[n] = true
			if n > len(whole.asked) || !slices.Equal(d.asked, whole.asked[len(whole.asked)-n:]) {
				t.Errorf("save %d: asked %q", i, d.asked)
			}
		}
		if len(asked) != len(whole.asked)+1 {
			t.Errorf("%d saves, continued with %v requests", len(saved), asked)
		}
	}
}

// TestHandoffIsDenied has hand-offs that are refused or fail.
func TestHandoffIsDenied(t *testing.T) {
	for _, row := range []struct {
		why    string
		policy permission.Policy
		first  turn
		result string
		to     string
	}{
		{"denied", permission.Policy{Rules: []permission.Rule{{Tool: "clerk", Behavior: permission.Deny}}}, calls(`h1 clerk {}`), "h1 denied: This call of clerk was denied", ""},
		{"back without a hand-off", permission.Policy{}, calls(`h1 back {}`), "h1 error: not done: the conversation was not handed over", ""},
		{"two at a time", permission.Policy{}, calls(`h1 clerk {}`, `h2 clerk {}`), "h2 error: not done: this answer already hands the conversation over", "clerk"},
	} {
		first := true
		d := newDesk(t, Config{Policy: row.policy}, func(string, *model.Request) turn {
			if first {
				first = false
				return row.first
			}
			return says("done")
		})
		st := new(State)
		if _, err := play(t, d.front, st, Say("go")); err != nil {
			t.Fatal(err)
		}
		got := results(st)
		if !strings.HasPrefix(got[len(got)-1], row.result) || strings.Join(st.HandedTo(), " ") != row.to {
			t.Errorf("%s: %q, handed to %q", row.why, got, st.HandedTo())
		}
	}
	asks := newDesk(t, Config{Policy: permission.Policy{Rules: []permission.Rule{{Tool: "x", Behavior: permission.Allow}}}}, service)
	if _, err := asks.front.Reply(t.Context(), new(State), Say("go")); !errors.Is(err, ErrWaiting) {
		t.Errorf("without a rule: %v", err)
	}
}

// TestHandoffIsGone continues a conversation with an agent without the hand-off.
func TestHandoffIsGone(t *testing.T) {
	d := newDesk(t, Config{}, service)
	st := new(State)
	if _, err := play(t, d.front, st, Say("go")); err != nil {
		t.Fatal(err)
	}
	a, _ := newAgent(t, Config{Toolkit: toolkit.Of()})
	if _, err := a.Reply(t.Context(), st, Say("and?")); err == nil || !strings.Contains(err.Error(), "clerk is not a hand-off") {
		t.Error(err)
	}
	if _, err := Handoff("no good", "x", nil); err == nil || !strings.HasPrefix(err.Error(), "agent.Handoff: ") {
		t.Error(err)
	}
}

// TestHandoffInSubAgent has a sub-agent hand over within its own conversation: the outer policy judges
// the calls of both agents, and an answer finds its call.
func TestHandoffInSubAgent(t *testing.T) {
	for _, denied := range []bool{false, true} {
		d := newDesk(t, Config{}, service)
		helper, err := AsTool[string, string](d.front, "helper", "Helps.", nil)
		if err != nil {
			t.Fatal(err)
		}
		policy := bypass
		if denied {
			policy.Rules = []permission.Rule{{Tool: "pay", Behavior: permission.Deny}}
		}
		a, _ := newAgent(t, Config{Policy: policy, Toolkit: toolkit.Of(helper)}, calls(`c1 helper {"task":"x"}`), says("done"))
		st := new(State)
		if _, err := play(t, a, st, Say("go")); err != nil {
			t.Fatal(err)
		}
		if !denied {
			st = reload(t, st)
			if _, err := play(t, a, st, st.Pending()[0].(*event.Approval).Allow()); err != nil {
				t.Fatal(err)
			}
		}
		equal(t, "result", results(st), []string{"c1 success: done"})
		equal(t, "handed to", st.HandedTo(), []string(nil))
		want := "note:a pay:b"
		if denied {
			want = "note:a"
		}
		equal(t, "ran", d.j.String(), want)
	}
}

// TestHandoffClosesGroups: a hand-off closes the open groups, and keeps phase and ceiling of the
// conversation.
func TestHandoffClosesGroups(t *testing.T) {
	var s toolkit.Scope
	if err := json.Unmarshal([]byte(`{"active":["a"],"phase":"p","ceiling":["a"]}`), &s); err != nil {
		t.Fatal(err)
	}
	if err := closeGroups(&s); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(&s)
	equal(t, "scope", string(data), `{"phase":"p","ceiling":["a"]}`)
	if _, opened := s.Active(); opened || err != nil {
		t.Error("groups are open", err)
	}
}
