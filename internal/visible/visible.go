// Package visible takes out of a text what a person who reads it does not see.
// Models, tools and servers choose their words, and may choose ones that repaint
// a terminal, or that a model reads and a person does not.
package visible

import (
	"strings"
	"unicode"
)

// Text returns s without control characters but line breaks and tabs, and without
// invisible ones: Unicode's format characters and tags, variation selectors, and
// letters without a shape. The separators of lines and paragraphs, which break
// lines in some programs only, become spaces. Bytes that are no UTF-8 become U+FFFD.
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

// removed reports whether Text leaves out r.
func removed(r rune) bool {
	return r != '\n' && r != '\t' && unicode.IsControl(r) ||
		unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}
