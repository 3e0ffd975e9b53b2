package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// counted counts the requests with tools; each costs 12 tokens, like every text answer.
func counted(n *atomic.Int64, turns func(*model.Request) turn) func(*model.Request) turn {
	return func(req *model.Request) turn {
		if req.Choice.Mode == model.ChoiceNone {
			return says("so far")
		}
		n.Add(1)
		return turns(req)
	}
}

// tireless is a sub-agent that makes a call in every answer, each with different arguments.
func tireless(req *model.Request) turn {
	return calls(fmt.Sprintf(`s%d note {"path":"%s-%d"}`, len(req.Messages), req.Messages[0].Text(), len(req.Messages)))
}

// TestSubAgentsShareLimits has four sub-agents work in parallel: together, not each of them, they may use
// what remains of the caller's limits.
func TestSubAgentsShareLimits(t *testing.T) {
	price := func(string, message.Usage) float64 { return 1 }
	for _, row := range []struct {
		name    string
		limits  Limits
		answers int64 // with tools: the limit, and one in progress for each of the four
		ran     int
	}{
		{"tokens", Limits{Tokens: 120}, 10 + 4, 14},
		{"money", Limits{Cost: 10, Price: price}, 10 + 4, 14},
		{"calls", Limits{ToolCalls: 10}, 1 + 6 + 4, 6}, // 4 of the calls are the helpers
	} {
		t.Run(row.name, func(t *testing.T) {
			var j journal
			var n atomic.Int64
			a, _ := family(t, &j, Config{Policy: bypass, Limits: row.limits}, Config{Policy: bypass}, counted(&n, tireless))
			a.model = turnFunc(counted(&n, func(req *model.Request) turn {
				return calls(`h1 helper {"task":"a"}`, `h2 helper {"task":"b"}`, `h3 helper {"task":"c"}`, `h4 helper {"task":"d"}`)
			}))
			st := new(State)
			evs, err := play(t, a, st, Say("go"))
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "end", endOf(t, evs).Reason, event.EndLimit)
			if n.Load() > row.answers || len(j.ran) > row.ran {
				t.Errorf("%d answers and %d calls, want at most %d and %d", n.Load(), len(j.ran), row.answers, row.ran)
			}
			if row.name == "calls" {
				equal(t, "ran", len(j.ran), row.ran)
			}
		})
	}
}

// TestLimitsReachDown has nested sub-agents: the limits of the outermost agent apply to all of them.
func TestLimitsReachDown(t *testing.T) {
	var j journal
	var n atomic.Int64
	middle, _ := family(t, &j, Config{Policy: bypass}, Config{Policy: bypass}, counted(&n, tireless))
	middle.model = turnFunc(counted(&n, func(req *model.Request) turn {
		return calls(`m1 helper {"task":"a"}`, `m2 helper {"task":"b"}`)
	}))
	team, err := AsTool[string, string](middle, "team", "Delegates.", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := newAgent(t, Config{Policy: bypass, Limits: Limits{ToolCalls: 12}, Toolkit: toolkit.Of(team)})
	a.model = turnFunc(counted(&n, func(req *model.Request) turn {
		return calls(`t1 team {"task":"x"}`, `t2 team {"task":"y"}`)
	}))
	st := new(State)
	evs, err := play(t, a, st, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "end", endOf(t, evs).Reason, event.EndLimit)
	started, tokens := 0, 0
	for _, ev := range evs {
		for s, below := ev.(*event.Sub); below; s, below = ev.(*event.Sub) {
			ev = s.Event
		}
		switch ev := ev.(type) {
		case *event.ToolStart:
			started++
		case *event.Message:
			if ev.Message.Usage != nil {
				tokens += ev.Message.Usage.Input
			}
		}
	}
	equal(t, "calls of all agents", started, 12)
	equal(t, "tokens of all agents", st.Usage.Input, tokens)
}

// TestSubAgentIsChargedOnce has a sub-agent wait for a user three times: its cost before each wait counts
// once.
func TestSubAgentIsChargedOnce(t *testing.T) {
	var j journal
	thrice := func(req *model.Request) turn {
		if n := len(req.Messages); n < 6 {
			return tireless(req)
		}
		return says("sub")
	}
	ask := permission.Policy{Rules: []permission.Rule{{Tool: "helper", Behavior: permission.Allow}}}
	// Six answers cost 72; the limit is checked before the sixth.
	a, _ := family(t, &j, Config{Policy: ask, Limits: Limits{Tokens: 61}}, Config{Policy: bypass}, thrice, calls(`h1 helper {"task":"a"}`), says("done"))
	st := new(State)
	evs, err := play(t, a, st, Say("go"))
	spent := message.Usage{}
	for asked := 0; err == nil; asked++ {
		spent.Add(endOf(t, evs).Usage)
		p := st.Pending()
		if len(p) == 0 {
			equal(t, "asked", asked, 3)
			break
		}
		st = reload(t, st)
		evs, err = play(t, a, st, event.Confirm{Call: p[0].(*event.Approval).Call, Allow: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "end", endOf(t, evs).Reason, event.EndCompleted)
	equal(t, "results", results(st), []string{"h1 success: sub"})
	equal(t, "usage of the conversation", st.Usage, message.Usage{Input: 60, Output: 12})
	equal(t, "usage of the runs", spent, st.Usage)
}

// TestCrashedSubAgentIsCharged checks what a store contains while a sub-agent works: its cost is included,
// except that of the answer in progress.
func TestCrashedSubAgentIsCharged(t *testing.T) {
	var j journal
	var n atomic.Int64
	most := 0
	outer := Config{Policy: bypass, Limits: Limits{Steps: 2}}
	outer.Save = func(_ context.Context, st *State) error {
		data, err := json.Marshal(st)
		if err != nil {
			return err
		}
		var stored State
		if err := json.Unmarshal(data, &stored); err != nil {
			return err
		}
		asked := int(n.Load())
		if got := stored.Usage.Input / 10; got < asked-1 || got > asked {
			t.Errorf("%d answers were asked for, %d are charged", asked, got)
		}
		most = max(most, asked)
		return nil
	}
	a, _ := family(t, &j, outer, Config{Policy: bypass, Limits: Limits{Steps: 5}}, func(req *model.Request) turn {
		n.Add(1)
		return tireless(req)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a.model = turnFunc(func(req *model.Request) turn {
		n.Add(1)
		return calls(`h1 helper {"task":"a"}`)
	})
	st := new(State)
	for ev, err := range a.Run(ctx, st, Say("go")) {
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := ev.(*event.Sub); ok && event.TypeOf(s.Event) == "tool_result" && n.Load() == 4 {
			cancel() // the sub-agent has made three answers
		}
	}
	equal(t, "usage when it was cancelled", st.Usage, message.Usage{Input: 40, Output: 8})
	if most != 4 {
		t.Errorf("saves were seen up to answer %d", most)
	}
}
