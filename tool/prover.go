package tool

import (
	"bytes"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A prover recognises valid arguments in one pass over their bytes, without
// decoding them. It knows the keywords that schemas of tools mostly consist of.
//
// It never accepts what the validator refuses. What it does not accept goes to
// the validator, so it only affects speed; a property test checks that.
type prover struct {
	kinds      [objectValue + 1]bool // the kinds of values allowed
	integer    bool                  // numbers must be integers
	ref        *prover               // if set, the other fields are not used
	properties map[string]int        // index into fields
	fields     []*prover             // at most 64
	required   uint64                // bits of fields
	items      *prover
	enum       []string // the texts that are allowed; nil for any value
	min, max   float64
	low, high  int // length of strings in runes, of arrays in items
	pattern    *regexp.Regexp
}

// A proverMaker makes provers of the schemas of one document.
type proverMaker struct {
	root *validator
	made map[*value]*prover // unfinished provers too, for recursive references
}

// annotations are keywords that do not restrict values.
var annotations = []string{"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly", "$defs", "$schema"}

// make returns the prover for a part of the document, or nil if the part has a keyword that provers do not know. The
// whole document then has no prover, so that an unfinished prover is never used.
func (m *proverMaker) make(s *value) *prover {
	if s == nil || s.kind != objectValue && string(s.raw) != "true" {
		return nil
	}
	if p, ok := m.made[s]; ok {
		return p
	}
	p := &prover{min: math.Inf(-1), max: math.Inf(1), high: math.MaxInt}
	m.made[s] = p // before the parts, which may refer to it
	// Without a type all kinds are allowed.
	for k := range p.kinds {
		p.kinds[k] = true
	}
	for _, e := range s.members {
		if !slices.Contains(annotations, e.name) && !m.addKeyword(p, s, e.name, e.value) {
			return nil
		}
	}
	return p
}

// addKeyword adds a keyword of the schema s to p, and reports whether provers know the keyword.
func (m *proverMaker) addKeyword(p *prover, s *value, name string, v *value) bool {
	switch name {
	case "$ref":
		// In draft 2020-12 other keywords apply too, which needs two provers for one value.
		if len(s.members) > 1 && slices.ContainsFunc(s.members, func(e member) bool {
			return e.name != "$ref" && !slices.Contains(annotations, e.name)
		}) {
			return false
		}
		p.ref = m.make(m.root.resolve(s))
		return p.ref != nil && p.ref != p
	case "type":
		return p.setTypes(v)
	case "properties":
		return m.setProperties(p, v)
	case "required":
		return p.setRequired(v, s.get("properties"))
	case "additionalProperties":
		return true // the validator checks fields that are not in properties
	case "items":
		p.items = m.make(v)
		return p.items != nil
	case "enum":
		for _, item := range v.items {
			if item.kind != stringValue {
				return false
			}
			p.enum = append(p.enum, item.text())
		}
		return len(p.enum) > 0
	case "pattern": // not anchored, as in the validator
		re, err := regexp.Compile(v.text())
		p.pattern = re
		return v.kind == stringValue && err == nil
	case "minimum", "maximum":
		f, err := strconv.ParseFloat(string(v.raw), 64)
		if name == "minimum" {
			p.min = f
		} else {
			p.max = f
		}
		return v.kind == numberValue && err == nil && len(v.raw) <= exactDigits && !bytes.ContainsAny(v.raw, "eE")
	case "minLength", "minItems", "maxLength", "maxItems":
		return p.setLength(s, name, v)
	}
	return false
}

// setProperties reads the fields of an object. Each field has a bit, so that missing and repeated fields are found
// without an allocation.
func (m *proverMaker) setProperties(p *prover, v *value) bool {
	if v.kind != objectValue || len(v.members) > 64 {
		return false
	}
	p.properties = make(map[string]int, len(v.members))
	for i, e := range v.members {
		f := m.make(e.value)
		if f == nil {
			return false
		}
		p.properties[e.name] = i
		p.fields = append(p.fields, f)
	}
	return true
}

// setRequired reads the names of required fields, which must be among the properties. The keyword properties may come
// later in the schema, so that setProperties has not read it yet.
func (p *prover) setRequired(v, properties *value) bool {
	if v.kind != arrayValue || properties == nil || len(properties.members) > 64 {
		return false
	}
	for _, r := range v.items {
		i := slices.IndexFunc(properties.members, func(e member) bool { return r.kind == stringValue && e.name == r.text() })
		if i < 0 {
			return false
		}
		p.required |= 1 << i
	}
	return true
}

// setTypes reads the keyword type, which may be a list. "integer" with "number" is treated as
// "integer": the validator checks other numbers.
func (p *prover) setTypes(v *value) bool {
	list := []*value{v}
	if v.kind == arrayValue {
		list = v.items
	}
	p.kinds = [objectValue + 1]bool{}
	for _, t := range list {
		k := valueKind(0)
		for k <= objectValue && (t.kind != stringValue || k.String() != t.text()) {
			k++
		}
		switch {
		case k <= objectValue:
			p.kinds[k] = true
		case t.kind == stringValue && t.text() == "integer":
			p.kinds[numberValue], p.integer = true, true
		default:
			return false
		}
	}
	return len(list) > 0
}

// setLength reads a bound. Strings and arrays share the two fields, so that a
// schema with bounds for both is not known.
func (p *prover) setLength(s *value, name string, v *value) bool {
	n, err := strconv.Atoi(string(v.raw))
	if strings.HasPrefix(name, "min") {
		p.low = n
	} else {
		p.high = n
	}
	mixed := (s.get("minLength") != nil || s.get("maxLength") != nil) && (s.get("minItems") != nil || s.get("maxItems") != nil)
	return err == nil && !mixed
}

// proves reports whether text, which must be UTF-8, is a JSON object that fits. If it returns
// false, ask the validator. It is safe for concurrent use.
func (p *prover) proves(text []byte) bool {
	c := cursor{s: text}
	if c.skipSpace() != '{' || !p.value(&c, 0) {
		return false
	}
	c.skipSpace()
	return c.i == len(text)
}

// A cursor walks over text that need not be JSON.
type cursor struct {
	s []byte
	i int
}

// skipSpace skips white space and returns the byte after it, or 0 at the end.
func (c *cursor) skipSpace() byte {
	for ; c.i < len(c.s); c.i++ {
		switch b := c.s[c.i]; b {
		case ' ', '\t', '\r', '\n':
		default:
			return b
		}
	}
	return 0
}

// value reads a value, and reports whether it is valid JSON and fits.
func (p *prover) value(c *cursor, depth int) bool {
	// resolve follows chains of references, so this ends.
	for p.ref != nil {
		p = p.ref
	}
	if depth > maxDepth {
		return false
	}
	switch b := c.skipSpace(); b {
	case '{':
		return p.kinds[objectValue] && p.enum == nil && p.object(c, depth)
	case '[':
		return p.kinds[arrayValue] && p.enum == nil && p.array(c, depth)
	case '"':
		return p.kinds[stringValue] && p.text(c)
	case 't':
		return p.kinds[boolValue] && p.enum == nil && c.skip("true")
	case 'f':
		return p.kinds[boolValue] && p.enum == nil && c.skip("false")
	case 'n':
		return p.kinds[nullValue] && p.enum == nil && c.skip("null")
	}
	return p.kinds[numberValue] && p.enum == nil && p.number(c)
}

func (c *cursor) skip(word string) bool {
	if !bytes.HasPrefix(c.s[c.i:], []byte(word)) {
		return false
	}
	c.i += len(word)
	return true
}

// object reads an object. It does not accept unknown or repeated fields, and names with an escape.
func (p *prover) object(c *cursor, depth int) bool {
	var seen uint64
	c.i++
	if c.skipSpace() == '}' {
		c.i++
		return p.required == 0
	}
	for {
		if c.skipSpace() != '"' {
			return false
		}
		name, plain := c.str()
		i, known := p.properties[string(name)]
		if !plain || !known || seen&(1<<i) != 0 {
			return false
		}
		seen |= 1 << i
		if c.skipSpace() != ':' {
			return false
		}
		c.i++
		if !p.fields[i].value(c, depth+1) {
			return false
		}
		b := c.skipSpace()
		c.i++
		if b == '}' {
			return seen&p.required == p.required
		}
		if b != ',' {
			return false
		}
	}
}

// array reads an array. Without a prover for the items nothing would check their syntax.
func (p *prover) array(c *cursor, depth int) bool {
	c.i++
	if c.skipSpace() == ']' {
		c.i++
		return p.low <= 0
	}
	if p.items == nil {
		return false
	}
	for n := 1; ; n++ {
		if !p.items.value(c, depth+1) {
			return false
		}
		b := c.skipSpace()
		c.i++
		if b == ']' {
			return n >= p.low && n <= p.high
		}
		if b != ',' {
			return false
		}
	}
}

// text reads a string. It does not accept escapes if the content of the string is restricted.
func (p *prover) text(c *cursor) bool {
	s, plain := c.str()
	if s == nil {
		return false
	}
	if p.enum == nil && p.pattern == nil && p.low == 0 && p.high == math.MaxInt {
		return true
	}
	if !plain || !utf8.Valid(s) {
		return false
	}
	if p.enum != nil && !slices.ContainsFunc(p.enum, func(e string) bool { return e == string(s) }) {
		return false
	}
	n := utf8.RuneCount(s)
	return n >= p.low && n <= p.high && (p.pattern == nil || p.pattern.Match(s))
}

// str reads a string and returns what is between the quotes, or nil if there is no valid string; plain says that it
// has no escapes.
func (c *cursor) str() (s []byte, plain bool) {
	start := c.i + 1
	plain = true
	for i := start; i < len(c.s); i++ {
		switch b := c.s[i]; {
		case b == '"':
			c.i = i + 1
			return c.s[start:i:i], plain
		case b < ' ':
			return nil, false
		case b == '\\':
			plain = false
			i++
			if i >= len(c.s) || strings.IndexByte(`"\/bfnrt`, c.s[i]) < 0 {
				return nil, false // \u too: the validator reads it
			}
		}
	}
	return nil, false
}

// exactDigits is how many digits a number may have so that another number of as many digits is another float64.
const exactDigits = 15

// number reads a number without an exponent. One of up to 300 characters fits into a
// float64, which checkNumber requires.
func (p *prover) number(c *cursor) bool {
	start := c.i
	if c.i < len(c.s) && c.s[c.i] == '-' {
		c.i++
	}
	whole := c.digits()
	// JSON has no leading zeros.
	if whole == 0 || whole > 1 && c.s[c.i-whole] == '0' {
		return false
	}
	isInteger := true
	if c.i < len(c.s) && c.s[c.i] == '.' {
		isInteger = false
		c.i++
		if c.digits() == 0 {
			return false
		}
	}
	if c.i < len(c.s) && (c.s[c.i] == 'e' || c.s[c.i] == 'E') || p.integer && !isInteger || c.i-start > 300 {
		return false
	}
	if math.IsInf(p.min, -1) && math.IsInf(p.max, 1) { // nothing to compare with
		return true
	}
	f, err := strconv.ParseFloat(string(c.s[start:c.i]), 64)
	// Rounding keeps the order, but may make a longer number equal to a bound.
	exact := c.i-start <= exactDigits
	return err == nil && (f > p.min || f == p.min && exact) && (f < p.max || f == p.max && exact)
}

func (c *cursor) digits() int {
	start := c.i
	for c.i < len(c.s) && c.s[c.i] >= '0' && c.s[c.i] <= '9' {
		c.i++
	}
	return c.i - start
}
