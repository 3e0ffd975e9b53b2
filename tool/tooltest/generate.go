package tooltest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// A generator makes random values from a schema. It knows the common keywords only, so a value may not fit the schema;
// the caller drops such values.
type generator struct {
	rng  *rand.Rand
	root any // the whole schema, decoded, for references
}

// formattedTexts are texts for common formats, patterns and encodings: times, a duration, base64.
var formattedTexts = []string{"AAAA", "1m30s", "2026-01-31", "2026-01-31T09:30:00Z"}

// oddTexts often cause failures: paths out of a directory, options, shell and format syntax, large numbers.
var oddTexts = append([]string{
	"", "a", "a b", "../../etc/passwd", "/", "C:\\x", "\x00", "\n", "ünï", "😀", "-rf", "$(x)", "'\"`", "%s%n", "{}", "[", "true", "0",
	"9999999999999999999999", strings.Repeat("x", 5000),
}, formattedTexts...)

// value makes a value from a schema, or from no schema if it does not understand the schema or the value is nested more
// than 8 deep, as a recursive schema would have no end.
func (g *generator) value(schema any, depth int) any {
	s, ok := schema.(map[string]any)
	if !ok || depth > 8 {
		return g.anything()
	}
	if ref, ok := s["$ref"].(string); ok {
		return g.value(g.resolve(ref), depth+1)
	}
	if c, ok := s["const"]; ok {
		return c
	}
	// Examples are used every other time, since other values fit too.
	for _, keyword := range []string{"enum", "examples"} {
		if list, ok := s[keyword].([]any); ok && len(list) > 0 && (keyword == "enum" || g.rng.IntN(2) == 0) {
			return pick(g, list)
		}
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if list, ok := s[keyword].([]any); ok && len(list) > 0 {
			return g.value(pick(g, list), depth+1)
		}
	}
	typ := s["type"]
	if list, ok := typ.([]any); ok && len(list) > 0 {
		typ = pick(g, list)
	}
	switch typ {
	case "object":
		return g.object(s, depth)
	case "array":
		n := min(g.rng.IntN(4)+int(numberOr(s["minItems"], 0)), int(numberOr(s["maxItems"], 100)))
		list := []any{} // not nil, which is null in JSON
		for range n {
			list = append(list, g.value(s["items"], depth+1))
		}
		return list
	case "string":
		return g.text(s)
	case "integer":
		return pick(g, g.integers(s))
	case "number":
		low, high := numberOr(s["minimum"], -1e6), numberOr(s["maximum"], 1e6)
		return low + g.rng.Float64()*(high-low)
	case "boolean":
		return g.rng.IntN(2) == 0
	case "null":
		return nil
	}
	return g.anything()
}

// pick returns a random element of a list that is not empty.
func pick[T any](g *generator, list []T) T { return list[g.rng.IntN(len(list))] }

// object makes an object. It leaves out about half of the optional fields, and sometimes adds an unknown field if the
// schema allows unknown fields. The names are sorted, so that the same seed gives the same object.
func (g *generator) object(s map[string]any, depth int) any {
	obj := map[string]any{}
	props, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(props)) {
		if slices.Contains(required, any(name)) || g.rng.IntN(2) == 0 {
			obj[name] = g.value(props[name], depth+1)
		}
	}
	if extra, ok := s["additionalProperties"]; ok && extra != false && g.rng.IntN(2) == 0 {
		obj[pick(g, oddTexts)] = g.value(extra, depth+1)
	}
	return obj
}

// text makes a string. For patterns, formats and encodings it tries the formattedTexts.
func (g *generator) text(s map[string]any) string {
	if s["format"] != nil || s["pattern"] != nil || s["contentEncoding"] != nil {
		return pick(g, formattedTexts)
	}
	text := pick(g, oddTexts)
	// minLength counts runes; a text that is too short because bytes are counted here is dropped by the caller.
	text += strings.Repeat("x", max(0, int(numberOr(s["minLength"], 0))-len(text)))
	if runes, limit := []rune(text), int(numberOr(s["maxLength"], 1e9)); len(runes) > limit {
		text = string(runes[:limit])
	}
	return text
}

// integers returns integers between minimum and maximum, with both. A float64 holds the default bounds exactly.
func (g *generator) integers(s map[string]any) []int64 {
	low, high := int64(numberOr(s["minimum"], -1e15)), int64(numberOr(s["maximum"], 1e15))
	var list []int64
	for _, n := range []int64{low, high, 0, 1, -1, 7, 1 << 31, low + g.rng.Int64N(max(high-low, 1))} {
		if n >= low && n <= high {
			list = append(list, n)
		}
	}
	if len(list) == 0 { // low > high: no integer fits
		list = append(list, low)
	}
	return list
}

// numberOr returns the number v, or fallback if v is not a number, such as nil for a keyword that a schema does not have.
func numberOr(v any, fallback float64) float64 {
	if f, ok := v.(float64); ok {
		return f
	}
	return fallback
}

// anything makes a value without a schema.
func (g *generator) anything() any {
	switch g.rng.IntN(6) {
	case 0:
		return nil
	case 1:
		return g.rng.IntN(2) == 0
	case 2:
		return g.rng.NormFloat64()
	case 3:
		return []any{}
	case 4:
		return map[string]any{"a": 1}
	}
	return pick(g, oddTexts)
}

// resolve returns the schema that a local reference names, such as #/$defs/node.
func (g *generator) resolve(ref string) any {
	schema := g.root
	for part := range strings.SplitSeq(strings.TrimPrefix(strings.TrimPrefix(ref, "#"), "/"), "/") {
		if m, ok := schema.(map[string]any); ok && part != "" {
			schema = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
		}
	}
	return schema
}
