// Package budget checks how much memory operations allocate, which is nearly the same on every machine.
//
// Tests that use it are named TestCost… and are in files *_alloc_test.go. `make costs` runs them without the race
// detector, which itself allocates: with it only a cost far above the budget fails.
package budget

import (
	"runtime"
	"slices"
	"testing"
)

// A Cost is what one operation allocates.
type Cost struct {
	Allocs float64
	Bytes  float64
}

// How far a cost may be from its budget. An operation that has become much cheaper fails
// too, so that the budget is lowered.
const (
	maxRatio    = 1.15
	minRatio    = 0.6
	slackAllocs = 2 // of each run of op, for what pools lose to the garbage collector
	slackBytes  = 256

	maxRatioUnderRace = 3
)

const (
	tries   = 5
	repeats = 10 // of op, in each try
)

// Hold fails the test unless an operation costs about as much as wanted. op must run the operation n times whenever it is
// called. Hold takes the minimum of several tries, since other goroutines of the process allocate too.
func Hold(t testing.TB, want Cost, n int, op func()) {
	t.Helper()
	tries, repeats := tries, repeats
	if race {
		tries, repeats = 3, 2 // slow, with a wide limit, and pools drop items at random
	}
	for range 3 { // so that what is allocated only once does not count
		op()
	}
	var got Cost
	for try := range tries {
		c := measure(n, repeats, op)
		if try == 0 {
			got = c
		}
		got = Cost{min(got.Allocs, c.Allocs), min(got.Bytes, c.Bytes)}
	}
	t.Logf("%.4g allocations, %.5g bytes", got.Allocs, got.Bytes)
	extra, extraBytes := slackAllocs/float64(n), slackBytes/float64(n)
	high, low := maxRatio, minRatio
	if race {
		high, low = maxRatioUnderRace, 0
	}
	if got.Allocs > want.Allocs*high+extra || got.Bytes > want.Bytes*high+extraBytes {
		t.Errorf("%.4g allocations and %.5g bytes; the budget is %v and %v", got.Allocs, got.Bytes, want.Allocs, want.Bytes)
	}
	if got.Allocs < want.Allocs*low-extra || got.Bytes < want.Bytes*low-extraBytes {
		t.Errorf("%.4g allocations and %.5g bytes are far less than the budget, %v and %v: lower it", got.Allocs, got.Bytes, want.Allocs, want.Bytes)
	}
}

func measure(n, repeats int, op func()) Cost {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range repeats {
		op()
	}
	runtime.ReadMemStats(&after)
	total := float64(repeats * n)
	return Cost{float64(after.Mallocs-before.Mallocs) / total, float64(after.TotalAlloc-before.TotalAlloc) / total}
}

// Kept returns how many bytes of heap each value that make returns keeps, measured with n values: the median of three
// measurements, since garbage of other tests may be freed during one of them.
func Kept[T any](n int, make func() T) float64 {
	bytes := []float64{kept(n, make), kept(n, make), kept(n, make)}
	slices.Sort(bytes)
	return bytes[1]
}

func kept[T any](n int, make func() T) float64 {
	values := append([]T(nil), make()) // allocate what all of them share
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range n {
		values = append(values, make())
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(values)
	return float64(int64(after.HeapAlloc)-int64(before.HeapAlloc)) / float64(n)
}
