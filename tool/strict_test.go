package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/tool"
)

// TestStrict has a field of each sort that changes in strict mode, and reads what a model
// then sends.
func TestStrict(t *testing.T) {
	type child struct {
		X float64 `json:"x,omitempty"`
	}
	type in struct {
		Name string  `json:"name" jsonschema_description:"a name"`
		Age  *int    `json:"age" jsonschema:"minimum=0,default=3"`
		Unit string  `json:"unit,omitempty" jsonschema:"enum=c,enum=f"`
		Kids []child `json:"kids,omitempty"`
		Node *node   `json:"node"`
	}
	probe := tool.Must(tool.New("probe", "Probes.", func(context.Context, in) (string, error) { return "", nil }))
	strict, problems := tool.Strict(probe.Info().Input)
	if problems != nil {
		t.Fatal(problems)
	}
	const want = `{"$defs":{"node":{"properties":{"name":{"type":"string"},"kids":{"items":{"$ref":"#/$defs/node"},"type":["array","null"]}},"additionalProperties":false,"type":"object","required":["name","kids"]}},` +
		`"properties":{"name":{"type":"string","description":"a name"},"age":{"type":["integer","null"],"minimum":0},"unit":{"type":["string","null"],"enum":["c","f",null]},` +
		`"kids":{"items":{"properties":{"x":{"type":["number","null"]}},"additionalProperties":false,"type":"object","required":["x"]},"type":["array","null"]},` +
		`"node":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"additionalProperties":false,"type":"object","required":["name","age","unit","kids","node"]}`
	if string(strict) != want {
		t.Errorf("got  %s\nwant %s", strict, want)
	}
	validSchema(t, strict)

	// What a model sends in strict mode fits the tool's own schema.
	args, err := tool.Arguments(probe, json.RawMessage(`{"name":"n","age":null,"unit":null,"kids":[{"x":null}],"node":null}`))
	if err != nil || string(args.JSON) != `{"name":"n","kids":[{}]}` {
		t.Errorf("got %s, %v", args.JSON, err)
	}
}

// TestStrictSaysWhatItCannot has schemas that break the rules of OpenAI's guide. Each
// comes back as it was.
func TestStrictSaysWhatItCannot(t *testing.T) {
	wide := `{"type":"object","additionalProperties":false,"properties":{`
	for i := range 5001 {
		wide += fmt.Sprintf(`"p%d":{"type":"string"},`, i)
	}
	deep := strings.Repeat(`{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":`, 11) + `{"type":"string"}` + strings.Repeat(`}}`, 11)
	enum := `{"type":"object","additionalProperties":false,"properties":{"a":{"enum":[` + strings.TrimSuffix(strings.Repeat(`1,`, 1001), ",") + `]}}}`
	for schema, want := range map[string]string{
		`{"type":"object","additionalProperties":false,"properties":{"m":{"type":"object","additionalProperties":{"type":"string"}}}}`: "m: fields of any name are allowed",
		`{"type":"object","additionalProperties":false,"properties":{"a":{}}}`:                                                         "a: any value is allowed",
		`{"type":"object","additionalProperties":false,"properties":{"a":true}}`:                                                       "a: any value is allowed",
		`{"type":"object","additionalProperties":false,"properties":{"a":{"oneOf":[{"type":"string"}]}}}`:                              "a: oneOf is not supported",
		`{"type":"object","properties":{}}`: "fields of any name are allowed",
		`{"anyOf":[{"type":"object"}]}`:     "the root is no object",
		`[]`:                                "the root is no object",
		`{`:                                 "not valid JSON",
		wide[:len(wide)-1] + `}}`:           "5001 properties; at most 5000",
		deep:                                "more than 10 levels",
		enum:                                "1001 enum values; at most 1000",
	} {
		got, problems := tool.Strict(json.RawMessage(schema))
		if string(got) != schema || !strings.Contains(strings.Join(problems, "; "), want) {
			t.Errorf("%.120s: %v, want %q", schema, problems, want)
		}
	}
}
