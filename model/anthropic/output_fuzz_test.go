package anthropic

import (
	"encoding/json"
	"testing"
)

// FuzzAnswerSchema: the API's form of any schema is JSON, and has that form already.
func FuzzAnswerSchema(f *testing.F) {
	for _, schema := range []string{
		`{"type":"object","properties":{"a":{"type":["string","null"],"maxLength":3}}}`,
		`{"oneOf":[{"$ref":"#/$defs/a","title":"A"}],"$defs":{"a":{"minItems":2,"items":[{}]}}}`,
		`{"oneOf":[1],"anyOf":{},"properties":[],"$defs":7,"additionalProperties":true}`,
		`{"description":5,"format":"x","default":"<\ud800>","$id":null,"items":true}`,
		`{"a":1,"a":{"b":2},"A":[]}`,
	} {
		f.Add([]byte(schema))
	}
	f.Fuzz(func(t *testing.T, schema []byte) {
		if !json.Valid(schema) {
			return
		}
		once := answerSchema(schema)
		if twice := answerSchema(once); !json.Valid(once) || string(twice) != string(once) {
			t.Errorf("%s\nthen %s", once, twice)
		}
	})
}
