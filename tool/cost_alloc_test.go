package tool_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/kitbag-go/kitbag/internal/budget"
	"github.com/kitbag-go/kitbag/tool"
)

// TestCostOfNew limits the cost of another tool of a known type.
func TestCostOfNew(t *testing.T) {
	greet := func(context.Context, struct{}) (string, error) { return "hi", nil }
	var made [100]tool.Tool
	budget.Hold(t, budget.Cost{Allocs: 1, Bytes: 96}, len(made), func() {
		for i := range made {
			var err error
			if made[i], err = tool.New("greet", "Greets.", greet); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestCostOfCall limits the cost of a call of a function: its arguments are checked and decoded,
// it runs on its own goroutine, and its result is collected.
func TestCostOfCall(t *testing.T) {
	type pair struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	add := tool.Must(tool.New("add", "Adds.", func(_ context.Context, in pair) (int, error) { return in.A + in.B, nil }))
	for _, row := range []struct {
		why   string
		tool  tool.Tool
		input string
		want  budget.Cost
	}{
		{"flat arguments", add, `{"a":1,"b":2}`, budget.Cost{Allocs: 87, Bytes: 4690}},
		{"nested arguments", orderTool(), string(orderInput), budget.Cost{Allocs: 271, Bytes: 11140}},
	} {
		t.Run(row.why, func(t *testing.T) {
			budget.Hold(t, row.want, 10, func() {
				for range 10 {
					args, err := tool.Arguments(row.tool, json.RawMessage(row.input))
					if err != nil {
						t.Fatal(err)
					}
					call := tool.Call{ID: "1", Name: "x", Input: args.JSON}
					col := tool.NewCollector(call)
					for c, err := range tool.Run(context.Background(), row.tool, call) {
						if err != nil || c.Failed {
							t.Fatal(c, err)
						}
						col.Add(c)
					}
					col.Result()
				}
			})
		})
	}
}
