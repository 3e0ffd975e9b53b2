package mcpclient

import (
	"testing"

	"github.com/kitbag-go/kitbag/internal/budget"
)

// TestCostOfCall checks the cost of a call over a pipe, including the server's part.
func TestCostOfCall(t *testing.T) {
	c, err := New("srv", Dial(inMemory(instantServer)), &Options{PingInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tl := find(t, c, "echo")
	budget.Hold(t, budget.Cost{Allocs: 150, Bytes: 14200}, 10, func() {
		for range 10 {
			for ch, err := range tl.Call(t.Context(), toolCall(tl, `{"message":"hello"}`)) {
				if err != nil || ch.Block == nil {
					t.Fatal(err)
				}
			}
		}
	})
}
