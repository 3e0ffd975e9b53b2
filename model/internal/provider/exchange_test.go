package provider

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

type spaces struct{}

func (spaces) Read(p []byte) (int, error) { return copy(p, strings.Repeat(" ", len(p))), nil }

// TestUnstreamedLimit: an answer that never ends fails at the limit.
func TestUnstreamedLimit(t *testing.T) {
	for _, first := range []string{"{", "<"} {
		r := bufio.NewReader(io.MultiReader(strings.NewReader(first), spaces{}))
		if _, err := ReadUnstreamed(r); err == nil || !strings.Contains(err.Error(), "longer than") {
			t.Error(err)
		}
	}
}
