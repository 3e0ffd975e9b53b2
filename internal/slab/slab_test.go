package slab_test

import (
	"testing"

	"github.com/kitbag-go/kitbag/internal/slab"
)

// TestTake holds that no two are one, that each is zero, and that few allocations serve many.
func TestTake(t *testing.T) {
	const values = 100
	allocs := testing.AllocsPerRun(10, func() {
		var piece []int
		seen := make([]*int, 0, values)
		for i := range values {
			v := slab.Take(&piece)
			if *v != 0 {
				t.Fatalf("value %d is %d", i, *v)
			}
			*v = i + 1
			seen = append(seen, v)
		}
		for i, v := range seen {
			if *v != i+1 {
				t.Fatalf("value %d has become %d", i, *v)
			}
		}
	})
	if allocs > 7 { // 4, 8, 16, 32, 64, and what the test keeps
		t.Errorf("%v allocations for %d values", allocs, values)
	}
}
