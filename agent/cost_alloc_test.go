package agent

import (
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/budget"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// reply runs a new conversation to its end.
func reply(t *testing.T, a *Agent) *State {
	st := new(State)
	if _, err := a.Reply(t.Context(), st, Say("go")); err != nil {
		t.Fatal(err)
	}
	return st
}

// TestCostOfStep limits the cost of a model call with a tool call, without the model.
func TestCostOfStep(t *testing.T) {
	const steps = 100
	a := benchAgent(t, steps)
	budget.Hold(t, budget.Cost{Allocs: 154, Bytes: 9850}, steps, func() { reply(t, a) })
}

// TestCostOfStepThroughHooks limits the cost of a step with middleware that does nothing at every level.
func TestCostOfStepThroughHooks(t *testing.T) {
	const steps = 100
	a := benchAgent(t, steps, Middleware{
		Step:  func(next StepFunc) StepFunc { return func(ctx context.Context) error { return next(ctx) } },
		Model: func(next model.Model) model.Model { return struct{ model.Model }{next} },
		Tool: func(next tool.Handler) tool.Handler {
			return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
				return next(ctx, t, call)
			}
		},
		Judge: func(next JudgeFunc) JudgeFunc {
			return func(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
				return next(ctx, p, c)
			}
		},
	})
	budget.Hold(t, budget.Cost{Allocs: 156, Bytes: 9980}, steps, func() { reply(t, a) })
}

// TestCostOfToken limits the cost of a text delta, from the model to the event.
func TestCostOfToken(t *testing.T) {
	const tokens = 1000
	delta := &model.TextDelta{Text: "word "}
	m := modelFunc(func(context.Context, *model.Request) iter.Seq2[model.Chunk, error] {
		return func(yield func(model.Chunk, error) bool) {
			for range tokens {
				if !yield(delta, nil) {
					return
				}
			}
			yield(finish("stop"), nil)
		}
	})
	a, err := New(Config{Model: m, Toolkit: toolkit.Of()})
	if err != nil {
		t.Fatal(err)
	}
	budget.Hold(t, budget.Cost{Allocs: 1.08, Bytes: 136}, tokens, func() { reply(t, a) })
}

// TestCostOfAgent limits the cost and the memory of an agent with twenty tools
// of its own.
func TestCostOfAgent(t *testing.T) {
	names := make([]string, 20)
	for i := range names {
		names[i] = "add_" + string(rune('a'+i))
	}
	own := func() *Agent {
		var tools []tool.Tool
		for _, name := range names {
			tools = append(tools, tool.Must(tool.New(name, "Adds.", func(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil })))
		}
		a, err := New(Config{Model: rounds(1), Toolkit: toolkit.Of(tools...)})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	budget.Hold(t, budget.Cost{Allocs: 41, Bytes: 6470}, 1, func() { own() })
	const want = 5_250
	if n := budget.Kept(500, own); n > want*1.15 || n < want*0.6 {
		t.Errorf("%v bytes; the budget is %v", n, want)
	}
}

// TestCostOfSession limits the memory of a conversation of ten rounds at rest.
func TestCostOfSession(t *testing.T) {
	a := benchAgent(t, 10)
	const want = 9_200
	if n := budget.Kept(500, func() *State { return reply(t, a) }); n > want*1.15 || n < want*0.6 {
		t.Errorf("%v bytes; the budget is %v", n, want)
	}
}

// TestCostOfManyPieces limits the cost of redacting a result of many pieces, which must
// be linear.
func TestCostOfManyPieces(t *testing.T) {
	const pieces = 2000
	r, err := redact.New()
	if err != nil {
		t.Fatal(err)
	}
	var blocks message.Blocks
	for range pieces {
		blocks = append(blocks, &message.Text{Text: strings.Repeat("word ", 100)})
	}
	budget.Hold(t, budget.Cost{Allocs: 4, Bytes: 5240}, pieces, func() { redacted(r, blocks) })
}
