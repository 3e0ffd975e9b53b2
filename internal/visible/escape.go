package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape returns s with every character that a person does not see, or takes for another
// one, written out as mark returns it, and how many there were. It is for what a person
// approves: nothing that will run may hide. Those are what [Text] removes or replaces, a
// carriage return among them, every space but the plain one, symbols that are blank, what is
// no character or a private one, marks beyond those that a letter carries, and bytes that are
// not UTF-8.
// Mark is given <U+202E> for a character and <0xFF> for a byte; nil leaves it so.
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

// maxMarks is how many marks a letter carries in the languages that have the most. A heap of
// them covers the lines above and below.
const maxMarks = 4

// blank are symbols, letters and marks that fonts draw as nothing.
var blank = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x2800, Hi: 0x2800, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x13441, Hi: 0x13442, Stride: 1}, {Lo: 0x16FE4, Hi: 0x16FE4, Stride: 1}, {Lo: 0x1D159, Hi: 0x1D159, Stride: 1}},
}

// hidden reports whether r cannot be seen for what it is.
func hidden(r rune) bool {
	return r != '\n' && r != '\t' && !unicode.IsPrint(r) || unicode.Is(blank, r) || removed(r)
}
