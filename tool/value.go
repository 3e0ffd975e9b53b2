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

// Limits of JSON from models and servers. Validators are recursive and use exact arithmetic, in which 1e999999999 takes a
// gigabyte of memory.
const (
	maxDepth    = 500  // of nested lists and objects
	maxExponent = 400  // positive or negative; limits exact arithmetic only: the largest float64 has 308
	maxDigits   = 1000 // of a number before its exponent, with sign and point
)

// A valueKind is a type of JSON. objectValue must be the last: arrays indexed by valueKind have objectValue+1 elements.
type valueKind byte

const (
	nullValue valueKind = iota
	boolValue
	numberValue
	stringValue
	arrayValue
	objectValue
)

// kindNames are the names in JSON Schema, by valueKind.
var kindNames = []string{"null", "boolean", "number", "string", "array", "object"}

func (k valueKind) String() string { return kindNames[k] }

// A value is JSON that keeps the order of members and the spelling of numbers, unlike map[string]any: what is not
// repaired must stay as the model wrote it, and hints name fields in the schema's order. The bytes of raw may share
// memory with the text that was read, and must not be changed.
type value struct {
	kind    valueKind
	raw     []byte   // the JSON text of a scalar
	source  string   // what the model wrote, such as None, if that was repaired to another scalar
	members []member // of an object
	items   []*value // of an array
}

// A member is a name in an object, unquoted, and its value.
type member struct {
	name  string
	value *value
}

// parseValue parses JSON. Beyond invalid JSON it refuses what parsers disagree about (a duplicate member), and values
// beyond the limits above.
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
	_, _ = p.Token() // the closing bracket
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
	exp, err := strconv.Atoi(string(exponent))
	if err == nil && len(mantissa) <= maxDigits && max(exp, -exp) <= maxExponent {
		if _, err = strconv.ParseFloat(string(raw), 64); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the number %s is out of range", visible.Cut(string(raw), 30, "…"))
}

// checkUnique returns an error if two members have the same name. Parsers disagree on which of the two counts, so the tool
// might run with other arguments than the permission check saw.
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
	_ = json.Unmarshal(raw, &s) // raw is valid JSON
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

// text returns the text of a string. For another value it returns the source, or the JSON if there is no source.
func (v *value) text() string {
	switch {
	case v.kind == stringValue:
		return unquote(v.raw)
	case v.source != "":
		return v.source
	}
	return string(v.appendJSON(nil))
}

// get returns the value of the member called name, or nil. v may be nil.
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

// child returns the member of v with the name part or the item of v with the index part, or nil. v may be nil.
func (v *value) child(part string) *value {
	if v == nil || v.kind != arrayValue {
		return v.get(part)
	}
	if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(v.items) {
		return v.items[i]
	}
	return nil
}

// at returns the value at loc, or nil. loc has the names and indexes that lead from v to the value.
func (v *value) at(loc []string) *value {
	for _, part := range loc {
		v = v.child(part)
	}
	return v
}

// parent returns the object or array around the value at loc, and the name or index of that value. The value v itself has
// no parent.
func (v *value) parent(loc []string) (parent *value, name string) {
	if len(loc) == 0 {
		return nil, ""
	}
	return v.at(loc[:len(loc)-1]), loc[len(loc)-1]
}

// hasText reports whether the array list has an item that is the string text. list may be nil.
func hasText(list *value, text string) bool {
	return list != nil && slices.ContainsFunc(list.items, func(v *value) bool { return v.kind == stringValue && v.text() == text })
}

// appendJSON appends the value as compact JSON.
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

// generic returns the value as the jsonschema library reads it. Numbers are json.Number, which the library checks without
// rounding.
func (v *value) generic() any {
	switch v.kind {
	case objectValue:
		object := make(map[string]any, len(v.members))
		for _, m := range v.members {
			object[m.name] = m.value.generic()
		}
		return object
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

// clone returns a deep copy.
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

// replace sets the member called name, or the existing item with the index name, to replacement. A nil replacement
// removes the member. It returns false if v has no such item, the item would be removed, or v is a scalar or nil.
func (v *value) replace(name string, replacement *value) bool {
	if v != nil && v.kind == objectValue {
		if replacement == nil {
			v.members = slices.DeleteFunc(v.members, func(m member) bool { return m.name == name })
		} else if i := slices.IndexFunc(v.members, func(m member) bool { return m.name == name }); i >= 0 {
			v.members[i].value = replacement
		} else {
			v.members = append(v.members, member{name, replacement})
		}
		return true
	}
	if v.child(name) == nil || replacement == nil {
		return false
	}
	i, _ := strconv.Atoi(name) // a number, as child found the item
	v.items[i] = replacement
	return true
}
