package wire

import (
	"strings"
	"testing"
)

// TestTail keeps the end of a message that is too long, wherever the reader's buffer ends.
func TestTail(t *testing.T) {
	const end = `"},"id":12345}` + "\n"
	for pad := range 20 {
		in := `{"method":"x","params":{"x":"` + strings.Repeat("a", 3*keptOfTooLong-40+pad) + end
		lines := make(chan Line, 2)
		ReadLines(t.Context(), strings.NewReader(in), len(in)-1, lines)
		if l := <-lines; !l.TooLong || !strings.HasSuffix(string(l.Tail), end) || len(l.Tail) > keptOfTooLong {
			t.Errorf("%d bytes: the tail is %.60q", len(in), l.Tail)
		}
	}
}
