package toolkit_test

import (
	"context"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/budget"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestCostOfToolkit is what a toolkit of twenty tools keeps, beside the tools.
func TestCostOfToolkit(t *testing.T) {
	tools := fakes(strings.Fields("a b c d e f g h i j k l m n o p q r s t")...)
	const want = 2_860
	if n := budget.Kept(500, func() *toolkit.Toolkit { return toolkit.Of(tools...) }); n > want*1.15 || n < want*0.6 {
		t.Errorf("%v bytes; the budget is %v", n, want)
	}
}

// TestCostOfView is a view of 1,000 tools in 50 groups: one that is there
// already, and a new one because a group was opened and closed again.
func TestCostOfView(t *testing.T) {
	tk := large(t, 1000, nil)
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
		budget.Hold(t, budget.Cost{Allocs: 26, Bytes: 1050}, 1, func() {
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
