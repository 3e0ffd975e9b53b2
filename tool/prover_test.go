package tool

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
)

// drawSchema draws schemas with keywords that provers know, and some others.
func drawSchema(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 7).Draw(t, "kind")
	if depth > 2 {
		kind %= 5
	}
	switch kind {
	case 0:
		return rapid.SampledFrom([]string{
			`{"type":"string"}`, `{"type":"string","enum":["a","b\"c"]}`, `{"enum":["a",1]}`, `{"type":["string","null"]}`,
			`{"type":"string","minLength":1,"maxLength":2}`, `{"type":"string","pattern":"^[a-c]+$"}`, `{"type":"string","format":"date"}`,
		}).Draw(t, "string")
	case 1:
		return rapid.SampledFrom([]string{
			`{"type":"integer"}`, `{"type":"number"}`, `{"type":"integer","minimum":0,"maximum":3}`, `{"minimum":0.5}`,
			`{"type":"number","maximum":1.1}`, `{"type":"number","minimum":9007199254740993}`, `{"exclusiveMinimum":1}`,
		}).Draw(t, "number")
	case 2:
		return rapid.SampledFrom([]string{`{}`, `true`, `{"type":"boolean"}`, `{"type":"null"}`, `{"$ref":"#"}`, `{"title":"x","maxItems":1}`}).Draw(t, "other")
	case 3, 4:
		return fmt.Sprintf(`{"type":"array","items":%s,"minItems":%d}`, drawSchema(t, depth+1), rapid.IntRange(0, 1).Draw(t, "min"))
	}
	var props []string
	for i := range rapid.IntRange(0, 3).Draw(t, "properties") {
		props = append(props, fmt.Sprintf(`"%c":%s`, 'a'+i, drawSchema(t, depth+1)))
	}
	required := rapid.SampledFrom([]string{``, `,"required":["a"]`, `,"required":[]`}).Draw(t, "required")
	extra := rapid.SampledFrom([]string{``, `,"additionalProperties":false`, `,"additionalProperties":true`}).Draw(t, "extra")
	return `{"type":"object","properties":{` + strings.Join(props, ",") + `}` + required + extra + `}`
}

// drawText draws arguments, most of which almost fit such schemas.
func drawText(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth > 3 {
		kind %= 3
	}
	var parts []string
	switch kind {
	case 0:
		return rapid.SampledFrom([]string{`"a"`, `"abc"`, `"b\"c"`, `""`, `"é"`, `"\u0061"`, "\"\x01\"", "\"\xff\"", `"a`, `"\x"`, `null`}).Draw(t, "string")
	case 1:
		return rapid.SampledFrom([]string{`0`, `3`, `4`, `-1`, `1.1`, `1.10`, `0.5`, `1.0`, `01`, `-`, `1.`, `1e2`, `9007199254740992`, `9007199254740993`, `1e999999999`, `1.1000000000000000001`}).Draw(t, "number")
	case 2:
		return rapid.SampledFrom([]string{`true`, `false`, `null`, `tru`, ``, `{}`, `[]`, `}`}).Draw(t, "other")
	case 3:
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			parts = append(parts, drawText(t, depth+1))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		parts = append(parts, rapid.SampledFrom([]string{`"a"`, `"b"`, `"c"`, `"\u0061"`, `"z"`}).Draw(t, "name")+" :"+drawText(t, depth+1))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func TestProverSaysYesOnlyWhenTheValidatorDoes(t *testing.T) {
	yes, no := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		schema := drawSchema(t, 0)
		v := newValidator(json.RawMessage(schema))
		if v.prover == nil {
			return
		}
		for range 20 {
			text := drawText(t, 0)
			valid := false
			if parsed, err := parseValue([]byte(text)); err == nil && parsed.kind == objectValue {
				valid = v.validate(parsed.generic()) == nil
			}
			switch proved := v.prover.proves([]byte(text)); {
			case proved && !valid:
				t.Fatalf("schema %s: %s was proved and is not valid", schema, text)
			case proved:
				yes++
			case valid:
				no++
			}
		}
	})
	if yes < 10 && !testing.Short() {
		t.Errorf("proved only %d of %d: the test shows nothing", yes, yes+no)
	}
}

// TestProverKnowsWhatNewMakes checks that the prover knows the schemas that [New] makes.
func TestProverKnowsWhatNewMakes(t *testing.T) {
	const schema = `{"$defs":{"n":{"type":"object","properties":{"k":{"items":{"$ref":"#/$defs/n"},"type":"array"}},"additionalProperties":false}},` +
		`"type":"object","properties":{"s":{"type":"string","description":"d"},"n":{"$ref":"#/$defs/n"},"e":{"type":"string","enum":["x","y"]},"i":{"type":"integer","minimum":1}},` +
		`"required":["s"],"additionalProperties":false}`
	v := newValidator(json.RawMessage(schema))
	for text, want := range map[string]bool{
		`{"s":"a\n","n":{"k":[{"k":[]}]},"e":"y","i":1}`: true,
		` { "s" : "" } `:       true,
		`{"s":"","i":0}`:       false,
		`{"s":"","i":1.0}`:     false, // valid, but left to the validator
		`{"s":"","s":""}`:      false,
		`{"n":{}}`:             false,
		`{"s":"","t":1}`:       false,
		`{"s":""} x`:           false,
		`{"s":"","n":{"x":1}}`: false,
	} {
		if got := v.prover.proves([]byte(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestProverOfLongBounds has bounds that become 3 or 0 as a float64. The validator compares exactly and refuses the number.
func TestProverOfLongBounds(t *testing.T) {
	for bound, number := range map[string]string{
		`"minimum":3.00000000000000000001`: "3",
		`"maximum":2.99999999999999999999`: "3",
		`"minimum":1e-400`:                 "0",
	} {
		v := newValidator(json.RawMessage(`{"type":"object","properties":{"n":{"type":"number",` + bound + `}}}`))
		if text := `{"n":` + number + `}`; v.prover != nil && v.prover.proves([]byte(text)) {
			t.Errorf("%s: %s was proved and is not valid", bound, text)
		}
	}
}
