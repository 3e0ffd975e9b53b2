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
		"a\u202eb\u2066c\u200bd":      "abcd",          // bidirectional controls and a zero-width space
		"x\U000e0041\U000e0042":       "x",             // tags: ASCII that only a model reads
		"v\ufe0f\U000e0100":           "v",             // variation selectors
		"h\u3164\u115f\u034f":         "h",             // blank letters
		"one\u2028two\u2029three":     "one two three", // line breaks in some programs
		"bad \xff":                    "bad \ufffd",
	} {
		if got := visible.Text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestEscape(t *testing.T) {
	for _, row := range []struct {
		in, want string
		found    int
	}{
		{"", "", 0},
		{"two\n\tlines, ünïcode, 你, 😀", "two\n\tlines, ünïcode, 你, 😀", 0},
		{"// note\rrm -rf x", "// note[<U+000D>]rm -rf x", 1},
		{"// note\u2028code", "// note[<U+2028>]code", 1},
		{"a\u202eb\u2066c\u200bd", "a[<U+202E>]b[<U+2066>]c[<U+200B>]d", 3},
		{"x\U000e0041", "x[<U+E0041>]", 1},
		{"no\u00a0break\u3000wide", "no[<U+00A0>]break[<U+3000>]wide", 2},
		{"h\u3164\ufe0f", "h[<U+3164>][<U+FE0F>]", 2},
		{"esc\x1b[31m\x00", "esc[<U+001B>][31m[<U+0000>]", 2},
		{"bad \xff\ufffd", "bad [<0xFF>]\ufffd", 1},
	} {
		got, found := visible.Escape(row.in, func(s string) string { return "[" + s + "]" })
		if got != row.want || found != row.found {
			t.Errorf("%q: %q with %d, want %q with %d", row.in, got, found, row.want, row.found)
		}
	}
	if got, _ := visible.Escape("a\rb", nil); got != "a<U+000D>b" {
		t.Errorf("without a mark: %q", got)
	}
}
