package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// family returns an agent with a sub-agent, and the model of the outer one.
func family(t *testing.T, j *journal, outer, inner Config, subTurns func(*model.Request) turn, turns ...turn) (*Agent, *turnModel) {
	t.Helper()
	inner.Toolkit = toolkit.Of(noting(j, "note", tool.Options{}))
	sub, _ := newAgent(t, inner)
	sub.model = turnFunc(subTurns)
	helper, err := AsTool[string, string](sub, "helper", "Helps.", nil)
	if err != nil {
		t.Fatal(err)
	}
	outer.Toolkit = toolkit.Of(helper)
	return newAgent(t, outer, turns...)
}

// notes is a sub-agent that notes its task and returns the result.
func notes(req *model.Request) turn {
	last := req.Messages[len(req.Messages)-1]
	if last.Role == message.RoleUser {
		return calls(fmt.Sprintf(`s1 note {"path":%q}`, last.Text()))
	}
	return says("sub: " + last.ToolResults()[0].Text())
}

func TestSubAgent(t *testing.T) {
	var j journal
	a, _ := family(t, &j, Config{Policy: bypass}, Config{Policy: bypass}, notes, calls(`h1 helper {"task":"x"}`, `h2 helper {"task":"y"}`), says("done"))
	var st State
	evs, err := play(t, a, &st, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "results", results(&st), []string{"h1 success: sub: noted x", "h2 success: sub: noted y"})
	equal(t, "usage", st.Usage, message.Usage{Input: 60, Output: 12})
	seen := map[string]int{}
	for _, s := range of[*event.Sub](evs) {
		seen[s.Call+" "+event.TypeOf(s.Event)]++
	}
	if seen["h1 tool_result"] != 1 || seen["h2 end"] != 1 {
		t.Errorf("events of the sub-agents: %v", seen)
	}
}

func TestSubAgentAsks(t *testing.T) {
	var j journal
	ask := permission.Policy{Rules: []permission.Rule{{Tool: "helper", Behavior: permission.Allow}}}
	for name, policies := range map[string][2]permission.Policy{
		"its own policy asks":     {bypass, {}},
		"the caller's does":       {ask, bypass},
		"both ask":                {ask, {}},
		"the caller's denies":     {{Mode: permission.ModeBypass, Rules: []permission.Rule{{Tool: "note", Behavior: permission.Deny}}}, bypass},
		"the caller's mode does":  {{Mode: permission.ModeExplore, Rules: ask.Rules}, bypass},
		"the answer is no":        {ask, {}},
		"answered in the process": {ask, {}},
	} {
		t.Run(name, func(t *testing.T) {
			j.ran = nil
			outer := Config{Policy: policies[0]}
			if name == "answered in the process" {
				outer.Approve = func(context.Context, event.Approval) (event.Confirm, error) { return event.Confirm{Allow: true}, nil }
			}
			a, w := family(t, &j, outer, Config{Policy: policies[1]}, notes, calls(`h1 helper {"task":"x"}`, `h2 helper {"task":"y"}`))
			w.turns = append(w.turns, says("done"))
			st := new(State)
			evs, err := play(t, a, st, Say("go"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(name, "denies") || strings.Contains(name, "mode") {
				equal(t, "ran", j.String(), "")
				equal(t, "end", endOf(t, evs).Reason, event.EndCompleted)
				return
			}
			for endOf(t, evs).Reason == event.EndWaiting {
				var ids []string
				var answers []Input
				for _, p := range st.Pending() {
					q := p.(*event.Approval)
					ids = append(ids, q.Call+" "+q.Name)
					answers = append(answers, event.Confirm{Call: q.Call, Allow: name != "the answer is no"})
				}
				equal(t, "questions", ids, []string{"h1/s1 note", "h2/s1 note"})
				if _, err := play(t, a, st, event.Confirm{Call: "h1/s9"}); err == nil {
					t.Error("an answer for a call that is not there")
				}
				st = reload(t, st)
				if evs, err = play(t, a, st, answers...); err != nil {
					t.Fatal(err)
				}
			}
			equal(t, "end", endOf(t, evs).Reason, event.EndCompleted)
			if name == "the answer is no" {
				equal(t, "ran", j.String(), "")
				return
			}
			if ran := j.String(); ran != "note:x note:y" && ran != "note:y note:x" {
				t.Errorf("ran %q", ran)
			}
		})
	}
}

func TestSubAgentAlone(t *testing.T) {
	var j journal
	inner, _ := newAgent(t, Config{Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}, calls(`c1 note {"path":"x"}`))
	helper, err := AsTool[string, string](inner, "helper", "Helps.", nil)
	if err != nil {
		t.Fatal(err)
	}
	col := tool.NewCollector(tool.Call{})
	for ch, err := range tool.Run(t.Context(), helper, tool.Call{Input: json.RawMessage(`{"task":"x"}`)}) {
		if err != nil {
			t.Fatal(err)
		}
		col.Add(ch)
	}
	if res := col.Result(); res.Outcome != message.OutcomeError || !strings.Contains(res.Text(), "a user") {
		t.Errorf("%+v", res)
	}
}

// TestSubAgentCrash stops the outer run at every save and continues: the sub-agent's call runs once.
func TestSubAgentCrash(t *testing.T) {
	var saves []string
	for cut := -1; cut < len(saves); cut++ {
		var j journal
		outer := Config{Policy: bypass}
		if cut < 0 {
			outer.Save = func(_ context.Context, st *State) error {
				data, err := json.Marshal(st)
				saves = append(saves, string(data))
				return err
			}
		}
		a, _ := family(t, &j, outer, Config{Policy: bypass}, notes)
		a.model = turnFunc(func(req *model.Request) turn {
			if req.Messages[len(req.Messages)-1].Role == message.RoleUser {
				return calls(`h1 helper {"task":"x"}`)
			}
			return says("done")
		})
		st := new(State)
		inputs := []Input{Say("go")}
		if cut >= 0 {
			if err := json.Unmarshal([]byte(saves[cut]), st); err != nil {
				t.Fatal(err)
			}
			inputs = nil
		}
		evs, err := play(t, a, st, inputs...)
		if err != nil || endOf(t, evs).Text != "done" {
			t.Fatalf("save %d: %v", cut, err)
		}
		if n := strings.Count(j.String(), "note:x"); n > 1 {
			t.Errorf("save %d: the call ran %d times", cut, n)
		}
	}
	if len(saves) < 10 {
		t.Errorf("only %d saves", len(saves))
	}
}

// TestSubAgentAnswers gives answers that a sub-agent refuses: nothing is lost, and the right answer is still
// accepted.
func TestSubAgentAnswers(t *testing.T) {
	for name, row := range map[string]struct {
		answers []Input
		want    string
	}{
		"arguments of no schema": {[]Input{event.Confirm{Call: "h1/s1", Allow: true, Input: json.RawMessage(`{"nope":[]}`)}}, "edited arguments"},
		"a rule for other tools": {[]Input{event.Confirm{Call: "h1/s1", Allow: true, Rules: []permission.Rule{{Tool: "*", Behavior: permission.Allow}}}}, "rule"},
		"twice":                  {[]Input{event.Confirm{Call: "h1/s1", Allow: true}, event.Confirm{Call: "h1/s1"}}, "twice"},
		"a result":               {[]Input{event.Result{Call: "h1/s1"}}, "does not wait"},
		"behind an interrupt":    {[]Input{Interrupt{}, event.Confirm{Call: "h1/s1", Allow: true}}, "Interrupt"},
		"too late":               {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var j journal
			now := time.Unix(0, 0)
			outer := Config{Policy: bypass}
			outer.Now = func() time.Time { return now }
			inner := Config{AnswerWithin: time.Minute}
			inner.Now = outer.Now
			a, _ := family(t, &j, outer, inner, notes, calls(`h1 helper {"task":"x"}`), says("done"))
			st := new(State)
			if _, err := play(t, a, st, Say("go")); err != nil {
				t.Fatal(err)
			}
			if name == "too late" {
				now = now.Add(time.Hour)
				if _, err := play(t, a, st, event.Confirm{Call: "h1/s1", Allow: true}); !errors.Is(err, ErrExpired) {
					t.Fatal(err)
				}
				if _, err := play(t, a, st); err != nil { // asks again
					t.Fatal(err)
				}
			} else if _, err := play(t, a, st, row.answers...); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Fatalf("%v, want %q", err, row.want)
			}
			evs, err := play(t, a, reload(t, st), event.Confirm{Call: "h1/s1", Allow: true, Input: json.RawMessage(`{"path":"y"}`)})
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "end", endOf(t, evs).Text, "done")
			equal(t, "ran", j.String(), "note:y")
		})
	}
}
