package skill

import (
	"context"
	"testing"

	"github.com/kitbag-go/kitbag/internal/budget"
)

// TestCostOfScan measures the check for changes in a folder of 1,000 skills, per skill.
func TestCostOfScan(t *testing.T) {
	dir, files := thousand(t)
	l := In(dir)
	budget.Hold(t, budget.Cost{Allocs: 2, Bytes: 280}, len(files), func() {
		if skills, _, err := l.Load(context.Background()); err != nil || len(skills) != len(files) {
			t.Fatal(len(skills), err)
		}
	})
}
