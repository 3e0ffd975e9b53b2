package openai

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A jsonReader reads one JSON text in a single pass, several times as fast as encoding/json: see the table in
// bench/RESULTS.md. Servers disagree about types, so a value of an unexpected type counts as missing, and so does
// everything after invalid JSON.
type jsonReader struct {
	data     []byte
	pos      int  // of the next byte
	invalid  bool // the text is not valid JSON
	mismatch bool // a value other than null had an unexpected type
}

// fail records that the text is not valid JSON, and ends all loops over members and items.
func (r *jsonReader) fail() { r.pos, r.invalid = len(r.data), true }

// peek skips white space and returns the next byte without reading it, 0 at the end.
func (r *jsonReader) peek() byte {
	for ; r.pos < len(r.data); r.pos++ {
		if c := r.data[r.pos]; c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
	}
	return 0
}

// end fails if anything follows.
func (r *jsonReader) end() {
	if r.peek(); r.pos < len(r.data) {
		r.fail()
	}
}

// skipNull reads a null. It reports whether the next value was null.
func (r *jsonReader) skipNull() bool {
	isNull := r.peek() == 'n' && bytes.HasPrefix(r.data[r.pos:], []byte("null"))
	if isNull {
		r.pos += len("null")
	}
	return isNull
}

// starts reports whether the next value starts with the byte first. If not, the value is skipped.
func (r *jsonReader) starts(first byte) bool {
	c := r.peek()
	if c != first {
		r.mismatch = r.mismatch || c != 'n' // c is 'n' for null
		r.raw()
	}
	return c == first
}

// open reads an opening bracket. It reports whether the next value starts with the bracket; if not, the value is skipped.
func (r *jsonReader) open(bracket byte) bool {
	ok := r.starts(bracket)
	if ok {
		r.pos++
	}
	return ok
}

// more reads a comma or the closing bracket, and reports whether another member or item follows. There is no comma before
// the first.
func (r *jsonReader) more(bracket byte, isFirst bool) bool {
	c := r.peek()
	switch {
	case isFirst && c != bracket && c != 0:
		return true
	case c != bracket && c != ',':
		r.fail()
		return false
	}
	r.pos++
	return c == ','
}

// members yields the name of each member of an object, quoted as in the text.
// The body of the loop must read the value, with exactly one call.
func (r *jsonReader) members(yield func(name []byte) bool) {
	if !r.open('{') {
		return
	}
	for isFirst := true; r.more('}', isFirst); isFirst = false {
		name := r.quoted()
		if r.peek() != ':' {
			r.fail()
			return
		}
		r.pos++
		if !yield(name) {
			return
		}
	}
}

// items yields once for each item of an array. The body of the loop must read the item, with exactly one call.
func (r *jsonReader) items(yield func() bool) {
	if !r.open('[') {
		return
	}
	for isFirst := true; r.more(']', isFirst); isFirst = false {
		if !yield() {
			return
		}
	}
}

// noString is the result of quoted if it fails.
var noString = []byte(`""`)

// quoted reads a string, and returns the string with quotes and escapes.
func (r *jsonReader) quoted() []byte {
	if r.peek() != '"' {
		r.fail()
		return noString
	}
	start, escaped := r.pos, false
	for i := start + 1; i < len(r.data); i++ {
		switch c := r.data[i]; {
		case c == '"':
			s := r.data[start : i+1]
			r.pos = i + 1
			if escaped && !json.Valid(s) {
				r.fail()
			}
			return s
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			r.fail()
			return noString
		}
	}
	r.fail()
	return noString
}

// text reads a string. Any other value, such as a number for an id, reads as "".
func (r *jsonReader) text() string {
	if !r.starts('"') {
		return ""
	}
	return unquote(r.quoted())
}

// unquote returns the value of a JSON string. Bytes that are not UTF-8 become U+FFFD.
func unquote(quoted []byte) string {
	inner := quoted[1 : len(quoted)-1]
	if !utf8.Valid(inner) || bytes.Contains(inner, []byte(`\u`)) {
		var s string
		_ = json.Unmarshal(quoted, &s) // cannot fail: jsonReader.quoted has checked the escapes
		return s
	}
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var b strings.Builder
	b.Grow(len(inner))
	for i := 0; i < len(inner); i++ {
		c := inner[i]
		if c == '\\' {
			i++
			c = escapes[inner[i]]
		}
		b.WriteByte(c)
	}
	return b.String()
}

// jsonString returns the value of a JSON string, empty for any other valid JSON.
func jsonString(raw json.RawMessage) string {
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	return unquote(raw)
}

// escapes maps a byte after a backslash to the byte that it stands for (RFC 8259, section 7), except for \u.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// integer reads an integer. Any other value reads as 0.
func (r *jsonReader) integer() int {
	if r.skipNull() {
		return 0
	}
	n, err := strconv.Atoi(string(r.raw()))
	if err != nil {
		r.mismatch = true
		return 0
	}
	return n
}

// optionalInteger is like integer, but returns nil for null.
func (r *jsonReader) optionalInteger() *int {
	if r.skipNull() {
		return nil
	}
	n := r.integer()
	return &n
}

// optionalValue is like raw, but returns nil for null.
func (r *jsonReader) optionalValue() json.RawMessage {
	if r.skipNull() {
		return nil
	}
	return r.raw()
}

// raw reads any value and returns its JSON, a slice of the text.
func (r *jsonReader) raw() []byte {
	if r.peek() == '"' {
		return r.quoted()
	}
	value := r.data[r.pos:]
	value = value[:valueLen(value)]
	r.pos += len(value)
	if string(value) != "null" && !json.Valid(value) { // null is frequent, and Valid takes a scanner from a pool
		r.fail()
		return nil
	}
	return value
}

// clonedValue is like optionalValue, but returns a copy in valid UTF-8.
func (r *jsonReader) clonedValue() json.RawMessage {
	value := r.optionalValue()
	if value == nil {
		return nil
	}
	return bytes.ToValidUTF8(bytes.Clone(value), []byte("\ufffd"))
}

// valueLen returns the length of the value at the start of data. For invalid JSON it returns any length.
func valueLen(data []byte) int {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth == 0 {
				return i // the end of the enclosing object or array
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case depth == 0 && (c == ',' || c == ' ' || c == '\n' || c == '\t' || c == '\r'):
			return i
		}
	}
	return len(data)
}
