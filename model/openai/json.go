package openai

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A jsonReader reads one JSON text in a single pass. Servers disagree about types, so a value of an unexpected type
// counts as missing, and sets mismatch unless it is null. Invalid JSON sets bad, and all after it counts as missing.
//
// It is several times as fast as encoding/json: see the table in bench/RESULTS.md.
type jsonReader struct {
	data []byte
	pos  int // of the next byte
	bad  bool

	mismatch bool
}

// fail records that the text is not valid JSON, and ends all loops over members and items.
func (r *jsonReader) fail() { r.pos, r.bad = len(r.data), true }

// peek skips white space and returns the byte after it, 0 at the end.
func (r *jsonReader) peek() byte {
	for ; r.pos < len(r.data); r.pos++ {
		if c := r.data[r.pos]; c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
	}
	return 0
}

// end fails if anything follows the value.
func (r *jsonReader) end() {
	if r.peek(); r.pos < len(r.data) {
		r.fail()
	}
}

func (r *jsonReader) null() bool {
	isNull := r.peek() == 'n' && bytes.HasPrefix(r.data[r.pos:], []byte("null"))
	if isNull {
		r.pos += len("null")
	}
	return isNull
}

// starts reports whether the next value starts with the byte. Any other value is skipped.
func (r *jsonReader) starts(first byte) bool {
	c := r.peek()
	if c != first {
		r.mismatch = r.mismatch || c != 'n'
		r.raw()
	}
	return c == first
}

// open reads the first byte of an object or array. Any other value is skipped.
func (r *jsonReader) open(first byte) bool {
	ok := r.starts(first)
	if ok {
		r.pos++
	}
	return ok
}

// more reads a comma or the closing bracket, and reports whether another member or item follows.
func (r *jsonReader) more(last byte, first bool) bool {
	c := r.peek()
	if first && c != last && c != 0 {
		return true
	}
	if c != last && c != ',' {
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
	for first := true; r.more('}', first); first = false {
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
	for first := true; r.more(']', first); first = false {
		if !yield() {
			return
		}
	}
}

// noString is what quoted returns if there is no string.
var noString = []byte(`""`)

// quoted reads a string and returns it with its quotes and escapes.
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

// escapes maps a letter after a backslash to its meaning (RFC 8259, section 7), but for \u.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// count reads an integer; any other value reads as 0.
func (r *jsonReader) count() int {
	if r.null() {
		return 0
	}
	n, err := strconv.Atoi(string(r.raw()))
	if err != nil {
		r.mismatch = true
		return 0
	}
	return n
}

// number is like count, but nil for null.
func (r *jsonReader) number() *int {
	if r.null() {
		return nil
	}
	n := r.count()
	return &n
}

// value reads any value; it is nil for null.
func (r *jsonReader) value() json.RawMessage {
	if r.null() {
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
	if string(value) != "null" && !json.Valid(value) {
		r.fail()
		return nil
	}
	return value
}

// clone reads any value and returns a copy of its JSON in valid UTF-8, nil for null.
func (r *jsonReader) clone() json.RawMessage {
	value := r.raw()
	if len(value) == 0 || string(value) == "null" {
		return nil
	}
	return bytes.ToValidUTF8(bytes.Clone(value), []byte("\ufffd"))
}

// valueLen returns the length of the value at the start of data, if that is valid JSON.
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
