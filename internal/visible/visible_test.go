package visible_test

import (
	"testing"

	"github.com/kitbag-go/kitbag/internal/visible"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "",
		"two\n\tlines, ünïcode, 你, 😀": "two\n\tlines, ünïcode, 你, 😀",
		"\x1b[31mred\x1b[0m\a\r":      "[31mred[0m",
		"c1 \u009b31m":                "c1 31m",
		"a\u202eb\u2066c\u200bd":      "abcd",          // the order of letters, and nothing at all
		"x\U000e0041\U000e0042":       "x",             // tags: ASCII that only a model reads
		"v\ufe0f\U000e0100":           "v",             // variation selectors
		"h\u3164\u115f\u034f":         "h",             // letters without a shape
		"one\u2028two\u2029three":     "one two three", // lines to some
		"bad \xff":                    "bad \ufffd",
	} {
		if got := visible.Text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
