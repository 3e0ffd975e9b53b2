package builtin

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
)

// TestClip checks that the result is the head and the tail of the output, however it is split into writes and takes.
func TestClip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		head, tail := rapid.IntRange(0, 8).Draw(t, "head"), rapid.IntRange(1, 8).Draw(t, "tail")
		pieces := rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", "\n", "\r\n", "\r", "é", "你", "\xe4", "\xbd", "\xa0", "\xff", "hello"})).Draw(t, "pieces")
		c := newClip(head, tail)
		got := ""
		for _, p := range pieces {
			c.Write([]byte(p))
			if rapid.Bool().Draw(t, "take") {
				got += c.takePending()
			}
		}
		got += c.takePending()
		rest, omitted, _ := c.finish()
		all := []rune(cleanText([]byte(strings.Join(pieces, ""))))
		want := string(all)
		if len(all) > head+tail {
			want = string(all[:head]) + string(all[len(all)-tail:])
		}
		if got+rest != want || omitted != max(0, len(all)-head-tail) || !utf8.ValidString(got+rest) {
			t.Fatalf("%q, %d left out; want %q of %q", got+rest, omitted, want, string(all))
		}
		if c.empty() != (want == "") {
			t.Fatalf("empty is %t after %q", c.empty(), want)
		}
	})
}
