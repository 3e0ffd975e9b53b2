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

// unquoted reads what is not quoted: a number, a literal, or words. What reaches the end of the text may be cut off
// although it looks complete, such as the 1 of 15.
func (r *repairer) unquoted(p place) (*value, error) {
	start := r.i
	r.setStop(p)
	for !r.eof() && !r.endsWord(p) {
		_, n := utf8.DecodeRune(r.s[r.i:])
		r.i += n
	}
	if r.eof() {
		r.truncated = true
	}
	w := strings.TrimSpace(string(r.s[start:r.i]))
	if w == "" {
		return nil, errNoJSON
	}
	if lit, ok := literals[w]; ok {
		v := &value{kind: literalKind(lit[0]), raw: []byte(lit)}
		if lit != w {
			r.note("literal " + w)
			v.source = w // the schema may want a text; see convertTo
		}
		return v, nil
	}
	if num := fixNumber(w); num != "" {
		v := &value{kind: numberValue, raw: []byte(num)}
		if num != w {
			r.note("form of a number")
			v.source = w
		}
		return v, checkNumber(v.raw)
	}
	r.note("unquoted text")
	return newString(w), nil
}

// setStop sets stop after a number or a literal that is not part of a longer text: the 3 of
// [3 4] or of 3, "a", but not of 3 apples.
func (r *repairer) setStop(p place) {
	window := r.window(r.i)
	n := strings.IndexFunc(window, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '+' && c != '-' && c != '.' && c != '_'
	})
	if n <= 0 {
		return
	}
	w := window[:n]
	rest := trimSpace(window[n:])
	if !isScalar(w) {
		return
	}
	if after, ok := strings.CutPrefix(rest, ","); ok {
		rest = trimSpace(after)
	}
	// No text continues with these characters. A closing brace is not among them, since endsWord always stops at one.
	if rest != "" && strings.ContainsRune(";)]\"'/#{[", rune(rest[0])) || p == valueInArray && onlyTokens(rest) {
		r.i += n
		r.stop = r.i
	}
}

// onlyTokens reports whether s, up to the end of an item, is numbers and literals.
func onlyTokens(s string) bool {
	if i := strings.IndexAny(s, ",]\n"); i >= 0 {
		s = s[:i]
	}
	return !slices.ContainsFunc(strings.Fields(s), func(w string) bool { return !isScalar(w) })
}

func isScalar(w string) bool {
	_, ok := literals[w]
	return ok || fixNumber(w) != ""
}

// endsWord reports whether unquoted text ends here. In an object it may contain commas, so that only a comma before
// another member ends it. A comment must follow a blank: a URL contains //, and a colour #.
func (r *repairer) endsWord(p place) bool {
	if r.i == r.stop {
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
		return p == valueInArray || memberFollows(r.window(r.i+1))
	case '/':
		return r.peek(1) == '/' && r.i > 0 && r.s[r.i-1] == ' '
	case '#':
		return r.i > 0 && r.s[r.i-1] == ' '
	}
	return false
}

// fixNumber returns the JSON form of a number, or "". It knows +1, .5, 5., 007, 1_000 and,
// up to 64 bits, 0x1f, 0o17 and 0b11.
func fixNumber(w string) string {
	if len(w) > maxDigits || !strings.ContainsAny(w, "0123456789") || strings.ContainsAny(w, " :/") {
		return ""
	}
	if json.Valid([]byte(w)) && (w[0] == '-' || w[0] >= '0' && w[0] <= '9') {
		return w
	}
	sign := ""
	digits := strings.TrimPrefix(w, "+")
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

// quotes are the quotes that may open a string, longest first, with those that close it. From the
// sixth on they are typographic.
var quotes = []struct{ open, close string }{
	{`"""`, `"""`}, {`'''`, `'''`}, {`"`, `"`}, {`'`, `'`}, {"`", "`"},
	{"“", "”"}, {"‘", "’"}, {"”", "”"}, {"«", "»"}, {"「", "」"},
}

// moveToQuote returns the quote that opens a string here, or "". It moves past the prefixes of Python (r"…", rb"…").
func (r *repairer) moveToQuote() string {
	for n := range 3 {
		c := r.peek(n)
		if n > 0 && (c == '"' || c == '\'') {
			r.note("string prefix")
			r.i += n
			break
		}
		if bytes.IndexByte([]byte("rbufRBUF"), c) < 0 {
			break
		}
	}
	for _, q := range quotes {
		// Three quotes that are never closed are an empty string and a stray quote.
		if r.hasPrefix(q.open) && (q.open != `"""` || bytes.Contains(r.s[r.i+3:], []byte(`"""`))) {
			return q.open
		}
	}
	return ""
}

// joinedStrings reads a string, or several that Python or JavaScript would join.
func (r *repairer) joinedStrings(p place) (*value, error) {
	text := r.quoted(false, p)
	for !r.truncated {
		save := r.i // do not read a blank unless a plus follows
		if r.skipSpace(); r.peek(0) != '+' {
			r.i = save
			break
		}
		r.i++
		if r.skipSpace(); r.moveToQuote() == "" {
			r.i = save
			break
		}
		r.note("joined strings")
		text += r.quoted(false, p)
	}
	return newString(text), nil
}

// quoted reads one string; isKey says that a colon must follow it. A quote only ends the string if what comes next may
// follow a string. Quotes of three bytes, triple and most typographic ones, always end it. Line breaks and other
// control characters are part of the string.
func (r *repairer) quoted(isKey bool, p place) string {
	open := r.moveToQuote()
	closing := open
	for _, q := range quotes {
		if q.open == open {
			closing = q.close
		}
	}
	if open != `"` {
		r.note("other quotes")
	}
	r.i += len(open)
	var b []byte
	for !r.eof() {
		c := r.s[r.i]
		switch {
		case c == '\\':
			b = r.escape(b)
		case r.hasPrefix(closing) && (len(closing) == 3 || r.closes(r.i+len(closing), isKey, p)):
			r.i += len(closing)
			return string(b)
		default:
			if c < ' ' {
				r.note("control character in a string")
			} else if r.hasPrefix(closing) {
				r.note("quote inside a string")
			}
			b = append(b, c)
			r.i++
		}
	}
	r.truncated = true
	return string(b)
}

// escape reads one escape sequence and appends what it means.
func (r *repairer) escape(b []byte) []byte {
	c := r.peek(1)
	r.i += 2
	switch c {
	case 0:
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
			r.i += n
			if pair, ok := r.surrogatePair(code); ok {
				code = pair
			}
			if c == 'x' {
				r.note("invalid escape")
			}
			return utf8.AppendRune(b, code)
		}
	}
	// Most likely a Windows path or a regular expression: \d, C:\Users.
	r.note("invalid escape")
	r.i--
	return append(b, '\\')
}

// hex reads n hexadecimal digits without moving.
func (r *repairer) hex(n int) (rune, bool) {
	if r.i+n > len(r.s) {
		return 0, false
	}
	code, err := strconv.ParseUint(string(r.s[r.i:r.i+n]), 16, 32)
	return rune(code), err == nil
}

// surrogatePair reads the second half of a pair (RFC 8259, section 7), if there is one, and returns the rune that the
// halves encode.
func (r *repairer) surrogatePair(high rune) (rune, bool) {
	if !utf16.IsSurrogate(high) || !r.hasPrefix(`\u`) {
		return 0, false
	}
	r.i += 2
	if low, ok := r.hex(4); ok {
		if c := utf16.DecodeRune(high, low); c != unicode.ReplacementChar {
			r.i += 4
			return c, true
		}
	}
	r.i -= 2
	return 0, false
}

// window returns a copy of the text from i on, of at most lookahead bytes.
func (r *repairer) window(i int) string {
	return string(r.s[min(i, len(r.s)):min(i+lookahead, len(r.s))])
}

// closes decides whether a quote that ends at i ends the string, by what
// follows: models forget to escape quotes inside strings.
func (r *repairer) closes(i int, isKey bool, p place) bool {
	rest := trimSpace(r.window(i))
	if rest == "" || isKey { // keys contain no quotes
		return true
	}
	switch rest[0] {
	case ')': // of a tuple or a call; otherwise of prose: (as "he" said)
		return r.parens > 0
	case '}', ']':
		rest = strings.TrimLeft(rest, " \t\r\n}])")
		// Code in a string has brackets too, and more text after them.
		return rest == "" || strings.ContainsRune(",;`<{", rune(rest[0])) || p == valueAtRoot ||
			keyFollows(rest) || strings.HasPrefix(rest, "//") || !strings.ContainsAny(rest, `"'`)
	case ',', ';': // prose has commas too: look at what follows
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
	between := r.window(i)
	between = between[:len(between)-len(rest)]
	return p == valueAtRoot || keyFollows(rest) && strings.Contains(between, "\n")
}

// trimSpace removes leading white space, including Unicode's and characters without width.
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
	_, ok := literals[word]
	return ok
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
			return len(s) >= lookahead/2 // assume a long key
		}
		s = trimSpace(s[end+2:])
		return s == "" || s[0] == ':' || s[0] == '=' || strings.HasPrefix(s, "：")
	}
	for _, q := range quotes[5:] { // the typographic ones
		if rest, ok := strings.CutPrefix(s, q.open); ok {
			_, rest, _ = strings.Cut(rest, q.close)
			return strings.HasPrefix(trimSpace(rest), ":")
		}
	}
	// A bare key; the scheme of a URL is not one, although a colon follows.
	n := strings.IndexFunc(s, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '_' && c != '-' && c != '$' && c != '.'
	})
	if n <= 0 {
		return false
	}
	s = strings.TrimLeft(s[n:], " \t")
	return strings.HasPrefix(s, ":") && !strings.HasPrefix(s, "://") || strings.HasPrefix(s, "=")
}
