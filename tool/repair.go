package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// lookahead is how many bytes past pos a decision may read: enough for a key and what follows the key.
// Without a limit a text of open quotes would take quadratic time.
const lookahead = 256

var errNoJSON = errors.New("the text has no JSON object")

// repair reads text that is not valid JSON, and returns the repairer for its notes and whether the text was cut off.
// It fails on text without an object, an array or a string in it, and on several different objects.
func repair(raw []byte) (*value, *repairer, error) {
	r := &repairer{text: raw}
	v, err := r.document()
	return v, r, err
}

// A repairer reads what models send instead of JSON: with single quotes, Python literals, trailing commas, comments,
// code fences or prose around it. It takes one pass with a bounded look-ahead, so that its time is linear.
//
// It tolerates wrong punctuation, but not a missing end: /tmp/a, cut off from /tmp/abc, would look right once its quote
// is closed. Such text is reported as truncated and must not be run. Nothing that could be a field is dropped.
//
// A method that reads something moves pos past it. Once truncated is set all methods return what they have.
type repairer struct {
	text  []byte
	pos   int // the part of text before pos has been read
	depth int // of the value that is being read

	arrays, objects, parens int // how many are open; they decide what a wrong closing bracket means

	wordEnd    int     // where an unquoted word is known to end; see setWordEnd
	pendingKey *string // a key that was read as an item of an array whose bracket is missing: "b" in {"a": [1, "b": 2}

	notes     []string // the repairs, in order, each once
	truncated bool
}

func (r *repairer) note(s string) {
	if !slices.Contains(r.notes, s) {
		r.notes = append(r.notes, s)
	}
}

func (r *repairer) eof() bool { return r.pos >= len(r.text) }

// peek returns the byte at pos+n, or 0 past the end of the text.
func (r *repairer) peek(n int) byte {
	if i := r.pos + n; i < len(r.text) {
		return r.text[i]
	}
	return 0
}

func (r *repairer) hasPrefix(prefix string) bool {
	return bytes.HasPrefix(r.text[r.pos:], []byte(prefix))
}

// document reads the whole text: the JSON and what surrounds it.
func (r *repairer) document() (*value, error) {
	r.text = bytes.TrimPrefix(r.text, []byte("\ufeff"))
	r.unescapeAll()
	v, err := r.findDocument()
	if err != nil || r.truncated {
		return v, err
	}
	return r.trailer(v)
}

// escapedObject matches the beginning of an object whose whole text was escaped: {\"a\": 1}, or {\n  \"a\": 1\n}.
var escapedObject = regexp.MustCompile(`^\{(\s|\\n)*\\"`)

// unescapeAll removes one level of escapes if the whole text was escaped.
func (r *repairer) unescapeAll() {
	escaped := bytes.TrimSpace(r.text)
	var unescaped string
	if escapedObject.Match(escaped) && json.Unmarshal(slices.Concat([]byte{'"'}, escaped, []byte{'"'}), &unescaped) == nil {
		r.text = []byte(unescaped)
		r.note("escaped quotes")
	}
}

// findDocument finds where the JSON begins and reads it. A text may begin with a bracket, a field ("a": 1, "b": 2} or
// a: 1}), a call (read(a=1, b=2) or read({"a": 1})), prose or a code fence.
func (r *repairer) findDocument() (*value, error) {
	r.skipSpace()
	switch r.peek(0) {
	case '{', '[':
		return r.value(valueAtRoot)
	case '"', '\'':
		begin := r.pos
		v, err := r.value(valueAtRoot)
		if r.skipSpace(); err != nil || r.truncated || r.peek(0) != ':' {
			return v, err // a string, which may contain the object; see coercer.coerceArguments
		}
		r.pos = begin
		r.note("missing brace")
		return r.members('}')
	}
	if n := callPrefixLen(r.text[r.pos:]); n > 0 {
		r.pos += n
		r.note("a call around the arguments")
		r.skipSpace()
		if r.peek(0) == '{' {
			return r.value(valueAtRoot)
		}
		r.parens++
		defer func() { r.parens-- }()
		return r.members(')')
	}
	brace := bytes.IndexAny(r.text[r.pos:], "{[")
	beforeBrace := r.text[r.pos : r.pos+max(brace, 0)]
	// "a: 1, b: 2}" is an object, "Here it is:\n{…}" is prose.
	if keyFollows(r.window(r.pos)) && !bytes.Contains(beforeBrace, []byte("\n")) {
		if v, ok := r.braceless(); ok {
			return v, nil
		}
	}
	if brace < 0 {
		return nil, errNoJSON
	}
	if bytes.Contains(beforeBrace, []byte("```")) {
		r.note("code fence")
	} else {
		r.note("text around the JSON")
	}
	r.pos += brace
	return r.value(valueAtRoot)
}

// braceless reads members without an opening brace. It returns false and changes nothing if the text is not members
// up to a closing brace: it may be prose with a colon.
func (r *repairer) braceless() (*value, bool) {
	before := *r
	v, err := r.members('}')
	if err != nil || r.truncated {
		*r = before
		return nil, false
	}
	r.note("missing brace")
	return v, true
}

// callPrefixLen returns the length of the function names at the beginning of s, with their
// parentheses: of read( in read(path="x"), and of print(tools.read( in a nested call.
func callPrefixLen(s []byte) int {
	n := 0
	for {
		nameLen := bytes.IndexByte(s[n:], '(')
		if nameLen <= 0 || bytes.ContainsFunc(s[n:n+nameLen], func(c rune) bool {
			return !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '_' && c != '.'
		}) {
			return n
		}
		n += nameLen + 1
	}
}

// trailer reads what follows the document v. It drops prose, empty objects and repetitions of v. Any other object is an
// error, as it would be a second call. A field after a comma is an error too: it belongs to v. An empty v is replaced
// by the next object.
func (r *repairer) trailer(v *value) (*value, error) {
	for {
		r.skipSpace()
		for !r.eof() && bytes.IndexByte([]byte(")]};,"), r.peek(0)) >= 0 {
			if r.peek(0) == ',' && keyFollows(r.window(r.pos+1)) {
				return nil, errors.New("text follows the end of the object")
			}
			r.note("extra bracket")
			r.pos++
			r.skipSpace()
		}
		switch {
		case r.eof():
			return v, nil
		case r.hasPrefix("```"):
			r.note("code fence")
		case r.peek(0) != '{':
			r.note("text around the JSON")
		}
		if !r.nextObject() {
			return v, nil
		}
		next, err := r.value(valueAtRoot)
		if err != nil || r.truncated {
			return next, err
		}
		switch text, nextText := string(v.appendJSON(nil)), string(next.appendJSON(nil)); {
		case text == "{}" || text == nextText:
			v = next
		case nextText != "{}":
			return nil, errors.New("there are several JSON objects in it; send one")
		}
		r.note("repeated object")
	}
}

// nextObject moves to the next object and reports whether there is one. An object begins with a brace at pos, or with a
// later brace before a quoted key, as prose has braces too.
func (r *repairer) nextObject() bool {
	for i := r.pos; ; i++ {
		n := bytes.IndexByte(r.text[i:], '{')
		if n < 0 {
			return false
		}
		i += n
		inside := trimSpace(r.window(i + 1))
		if i == r.pos || inside != "" && strings.ContainsRune(`"'`, rune(inside[0])) && keyFollows(inside) {
			r.pos = i
			return true
		}
	}
}

// skipSpace skips white space, including Unicode's, and comments of JavaScript and Python.
func (r *repairer) skipSpace() {
	for !r.eof() {
		c := r.peek(0)
		switch {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f':
			r.pos++
		case c >= utf8.RuneSelf:
			wide, n := utf8.DecodeRune(r.text[r.pos:])
			if !isSpace(wide) {
				return
			}
			r.pos += n
		case c == '/' && r.peek(1) == '/', c == '#':
			r.note("comment")
			r.skipPast("\n")
		case c == '/' && r.peek(1) == '*':
			r.note("comment")
			r.pos += 2
			r.skipPast("*/")
		default:
			return
		}
	}
}

// skipPast moves past the next occurrence of end, or to the end of the text.
func (r *repairer) skipPast(end string) {
	if n := bytes.Index(r.text[r.pos:], []byte(end)); n >= 0 {
		r.pos += n + len(end)
	} else {
		r.pos = len(r.text)
	}
}

// A place is where a value is, which determines what can end it.
type place byte

const (
	valueAtRoot place = iota
	valueInObject
	valueInArray
)

// value reads a value of any kind.
func (r *repairer) value(p place) (*value, error) {
	if r.depth++; r.depth > maxDepth {
		return nil, errors.New("it is nested too deep")
	}
	defer func() { r.depth-- }()
	switch c := r.peek(0); {
	case c == '{':
		r.pos++
		return r.object()
	case c == '[':
		r.pos++
		return r.array(']')
	case c == '(':
		r.pos++
		r.note("tuple")
		r.parens++
		defer func() { r.parens-- }()
		return r.array(')')
	case r.moveToQuote() != "":
		return r.joinedStrings(p)
	}
	return r.unquoted(p)
}

// object reads what follows an opening brace.
func (r *repairer) object() (*value, error) {
	r.skipSpace()
	if r.peek(0) == '{' { // {{"a": 1}}: templates write one brace as two
		r.note("doubled braces")
		v, err := r.value(valueInObject)
		if r.skipSpace(); r.peek(0) == '}' {
			r.pos++
		}
		return v, err
	}
	r.objects++
	defer func() { r.objects-- }()
	return r.members('}')
}

// members reads the inside of an object and its closing bracket: a brace, or a parenthesis where the members are the
// arguments of a call.
func (r *repairer) members(closing byte) (*value, error) {
	v := &value{kind: objectValue}
	for wantComma := false; ; {
		r.skipSpace()
		switch c := r.peek(0); {
		case r.eof():
			r.truncated = true
			return v, nil
		case c == closing, c == '}':
			if !wantComma && len(v.members) > 0 {
				r.note("trailing comma")
			}
			r.pos++
			return v, v.checkUnique()
		// [{"a": 1] and [{"a": 1 {"a": 2}]: the brace is missing, and the bracket closes the array.
		case r.arrays > 0 && (c == ']' || c == '{' && len(v.members) > 0):
			r.note("missing bracket")
			return v, v.checkUnique()
		case c == ']' || c == ')': // neither closes an object
			r.note("extra bracket")
			r.pos++
			continue
		case c == ',' || c == ';':
			if !wantComma || c == ';' {
				r.note("extra comma")
			}
			wantComma = false
			r.pos++
			continue
		}
		if wantComma && r.pendingKey == nil { // before a pending key a bracket was missing, which item noted
			r.note("missing comma")
		}
		m, err := r.member()
		if err != nil || r.truncated {
			return v, err
		}
		v.members = append(v.members, m)
		wantComma = true
	}
}

// colons are the colon and what models write instead, longest first.
var colons = []string{":=", "=>", "：", "=", ":"}

// member reads a key, with or without quotes, one of the colons, and a value. A missing value is null, or nil if the
// text ends before the value.
func (r *repairer) member() (member, error) {
	var m member
	if r.pendingKey != nil {
		m.name, r.pendingKey = *r.pendingKey, nil
	} else if r.moveToQuote() != "" {
		m.name = r.quoted(true, valueInObject)
	} else if m.name = r.bareKey(); m.name == "" {
		return m, errors.New("it has a field without a name")
	}
	r.skipSpace()
	if r.eof() {
		r.truncated = true
		return m, nil
	}
	if i := slices.IndexFunc(colons, r.hasPrefix); i < 0 {
		r.note("missing colon")
	} else {
		if colons[i] != ":" {
			r.note("another sign for the colon")
		}
		r.pos += len(colons[i])
	}
	r.skipSpace()
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

// bareKey reads a key without quotes, and returns "" if pos is not at a key.
func (r *repairer) bareKey() string {
	start := r.pos
	for !r.eof() {
		c, n := utf8.DecodeRune(r.text[r.pos:])
		if !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("_-$.@", c) {
			break
		}
		r.pos += n
	}
	r.note("unquoted key")
	return string(r.text[start:r.pos])
}
