package tool

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"
)

// A flat reads arguments into a struct whose fields are all plain strings,
// numbers and booleans, as most are. It does what encoding/json does, at a
// fraction of the cost and of the stack, and leaves to it what is not as simple;
// FuzzFlat compares the two.
type flat []flatField

// A flatField is a member of the JSON object, and the field of the struct it goes to.
type flatField struct {
	name  string
	index int
}

// newFlat returns what reads type t, or nil if t is not flat. Fields of embedded structs,
// ",string" and types with methods of their own are left to encoding/json; so are the kinds
// that arguments seldom have.
func newFlat(t reflect.Type) flat {
	if t.Kind() != reflect.Struct || decodesItself(t) {
		return nil
	}
	fields, err := jsonFields(t)
	if err != nil {
		return nil
	}
	var f flat
	for _, jf := range fields {
		switch jf.typ.Kind() {
		case reflect.String, reflect.Bool, reflect.Float64,
			reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		default:
			return nil
		}
		if jf.quoted || len(jf.index) != 1 || decodesItself(jf.typ) || jf.typ == numberType {
			return nil
		}
		f = append(f, flatField{jf.name, jf.index[0]})
	}
	return f
}

// decodesItself reports whether t has a method that encoding/json would call.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// decode fills v from valid JSON. It returns false if that is left to
// encoding/json, which then overwrites what is there: both write the same fields, as far
// as this one came. Whether the text is JSON is not checked in full.
func (f flat) decode(raw []byte, v reflect.Value) bool {
	c := &cursor{s: raw}
	if !c.take('{') {
		return false
	}
	if c.take('}') {
		return true
	}
	for {
		name, ok := c.plain()
		if !ok || !c.take(':') {
			return false
		}
		i := slices.IndexFunc(f, func(ff flatField) bool { return ff.name == string(name) })
		if i < 0 || !c.read(v.Field(f[i].index)) { // the name may fit but for its case
			return false
		}
		if !c.take(',') {
			return c.take('}') && c.space() == 0 && c.i == len(raw)
		}
	}
}

// The methods below are those of the prover's cursor that only a flat needs. Each
// returns false, at whatever place, for what is to be left to encoding/json.

// take reads b, after any space.
func (c *cursor) take(b byte) bool {
	if c.i >= len(c.s) || c.space() != b {
		return false
	}
	c.i++
	return true
}

// plain reads a string in which nothing is escaped.
func (c *cursor) plain() ([]byte, bool) {
	if c.space() != '"' {
		return nil, false
	}
	s, plain := c.str()
	return s, plain && s != nil && utf8.Valid(s)
}

// read reads a value into a field.
func (c *cursor) read(v reflect.Value) bool {
	if v.Kind() == reflect.String {
		s, ok := c.plain()
		if ok {
			v.SetString(string(s))
		}
		return ok
	}
	c.space()
	word := c.s[c.i:]
	if end := bytes.IndexAny(word, ", \t\r\n}"); end >= 0 {
		word = word[:end]
	}
	c.i += len(word)
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(string(word) == "true")
		return string(word) == "true" || string(word) == "false"
	case reflect.Float64:
		x, err := strconv.ParseFloat(string(word), 64)
		v.SetFloat(x)
		return err == nil && json.Valid(word)
	default:
		// json.Valid refuses what ParseInt reads and JSON has not: a plus, leading zeros.
		n, err := strconv.ParseInt(string(word), 10, 64)
		if err != nil || !json.Valid(word) || v.OverflowInt(n) {
			return false
		}
		v.SetInt(n)
		return true
	}
}
