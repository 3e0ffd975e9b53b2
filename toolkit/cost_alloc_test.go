package toolkit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	"github.com/kitbag-go/kitbag/internal/budget"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestCostOfToolkit limits the cost and the memory of a toolkit with twenty tools whose schemas
// are already known.
func TestCostOfToolkit(t *testing.T) {
	var tools []tool.Tool
	for i := range 20 {
		schema := fmt.Sprintf(`{"type":"object","properties":{"p%d":{"type":"string"}}}`, i)
		tools = append(tools, served{tool.Info{Name: fmt.Sprintf("t%d", i), Input: json.RawMessage(schema)}})
	}
	budget.Hold(t, budget.Cost{Allocs: 14, Bytes: 3060}, 1, func() { toolkit.Of(tools...) })
	const want = 2_860
	if n := budget.Kept(500, func() *toolkit.Toolkit { return toolkit.Of(tools...) }); n > want*1.15 || n < want*0.6 {
		t.Errorf("%v bytes; the budget is %v", n, want)
	}
}

// TestCostOfView limits the cost of views of 1,000 tools in 50 groups: an unchanged
// one, and new ones after a group was opened and closed.
func TestCostOfView(t *testing.T) {
	tk := largeToolkit(t, 1000, nil)
	s := new(toolkit.Scope)
	newView(t, tk, s)
	t.Run("again", func(t *testing.T) {
		budget.Hold(t, budget.Cost{}, 100, func() {
			for range 100 {
				newView(t, tk, s)
			}
		})
	})
	t.Run("a group opened", func(t *testing.T) {
		budget.Hold(t, budget.Cost{Allocs: 30, Bytes: 1240}, 1, func() {
			if _, err := tk.Enable(context.Background(), s, "group7"); err != nil {
				t.Fatal(err)
			}
			newView(t, tk, s)
			if _, err := tk.Disable(context.Background(), s, "group7"); err != nil {
				t.Fatal(err)
			}
			newView(t, tk, s)
		})
	})
}

// TestCostOfCeilings: the memory for ceilings, which may differ in every request, does not
// grow without limit.
func TestCostOfCeilings(t *testing.T) {
	tk := largeToolkit(t, 100, nil)
	n := 0
	request := func() *[256]byte { // returns memory to keep, so that noise matters less
		n++
		newView(t, tk, newScope(toolkit.Only("*", fmt.Sprint("request", n)), ""))
		return new([256]byte)
	}
	for range 500 {
		request()
	}
	if kept := budget.Kept(2000, request); kept > 500 {
		t.Errorf("%v bytes for each ceiling that was ever used", kept)
	}
	runtime.KeepAlive(tk)
}
