package gitignore

import (
	"strings"
	"unicode/utf8"
)

// A span is a range of characters from lo to hi; it is empty if lo is greater than hi.
type span struct{ lo, hi rune }

// named are the named classes, such as [[:alpha:]]. As in git they contain only ASCII.
var named = map[string][]span{
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

// class parses the class at the beginning of s, such as [a-z] or [!]a], and returns it in the syntax of
// doublestar, which has no named classes, requires escaped brackets, and lets a class match a slash. ok is
// false if the class matches nothing in git: it is not closed, or has an unknown name.
func class(s string) (glob, rest string, ok bool) {
	s = s[len("["):]
	negated := s != "" && (s[0] == '!' || s[0] == '^')
	if negated {
		s = s[1:]
	}
	var spans []span
	for first, ranged := true, false; s == "" || s[0] != ']' || first; first = false {
		if name, after, ok := className(s); ok {
			list, known := named[name]
			if !known {
				return "", "", false
			}
			spans, s, ranged = append(spans, list...), after, false
			continue
		}
		dash := ranged && len(s) > 1 && s[0] == '-' && s[1] != ']'
		if dash {
			s = s[1:]
		}
		s = strings.TrimPrefix(s, `\`)
		if s == "" {
			return "", "", false
		}
		c, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		if ranged = !dash; dash {
			spans[len(spans)-1].hi = c
		} else {
			spans = append(spans, span{c, c})
		}
	}
	return spell(spans, negated), s[len("]"):], true
}

// className parses a name such as [:alpha:]. Without the end of a name, the bracket matches itself.
func className(s string) (name, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, "[:")
	if i := strings.IndexByte(s, ']'); ok && i > 0 && s[i-1] == ':' {
		return s[:i-1], s[i+1:], true
	}
	return "", "", false
}

// spell writes a class for doublestar. The class never matches a slash.
func spell(spans []span, negated bool) string {
	var b strings.Builder
	b.WriteByte('[')
	if negated {
		b.WriteString("!/")
	}
	write := func(s span) {
		if s.lo > s.hi {
			return
		}
		b.WriteByte('\\')
		b.WriteRune(s.lo)
		if s.lo < s.hi {
			b.WriteString(`-\`)
			b.WriteRune(s.hi)
		}
	}
	for _, s := range spans {
		if s.lo <= '/' && '/' <= s.hi {
			write(span{s.lo, '/' - 1})
			s.lo = '/' + 1
		}
		write(s)
	}
	if b.Len() == len("[") { // an empty class: add a zero byte, which no name contains
		b.WriteByte(0)
	}
	b.WriteByte(']')
	return b.String()
}
