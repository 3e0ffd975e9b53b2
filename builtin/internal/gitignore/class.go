package gitignore

import (
	"strings"
	"unicode/utf8"
)

// A span is a range of characters from lo to hi; it is empty if lo is greater than hi.
type span struct{ lo, hi rune }

// namedClasses are the classes with a name, as in [[:alpha:]]. As in git they contain only ASCII.
var namedClasses = map[string][]span{
	"alnum":  {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}},
	"alpha":  {{'A', 'Z'}, {'a', 'z'}},
	"blank":  {{' ', ' '}, {'\t', '\t'}},
	"cntrl":  {{1, 31}, {127, 127}},
	"digit":  {{'0', '9'}},
	"graph":  {{'!', '~'}},
	"lower":  {{'a', 'z'}},
	"print":  {{' ', '~'}},
	"punct":  {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}},
	"space":  {{' ', ' '}, {'\t', '\r'}},
	"upper":  {{'A', 'Z'}},
	"xdigit": {{'0', '9'}, {'A', 'F'}, {'a', 'f'}},
}

// parseClass parses the class at the beginning of s, such as [a-z] or [!]a], and returns the class in the syntax of
// doublestar, which has no named classes, requires escaped brackets, and lets a class match a slash. ok is false if
// the class matches nothing in git: it is not closed, or has an unknown name.
func parseClass(s string) (glob, rest string, ok bool) {
	s = s[len("["):]
	negated := s != "" && (s[0] == '!' || s[0] == '^')
	if negated {
		s = s[1:]
	}
	var spans []span
	canExtend := false // whether the last span is one character, which a dash may extend to a range
	// A "]" that is first stands for itself.
	for first := true; first || !strings.HasPrefix(s, "]"); first = false {
		if name, after, ok := className(s); ok {
			class, known := namedClasses[name]
			if !known {
				return "", "", false
			}
			spans, s, canExtend = append(spans, class...), after, false
			continue
		}
		endsRange := canExtend && len(s) > 1 && s[0] == '-' && s[1] != ']'
		if endsRange {
			s = s[1:]
		}
		s = strings.TrimPrefix(s, `\`)
		if s == "" {
			return "", "", false
		}
		char, size := utf8.DecodeRuneInString(s)
		s = s[size:]
		if endsRange {
			spans[len(spans)-1].hi = char
		} else {
			spans = append(spans, span{char, char})
		}
		canExtend = !endsRange
	}
	return formatClass(spans, negated), s[len("]"):], true
}

// className parses a name such as [:alpha:] at the beginning of s. If ok is false, a bracket there stands for itself.
func className(s string) (name, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, "[:")
	if i := strings.IndexByte(s, ']'); ok && i > 0 && s[i-1] == ':' {
		return s[:i-1], s[i+1:], true
	}
	return "", "", false
}

// formatClass writes a class for doublestar that never matches a slash.
func formatClass(spans []span, negated bool) string {
	var b strings.Builder
	b.WriteByte('[')
	if negated {
		b.WriteString("!/")
	}
	write := func(lo, hi rune) {
		if lo > hi {
			return
		}
		b.WriteByte('\\')
		b.WriteRune(lo)
		if lo < hi {
			b.WriteString(`-\`)
			b.WriteRune(hi)
		}
	}
	for _, s := range spans {
		if s.lo <= '/' && '/' <= s.hi {
			write(s.lo, '/'-1)
			s.lo = '/' + 1
		}
		write(s.lo, s.hi)
	}
	if b.Len() == len("[") { // an empty class: add a zero byte, which no name contains
		b.WriteByte(0)
	}
	b.WriteByte(']')
	return b.String()
}
