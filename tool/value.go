package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/internal/visible"
)

// Limits of JSON from models and servers: validators are recursive, and calculate exactly, for which 1e999999999 needs
// a gigabyte.
const (
	maxDepth    = 500  // of nested lists and objects
	maxExponent = 400  // positive or negative; a float64 has at most 308
	maxDigits   = 1000 // of a number before its exponent, with sign and point
)

// A valueKind is a type of JSON. objectValue must be the last.
type valueKind byte

const (
	nullValue valueKind = iota
	boolValue
	numberValue
	stringValue
	arrayValue
	objectValue
)

var kindNames = []string{"null", "boolean", "number", "string", "array", "object"}

func (k valueKind) String() string { return kindNames[k] }

// A value is JSON that keeps the order of members and the spelling of numbers, unlike map[string]any: what is not
// repaired must stay as the model wrote it, and hints name fields in the schema's order. The fields may be
// changed, but not the bytes of raw, which may share memory with the text that was read.
type value struct {
	kind    valueKind
	raw     []byte   // the JSON text of a scalar
	source  string   // what the model wrote for a repaired scalar, if different
	members []member // of an object
	items   []*value // of an array
}

// A member is a name in an object, unquoted, and its value.
type member struct {
	name  string
	value *value
}

// parseValue parses JSON. Beyond the grammar it refuses what parsers disagree about (a duplicate member) and what
// is unreasonably deep or long.
func parseValue(raw []byte) (*value, error) {
	if !json.Valid(raw) {
		var v any
		return nil, fmt.Errorf("not valid JSON: %w", json.Unmarshal(raw, &v))
	}
	p := valueParser{json.NewDecoder(bytes.NewReader(raw)), raw}
	p.UseNumber()
	return p.value(0)
}

// A valueParser reads text that is known to be valid JSON.
type valueParser struct {
	*json.Decoder
	text []byte
}

func (p valueParser) value(depth int) (*value, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxDepth)
	}
	start := p.InputOffset()
	token, err := p.Token()
	if err != nil {
		return nil, err
	}
	v := &value{raw: bytes.TrimLeft(p.text[start:p.InputOffset()], " \t\r\n,:")}
	switch token := token.(type) {
	case json.Delim:
		return p.composite(token, depth)
	case json.Number:
		v.kind = numberValue
		return v, checkNumber(v.raw)
	case string:
		v.kind = stringValue
	case bool:
		v.kind = boolValue
	}
	return v, nil
}

// composite reads the members or items after the opening bracket, and the closing one.
func (p valueParser) composite(open json.Delim, depth int) (*value, error) {
	v := &value{kind: arrayValue}
	if open == '{' {
		v.kind = objectValue
	}
	for p.More() {
		name := json.Token("")
		if v.kind == objectValue {
			name, _ = p.Token() // the text is valid
		}
		item, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if v.kind == objectValue {
			v.members = append(v.members, member{name.(string), item})
		} else {
			v.items = append(v.items, item)
		}
	}
	_, _ = p.Token()
	return v, v.checkUnique()
}

// literalKind returns the kind of true, false or null by its first letter.
func literalKind(c byte) valueKind {
	if c == 'n' {
		return nullValue
	}
	return boolValue
}

// checkNumber refuses numbers that are too long for exact arithmetic or too large for a float64.
func checkNumber(raw []byte) error {
	mantissa, exponent := raw, []byte("0")
	if i := bytes.IndexAny(raw, "eE"); i >= 0 {
		mantissa, exponent = raw[:i], raw[i+1:]
	}
	e, err := strconv.Atoi(string(exponent))
	if err == nil && len(mantissa) <= maxDigits && max(e, -e) <= maxExponent {
		if _, err = strconv.ParseFloat(string(raw), 64); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the number %s is out of range", visible.Cut(string(raw), 30, "…"))
}

// checkUnique returns an error if two members have the same name. Parsers disagree on which one counts, so that the
// arguments that run might not be those that were judged.
func (v *value) checkUnique() error {
	seen := make(map[string]bool, len(v.members))
	for _, m := range v.members {
		if seen[m.name] {
			return fmt.Errorf("the field %q is given twice", m.name)
		}
		seen[m.name] = true
	}
	return nil
}

// unquote returns the text of a JSON string. Invalid UTF-8 becomes U+FFFD, as in encoding/json.
func unquote(raw []byte) string {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner)
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return string(inner)
	}
	return s
}

func newString(s string) *value {
	return &value{kind: stringValue, raw: appendQuoted(nil, s)}
}

// appendQuoted appends s as a JSON string, without needless escapes.
func appendQuoted(b []byte, s string) []byte {
	data, _ := encode(s) // a string always encodes
	return append(b, data...)
}

// text returns the text of a string. Of other values it returns what the model wrote, such as None, or their JSON.
func (v *value) text() string {
	switch {
	case v.kind == stringValue:
		return unquote(v.raw)
	case v.source != "":
		return v.source
	}
	return string(v.appendJSON(nil))
}

// get returns the member of that name, or nil. It may be called on nil.
func (v *value) get(name string) *value {
	if v == nil || v.kind != objectValue {
		return nil
	}
	for _, m := range v.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// child returns the member or item of v that part, a name or an index, selects, or nil. It may be called on nil.
func (v *value) child(part string) *value {
	if v == nil || v.kind != arrayValue {
		return v.get(part)
	}
	if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(v.items) {
		return v.items[i]
	}
	return nil
}

// at returns the value at a location, which has the names and indexes on the way from v, or nil.
func (v *value) at(loc []string) *value {
	for _, part := range loc {
		v = v.child(part)
	}
	return v
}

// parent returns the object or array around the value at a location, and the value's name or index in it; nil for v
// itself.
func (v *value) parent(loc []string) (*value, string) {
	if len(loc) == 0 {
		return nil, ""
	}
	return v.at(loc[:len(loc)-1]), loc[len(loc)-1]
}

// hasText reports whether a list contains a text. The list may be nil.
func hasText(list *value, text string) bool {
	return list != nil && slices.ContainsFunc(list.items, func(v *value) bool { return v.kind == stringValue && v.text() == text })
}

// appendJSON appends the compact encoding.
func (v *value) appendJSON(b []byte) []byte {
	switch v.kind {
	case objectValue:
		b = append(b, '{')
		for i, m := range v.members {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendQuoted(b, m.name)
			b = append(b, ':')
			b = m.value.appendJSON(b)
		}
		return append(b, '}')
	case arrayValue:
		b = append(b, '[')
		for i, item := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.appendJSON(b)
		}
		return append(b, ']')
	}
	return append(b, v.raw...)
}

// generic returns the value for the validator. Numbers are json.Number, so that they are checked
// before they are rounded.
func (v *value) generic() any {
	switch v.kind {
	case objectValue:
		m := make(map[string]any, len(v.members))
		for _, e := range v.members {
			m[e.name] = e.value.generic()
		}
		return m
	case arrayValue:
		list := make([]any, len(v.items))
		for i, item := range v.items {
			list[i] = item.generic()
		}
		return list
	case stringValue:
		return unquote(v.raw)
	case numberValue:
		return json.Number(v.raw)
	case boolValue:
		return v.raw[0] == 't'
	}
	return nil
}

// clone returns a copy whose members and items may be changed.
func (v *value) clone() *value {
	c := *v
	c.members, c.items = slices.Clone(v.members), slices.Clone(v.items)
	for i := range c.members {
		c.members[i].value = c.members[i].value.clone()
	}
	for i := range c.items {
		c.items[i] = c.items[i].clone()
	}
	return &c
}

// replace puts with in place of a member or item, or adds it as a member. If with is nil it removes the member. It
// reports whether it could: items must exist and are not removed.
func (v *value) replace(name string, with *value) bool {
	if v == nil {
		return false
	}
	switch v.kind {
	case objectValue:
		i := slices.IndexFunc(v.members, func(m member) bool { return m.name == name })
		switch {
		case with == nil && i >= 0:
			v.members = slices.Delete(v.members, i, i+1)
		case with == nil:
		case i >= 0:
			v.members[i].value = with
		default:
			v.members = append(v.members, member{name, with})
		}
		return true
	case arrayValue:
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 || i >= len(v.items) || with == nil {
			return false
		}
		v.items[i] = with
		return true
	}
	return false
}
