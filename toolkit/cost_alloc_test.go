package toolkit_test

import (
	"context"
	"testing"

	"github.com/kitbag-go/kitbag/internal/budget"
	"github.com/kitbag-go/kitbag/toolkit"
)

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
