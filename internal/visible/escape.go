package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape replaces every invisible or misleading character in s by its number, and returns how many there were. Use it for
// text that a user approves: nothing that will run may be hidden. The number has the form <U+202E> for a character and
// <0xFF> for a byte; mark, if not nil, formats it.
//
// These are the characters that [Text] removes or replaces, carriage returns, every space but the
// plain one, blank symbols, unassigned and private characters, combining marks beyond those that
// letters have, and bytes that are not UTF-8.
func Escape(s string, mark func(string) string) (text string, found int) {
	if mark == nil {
		mark = func(s string) string { return s }
	}
	var b strings.Builder
	marks := 0 // in a row
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if unicode.Is(unicode.M, r) {
			marks++
		} else {
			marks = 0
		}
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteString(mark(fmt.Sprintf("<0x%02X>", s[0])))
			found++
		case hidden(r) || marks > maxMarks:
			b.WriteString(mark(fmt.Sprintf("<%U>", r)))
			found++
		default:
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String(), found
}

// maxMarks is the largest number of combining marks on a letter in any language. More marks cover the lines above and
// below.
const maxMarks = 4

// blank are symbols, letters and marks that fonts draw blank.
var blank = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x2800, Hi: 0x2800, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x13441, Hi: 0x13442, Stride: 1}, {Lo: 0x16FE4, Hi: 0x16FE4, Stride: 1}, {Lo: 0x1D159, Hi: 0x1D159, Stride: 1}},
}

// hidden reports whether r is invisible or misleading.
func hidden(r rune) bool {
	return r != '\n' && r != '\t' && !unicode.IsPrint(r) || unicode.Is(blank, r) || removed(r)
}
