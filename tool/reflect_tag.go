package tool

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"
)

// checkTag returns an error if a keyword of f's tag has no effect in p, the schema of the field, or if no value can
// satisfy the keywords.
func checkTag(f field, p *jsonschema.Schema) error {
	tag := f.tag.Get("jsonschema")
	if tag == "" {
		return nil
	}
	if keyword := ignoredKeyword(tag, p); keyword != "" {
		return fmt.Errorf("%s does not fit the type %v", keyword, f.typ)
	}
	for s := p; s != nil; s = s.Items { // the library applies some keywords of a list to the items
		if err := checkBounds(s); err != nil {
			return err
		}
		// A pattern from a type's own schema, not from the tag, may be in JavaScript's syntax.
		if _, err := regexp.Compile(s.Pattern); err != nil && strings.Contains(tag, "pattern=") {
			return fmt.Errorf("pattern: %w; use the syntax of Go's package regexp, or nothing is checked", err)
		}
	}
	return nil
}

// checkedKeywords are the keywords of a tag that appear in the schema unless the library ignored them.
var checkedKeywords = []string{"default", "enum", "example", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
	"minLength", "maxLength", "pattern", "minItems", "maxItems"}

// ignoredKeyword returns a keyword of the tag that the library has ignored, because the keyword does not fit the type or
// its value does not parse; else "".
func ignoredKeyword(tag string, p *jsonschema.Schema) string {
	if p.OneOf != nil || p.AnyOf != nil { // the keywords may be in a branch
		return ""
	}
	has := map[string]json.RawMessage{}
	for s := p; s != nil; s = s.Items {
		if data, err := json.Marshal(s); err == nil {
			_ = json.Unmarshal(data, &has) // a schema may be true, which has no keywords
		}
	}
	has["example"] = has["examples"] // the tag sets one of the examples
	for _, part := range splitUnescaped(tag) {
		key, _, _ := strings.Cut(part, "=")
		if slices.Contains(checkedKeywords, key) && has[key] == nil {
			return key
		}
	}
	return ""
}

// checkBounds returns an error if no value is within the bounds of s, or if s refuses its own default or a value
// of its enum.
func checkBounds(s *jsonschema.Schema) error {
	for _, b := range []struct {
		low, high json.Number
		names     string
		exclusive bool // equal bounds leave no value either
	}{
		{s.Minimum, s.Maximum, "minimum and maximum", false},
		{s.Minimum, s.ExclusiveMaximum, "minimum and exclusiveMaximum", true},
		{s.ExclusiveMinimum, s.Maximum, "exclusiveMinimum and maximum", true},
		{s.ExclusiveMinimum, s.ExclusiveMaximum, "exclusiveMinimum and exclusiveMaximum", true},
		{sizeNumber(s.MinLength), sizeNumber(s.MaxLength), "minLength and maxLength", false},
		{sizeNumber(s.MinItems), sizeNumber(s.MaxItems), "minItems and maxItems", false},
		{"0", s.MultipleOf, "multipleOf, which must be more than 0,", true},
	} {
		low, hasLow := new(big.Rat).SetString(b.low.String())
		high, hasHigh := new(big.Rat).SetString(b.high.String())
		if hasLow && hasHigh && (low.Cmp(high) > 0 || b.exclusive && low.Cmp(high) == 0) {
			return fmt.Errorf("%s leave no value", b.names)
		}
	}
	if err := checkValues(s, "enum", s.Enum...); err != nil || s.Default == nil {
		return err
	}
	return checkValues(s, "default", s.Default)
}

// sizeNumber returns a bound of a size as a number, "" for nil.
func sizeNumber(n *uint64) json.Number {
	if n == nil {
		return ""
	}
	return json.Number(strconv.FormatUint(*n, 10))
}

// checkValues returns an error if s refuses one of the values of keyword in s.
func checkValues(s *jsonschema.Schema, keyword string, values ...any) error {
	if len(values) == 0 || s.Ref != "" { // the definition that s refers to is not part of s
		return nil
	}
	schema, err := json.Marshal(s)
	if err != nil {
		return err
	}
	v := newValidator(schema)
	if v.err != nil {
		return fmt.Errorf("%s: %w", keyword, v.err)
	}
	for _, value := range values {
		data, err := json.Marshal(value)
		if err != nil {
			return err
		}
		parsed, err := parseValue(data)
		if err != nil {
			return err
		}
		if err := v.validate(parsed.generic()); err != nil {
			x := explainer{validator: v, args: parsed}
			x.collect(err)
			return fmt.Errorf("%s: %s", keyword, x.violations[0].text)
		}
	}
	return nil
}
