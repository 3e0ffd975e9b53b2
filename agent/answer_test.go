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
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

func TestRefusedInputs(t *testing.T) {
	host := external{tool.Must(tool.New("host", "Is run outside.", func(context.Context, pathArg) (string, error) { return "", nil }, tool.Options{Parallel: true}))}
	for name, row := range map[string]struct {
		inputs []Input
		want   string
	}{
		"an answer after an interrupt": {[]Input{Interrupt{}, event.Confirm{Call: "c1", Allow: true}}, "Interrupt"},
		"a result after an interrupt":  {[]Input{Interrupt{}, event.Result{Call: "c2"}}, "Interrupt"},
		"a result that is not JSON":    {[]Input{event.Result{Call: "c2", Structured: json.RawMessage(`{"a`)}}, "is not valid JSON"},
		"two answers":                  {[]Input{event.Confirm{Call: "c1"}, event.Confirm{Call: "c1", Allow: true}}, "twice"},
		"an answer of the wrong kind":  {[]Input{event.Confirm{Call: "c2"}}, "does not wait"},
		"nothing":                      {[]Input{nil}, "nil"},
	} {
		t.Run(name, func(t *testing.T) {
			var j journal
			policy := permission.Policy{Rules: []permission.Rule{{Tool: "host", Behavior: permission.Allow}}}
			a, _ := newAgent(t, Config{Policy: policy, Toolkit: toolkit.Of(noting(&j, "note", tool.Options{Parallel: true}), host)},
				calls(`c1 note {"path":"a"}`, `c2 host {"path":"b"}`), says("done"))
			var st State
			if _, err := play(t, a, &st, Say("go")); err != nil {
				t.Fatal(err)
			}
			equal(t, "pending", len(st.Pending()), 2)
			before, _ := json.Marshal(&st)
			evs, err := play(t, a, &st, row.inputs...)
			if err == nil || !strings.Contains(err.Error(), row.want) || len(evs) > 0 {
				t.Fatalf("%v, %d events; want %q", err, len(evs), row.want)
			}
			after, _ := json.Marshal(&st)
			equal(t, "state", string(after), string(before))
		})
	}
}

// judging is a tool whose calls are judged by their path.
type judging struct{ tool.Tool }

func (judging) Judge(c *permission.Call) {
	c.Checker = ruling(func() (v permission.Verdict) {
		switch s := string(c.Input); {
		case strings.Contains(s, "forbidden"):
			v = permission.Verdict{Behavior: permission.Deny, Reason: "it is forbidden"}
		case strings.Contains(s, "danger"):
			v = permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: "it is dangerous"}
		}
		return v
	})
}

func (j judging) Unwrap() tool.Tool { return j.Tool }

// TestApproveEdits has Approve edit the arguments: each edit is judged, however
// often they change.
func TestApproveEdits(t *testing.T) {
	for _, row := range []struct {
		name    string
		edits   []string // for each question; "" leaves the arguments unchanged
		asked   int
		ran     string
		outcome string
	}{
		{"harmless", []string{"b"}, 1, "note:b", "success"},
		{"forbidden", []string{"forbidden"}, 1, "", "denied"},
		{"dangerous", []string{"danger", ""}, 2, "note:danger", "success"},
		{"dangerous, then forbidden", []string{"danger", "forbidden"}, 2, "", "denied"},
		{"dangerous, then harmless", []string{"danger", "b"}, 2, "note:b", "success"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var j journal
			asked := 0
			a, _ := newAgent(t, Config{Toolkit: toolkit.Of(judging{noting(&j, "note", tool.Options{})}),
				Approve: func(_ context.Context, q event.Approval) (event.Confirm, error) {
					c := event.Confirm{Allow: true}
					if edit := row.edits[asked]; edit != "" {
						c.Input = json.RawMessage(`{"path":"` + edit + `"}`)
					}
					asked++
					return c, nil
				}}, calls(`c1 note {"path":"a"}`), says("done"))
			var st State
			if _, err := play(t, a, &st, Say("go")); err != nil {
				t.Fatal(err)
			}
			equal(t, "asked", asked, row.asked)
			equal(t, "ran", j.String(), row.ran)
			if got := results(&st)[0]; !strings.HasPrefix(got, "c1 "+row.outcome) {
				t.Errorf("result %q, want %s", got, row.outcome)
			}
		})
	}
}

// TestNoQuestionAfterTheEnd stops ranging at a question: Approve is not called.
func TestNoQuestionAfterTheEnd(t *testing.T) {
	var j journal
	var saved *State
	asked := false
	a, _ := newAgent(t, Config{Toolkit: toolkit.Of(noting(&j, "note", tool.Options{})),
		Save: func(_ context.Context, st *State) error { saved = reload(t, st); return nil },
		Approve: func(context.Context, event.Approval) (event.Confirm, error) {
			asked = true
			return event.Confirm{Allow: true}, nil
		}}, calls(`c1 note {"path":"a"}`))
	var st State
	for ev, err := range a.Run(t.Context(), &st, Say("go")) {
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := ev.(*event.Approval); ok {
			if p := saved.Pending(); len(p) != 1 {
				t.Errorf("the question was emitted before it was saved: %d pending", len(p))
			}
			break
		}
	}
	checkState(t, &st)
	if asked || len(st.loop.Open) > 0 || j.String() != "" {
		t.Errorf("asked %v, %d open, ran %q", asked, len(st.loop.Open), j.String())
	}
}

// TestExpiredQuestionCoversNothing has two similar calls with one question about both,
// which expires; meanwhile the policy denies the first call.
func TestExpiredQuestionCoversNothing(t *testing.T) {
	var j journal
	now := time.Unix(0, 0)
	cfg := Config{AnswerWithin: time.Minute, Toolkit: toolkit.Of(suggesting{noting(&j, "note", tool.Options{Parallel: true})})}
	cfg.Now = func() time.Time { return now }
	a, _ := newAgent(t, cfg, calls(`c1 note {"path":"forbidden"}`, `c2 note {"path":"b"}`))
	st := new(State)
	if _, err := play(t, a, st, Say("go")); err != nil {
		t.Fatal(err)
	}
	equal(t, "pending", len(st.Pending()), 1)
	now = now.Add(time.Hour)
	cfg.Toolkit = toolkit.Of(judging{suggesting{noting(&j, "note", tool.Options{Parallel: true})}})
	b, _ := newAgent(t, cfg)
	evs, err := play(t, b, reload(t, st))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "end", endOf(t, evs).Reason, event.EndWaiting)
	if q := of[*event.Approval](evs); len(q) == 0 || q[len(q)-1].Call != "c2" {
		t.Errorf("questions %+v", q)
	}
}

// suggesting suggests a rule for all its calls.
type suggesting struct{ tool.Tool }

func (suggesting) Judge(c *permission.Call) { c.Checker = suggestion{} }

type suggestion struct{ permission.BaseChecker }

func (suggestion) Suggest(*permission.Policy) []permission.Rule {
	return []permission.Rule{{Behavior: permission.Allow}}
}

func (s suggesting) Unwrap() tool.Tool { return s.Tool }

// TestConsumerPanics has the loop over the events panic while tools run, in a
// program that recovers: no goroutine is left (TestMain checks), and the State
// can be used.
func TestConsumerPanics(t *testing.T) {
	slow := tool.Must(tool.New("slow", "Waits.", func(ctx context.Context, _ pathArg) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}, tool.Options{Parallel: true}))
	a, w := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(slow)}, calls(`c1 slow {"path":"a"}`, `c2 slow {"path":"b"}`))
	var st State
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		starts := 0
		for ev := range a.Run(t.Context(), &st, Say("go")) {
			if _, ok := ev.(*event.ToolStart); ok {
				if starts++; starts == 2 {
					panic("the consumer's")
				}
			}
		}
	}()
	w.turns = []turn{says("done")}
	reply, err := a.Reply(t.Context(), &st, Say("again"))
	if err != nil || reply.Text() != "done" {
		t.Fatal(err)
	}
	checkState(t, &st)
}

// TestMiddlewareThatDropsTheEnd: a Run middleware without an End is an error, not a panic.
func TestMiddlewareThatDropsTheEnd(t *testing.T) {
	none := Middleware{Run: func(RunFunc) RunFunc {
		return func(context.Context, *State, ...Input) iter.Seq2[event.Event, error] {
			return func(func(event.Event, error) bool) {}
		}
	}}
	a, _ := newAgent(t, Config{Middleware: []Middleware{none}})
	if _, err := a.Reply(t.Context(), new(State), Say("go")); err == nil || !strings.Contains(err.Error(), "End") {
		t.Error(err)
	}
	if _, err := ReplyAs[verdict](t.Context(), a, new(State), Say("go")); err == nil || errors.Is(err, ErrInterrupted) {
		t.Error(err)
	}
	helper, err := AsTool[string, string](a, "helper", "Helps.", nil)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(helper)}, calls(`h1 helper {"task":"x"}`), says("done"))
	var st State
	if _, err := play(t, b, &st, Say("go")); err != nil {
		t.Fatal(err)
	}
	if got := results(&st); len(got) != 1 || !strings.Contains(got[0], "without an End") {
		t.Errorf("results %q", got)
	}
}

// TestDetachedMiddleware has a step that runs with another context: the
// run still ends when the consumer stops.
func TestDetachedMiddleware(t *testing.T) {
	detach := Middleware{Step: func(next StepFunc) StepFunc {
		return func(ctx context.Context) error { return next(context.WithoutCancel(ctx)) }
	}}
	a, w := newAgent(t, Config{Middleware: []Middleware{detach}}, says(""), says(""), says("done"))
	for ev := range a.Run(t.Context(), new(State), Say("go")) {
		if m, ok := ev.(*event.Message); ok && m.Message.Role == message.RoleUser {
			break
		}
	}
	equal(t, "requests after the break", len(w.reqs), 0)
}

// TestRuleReachesWhatWaits has a person answer the question about one call with a deny rule
// for its tool. The rule applies to the other calls of the model's answer, although they were
// allowed before.
func TestRuleReachesWhatWaits(t *testing.T) {
	for _, allow := range []bool{true, false} {
		var j journal
		a, _ := newAgent(t, Config{MaxParallel: 8, Toolkit: toolkit.Of(judging{noting(&j, "read", reads)}),
			Policy: permission.Policy{Rules: []permission.Rule{{Tool: "read", Behavior: permission.Allow}}},
			Approve: func(context.Context, event.Approval) (event.Confirm, error) {
				return event.Confirm{Allow: allow, Rules: []permission.Rule{{Tool: "read", Behavior: permission.Deny}}}, nil
			}},
			calls(`c1 read {"path":"a"}`, `c2 read {"path":"b"}`, `c3 read {"path":"danger"}`), says("done"))
		st := new(State)
		if _, err := play(t, a, st, Say("go")); err != nil {
			t.Fatal(err)
		}
		if j.String() != "" {
			t.Errorf("allow %v: ran %s after a rule against it", allow, j.String())
		}
	}
}

// TestAnsweredBy: the events name who has allowed or refused a call.
func TestAnsweredBy(t *testing.T) {
	asks := noting(new(journal), "write", tool.Options{})
	call := func(path string) scripted.Turn { return scripted.Call("write", pathArg{path}) }
	a, err := New(Config{Model: scripted.New(call("a").And(call("b")).And(call("c")), scripted.Say("Done.")), Toolkit: toolkit.Of(asks)})
	if err != nil {
		t.Fatal(err)
	}
	var st State
	var got []string
	by := []string{"alice", "bob", ""}
	for inputs := []Input{Say("Write.")}; inputs != nil; {
		now := inputs
		inputs = nil
		for ev, err := range a.Run(t.Context(), &st, now...) {
			if err != nil {
				t.Fatal(err)
			}
			switch ev := ev.(type) {
			case *event.Approval:
				answer := ev.Deny("")
				if answer.By = by[0]; by[0] == "alice" {
					answer = ev.Allow()
					answer.By = by[0]
				}
				by, inputs = by[1:], append(inputs, answer)
			case *event.ToolStart:
				got = append(got, ev.Reason)
			case *event.ToolResult:
				got = append(got, string(ev.Outcome)+" "+ev.By)
			}
		}
	}
	equal(t, "events", got, []string{"allowed by alice", "success ", "denied bob", "denied the user"})
}
