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
// It never accepts what the validator refuses; a property test checks that. Arguments that it does not accept go to the
// validator, so it only affects speed.
type prover struct {
	kinds      [objectValue + 1]bool // the kinds of values allowed
	integer    bool                  // numbers must be integers
	ref        *prover               // if set, this prover decides and the other fields are not used
	properties map[string]int        // the index of a field's prover in fields
	fields     []*prover             // at most 64, one for each bit of required
	required   uint64                // bit i is set if fields[i] is required
	items      *prover
	enum       []string // the texts that are allowed; nil for any value
	min, max   float64  // bounds of a number
	low, high  int      // bounds of the length: of a string in runes, of an array in items
	pattern    *regexp.Regexp
}

// A proverMaker makes provers of the schemas of one document.
type proverMaker struct {
	validator *validator         // resolves references
	made      map[*value]*prover // unfinished provers too, for recursive references
}

// annotations are keywords that do not restrict values.
var annotations = []string{"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly", "$defs", "$schema"}

// make returns the prover for a part of the document, or nil if the part has a keyword that provers do not know. The
// whole document then has no prover, so that an unfinished prover is never used.
func (m *proverMaker) make(s *value) *prover {
	if s == nil || s.kind != objectValue && string(s.raw) != "true" { // true has no members, and allows every value
		return nil
	}
	if p, ok := m.made[s]; ok {
		return p
	}
	p := &prover{min: math.Inf(-1), max: math.Inf(1), high: math.MaxInt}
	m.made[s] = p // before the parts of s, which may refer to s
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
		// Keywords beside $ref apply too, which would need two provers for one value.
		if slices.ContainsFunc(s.members, func(e member) bool {
			return e.name != "$ref" && !slices.Contains(annotations, e.name)
		}) {
			return false
		}
		p.ref = m.make(m.validator.resolve(s))
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
		exact := len(v.raw) <= exactDigits && !bytes.ContainsAny(v.raw, "eE") // f is the bound without rounding
		return v.kind == numberValue && err == nil && exact
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

// setTypes reads the keyword type, which may be a list. A list of "integer" and "number" is treated as "integer": the
// validator checks other numbers.
func (p *prover) setTypes(v *value) bool {
	list := []*value{v}
	if v.kind == arrayValue {
		list = v.items
	}
	p.kinds = [objectValue + 1]bool{}
	for _, t := range list {
		k := slices.Index(kindNames, t.text())
		switch {
		case t.kind != stringValue:
			return false
		case k >= 0:
			p.kinds[k] = true
		case t.text() == "integer":
			p.kinds[numberValue], p.integer = true, true
		default:
			return false
		}
	}
	return len(list) > 0
}

// setLength reads a bound of a length. Strings and arrays share the fields low and high, so a schema with bounds for both
// has no prover.
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
	c := cursor{text: text}
	if c.skipSpace() != '{' || !p.acceptValue(&c, 0) {
		return false
	}
	c.skipSpace()
	return c.pos == len(text)
}

// A cursor walks over text that need not be JSON.
type cursor struct {
	text []byte
	pos  int
}

// skipSpace skips white space and returns the byte after it, or 0 at the end.
func (c *cursor) skipSpace() byte {
	for ; c.pos < len(c.text); c.pos++ {
		switch b := c.text[c.pos]; b {
		case ' ', '\t', '\r', '\n':
		default:
			return b
		}
	}
	return 0
}

// The accept methods read a value, and report whether it is valid JSON and fits.

func (p *prover) acceptValue(c *cursor, depth int) bool {
	if p.ref != nil {
		p = p.ref // which has no ref: resolve followed the whole chain of references
	}
	if depth > maxDepth {
		return false
	}
	switch b := c.skipSpace(); b {
	case '{':
		return p.kinds[objectValue] && p.enum == nil && p.acceptObject(c, depth)
	case '[':
		return p.kinds[arrayValue] && p.enum == nil && p.acceptArray(c, depth)
	case '"':
		return p.kinds[stringValue] && p.acceptString(c)
	case 't':
		return p.kinds[boolValue] && p.enum == nil && c.skipWord("true")
	case 'f':
		return p.kinds[boolValue] && p.enum == nil && c.skipWord("false")
	case 'n':
		return p.kinds[nullValue] && p.enum == nil && c.skipWord("null")
	}
	return p.kinds[numberValue] && p.enum == nil && p.acceptNumber(c)
}

func (c *cursor) skipWord(word string) bool {
	if !bytes.HasPrefix(c.text[c.pos:], []byte(word)) {
		return false
	}
	c.pos += len(word)
	return true
}

// acceptObject leaves unknown and repeated fields, and names with escapes, to the validator.
func (p *prover) acceptObject(c *cursor, depth int) bool {
	var seen uint64
	c.pos++
	if c.skipSpace() == '}' {
		c.pos++
		return p.required == 0
	}
	for {
		if c.skipSpace() != '"' {
			return false
		}
		name, plain := c.readString()
		i, known := p.properties[string(name)]
		if !plain || !known || seen&(1<<i) != 0 {
			return false
		}
		seen |= 1 << i
		if c.skipSpace() != ':' {
			return false
		}
		c.pos++
		if !p.fields[i].acceptValue(c, depth+1) {
			return false
		}
		b := c.skipSpace()
		c.pos++
		if b == '}' {
			return seen&p.required == p.required
		}
		if b != ',' {
			return false
		}
	}
}

func (p *prover) acceptArray(c *cursor, depth int) bool {
	c.pos++
	if c.skipSpace() == ']' {
		c.pos++
		return p.low <= 0
	}
	if p.items == nil { // nothing would check the syntax of the items
		return false
	}
	for n := 1; ; n++ {
		if !p.items.acceptValue(c, depth+1) {
			return false
		}
		b := c.skipSpace()
		c.pos++
		if b == ']' {
			return n >= p.low && n <= p.high
		}
		if b != ',' {
			return false
		}
	}
}

// acceptString leaves strings with escapes to the validator if the content of the string is restricted.
func (p *prover) acceptString(c *cursor) bool {
	s, plain := c.readString()
	if s == nil {
		return false
	}
	if p.enum == nil && p.pattern == nil && p.low == 0 && p.high == math.MaxInt {
		return true
	}
	if !plain || p.enum != nil && !slices.Contains(p.enum, string(s)) {
		return false
	}
	n := utf8.RuneCount(s)
	return n >= p.low && n <= p.high && (p.pattern == nil || p.pattern.Match(s))
}

// readString reads a string and returns what is between the quotes, or nil if the string is invalid; plain means that s
// has no escapes.
func (c *cursor) readString() (s []byte, plain bool) {
	start := c.pos + 1
	plain = true
	for i := start; i < len(c.text); i++ {
		switch b := c.text[i]; {
		case b == '"':
			c.pos = i + 1
			return c.text[start:i], plain
		case b < ' ':
			return nil, false
		case b == '\\':
			plain = false
			i++
			if i >= len(c.text) || strings.IndexByte(`"\/bfnrt`, c.text[i]) < 0 {
				return nil, false // \u too: the validator reads it
			}
		}
	}
	return nil, false
}

// Two different numbers of at most exactDigits digits are also different as float64.
const exactDigits = 15

// acceptNumber leaves numbers with an exponent and those of more than 300 characters, which a float64 may not be able to
// hold, to the validator.
func (p *prover) acceptNumber(c *cursor) bool {
	start := c.pos
	if c.pos < len(c.text) && c.text[c.pos] == '-' {
		c.pos++
	}
	digits := c.skipDigits()
	if digits == 0 || digits > 1 && c.text[c.pos-digits] == '0' { // JSON has no leading zeros
		return false
	}
	isInteger := true
	if c.pos < len(c.text) && c.text[c.pos] == '.' {
		isInteger = false
		c.pos++
		if c.skipDigits() == 0 {
			return false
		}
	}
	if c.pos < len(c.text) && (c.text[c.pos] == 'e' || c.text[c.pos] == 'E') || p.integer && !isInteger || c.pos-start > 300 {
		return false
	}
	if math.IsInf(p.min, -1) && math.IsInf(p.max, 1) { // nothing to compare with
		return true
	}
	f, err := strconv.ParseFloat(string(c.text[start:c.pos]), 64)
	exact := c.pos-start <= exactDigits // rounding keeps the order, but may make a longer number equal to a bound
	return err == nil && (f > p.min || f == p.min && exact) && (f < p.max || f == p.max && exact)
}

// skipDigits returns the number of digits skipped.
func (c *cursor) skipDigits() int {
	start := c.pos
	for c.pos < len(c.text) && c.text[c.pos] >= '0' && c.text[c.pos] <= '9' {
		c.pos++
	}
	return c.pos - start
}
