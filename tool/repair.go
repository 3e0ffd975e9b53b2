package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// lookahead is how many bytes a decision may look ahead: enough for a key and what follows it.
// Without a limit a text of open quotes would take quadratic time.
const lookahead = 256

var errNoJSON = errors.New("the text has no JSON object")

// repair reads text that is not valid JSON, and returns the repairer for its notes and whether the text was cut off.
// It fails on text without an object, an array or a string in it, and on several different objects.
func repair(raw []byte) (*value, *repairer, error) {
	r := &repairer{s: raw}
	v, err := r.document()
	return v, r, err
}

// A repairer reads what models send instead of JSON: with single quotes, Python literals, trailing commas, comments,
// code fences or prose around it. It takes one pass with a bounded look-ahead, so that its time is linear.
//
// It tolerates wrong signs, but not a missing end: a value that was cut off, such as /tmp/a of /tmp/abc, would look
// right once it is closed. Such text is reported as truncated and must not be run. Nothing that could be a field is
// dropped.
//
// A method that reads something moves i past it. Once truncated is set all methods return what they have.
type repairer struct {
	s     []byte
	i     int // how far it has been read
	depth int

	arrays, objects, parens int // how many are open; they decide what a wrong closing bracket means

	stop    int     // where an unquoted word is known to end; see setStop
	pending *string // a field name of the object that was read as an item of an array, as b in {"a": [1, "b": 2}

	notes     []string // the repairs, in order, each once
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

func (r *repairer) hasPrefix(prefix string) bool {
	return bytes.HasPrefix(r.s[r.i:], []byte(prefix))
}

// document reads the whole text: the JSON and what surrounds it.
func (r *repairer) document() (*value, error) {
	r.s = bytes.TrimPrefix(r.s, []byte("\ufeff"))
	r.unescapeAll()
	v, err := r.findDocument()
	if err != nil || r.truncated {
		return v, err
	}
	return r.trailer(v)
}

// unescapeAll removes one level of escapes if the whole text was escaped: {\"a\": 1}, or
// {\n  \"a\": 1\n}.
func (r *repairer) unescapeAll() {
	t := bytes.TrimLeft(r.s, " \t\r\n")
	inside, more := bytes.CutPrefix(t, []byte("{"))
	for more {
		inside, more = bytes.CutPrefix(bytes.TrimLeft(inside, " \t\r\n"), []byte(`\n`))
	}
	if len(inside) == len(t) || !bytes.HasPrefix(inside, []byte(`\"`)) {
		return
	}
	var s string
	if json.Unmarshal(slices.Concat([]byte{'"'}, bytes.TrimSpace(t), []byte{'"'}), &s) == nil {
		r.s = []byte(s)
		r.note("escaped quotes")
	}
}

// findDocument finds where the JSON begins and reads it. Before a bracket or instead of one, a text may begin with a
// field ("a": 1, "b": 2} or a: 1}), a call (read(a=1, b=2)), prose or a code fence.
func (r *repairer) findDocument() (*value, error) {
	r.skipSpace()
	switch r.peek(0) {
	case '{', '[':
		return r.value(valueAtRoot)
	case '"', '\'':
		begin := r.i
		v, err := r.value(valueAtRoot)
		if r.skipSpace(); err != nil || r.truncated || r.peek(0) != ':' {
			return v, err // a string, which may hold the object; see coercer.coerceArguments
		}
		r.i = begin
		r.note("missing brace")
		return r.members('}')
	}
	// A call in Python's syntax, with one object or with named arguments.
	if n := callees(r.s[r.i:]); n > 0 {
		r.i += n
		r.note("a call around the arguments")
		r.skipSpace()
		if r.peek(0) == '{' {
			return r.value(valueAtRoot)
		}
		r.parens++
		defer func() { r.parens-- }()
		return r.members(')')
	}
	brace := bytes.IndexAny(r.s[r.i:], "{[")
	// "a: 1, b: 2}" is an object, "Here it is:\n{…}" is prose.
	if keyFollows(r.window(r.i)) && bytes.IndexByte(r.s[r.i:r.i+max(brace, 0)], '\n') < 0 {
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

// braceless reads members without an opening brace. It returns false and changes nothing if
// they are not members, or are cut off: they may be prose with a colon.
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

// callees returns the length of the names of functions at the beginning of s, with their
// parentheses: of read( in read(path="x"), and of print(tools.read( in a nested call.
func callees(s []byte) int {
	n := 0
	for {
		name := bytes.IndexByte(s[n:], '(')
		if name <= 0 || bytes.ContainsFunc(s[n:n+name], func(c rune) bool {
			return !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '_' && c != '.'
		}) {
			return n
		}
		n += name + 1
	}
}

// trailer reads what follows the document. It drops prose and the same object again; another
// object is an error, as it would be a second call. A field after a comma is an error too: it
// belongs to the object.
func (r *repairer) trailer(v *value) (*value, error) {
	for {
		r.skipSpace()
		for !r.eof() && bytes.IndexByte([]byte(")]};,"), r.peek(0)) >= 0 {
			if r.peek(0) == ',' && keyFollows(r.window(r.i+1)) {
				return nil, errors.New("text follows the end of the object")
			}
			r.note("extra bracket")
			r.i++
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

// nextObject moves to the next object: a brace at i, or a later brace before a quoted key, as prose has braces too.
func (r *repairer) nextObject() bool {
	for i := r.i; ; i++ {
		n := bytes.IndexByte(r.s[i:], '{')
		if n < 0 {
			return false
		}
		i += n
		inside := trimSpace(r.window(i + 1))
		if i == r.i || inside != "" && strings.ContainsRune(`"'`, rune(inside[0])) && keyFollows(inside) {
			r.i = i
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

// skipPast moves behind the next end, or to the end of the text.
func (r *repairer) skipPast(end string) {
	if n := bytes.Index(r.s[r.i:], []byte(end)); n >= 0 {
		r.i += n + len(end)
	} else {
		r.i = len(r.s)
	}
}

// A place is where a value is, which determines what can end it.
type place byte

const (
	valueAtRoot place = iota
	valueInObject
	valueInArray
)

// value reads a value, and counts the depth.
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
	case r.moveToQuote() != "":
		return r.joinedStrings(p)
	}
	return r.unquoted(p)
}

// object reads what follows an opening brace.
func (r *repairer) object() (*value, error) {
	r.skipSpace()
	if r.peek(0) == '{' { // {{"a": 1}}: a template's way to write one brace
		r.note("doubled braces")
		v, err := r.value(valueInObject)
		if r.skipSpace(); r.peek(0) == '}' {
			r.i++
		}
		return v, err
	}
	r.objects++
	defer func() { r.objects-- }()
	return r.members('}')
}

// members reads the inside of an object up to the closing bracket, which is end: a brace, or
// a parenthesis where the object is the arguments of a call.
func (r *repairer) members(end byte) (*value, error) {
	v := &value{kind: objectValue}
	for comma := true; ; {
		r.skipSpace()
		switch c := r.peek(0); {
		case r.eof():
			r.truncated = true
			return v, nil
		case c == end, c == '}':
			if comma && len(v.members) > 0 {
				r.note("trailing comma")
			}
			r.i++
			return v, v.checkUnique()
		// [{"a": 1] and [{"a": 1 {"a": 2}]: the brace is missing, and the bracket closes the array.
		case r.arrays > 0 && (c == ']' || c == '{' && len(v.members) > 0):
			r.note("missing bracket")
			return v, v.checkUnique()
		case c == ']' || c == ')': // nothing is open that it could close
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
		if !comma && r.pending == nil { // before a pending key a bracket was missing, which array noted
			r.note("missing comma")
		}
		m, err := r.member()
		if err != nil || r.truncated {
			return v, err
		}
		v.members = append(v.members, m)
		comma = false
	}
}

// member reads a key, with or without quotes, the colon or another sign for it, and a value. A missing value is null,
// or nil if the text ends before it.
func (r *repairer) member() (member, error) {
	var m member
	if r.pending != nil {
		m.name, r.pending = *r.pending, nil
	} else if r.moveToQuote() != "" {
		m.name = r.quoted(true, valueInObject)
	} else if m.name = r.bareKey(); m.name == "" {
		return m, errors.New("it has a field without a name")
	}
	r.skipSpace()
	switch {
	case r.eof():
		r.truncated = true
		return m, nil
	case r.hasPrefix("=>"), r.hasPrefix(":="):
		r.note("another sign for the colon")
		r.i += 2
	case r.peek(0) == ':':
		r.i++
	case r.peek(0) == '=':
		r.note("another sign for the colon")
		r.i++
	case r.hasPrefix("："):
		r.note("another sign for the colon")
		r.i += len("：")
	default:
		r.note("missing colon")
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

// bareKey reads a key without quotes; it returns "" if there is none.
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
