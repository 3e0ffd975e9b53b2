package agent

import (
	"context"
	"iter"
	"slices"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type traceKey struct{}

// tracing returns middleware that logs at every level that it is entered, with the outer levels.
func tracing(name string, log *[]string) Middleware {
	enter := func(ctx context.Context, level string) context.Context {
		above, _ := ctx.Value(traceKey{}).(string)
		*log = append(*log, above+">"+name+"."+level)
		return context.WithValue(ctx, traceKey{}, above+">"+name+"."+level)
	}
	return Middleware{
		Run: func(next RunFunc) RunFunc {
			return func(ctx context.Context, st *State, in ...Input) iter.Seq2[event.Event, error] {
				return next(enter(ctx, "run"), st, in...)
			}
		},
		Step: func(next StepFunc) StepFunc {
			return func(ctx context.Context) error { return next(enter(ctx, "step")) }
		},
		Model: func(next model.Model) model.Model {
			return modelFunc(func(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
				return next.Generate(enter(ctx, "model"), req)
			})
		},
		Tool: func(next tool.Handler) tool.Handler {
			return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
				return next(enter(ctx, "tool"), t, call)
			}
		},
		Judge: func(next JudgeFunc) JudgeFunc {
			return func(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
				return next(enter(ctx, "judge"), p, c)
			}
		},
		Instructions: func(next InstructionsFunc) InstructionsFunc {
			return func(ctx context.Context) string { return name + "(" + next(ctx) + ")" }
		},
	}
}

type modelFunc func(context.Context, *model.Request) iter.Seq2[model.Chunk, error]

func (f modelFunc) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return f(ctx, req)
}

func TestMiddlewareOrder(t *testing.T) {
	var log []string
	var j journal
	a, w := newAgent(t, Config{Policy: bypass, Instructions: "x", Toolkit: toolkit.Of(noting(&j, "note", tool.Options{})),
		Middleware: []Middleware{tracing("a", &log), {}, tracing("b", &log)}}, calls(`c1 note {"path":"p"}`), says("done"))
	var st State
	if _, err := play(t, a, &st, Say("go")); err != nil {
		t.Fatal(err)
	}
	run, step := ">a.run>b.run", ">a.run>b.run>a.step>b.step"
	want := []string{">a.run", run, run + ">a.step", step,
		step + ">a.model", step + ">a.model>b.model", step + ">a.judge", step + ">a.judge>b.judge", step + ">a.tool", step + ">a.tool>b.tool",
		run + ">a.step", step, step + ">a.model", step + ">a.model>b.model"}
	if !slices.Equal(log, want) {
		t.Errorf("levels:\n got %q\nwant %q", log, want)
	}
	equal(t, "instructions", w.reqs[0].System, "a(b(x))")
}

// TestMiddlewareJudges has a middleware that is stricter than the policy, also for
// a call that a person approved.
func TestMiddlewareJudges(t *testing.T) {
	var j journal
	strict := Middleware{Judge: func(next JudgeFunc) JudgeFunc {
		return func(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
			if string(c.Input) == `{"path":"secret"}` {
				return permission.Decision{Behavior: permission.Deny, Reason: "too secret"}
			}
			return next(ctx, p, c)
		}
	}}
	a, w := newAgent(t, Config{Toolkit: toolkit.Of(noting(&j, "note", tool.Options{})), Middleware: []Middleware{strict}},
		calls(`c1 note {"path":"open"}`, `c2 note {"path":"secret"}`))
	var st State
	if _, err := play(t, a, &st, Say("go")); err != nil {
		t.Fatal(err)
	}
	equal(t, "pending", len(st.Pending()), 1)
	w.turns = []turn{says("done")}
	if _, err := play(t, a, &st, event.Confirm{Call: "c1", Allow: true, Input: []byte(`{"path":"secret"}`)}); err != nil {
		t.Fatal(err)
	}
	equal(t, "ran", j.String(), "")
}

func TestStepMiddlewareThatNeverSteps(t *testing.T) {
	lazy := Middleware{Step: func(StepFunc) StepFunc { return func(context.Context) error { return nil } }}
	a, _ := newAgent(t, Config{Middleware: []Middleware{lazy}})
	var st State
	if _, err := play(t, a, &st, Say("go")); err == nil {
		t.Error("no error")
	}
}
