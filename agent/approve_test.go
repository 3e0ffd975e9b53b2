package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// talking returns a tool that yields a chunk each second, records its end, and whose path is the number of chunks.
func talking(j *journal, o tool.Options) tool.Tool {
	return tool.Must(tool.NewStream("talk", "Talks.", func(ctx context.Context, in pathArg) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			n := 0
			fmt.Sscan(in.Path, &n)
			for range n {
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					yield(tool.Chunk{}, ctx.Err())
					return
				}
				if !yield(tool.Text("x"), nil) {
					return
				}
			}
			j.add("talked")
		}
	}, o))
}

// thinking returns an Approve that takes an hour, and a check that no event comes meanwhile.
func thinking(t *testing.T, j *journal) (approve func(context.Context, event.Approval) (event.Confirm, error), onEvent func(event.Event)) {
	thinks := false
	return func(context.Context, event.Approval) (event.Confirm, error) {
			thinks = true
			time.Sleep(time.Hour)
			thinks = false
			j.add("approved")
			return event.Confirm{Allow: true}, nil
		}, func(ev event.Event) {
			if thinks {
				t.Errorf("event %s came while Approve was running", event.TypeOf(ev))
			}
		}
}

// runWatched runs an agent to the end and calls onEvent for each event.
func runWatched(t *testing.T, a *Agent, st *State, onEvent func(event.Event)) {
	t.Helper()
	for ev, err := range a.Run(t.Context(), st, Say("go")) {
		if err != nil {
			t.Fatal(err)
		}
		onEvent(ev)
	}
	checkState(t, st)
}

// TestCallsContinueWhileAPersonThinks: while Config.Approve takes very long, the run receives the output of a background call.
func TestCallsContinueWhileAPersonThinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		approve, onEvent := thinking(t, &j)
		cfg := Config{Background: time.Minute, Approve: approve, Toolkit: toolkit.Of(atOnce{talking(&j, tool.Options{})}, noting(&j, "ask", tool.Options{})),
			Policy: permission.Policy{Rules: []permission.Rule{{Tool: "talk", Behavior: permission.Allow}}}}
		a, _ := newAgent(t, cfg, calls(`c1 talk {"path":"100"}`), calls(`c2 ask {"path":"a"}`), says("done"))
		st := new(State)
		runWatched(t, a, st, onEvent)
		equal(t, "order", j.String(), "talked approved ask:a")
	})
}

// watching returns an agent that asks about a call that has become dangerous since it was allowed, while a sub-agent works.
func watching(t *testing.T, j *journal, cfg Config) *Agent {
	sub, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(talking(j, tool.Options{}))})
	sub.model = turnFunc(func(req *model.Request) turn {
		if len(req.Messages) == 1 {
			return calls(`s1 talk {"path":"100"}`)
		}
		return says("sub")
	})
	helper, err := AsTool[string, string](sub, "helper", "Helps.", nil)
	if err != nil {
		t.Fatal(err)
	}
	parallel := tool.Options{Parallel: true}
	danger := func() (v permission.Verdict) {
		if j.String() != "" { // the note has run
			v = permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: "runs a file that was just written"}
		}
		return v
	}
	for _, name := range []string{"helper", "note", "run", "talk"} {
		cfg.Policy.Rules = append(cfg.Policy.Rules, permission.Rule{Tool: name, Behavior: permission.Allow})
	}
	cfg.MaxParallel, cfg.Toolkit = 2, toolkit.Of(helper, noting(j, "note", parallel), judged{noting(j, "run", parallel), danger})
	a, _ := newAgent(t, cfg, calls(`h1 helper {"task":"x"}`, `c2 note {"path":"a"}`, `c3 run {"path":"b"}`), says("done"))
	return a
}

func TestSubAgentsContinueWhileAPersonThinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		approve, onEvent := thinking(t, &j)
		runWatched(t, watching(t, &j, Config{Approve: approve}), new(State), onEvent)
		equal(t, "order", j.String(), "note:a talked approved run:b")
	})
}

// TestEventsComeWhenAPersonHasThought: events of other calls during a question are emitted right after the answer.
func TestEventsComeWhenAPersonHasThought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var answered time.Time
		approve := func(context.Context, event.Approval) (event.Confirm, error) {
			time.Sleep(10*time.Second + time.Millisecond)
			answered = time.Now()
			return event.Confirm{Allow: true, Input: json.RawMessage(`{"path":"c"}`)}, nil
		}
		waited := 0
		runWatched(t, watching(t, &j, Config{Approve: approve}), new(State), func(ev event.Event) {
			if answered.IsZero() || !ev.Head().Time.Before(answered) {
				return
			}
			waited++
			if late := time.Since(answered); late > 0 {
				t.Errorf("event %s came %v after the answer", event.TypeOf(ev), late)
			}
		})
		if waited == 0 {
			t.Error("no event waited for the answer")
		}
	})
}

// TestFailureEndsTheQuestion has a save fail while Approve runs: its context ends, and the run ends with the error.
func TestFailureEndsTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		full := errors.New("the disk is full")
		cfg := Config{Approve: func(ctx context.Context, q event.Approval) (event.Confirm, error) {
			<-ctx.Done()
			return event.Confirm{}, ctx.Err()
		}, Save: func(context.Context, *State) error {
			if strings.Contains(j.String(), "talked") {
				return full
			}
			return nil
		}}
		evs, err := play(t, watching(t, &j, cfg), new(State), Say("go"))
		if end := endOf(t, evs); end.Reason != event.EndError || end.Detail != "save the session: the disk is full" || !errors.Is(err, full) {
			t.Errorf("%+v, %v", end, err)
		}
	})
}

// judged is a tool whose calls are judged by verdict.
type judged struct {
	tool.Tool
	verdict func() permission.Verdict
}

func (d judged) Unwrap() tool.Tool { return d.Tool }

func (d judged) Judge(c *permission.Call) { c.Checker = ruling(d.verdict) }

// ruling returns a Checker with a verdict and without patterns.
func ruling(verdict func() permission.Verdict) permission.Checker {
	return verdictChecker{verdict: verdict}
}

type verdictChecker struct {
	permission.BaseChecker
	verdict func() permission.Verdict
}

func (v verdictChecker) Check(*permission.Policy) permission.Verdict { return v.verdict() }

// TestApprovePanics has Config.Approve panic: the panic reaches the consumer's goroutine, and the State is consistent.
func TestApprovePanics(t *testing.T) {
	var j journal
	a, _ := newAgent(t, Config{Toolkit: toolkit.Of(noting(&j, "ask", tool.Options{})), Approve: func(context.Context, event.Approval) (event.Confirm, error) {
		panic("no one is there")
	}}, calls(`c1 ask {"path":"a"}`))
	st := new(State)
	defer func() {
		if why := recover(); why != "no one is there" {
			t.Errorf("recovered %v", why)
		}
		equal(t, "pending", len(st.Pending()), 1)
		checkState(t, st)
	}()
	for range a.Run(t.Context(), st, Say("go")) {
	}
}
