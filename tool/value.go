package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// What we accept from a model or a server, so that no input costs more than
// its length suggests: both the recursion of validators and their exact
// arithmetic (1e999999999 is a number of a gigabyte) are bounded here.
const (
	maxDepth    = 500  // of lists and objects in each other
	maxExponent = 400  // either way; a float64 goes to 308
	maxDigits   = 1000 // of a number before its exponent, sign and point included
)

// A valueKind is a type of JSON. The order is used: objectValue is the last.
type valueKind byte

const (
	nullValue valueKind = iota
	boolValue
	numberValue
	stringValue
	arrayValue
	objectValue
)

func (k valueKind) String() string {
	return [...]string{"null", "boolean", "number", "string", "array", "object"}[k]
}

// A value is JSON that keeps the order of members and the spelling of numbers,
// which map[string]any loses: arguments that are repaired must otherwise stay as the
// model wrote them, and hints name fields in the schema's order. Scalars are kept as they
// are written, and may share memory with the text that was read. The fields may be
// changed; scalars are not written into.
type value struct {
	kind    valueKind
	raw     []byte   // scalars: the JSON text
	source  string   // a repaired scalar: how the model wrote it, if different
	members []member // objects
	items   []*value // arrays
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
	p := valueParser{s: raw}
	return p.value(0)
}

// A valueParser reads text that is known to be valid JSON. So it never looks whether the
// text has ended, except for a number, which may be the whole text.
type valueParser struct {
	s []byte
	i int
}

// space skips white space and returns the byte after it.
func (p *valueParser) space() byte {
	for {
		switch c := p.s[p.i]; c {
		case ' ', '\t', '\r', '\n':
			p.i++
		default:
			return c
		}
	}
}

func (p *valueParser) value(depth int) (*value, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxDepth)
	}
	switch c := p.space(); c {
	case '{':
		return p.object(depth)
	case '[':
		return p.array(depth)
	case '"':
		return &value{kind: stringValue, raw: p.str()}, nil
	case 't', 'n':
		p.i += 4
		return &value{kind: literalKind(c), raw: p.s[p.i-4 : p.i]}, nil
	case 'f':
		p.i += 5
		return &value{kind: boolValue, raw: p.s[p.i-5 : p.i]}, nil
	}
	start := p.i
	for p.i < len(p.s) && bytes.IndexByte([]byte("+-.0123456789eE"), p.s[p.i]) >= 0 {
		p.i++
	}
	v := &value{kind: numberValue, raw: p.s[start:p.i]}
	return v, checkNumber(v.raw)
}

func (p *valueParser) object(depth int) (*value, error) {
	v := &value{kind: objectValue}
	for p.i++; p.space() != '}'; {
		if p.s[p.i] == ',' {
			p.i++
			p.space()
		}
		name := unquote(p.str())
		p.space()
		p.i++ // the colon
		item, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		v.members = append(v.members, member{name, item})
	}
	p.i++
	return v, v.unique()
}

func (p *valueParser) array(depth int) (*value, error) {
	v := &value{kind: arrayValue}
	for p.i++; p.space() != ']'; {
		if p.s[p.i] == ',' {
			p.i++
		}
		item, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		v.items = append(v.items, item)
	}
	p.i++
	return v, nil
}

// literalKind returns the kind of true, false or null by its first letter.
func literalKind(c byte) valueKind {
	if c == 'n' {
		return nullValue
	}
	return boolValue
}

// str reads a string, quotes included.
func (p *valueParser) str() []byte {
	start := p.i
	for p.i++; p.s[p.i] != '"'; p.i++ {
		if p.s[p.i] == '\\' {
			p.i++
		}
	}
	p.i++
	return p.s[start:p.i]
}

// checkNumber refuses numbers that exact arithmetic cannot afford, or that no
// float64 can hold, so that half of those who read them would fail.
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
	return fmt.Errorf("the number %s is out of range", clip(string(raw), 30))
}

// unique returns an error if two members have the same name: some parsers use the first and some the last, so
// that the arguments that were judged might not be the ones that run.
func (v *value) unique() error {
	if len(v.members) <= 16 { // most objects; a map would cost more than the comparisons
		for i, m := range v.members {
			for _, n := range v.members[:i] {
				if n.name == m.name {
					return fmt.Errorf("the field %q is given twice", m.name)
				}
			}
		}
		return nil
	}
	seen := make(map[string]bool, len(v.members))
	for _, m := range v.members {
		if seen[m.name] {
			return fmt.Errorf("the field %q is given twice", m.name)
		}
		seen[m.name] = true
	}
	return nil
}

// unquote returns the text of a JSON string. What is not UTF-8 becomes U+FFFD, as
// encoding/json has it.
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

// newString returns the value of a text.
func newString(s string) *value {
	return &value{kind: stringValue, raw: appendQuoted(nil, s)}
}

// appendQuoted appends s as a JSON string, with nothing escaped that need not
// be.
func appendQuoted(b []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// text returns the text of a string, and otherwise how the value was written: by the model,
// where that was no JSON, so that a None that should be a text becomes "None".
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

// child returns the part of v that a step of a location leads to, or nil. It may
// be called on nil.
func (v *value) child(part string) *value {
	if v == nil || v.kind != arrayValue {
		return v.get(part)
	}
	if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(v.items) {
		return v.items[i]
	}
	return nil
}

// at returns the value at a location, nil if there is none.
func (v *value) at(loc []string) *value {
	for _, part := range loc {
		v = v.child(part)
	}
	return v
}

// parent returns the parent of the value at a location, and its name or index there; nil for
// the value as a whole.
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

// generic returns the value in the form that the validator wants: numbers are
// json.Number, so that none is rounded before it is checked.
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

// clip shortens s to at most n bytes, at a rune, and marks that it did with an ellipsis.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
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

// replace puts another value where child finds one, adds the member if there is none, or
// removes it if with is nil. It reports whether it could.
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
