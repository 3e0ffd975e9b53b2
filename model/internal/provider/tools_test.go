package provider

import (
	"fmt"
	"testing"

	"github.com/kitbag-go/kitbag/tool"
)

// TestToolCacheIsBounded: only a limited number of encoded tool lists is kept, and each is the right one.
func TestToolCacheIsBounded(t *testing.T) {
	var c ToolCache[int]
	encode := func(tools []tool.Info) (*int, error) { return new(len(tools)), nil }
	for i := range 3 * maxToolLists {
		n, err := c.Get(make([]tool.Info, i), fmt.Sprint(i), encode)
		if err != nil || *n != i {
			t.Fatalf("digest %d: a list of %v, %v", i, n, err)
		}
	}
	if n := len(c.lists); n > maxToolLists {
		t.Errorf("%d lists are kept", n)
	}
}
