package scripted

import (
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxDepth limits the depth of samples of recursive schemas. A deeper value is null, which
// fails validation unless the schema allows it.
const maxDepth = 12

// sample makes a small value of a schema: the first alternative if there is a choice, and only the required
// properties of an object. It does not combine keywords that restrict each other; the caller validates the value.
func sample(s *jsonschema.Schema, depth int) any {
	if s == nil || depth > maxDepth {
		return nil
	}
	switch {
	case s.Const != nil:
		return *s.Const
	case s.Enum != nil && len(s.Enum.Values) > 0:
		return s.Enum.Values[0]
	case s.Default != nil && s.Validate(*s.Default) == nil:
		return *s.Default
	}
	for _, example := range s.Examples {
		if s.Validate(example) == nil {
			return example
		}
	}
	if s.Ref != nil {
		return sample(s.Ref, depth+1)
	}
	// Try each branch together with the schema's own keywords;
	// for oneOf, validation checks that no other branch matches.
	for _, choices := range [][]*jsonschema.Schema{s.OneOf, s.AnyOf} {
		for _, c := range choices {
			v := merged(sampleOwn(s, depth), sample(c, depth+1))
			if s.Validate(v) == nil {
				return v
			}
		}
	}
	v := sampleOwn(s, depth)
	for _, part := range s.AllOf {
		v = merged(v, sample(part, depth+1))
	}
	return v
}

// sampleOwn makes a value from a schema's own keywords; it ignores allOf, anyOf and oneOf. A property
// that is required but has no schema is null.
func sampleOwn(s *jsonschema.Schema, depth int) any {
	switch kind(s) {
	case "object":
		o := map[string]any{}
		for _, name := range s.Required {
			if p, ok := s.Properties[name]; ok {
				o[name] = sample(p, depth+1)
			} else {
				o[name] = nil
			}
		}
		return o
	case "array":
		return sampleArray(s, depth)
	case "string":
		return sampleString(s)
	case "integer", "number":
		return sampleNumber(s)
	case "boolean":
		return true
	}
	return nil
}

// kind returns the first type that a schema allows, or the one that its keywords apply to; empty if neither decides.
func kind(s *jsonschema.Schema) string {
	if s.Types != nil {
		types := s.Types.ToStrings()
		if i := slices.IndexFunc(types, func(t string) bool { return t != "null" }); i >= 0 {
			return types[i]
		}
		return ""
	}
	switch {
	case len(s.Properties) > 0 || len(s.Required) > 0:
		return "object"
	case s.Items2020 != nil || s.Items != nil || len(s.PrefixItems) > 0 || s.MinItems != nil:
		return "array"
	case s.MinLength != nil || s.MaxLength != nil || s.Pattern != nil || s.Format != nil:
		return "string"
	case s.Minimum != nil || s.Maximum != nil || s.ExclusiveMinimum != nil || s.ExclusiveMaximum != nil || s.MultipleOf != nil:
		return "number"
	}
	return ""
}

// sampleArray makes a list of the minimum length.
func sampleArray(s *jsonschema.Schema, depth int) any {
	list := []any{}
	for _, item := range s.PrefixItems {
		list = append(list, sample(item, depth+1))
	}
	minItems := 0
	if s.MinItems != nil {
		minItems = *s.MinItems
	}
	item := s.Items2020
	if old, ok := s.Items.(*jsonschema.Schema); ok {
		item = old
	}
	for len(list) < minItems {
		list = append(list, sample(item, depth+1))
	}
	return list
}

// samplesByFormat are valid strings for the formats of JSON Schema. Names and addresses are
// those set aside for documentation.
var samplesByFormat = map[string]string{
	"date-time": "2026-01-02T03:04:05Z", "date": "2026-01-02", "time": "03:04:05Z", "duration": "PT1H",
	"email": "someone@example.org", "hostname": "example.org", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1",
	"uri": "https://example.org/", "uri-reference": "/a", "uuid": "00000000-0000-4000-8000-000000000000",
	"json-pointer": "/a", "regex": "a",
}

// sampleString makes a string. For a pattern it tries a list of common values, such as
// identifiers, versions, paths and colours.
func sampleString(s *jsonschema.Schema) any {
	if s.Format != nil {
		if text, ok := samplesByFormat[s.Format.Name]; ok {
			return text
		}
	}
	text := "example"
	if s.MinLength != nil && len(text) < *s.MinLength {
		text += strings.Repeat("x", *s.MinLength-len(text))
	}
	if s.MaxLength != nil && len(text) > *s.MaxLength {
		text = text[:*s.MaxLength]
	}
	if s.Pattern == nil || s.Pattern.MatchString(text) {
		return text
	}
	for _, guess := range []string{"a", "A", "1", "abc", "ABC", "123", "1.0", "1.2.3", "a-b", "a_b", "a/b", "a.b", "AB-123", "2026-01-02", "#a1b2c3", "/a"} {
		if s.Pattern.MatchString(guess) {
			return guess
		}
	}
	return text
}

// sampleNumber makes a number near 1 within the bounds. It uses exact fractions,
// since 0.3 is not a multiple of 0.1 in floating point.
func sampleNumber(s *jsonschema.Schema) any {
	n := new(big.Rat).SetInt64(1)
	one := big.NewRat(1, 1)
	raise := func(least *big.Rat) {
		if n.Cmp(least) < 0 {
			n.Set(least)
		}
	}
	if s.Minimum != nil {
		raise(s.Minimum)
	}
	if s.ExclusiveMinimum != nil {
		raise(new(big.Rat).Add(s.ExclusiveMinimum, one))
	}
	if s.Maximum != nil && n.Cmp(s.Maximum) > 0 {
		n.Set(s.Maximum)
	}
	if s.ExclusiveMaximum != nil && n.Cmp(s.ExclusiveMaximum) >= 0 {
		n.Sub(s.ExclusiveMaximum, one)
	}
	if s.MultipleOf != nil { // round up to a multiple
		q := new(big.Rat).Quo(n, s.MultipleOf)
		up := new(big.Int).Div(new(big.Int).Add(q.Num(), new(big.Int).Sub(q.Denom(), big.NewInt(1))), q.Denom())
		n.Mul(new(big.Rat).SetInt(up), s.MultipleOf)
	}
	if n.IsInt() {
		return json.Number(n.Num().String())
	}
	return json.Number(n.FloatString(6))
}

// merged adds the members of object b to a. If one is not an object the result is b, or a if b is nil.
func merged(a, b any) any {
	ao, aok := a.(map[string]any)
	bo, bok := b.(map[string]any)
	switch {
	case aok && bok:
		both := maps.Clone(ao) // ao may belong to the schema
		maps.Copy(both, bo)
		return both
	case b == nil:
		return a
	}
	return b
}
