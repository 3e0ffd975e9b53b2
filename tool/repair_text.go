package tool

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// literals maps words of Python, JavaScript and Go to JSON's literals. Numbers that JSON does not have are null.
var literals = map[string]string{
	"true": "true", "True": "true", "TRUE": "true",
	"false": "false", "False": "false", "FALSE": "false",
	"null": "null", "None": "null", "nil": "null", "undefined": "null", "NULL": "null",
	"NaN": "null", "nan": "null", "Infinity": "null", "-Infinity": "null",
}

// unquoted reads a number, a literal, or words without quotes. A word at the end of the text may be cut off although it
// looks complete, such as 1 of 15.
func (r *repairer) unquoted(p place) (*value, error) {
	start := r.pos
	r.setWordEnd(p)
	for !r.eof() && !r.endsWord(p) {
		_, n := utf8.DecodeRune(r.text[r.pos:])
		r.pos += n
	}
	if r.eof() {
		r.truncated = true
	}
	word := strings.TrimSpace(string(r.text[start:r.pos]))
	if word == "" {
		return nil, errNoJSON
	}
	if lit, ok := literals[word]; ok {
		v := &value{kind: literalKind(lit[0]), raw: []byte(lit)}
		if lit != word {
			r.note("literal " + word)
			v.source = word // the schema may want a text; see convertTo
		}
		return v, nil
	}
	if num := fixNumber(word); num != "" {
		v := &value{kind: numberValue, raw: []byte(num)}
		if num != word {
			r.note("form of a number")
			v.source = word
		}
		return v, checkNumber(v.raw)
	}
	r.note("unquoted text")
	return newString(word), nil
}

// setWordEnd reads a number or a literal, and sets wordEnd after it, if it is not part of a longer text: the 3 of [3 4]
// or of 3, "a", but not of 3 apples.
func (r *repairer) setWordEnd(p place) {
	window := r.window(r.pos)
	n := strings.IndexFunc(window, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '+' && c != '-' && c != '.' && c != '_'
	})
	if n <= 0 || !isScalar(window[:n]) {
		return
	}
	rest := trimSpace(strings.TrimPrefix(trimSpace(window[n:]), ","))
	// No text continues with these characters. A closing brace is not among them, since endsWord always stops at one.
	if rest != "" && strings.ContainsRune(";)]\"'/#{[", rune(rest[0])) || p == valueInArray && onlyScalars(rest) {
		r.pos += n
		r.wordEnd = r.pos
	}
}

// onlyScalars reports whether s has only numbers and literals before the next comma, bracket or line break.
func onlyScalars(s string) bool {
	if i := strings.IndexAny(s, ",]\n"); i >= 0 {
		s = s[:i]
	}
	return !slices.ContainsFunc(strings.Fields(s), func(w string) bool { return !isScalar(w) })
}

func isScalar(word string) bool {
	_, isLiteral := literals[word]
	return isLiteral || fixNumber(word) != ""
}

// endsWord reports whether unquoted text ends at pos. In an object the text may contain commas: only a comma before
// another member ends it. A comment must follow a blank, since a URL contains //, and a colour #.
func (r *repairer) endsWord(p place) bool {
	if r.pos == r.wordEnd {
		return true
	}
	switch r.peek(0) {
	case '}', '\n':
		return true
	case ']':
		return p == valueInArray || r.arrays > 0
	case ')':
		return r.parens > 0
	case ',':
		return p == valueInArray || memberFollows(r.window(r.pos+1))
	case '/':
		return r.peek(1) == '/' && r.pos > 0 && r.text[r.pos-1] == ' '
	case '#':
		return r.pos > 0 && r.text[r.pos-1] == ' '
	}
	return false
}

// fixNumber returns the JSON form of a number, or "" if word is not a number. It knows +1, .5, 5., 007, 1_000 and, up
// to 64 bits, 0x1f, 0o17 and 0b11.
func fixNumber(word string) string {
	// A blank, colon or slash is part of a date, a time or a fraction.
	if len(word) > maxDigits || !strings.ContainsAny(word, "0123456789") || strings.ContainsAny(word, " :/") {
		return ""
	}
	if json.Valid([]byte(word)) && (word[0] == '-' || word[0] >= '0' && word[0] <= '9') { // not "1" or [1]
		return word
	}
	sign := ""
	digits := strings.TrimPrefix(word, "+")
	if rest, ok := strings.CutPrefix(digits, "-"); ok {
		sign, digits = "-", rest
	}
	if lower := strings.ToLower(digits); len(digits) > 2 && slices.Contains([]string{"0x", "0o", "0b"}, lower[:2]) {
		if n, err := strconv.ParseUint(lower, 0, 64); err == nil {
			return sign + strconv.FormatUint(n, 10)
		}
		return ""
	}
	if strings.Trim(digits, "0123456789_.eE+-") != "" || digits[0] == '_' {
		return ""
	}
	// JSON requires a digit on both sides of the point, and no leading zeros.
	digits = strings.ReplaceAll(digits, "_", "")
	if digits[0] == '.' {
		digits = "0" + digits
	}
	digits = strings.TrimSuffix(digits, ".")
	if trimmed := strings.TrimLeft(digits, "0"); trimmed == "" || trimmed[0] < '0' || trimmed[0] > '9' {
		digits = "0" + trimmed
	} else {
		digits = trimmed
	}
	if !json.Valid([]byte(digits)) {
		return ""
	}
	return sign + digits
}

type quotePair struct{ open, close string }

var typographicQuotes = []quotePair{{"“", "”"}, {"‘", "’"}, {"”", "”"}, {"«", "»"}, {"「", "」"}}

// quotes are all quotes that may surround a string. Triple quotes come before the single quotes they begin with.
var quotes = append([]quotePair{{`"""`, `"""`}, {`'''`, `'''`}, {`"`, `"`}, {`'`, `'`}, {"`", "`"}}, typographicQuotes...)

// moveToQuote returns the quote that opens a string at pos, or "" if pos is not at a string. It moves past a prefix of
// Python's strings (r"…", rb"…").
func (r *repairer) moveToQuote() string {
	for n := range 3 {
		c := r.peek(n)
		if n > 0 && (c == '"' || c == '\'') {
			r.note("string prefix")
			r.pos += n
			break
		}
		if bytes.IndexByte([]byte("rbufRBUF"), c) < 0 {
			break
		}
	}
	for _, q := range quotes {
		// If no other three quotes follow, three quotes are an empty string and a stray quote.
		if r.hasPrefix(q.open) && (q.open != `"""` || bytes.Contains(r.text[r.pos+3:], []byte(`"""`))) {
			return q.open
		}
	}
	return ""
}

// joinedStrings reads a string, or several strings joined by plus signs.
func (r *repairer) joinedStrings(p place) (*value, error) {
	text := r.quoted(false, p)
	for !r.truncated {
		afterString := r.pos // stay here unless a plus and a string follow
		if r.skipSpace(); r.peek(0) != '+' {
			r.pos = afterString
			break
		}
		r.pos++
		if r.skipSpace(); r.moveToQuote() == "" {
			r.pos = afterString
			break
		}
		r.note("joined strings")
		text += r.quoted(false, p)
	}
	return newString(text), nil
}

// quoted reads one string; isKey says that the string is the key of a member. A quote only ends the string if what comes
// next may follow a string. Quotes of three bytes, which are triple or typographic, are rare inside a string and always
// end it. Line breaks and other control characters are part of the string.
func (r *repairer) quoted(isKey bool, p place) string {
	open := r.moveToQuote()
	closing := quotes[slices.IndexFunc(quotes, func(q quotePair) bool { return q.open == open })].close
	if open != `"` {
		r.note("other quotes")
	}
	r.pos += len(open)
	var b []byte
	for !r.eof() {
		c := r.text[r.pos]
		switch {
		case c == '\\':
			b = r.escape(b)
		case r.hasPrefix(closing) && (len(closing) == 3 || r.closes(r.pos+len(closing), isKey, p)):
			r.pos += len(closing)
			return string(b)
		default:
			if c < ' ' {
				r.note("control character in a string")
			} else if r.hasPrefix(closing) {
				r.note("quote inside a string")
			}
			b = append(b, c)
			r.pos++
		}
	}
	r.truncated = true
	return string(b)
}

// escape reads one escape sequence and appends the characters that it stands for.
func (r *repairer) escape(b []byte) []byte {
	c := r.peek(1)
	r.pos += 2
	switch c {
	case 0: // the text ends after the backslash
		r.truncated = true
		return b
	case '"', '\\', '/':
		return append(b, c)
	case 'b', 'f', 'n', 'r', 't':
		return append(b, "\b\f\n\r\t"[strings.IndexByte("bfnrt", c)])
	case '\'', '`':
		r.note("invalid escape")
		return append(b, c)
	case '\n': // Python continues the string on the next line
		r.note("invalid escape")
		return b
	case 'u', 'x': // a surrogate alone becomes U+FFFD, as in encoding/json
		n := 4
		if c == 'x' { // \xff in Python and JavaScript
			n = 2
		}
		if code, ok := r.hex(n); ok {
			r.pos += n
			if pair, ok := r.surrogatePair(code); ok {
				code = pair
			}
			if c == 'x' {
				r.note("invalid escape")
			}
			return utf8.AppendRune(b, code)
		}
	}
	// Most likely a Windows path or a regular expression, such as C:\Users or \d: keep the backslash and what follows.
	r.note("invalid escape")
	r.pos--
	return append(b, '\\')
}

// hex returns the number that n hexadecimal digits at pos encode, without moving past them.
func (r *repairer) hex(n int) (rune, bool) {
	if r.pos+n > len(r.text) {
		return 0, false
	}
	code, err := strconv.ParseUint(string(r.text[r.pos:r.pos+n]), 16, 32)
	return rune(code), err == nil
}

// surrogatePair reads the escape of the low surrogate that belongs to high (RFC 8259, section 7), if it follows, and
// returns the rune that the pair encodes.
func (r *repairer) surrogatePair(high rune) (rune, bool) {
	if !utf16.IsSurrogate(high) || !r.hasPrefix(`\u`) {
		return 0, false
	}
	r.pos += 2
	if low, ok := r.hex(4); ok {
		if c := utf16.DecodeRune(high, low); c != unicode.ReplacementChar {
			r.pos += 4
			return c, true
		}
	}
	r.pos -= 2
	return 0, false
}

// window returns a copy of the text from i on, of at most lookahead bytes.
func (r *repairer) window(i int) string {
	return string(r.text[min(i, len(r.text)):min(i+lookahead, len(r.text))])
}

// closes decides whether a quote ends the string by the text after the quote, which begins at i: models forget to escape
// quotes inside strings.
func (r *repairer) closes(i int, isKey bool, p place) bool {
	window := r.window(i)
	rest := trimSpace(window)
	if rest == "" || isKey { // keys contain no quotes
		return true
	}
	switch rest[0] {
	case ')': // of a tuple or a call, else of prose, as in (so "he" said)
		return r.parens > 0
	case '}', ']':
		rest = strings.TrimLeft(rest, " \t\r\n}])")
		// Code in a string has brackets too, with more code after them. After the JSON's own brackets come a comma, the
		// next object, a code fence, a tag, a key, a comment or prose.
		return rest == "" || strings.ContainsRune(",;`<{", rune(rest[0])) || p == valueAtRoot ||
			keyFollows(rest) || strings.HasPrefix(rest, "//") || !strings.ContainsAny(rest, `"'`)
	case ',', ';': // prose has commas too
		if p == valueInArray {
			return itemFollows(rest[1:])
		}
		return memberFollows(rest[1:])
	case ':': // the string is a key, of an object without a brace or after a list without a bracket
		return p == valueAtRoot || p == valueInArray && r.objects > 0
	case '+': // "a" + "b"
		rest = trimSpace(rest[1:])
		return rest != "" && (rest[0] == '"' || rest[0] == '\'')
	case '/': // a comment
		return strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, "/*")
	case '#':
		return true
	case '"', '\'':
		// A comma is missing, or this is a quotation.
		return p == valueInArray || keyFollows(rest)
	}
	// A bare key on the next line, with the comma missing.
	space := window[:len(window)-len(rest)]
	return p == valueAtRoot || keyFollows(rest) && strings.Contains(space, "\n")
}

// trimSpace removes leading white space, including Unicode's, and invisible characters.
func trimSpace(s string) string { return strings.TrimLeftFunc(s, isSpace) }

func isSpace(c rune) bool { return unicode.IsSpace(c) || c == '\u200b' || c == '\ufeff' }

// memberFollows reports whether s, which follows a comma, begins with a member or the end of the object.
func memberFollows(s string) bool {
	s = strings.TrimLeftFunc(s, func(c rune) bool { return isSpace(c) || c == ',' })
	return s == "" || strings.ContainsRune("}])#", rune(s[0])) || strings.HasPrefix(s, "//") || strings.HasPrefix(s, "/*") || keyFollows(s)
}

// itemFollows reports whether s, which follows a comma, begins with an item or the end of the array.
func itemFollows(s string) bool {
	s = strings.TrimLeftFunc(s, func(c rune) bool { return isSpace(c) || c == ',' })
	if s == "" || strings.ContainsRune(`"'[{(]})#-0123456789`, rune(s[0])) || strings.HasPrefix(s, "//") || strings.HasPrefix(s, "...") {
		return true
	}
	word := s
	if i := strings.IndexAny(s, " ,]}\n\t"); i >= 0 {
		word = s[:i]
	}
	_, isLiteral := literals[word]
	return isLiteral
}

// keyFollows reports whether s begins with a key and a colon.
func keyFollows(s string) bool {
	s = trimSpace(s)
	if s == "" {
		return false
	}
	if q := s[0]; q == '"' || q == '\'' || q == '`' {
		end := strings.IndexByte(s[1:], q)
		if end < 0 {
			return len(s) >= lookahead/2 // the window may have ended inside a long key
		}
		s = trimSpace(s[end+2:])
		return s == "" || s[0] == ':' || s[0] == '=' || strings.HasPrefix(s, "：")
	}
	for _, q := range typographicQuotes {
		if rest, ok := strings.CutPrefix(s, q.open); ok {
			_, rest, _ = strings.Cut(rest, q.close)
			return strings.HasPrefix(trimSpace(rest), ":")
		}
	}
	// A bare key, but not the scheme of a URL.
	n := strings.IndexFunc(s, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '_' && c != '-' && c != '$' && c != '.'
	})
	if n <= 0 {
		return false
	}
	s = strings.TrimLeft(s[n:], " \t")
	return strings.HasPrefix(s, ":") && !strings.HasPrefix(s, "://") || strings.HasPrefix(s, "=")
}
