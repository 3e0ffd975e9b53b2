// Package visible removes invisible characters from texts. Models, tools and servers may send characters that
// repaint a terminal, or text that a model reads and the user does not see.
package visible

import (
	"strings"
	"unicode"
)

// Text returns s without control characters except line breaks and tabs, and without invisible ones: Unicode's
// format characters and tags, variation selectors, and blank letters. Line and paragraph separators, which only
// some programs display as line breaks, become spaces. Bytes that are not UTF-8 become U+FFFD.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\u2028' || r == '\u2029':
			return ' '
		case removed(r):
			return -1
		}
		return r
	}, s)
}

// removed reports whether Text removes r.
func removed(r rune) bool {
	return r != '\n' && r != '\t' && unicode.IsControl(r) ||
		unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// Cut returns s, or the whole characters in its first limit bytes followed by mark, if s is longer.
func Cut(s string, limit int, mark string) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + mark
}
