package agent

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"testing"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// rounds returns a model that calls a tool n times and then answers, at negligible
// cost of its own.
func rounds(n int) model.Model {
	return modelFunc(func(_ context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
		return func(yield func(model.Chunk, error) bool) {
			done := len(req.Messages) / 2
			if done >= n {
				_ = yield(&model.TextDelta{Text: "done"}, nil) && yield(finish("stop"), nil)
				return
			}
			d := &model.ToolCallDelta{ID: fmt.Sprintf("c%d", done), Name: "add", Args: fmt.Sprintf(`{"a":%d,"b":30}`, done)}
			_ = yield(d, nil) && yield(finish("tool_calls"), nil)
		}
	})
}

func benchAgent(tb testing.TB, n int, middleware ...Middleware) *Agent {
	add := tool.Must(tool.New("add", "Adds.", func(_ context.Context, in struct {
		A int `json:"a"`
		B int `json:"b"`
	}) (int, error) {
		return in.A + in.B, nil
	}))
	a, err := New(Config{Model: rounds(n), Toolkit: toolkit.Of(add), Policy: bypass, Limits: Limits{Steps: n + 1}, Middleware: middleware})
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// BenchmarkStep measures a model call with a tool call, without the model's time:
// validation, permission, the tool on its goroutine, events, and the history.
func BenchmarkStep(b *testing.B) {
	b.ReportAllocs()
	a := benchAgent(b, b.N)
	var st State
	if _, err := a.Reply(b.Context(), &st, Say("go")); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkToken measures the path of a streamed text delta to its event.
func BenchmarkToken(b *testing.B) {
	b.ReportAllocs()
	delta := &model.TextDelta{Text: "word "}
	m := modelFunc(func(context.Context, *model.Request) iter.Seq2[model.Chunk, error] {
		return func(yield func(model.Chunk, error) bool) {
			for range b.N {
				if !yield(delta, nil) {
					return
				}
			}
			yield(finish("stop"), nil)
		}
	})
	a, err := New(Config{Model: m, Toolkit: toolkit.Of()})
	if err != nil {
		b.Fatal(err)
	}
	var st State
	if _, err := a.Reply(b.Context(), &st, Say("go")); err != nil {
		b.Fatal(err)
	}
}

// TestStepAllocations limits the allocations of a step, whatever the length of the
// history.
func TestStepAllocations(t *testing.T) {
	per := func(n int) float64 {
		a := benchAgent(t, n)
		var before, after runtime.MemStats
		var st State
		runtime.ReadMemStats(&before)
		if _, err := a.Reply(t.Context(), &st, Say("go")); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / float64(n)
	}
	per(10) // allocate what is made once
	short, long := per(50), per(500)
	t.Logf("%.0f allocations for a step of 50, %.0f for one of 500", short, long)
	if short > 200 || long > short*1.1 {
		t.Errorf("%.0f allocations for a step of 50, %.0f for one of 500; want at most 200, and no more with a longer history", short, long)
	}
}
