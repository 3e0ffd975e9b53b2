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
// carriage return among them, every space but the plain one, and bytes that are not UTF-8.
// Mark is given <U+202E> for a character and <0xFF> for a byte; nil leaves it so.
func Escape(s string, mark func(string) string) (text string, found int) {
	if mark == nil {
		mark = func(s string) string { return s }
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteString(mark(fmt.Sprintf("<0x%02X>", s[0])))
			found++
		case hidden(r):
			b.WriteString(mark(fmt.Sprintf("<%U>", r)))
			found++
		default:
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String(), found
}

// hidden reports whether r cannot be seen for what it is.
func hidden(r rune) bool {
	return r != ' ' && unicode.Is(unicode.Z, r) || removed(r)
}
