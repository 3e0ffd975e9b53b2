package agent

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestFailedSave makes each save of a run fail in turn, alone or together with all later ones. The run ends
// with the error and a complete history; every emitted event was stored, and everything stored in the end
// was emitted.
func TestFailedSave(t *testing.T) {
	full := errors.New("disk full")
	for _, forever := range []bool{false, true} {
		failed := true
		for at := 1; failed; at++ {
			failed = false
			var j journal
			var stored string // what the store has
			saves := 0
			cfg := Config{Toolkit: toolkit.Of(noting(&j, "note", tool.Options{Parallel: true}), noting(&j, "ask", tool.Options{})),
				Policy:  permission.Policy{Rules: []permission.Rule{{Tool: "note", Behavior: permission.Allow}}},
				Approve: func(context.Context, event.Approval) (event.Confirm, error) { return event.Confirm{Allow: true}, nil },
				Save: func(_ context.Context, st *State) error {
					saves++
					if saves == at || saves > at && forever {
						failed = true
						return full
					}
					stored = encoded(t, st)
					return nil
				}}
			a, _ := newAgent(t, cfg, calls(`c1 note {"path":"a"}`, `c2 note {"path":"b"}`, `c3 ask {"path":"c"}`, `c4 nope {}`), says("done"))
			st := new(State)
			evs, emitted := []event.Event(nil), map[string]bool{}
			check := func(ev event.Event) {
				for _, id := range idsOf(ev) {
					emitted[id] = true
					if !strings.Contains(stored, id) {
						t.Errorf("save %d failed: a %s with %s was emitted and is not stored", at, event.TypeOf(ev), id)
					}
				}
			}
			var err error
			for ev, e := range a.Run(t.Context(), st, Say("go")) {
				if e != nil {
					err = e
					continue
				}
				check(ev)
				evs = append(evs, ev)
			}
			if !failed {
				if err != nil || at < 12 {
					t.Fatalf("%d saves, %v", saves, err)
				}
				break
			}
			if !errors.Is(err, full) || endOf(t, evs).Reason != event.EndError || len(of[*event.End](evs)) != 1 {
				t.Fatalf("save %d: %v, %+v", at, err, endOf(t, evs))
			}
			for i, ev := range evs {
				if i > 0 && ev.Head().Seq <= evs[i-1].Head().Seq {
					t.Fatalf("save %d: event %d has number %d", at, i, ev.Head().Seq)
				}
			}
			if err := CheckHistory(st.Messages); err != nil || len(st.loop.Open) > 0 {
				t.Errorf("save %d: %d calls are open, %v", at, len(st.loop.Open), err)
			}
			if forever {
				continue
			}
			for _, m := range st.Messages {
				if !emitted[`"id":"`+m.ID+`"`] {
					t.Errorf("save %d: message %s is stored and was not emitted", at, m.ID)
				}
			}
			announced := map[string]int{}
			for _, c := range of[*event.ToolCall](evs) {
				announced[c.Call]++
			}
			for _, res := range of[*event.ToolResult](evs) {
				announced[res.Call]--
			}
			for id, n := range announced {
				if n != 0 {
					t.Errorf("save %d: call %s has %d results", at, id, 1-n)
				}
			}
		}
	}
}

// idsOf returns what the stored State must contain when ev is emitted.
func idsOf(ev event.Event) []string {
	switch ev := ev.(type) {
	case *event.Message:
		return []string{`"id":"` + ev.Message.ID + `"`}
	case *event.ToolCall:
		return []string{`"id":"` + ev.Call + `"`}
	case *event.ToolResult:
		res, err := json.Marshal(ev.Result)
		if err != nil {
			return []string{err.Error()}
		}
		return []string{strings.TrimPrefix(string(res), "{")}
	}
	return nil
}

// TestResultsWithInvalidJSON has tools return invalid JSON, with which no State could be saved.
func TestResultsWithInvalidJSON(t *testing.T) {
	bad := tool.Must(tool.NewStream("bad", "Returns nonsense.", func(context.Context, struct{}) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			ch := tool.Text("fine")
			ch.Structured, ch.Meta = json.RawMessage(`{"a`), map[string]json.RawMessage{"bad": json.RawMessage("nope"), "empty": {}, "good": json.RawMessage("1")}
			yield(ch, nil)
		}
	}))
	for how, after := range map[string]time.Duration{"plain": 0, "may go to the background": time.Minute} {
		a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(bad), Background: after, Save: func(_ context.Context, st *State) error {
			_, err := json.Marshal(st)
			return err
		}}, calls("c1 bad {}"), says("done"))
		var st State
		if _, err := play(t, a, &st, Say("go")); err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		res := st.Messages[2].ToolResults()[0]
		if res.Text() != "fine" || res.Structured != nil || len(res.Meta) != 1 || string(res.Meta["good"]) != "1" {
			t.Errorf("%s: the result is %q, %s, %s", how, res.Text(), res.Structured, res.Meta)
		}
	}
}
