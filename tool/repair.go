package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// The repairer reads what models send in place of JSON: single quotes, Python
// literals, trailing commas, comments, code fences and prose around it. It
// takes one pass with a bounded look-ahead, so that its time is linear in the
// text.
//
// It never guesses where text ends. What ran out inside a value looks complete
// once it is closed and yet is wrong (/tmp/a of /tmp/abc), so it is reported as
// truncated and must not be run.

// lookahead bounds how far a decision looks, in bytes.
const lookahead = 256

var errNoJSON = errors.New("there is no JSON object in it")

// repaired is what repair found.
type repaired struct {
	value     *value
	notes     []string // what was put right, in order, each once
	truncated bool
}

// repair reads text that is not valid JSON. It fails on text without an object,
// an array or a string in it, and on several different objects.
func repair(raw []byte) (repaired, error) {
	r := &repairer{s: raw}
	v, err := r.document()
	return repaired{v, r.notes, r.truncated}, err
}

type repairer struct {
	s         []byte
	i         int
	depth     int
	arrays    int // open ones
	objects   int
	parens    int
	stop      int     // where a word is known to end
	pending   *string // a key that an array ran into; its object is further out
	notes     []string
	truncated bool
}

func (r *repairer) note(s string) {
	if !slices.Contains(r.notes, s) {
		r.notes = append(r.notes, s)
	}
}

func (r *repairer) eof() bool { return r.i >= len(r.s) }

// peek returns the byte at offset n from here, or 0.
func (r *repairer) peek(n int) byte {
	if i := r.i + n; i < len(r.s) {
		return r.s[i]
	}
	return 0
}

func (r *repairer) at(prefix string) bool {
	return bytes.HasPrefix(r.s[r.i:], []byte(prefix))
}

// document reads the whole text.
func (r *repairer) document() (*value, error) {
	r.s = bytes.TrimPrefix(r.s, []byte("\ufeff"))
	r.unescapeAll()
	v, err := r.start()
	if err != nil || r.truncated {
		return v, err
	}
	return r.rest(v)
}

// unescapeAll undoes one level of escapes where the whole text has one too
// many: {\"a\": 1}.
func (r *repairer) unescapeAll() {
	t := bytes.TrimLeft(r.s, " \t\r\n")
	if !bytes.HasPrefix(t, []byte("{")) || !bytes.HasPrefix(bytes.TrimLeft(t[1:], " \t\r\n"), []byte(`\"`)) {
		return
	}
	var s string
	if json.Unmarshal(slices.Concat([]byte{'"'}, bytes.TrimSpace(t), []byte{'"'}), &s) == nil {
		r.s = []byte(s)
		r.note("escaped quotes")
	}
}

// start finds where the JSON begins and reads it.
func (r *repairer) start() (*value, error) {
	r.space()
	switch r.peek(0) {
	case '{', '[':
		return r.value(valueAtRoot)
	case '"', '\'':
		begin := r.i
		v, err := r.value(valueAtRoot)
		if r.space(); err != nil || r.truncated || r.peek(0) != ':' {
			return v, err
		}
		r.i = begin
		r.note("missing brace")
		return r.members('}')
	}
	brace := bytes.IndexAny(r.s[r.i:], "{[")
	paren := bytes.IndexByte(r.s[r.i:], '(')
	if paren > 0 && (brace < 0 || paren < brace) && callee(r.s[r.i:r.i+paren]) {
		r.i += paren + 1
		r.note("a call around the arguments")
		r.space()
		if r.peek(0) == '{' {
			return r.value(valueAtRoot)
		}
		r.parens++
		defer func() { r.parens-- }()
		return r.members(')')
	}
	if keyFollows(r.window(r.i)) && !r.at("http") && (brace < 0 || r.s[r.i+brace-1] != '\n') && bytes.IndexByte(r.s[r.i:r.i+max(brace, 0)], '\n') < 0 {
		if v, ok := r.braceless(); ok {
			return v, nil
		}
	}
	if brace < 0 {
		return nil, errNoJSON
	}
	if bytes.Contains(r.s[r.i:r.i+brace], []byte("```")) {
		r.note("code fence")
	} else {
		r.note("text around the JSON")
	}
	r.i += brace
	return r.value(valueAtRoot)
}

// braceless reads members that lack only the opening brace.
func (r *repairer) braceless() (*value, bool) {
	save := *r
	v, err := r.members('}')
	if err != nil || r.truncated {
		notes := save.notes
		*r = save
		r.notes = notes
		return nil, false
	}
	r.note("missing brace")
	return v, true
}

func callee(s []byte) bool {
	for _, c := range string(bytes.TrimSpace(s)) {
		if !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// rest looks at what follows the document: nothing that matters, or a second
// object.
func (r *repairer) rest(v *value) (*value, error) {
	for {
		r.space()
		for !r.eof() && bytes.IndexByte([]byte(")]};,"), r.peek(0)) >= 0 {
			r.note("extra bracket")
			r.i++
			r.space()
		}
		switch {
		case r.eof():
			return v, nil
		case r.at("```"):
			r.note("code fence")
			return v, nil
		case r.peek(0) != '{':
			r.note("text around the JSON")
			return v, nil
		}
		next, err := r.value(valueAtRoot)
		if err != nil || r.truncated {
			return next, err
		}
		a, b := v.appendJSON(nil), next.appendJSON(nil)
		switch {
		case string(a) == "{}" || bytes.Equal(a, b):
			v = next
		case string(b) != "{}":
			return nil, errors.New("there are several JSON objects in it; send one")
		}
		r.note("repeated object")
	}
}

// space skips white space and comments.
func (r *repairer) space() {
	for !r.eof() {
		c := r.peek(0)
		switch {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f':
			r.i++
		case c >= utf8.RuneSelf:
			wide, n := utf8.DecodeRune(r.s[r.i:])
			if !isSpace(wide) {
				return
			}
			r.i += n
		case c == '/' && r.peek(1) == '/', c == '#':
			r.note("comment")
			r.skipPast("\n")
		case c == '/' && r.peek(1) == '*':
			r.note("comment")
			r.i += 2
			r.skipPast("*/")
		default:
			return
		}
	}
}

func (r *repairer) skipPast(end string) {
	if n := bytes.Index(r.s[r.i:], []byte(end)); n >= 0 {
		r.i += n + len(end)
	} else {
		r.i = len(r.s)
	}
}

// Where a value stands decides what can end it.
type place byte

const (
	valueAtRoot place = iota
	valueInObject
	valueInArray
)

func (r *repairer) value(p place) (*value, error) {
	if r.depth++; r.depth > maxDepth {
		return nil, errors.New("it is nested too deep")
	}
	defer func() { r.depth-- }()
	switch c := r.peek(0); {
	case c == '{':
		r.i++
		return r.object()
	case c == '[':
		r.i++
		return r.array(']')
	case c == '(':
		r.i++
		r.note("tuple")
		r.parens++
		defer func() { r.parens-- }()
		return r.array(')')
	case r.quote() != "":
		return r.strings(p)
	}
	return r.word(p)
}

func (r *repairer) object() (*value, error) {
	r.space()
	if r.peek(0) == '{' { // {{"a": 1}}, of a template
		r.note("doubled braces")
		v, err := r.value(valueInObject)
		if r.space(); r.peek(0) == '}' {
			r.i++
		}
		return v, err
	}
	r.objects++
	defer func() { r.objects-- }()
	return r.members('}')
}

// members reads the inside of an object up to the closing bracket.
func (r *repairer) members(end byte) (*value, error) {
	v := &value{kind: objectValue}
	for comma := true; ; {
		r.space()
		switch c := r.peek(0); {
		case r.eof():
			r.truncated = true
			return v, nil
		case c == end, c == '}':
			if comma && len(v.members) > 0 {
				r.note("trailing comma")
			}
			r.i++
			return v, v.unique()
		case r.arrays > 0 && (c == ']' || c == '{' && len(v.members) > 0):
			r.note("missing bracket")
			return v, v.unique()
		case c == ']' || c == ')':
			r.note("extra bracket")
			r.i++
			continue
		case c == ',' || c == ';':
			if comma || c == ';' {
				r.note("extra comma")
			}
			comma = true
			r.i++
			continue
		}
		if !comma && r.pending == nil {
			r.note("missing comma")
		}
		m, err := r.member()
		if err != nil {
			return nil, err
		}
		if r.truncated {
			if m.value != nil {
				v.members = append(v.members, m)
			}
			return v, nil
		}
		v.members = append(v.members, m)
		comma = false
	}
}

func (r *repairer) member() (member, error) {
	var m member
	if r.pending != nil {
		m.name, r.pending = *r.pending, nil
	} else if r.quote() != "" {
		m.name = r.str(true, valueInObject)
	} else if m.name = r.bareKey(); m.name == "" {
		return m, errors.New("it has a field without a name")
	}
	r.space()
	switch {
	case r.eof():
		r.truncated = true
		return m, nil
	case r.at("=>"), r.at(":="):
		r.note("another sign for the colon")
		r.i += 2
	case r.peek(0) == ':':
		r.i++
	case r.peek(0) == '=':
		r.note("another sign for the colon")
		r.i++
	case r.at("："):
		r.note("another sign for the colon")
		r.i += len("：")
	default:
		r.note("missing colon")
	}
	r.space()
	switch r.peek(0) {
	case ',', '}', ']', ')':
		r.note("missing value")
		m.value = &value{kind: nullValue, raw: []byte("null")}
		return m, nil
	}
	if r.eof() {
		r.truncated = true
		return m, nil
	}
	var err error
	m.value, err = r.value(valueInObject)
	return m, err
}

func (r *repairer) bareKey() string {
	start := r.i
	for !r.eof() {
		c, n := utf8.DecodeRune(r.s[r.i:])
		if !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("_-$.@", c) {
			break
		}
		r.i += n
	}
	r.note("unquoted key")
	return string(r.s[start:r.i])
}

func (r *repairer) array(end byte) (*value, error) {
	r.arrays++
	defer func() { r.arrays-- }()
	v := &value{kind: arrayValue}
	for comma := true; ; {
		r.space()
		switch c := r.peek(0); {
		case r.eof():
			r.truncated = true
			return v, nil
		case c == end, c == ']', c == ')':
			if comma && len(v.items) > 0 && end == ']' {
				r.note("trailing comma")
			}
			r.i++
			return v, nil
		case c == '}':
			if r.objects > 0 {
				r.note("missing bracket")
				return v, nil
			}
			r.note("extra bracket")
			r.i++
			continue
		case c == ',' || c == ';' || c == ':':
			if comma || c != ',' {
				r.note("extra comma")
			}
			comma = true
			r.i++
			continue
		case r.at("..."), r.at("…"):
			r.note("ellipsis")
			r.i += 3
			continue
		}
		if !comma {
			r.note("missing comma")
		}
		item, err := r.value(valueInArray)
		if err != nil {
			return nil, err
		}
		if r.truncated || r.pending != nil {
			return v, nil
		}
		if r.space(); r.peek(0) == ':' && item.kind == stringValue && r.objects > 0 {
			r.note("missing bracket")
			key := item.text()
			r.pending = &key
			return v, nil
		}
		v.items = append(v.items, item)
		comma = false
	}
}

// literals are words that stand for JSON's three.
var literals = map[string]string{
	"true": "true", "True": "true", "TRUE": "true",
	"false": "false", "False": "false", "FALSE": "false",
	"null": "null", "None": "null", "nil": "null", "undefined": "null", "NULL": "null",
	"NaN": "null", "nan": "null", "Infinity": "null", "-Infinity": "null",
}

// word reads what is not quoted: a number, a literal, or text.
func (r *repairer) word(p place) (*value, error) {
	start := r.i
	r.token()
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
			v.source = w
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

// token skips a number or a literal, if it stands for itself.
func (r *repairer) token() {
	window := r.window(r.i)
	n := strings.IndexFunc(window, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '+' && c != '-' && c != '.' && c != '_'
	})
	if n <= 0 {
		return
	}
	w := window[:n]
	rest := trimSpace(window[n:])
	if _, ok := literals[w]; !ok && fixNumber(w) == "" {
		return
	}
	if after, ok := strings.CutPrefix(rest, ","); ok {
		rest = trimSpace(after)
	}
	if rest != "" && strings.ContainsRune(";)\"'/#{[", rune(rest[0])) {
		r.i += n
		r.stop = r.i
	}
}

// endsWord reports whether an unquoted word ends here.
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

// fixNumber returns the JSON form of a number, or "".
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

// quotes are what may open a string, longest first, with what closes it.
var quotes = []struct{ open, close string }{
	{`"""`, `"""`}, {`'''`, `'''`}, {`"`, `"`}, {`'`, `'`}, {"`", "`"},
	{"“", "”"}, {"‘", "’"}, {"”", "”"}, {"«", "»"}, {"「", "」"},
}

// quote returns the quote that opens a string here, or "". Python's prefixes
// (r"…") are skipped.
func (r *repairer) quote() string {
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
		if r.at(q.open) && !(q.open == `"""` && r.emptyString()) {
			return q.open
		}
	}
	return ""
}

// emptyString tells "" followed by a stray quote from a triple quote.
func (r *repairer) emptyString() bool {
	return !bytes.Contains(r.s[r.i+3:], []byte(`"""`))
}

// strings reads a string, or several that Python or JavaScript would join.
func (r *repairer) strings(p place) (*value, error) {
	text := r.str(false, p)
	for !r.truncated {
		save := r.i
		if r.space(); r.peek(0) != '+' {
			r.i = save
			break
		}
		r.i++
		if r.space(); r.quote() == "" {
			r.i = save
			break
		}
		r.note("joined strings")
		text += r.str(false, p)
	}
	return newString(text), nil
}

// str reads one string; isKey tells that a colon must follow it.
func (r *repairer) str(isKey bool, p place) string {
	open := r.quote()
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
		case r.at(closing) && (len(closing) == 3 || r.closes(r.i+len(closing), isKey, p)):
			r.i += len(closing)
			return string(b)
		default:
			if c < ' ' {
				r.note("control character in a string")
			} else if r.at(closing) {
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
		return append(b, map[byte]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}[c])
	case '\'', '`':
		r.note("invalid escape")
		return append(b, c)
	case '\n':
		r.note("invalid escape")
		return b
	case 'u', 'x':
		n := map[byte]int{'u': 4, 'x': 2}[c]
		if code, ok := r.hex(n); ok {
			r.i += n
			if low, ok := r.lowSurrogate(code); ok {
				code = low
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

func (r *repairer) hex(n int) (rune, bool) {
	if r.i+n > len(r.s) {
		return 0, false
	}
	code, err := strconv.ParseUint(string(r.s[r.i:r.i+n]), 16, 32)
	return rune(code), err == nil
}

// lowSurrogate reads the second half of a pair.
func (r *repairer) lowSurrogate(high rune) (rune, bool) {
	if !utf16.IsSurrogate(high) || !r.at(`\u`) {
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

// window returns the text from i on, as far as decisions look.
func (r *repairer) window(i int) string {
	return string(r.s[min(i, len(r.s)):min(i+lookahead, len(r.s))])
}

// closes decides whether a quote that ends at i ends the string, by what
// follows: models forget to escape quotes inside strings.
func (r *repairer) closes(i int, isKey bool, p place) bool {
	rest := trimSpace(r.window(i))
	if rest == "" {
		return true
	}
	if isKey {
		return true
	}
	switch rest[0] {
	case ')':
		return r.parens > 0
	case '}', ']':
		rest = strings.TrimLeft(rest, " \t\r\n}])")
		return rest == "" || strings.ContainsRune(",;`<", rune(rest[0])) || p == valueAtRoot ||
			keyFollows(rest) || rest[0] == '{' || strings.HasPrefix(rest, "//") || !r.sameQuoteAhead(rest)
	case ',', ';':
		if p == valueInArray {
			return itemFollows(rest[1:])
		}
		return memberFollows(rest[1:])
	case ':':
		return p == valueAtRoot || p == valueInArray && r.objects > 0
	case '+':
		rest = trimSpace(rest[1:])
		return rest != "" && (rest[0] == '"' || rest[0] == '\'')
	case '/':
		return strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, "/*")
	case '#':
		return true
	case '"', '\'':
		// A comma is missing, or this is a quotation.
		return p == valueInArray || keyFollows(rest)
	}
	return p == valueAtRoot || keyFollows(rest) && strings.Contains(r.window(i)[:len(r.window(i))-len(rest)], "\n")
}

func (r *repairer) sameQuoteAhead(rest string) bool { return strings.ContainsAny(rest, `"'`) }

func trimSpace(s string) string { return strings.TrimLeftFunc(s, isSpace) }

func isSpace(c rune) bool { return unicode.IsSpace(c) || c == '\u200b' || c == '\ufeff' }

// memberFollows reports whether, after a comma, another member or the end of
// the object comes.
func memberFollows(s string) bool {
	s = strings.TrimLeftFunc(s, func(c rune) bool { return isSpace(c) || c == ',' })
	return s == "" || strings.ContainsRune("}])#", rune(s[0])) || strings.HasPrefix(s, "//") || strings.HasPrefix(s, "/*") || keyFollows(s)
}

// itemFollows reports whether, after a comma, another item or the end of the
// array comes.
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
			return len(s) >= lookahead/2 // a long key, or none: assume the regular
		}
		s = trimSpace(s[end+2:])
		return s == "" || s[0] == ':' || s[0] == '=' || strings.HasPrefix(s, "：")
	}
	for _, q := range quotes[5:] {
		if rest, ok := strings.CutPrefix(s, q.open); ok {
			_, rest, _ = strings.Cut(rest, q.close)
			return strings.HasPrefix(trimSpace(rest), ":")
		}
	}
	n := strings.IndexFunc(s, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '_' && c != '-' && c != '$' && c != '.'
	})
	if n <= 0 {
		return false
	}
	s = strings.TrimLeft(s[n:], " \t")
	return strings.HasPrefix(s, ":") && !strings.HasPrefix(s, "://") || strings.HasPrefix(s, "=")
}
