package tooltest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// A generator makes random values of a schema. It knows the common keywords. Values
// that do not fit the schema are dropped afterwards.
type generator struct {
	rng  *rand.Rand
	root any // the whole schema, decoded, for references
}

// oddTexts often cause failures: paths out of a directory, options, shell and format
// syntax, large numbers. The last four have a format; see text.
var oddTexts = []string{
	"", "a", "a b", "../../etc/passwd", "/", "C:\\x", "\x00", "\n", "ünï", "😀", "-rf", "$(x)", "'\"`", "%s%n", "{}", "[", "true", "0",
	"9999999999999999999999", strings.Repeat("x", 5000), "2026-01-31T09:30:00Z", "2026-01-31", "1m30s", "AAAA",
}

// value makes a value of a schema, or any value if it does not understand the schema or
// the value is nested too deep, which ends recursive schemas.
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
	for _, k := range []string{"enum", "examples"} {
		if list, ok := s[k].([]any); ok && len(list) > 0 && (k == "enum" || g.rng.IntN(2) == 0) {
			return list[g.rng.IntN(len(list))]
		}
	}
	for _, k := range []string{"anyOf", "oneOf"} {
		if list, ok := s[k].([]any); ok && len(list) > 0 {
			return g.value(list[g.rng.IntN(len(list))], depth+1)
		}
	}
	t := s["type"]
	if list, ok := t.([]any); ok && len(list) > 0 {
		t = list[g.rng.IntN(len(list))]
	}
	switch t {
	case "object":
		return g.object(s, depth)
	case "array":
		list := make([]any, 0, 4)
		for n := g.rng.IntN(4) + int(number(s["minItems"], 0)); len(list) < min(n, int(number(s["maxItems"], 100))); {
			list = append(list, g.value(s["items"], depth+1))
		}
		return list
	case "string":
		return g.text(s)
	case "integer":
		list := g.integers(s)
		return list[g.rng.IntN(len(list))]
	case "number":
		return number(s["minimum"], -1e6) + g.rng.Float64()*(number(s["maximum"], 1e6)-number(s["minimum"], -1e6))
	case "boolean":
		return g.rng.IntN(2) == 0
	case "null":
		return nil
	}
	return g.anything()
}

// object leaves out about half of the optional fields, and sometimes adds an unknown one if the
// schema allows it. The names are sorted, so that the same seed gives the same object.
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
		obj[oddTexts[g.rng.IntN(len(oddTexts))]] = g.value(extra, depth+1)
	}
	return obj
}

// text makes a string. For patterns and formats it tries the oddTexts with a format.
func (g *generator) text(s map[string]any) string {
	if _, ok := s["format"]; ok || s["pattern"] != nil || s["contentEncoding"] != nil {
		return oddTexts[len(oddTexts)-1-g.rng.IntN(4)]
	}
	text := oddTexts[g.rng.IntN(len(oddTexts))]
	// Lengths count runes; bytes are good enough here.
	text += strings.Repeat("x", max(0, int(number(s["minLength"], 0))-len(text)))
	if r := []rune(text); len(r) > int(number(s["maxLength"], 1e9)) {
		text = string(r[:int(number(s["maxLength"], 0))])
	}
	return text
}

// integers returns numbers within the bounds, the bounds among them.
func (g *generator) integers(s map[string]any) []int64 {
	low, high := int64(number(s["minimum"], -1e15)), int64(number(s["maximum"], 1e15))
	var list []int64
	for _, n := range []int64{low, high, 0, 1, -1, 7, 1 << 31, low + g.rng.Int64N(max(high-low, 1))} {
		if n >= low && n <= high {
			list = append(list, n)
		}
	}
	if len(list) == 0 {
		list = append(list, low)
	}
	return list
}

// number returns a keyword's value, or missing if the schema does not have it.
func number(v any, missing float64) float64 {
	if f, ok := v.(float64); ok {
		return f
	}
	return missing
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
	return oddTexts[g.rng.IntN(len(oddTexts))]
}

// resolve finds a local reference.
func (g *generator) resolve(ref string) any {
	at := g.root
	for part := range strings.SplitSeq(strings.TrimPrefix(strings.TrimPrefix(ref, "#"), "/"), "/") {
		if m, ok := at.(map[string]any); ok && part != "" {
			at = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
		}
	}
	return at
}
