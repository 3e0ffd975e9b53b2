// Package sharedtest checks implementations of [mcpserver.Shared].
//
//	func TestShared(t *testing.T) { sharedtest.Run(t, open(t), open(t)) }
package sharedtest

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
)

// Run checks two views of the same values, as two replicas have them. They must be empty.
func Run(t *testing.T, one, other mcpserver.Shared) {
	t.Run("swap", func(t *testing.T) { testSwap(t, one, other) })
	t.Run("expiry", func(t *testing.T) { testExpiry(t, one, other) })
	t.Run("concurrent", func(t *testing.T) { testConcurrent(t, one, other) })
}

// testSwap checks, for every combination of old, new and stored value, that Swap changes the value only if old is
// the stored one.
func testSwap(t *testing.T, one, other mcpserver.Shared) {
	values := [][]byte{nil, {}, []byte("a"), {0, 255, '\''}}
	for i, stored := range values {
		for j, old := range values {
			for k, new := range values {
				key := fmt.Sprintf("swap/%d/%d/%d", i, j, k)
				if ok, err := one.Swap(t.Context(), key, nil, stored, time.Hour); !ok || err != nil {
					t.Fatalf("store %q under a new key: %v %v", stored, ok, err)
				}
				swaps, want := i == j, stored
				if swaps {
					want = new
				}
				if ok, err := other.Swap(t.Context(), key, old, new, time.Hour); ok != swaps || err != nil {
					t.Errorf("%q is stored: swap %q by %q: %v %v, want %v", stored, old, new, ok, err, swaps)
				}
				if got, err := one.Get(t.Context(), key); err != nil || (got == nil) != (want == nil) || !bytes.Equal(got, want) {
					t.Errorf("%q was stored, and %q swapped by %q: now %q %v, want %q", stored, old, new, got, err, want)
				}
			}
		}
	}
}

// testExpiry checks that expired values are treated as missing.
func testExpiry(t *testing.T, one, other mcpserver.Shared) {
	swap := func(s mcpserver.Shared, old, new string, ttl time.Duration) bool {
		t.Helper()
		var before []byte
		if old != "" {
			before = []byte(old)
		}
		ok, err := s.Swap(t.Context(), "expiry", before, []byte(new), ttl)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if !swap(one, "", "a", 50*time.Millisecond) {
		t.Error("a new key cannot be used")
	}
	time.Sleep(200 * time.Millisecond)
	if swap(other, "a", "b", time.Hour) {
		t.Error("a value that has expired was swapped")
	}
	if !swap(other, "", "c", time.Second) {
		t.Error("the key of a value that has expired cannot be used")
	}
	if !swap(one, "c", "d", time.Hour) {
		t.Error("a value that has not expired cannot be swapped")
	}
	time.Sleep(1100 * time.Millisecond)
	if got, err := one.Get(t.Context(), "expiry"); string(got) != "d" || err != nil {
		t.Errorf("a swapped value expires at the time of the previous one: %q %v", got, err)
	}
}

// testConcurrent increments a counter by many goroutines, each of which repeats Swap until it succeeds.
func testConcurrent(t *testing.T, one, other mcpserver.Shared) {
	const goroutines, each = 4, 10
	var work sync.WaitGroup
	for i := range goroutines {
		s := []mcpserver.Shared{one, other}[i%2]
		work.Go(func() {
			for done := 0; done < each; {
				old, err := s.Get(t.Context(), "count")
				n, _ := strconv.Atoi(string(old))
				ok := false
				if err == nil {
					ok, err = s.Swap(t.Context(), "count", old, []byte(strconv.Itoa(n+1)), time.Hour)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					done++
				}
			}
		})
	}
	work.Wait()
	if got, err := one.Get(t.Context(), "count"); string(got) != strconv.Itoa(goroutines*each) || err != nil {
		t.Errorf("counted to %q %v, want %d", got, err, goroutines*each)
	}
}
