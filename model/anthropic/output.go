package anthropic

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// This file makes schemas of answers that the API accepts ("Structured outputs", "JSON Schema
// limitations").

// answerKeywords are the keywords that the API supports with any value. Those that have schemas as
// their values are not among them.
var answerKeywords = []string{
	"$ref", "additionalProperties", "const", "description", "enum", "pattern", "required", "title",
	"type",
}

// answerFormats are the formats of strings that the API supports.
var answerFormats = []string{
	"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid",
}

// answerSchema returns a schema, or a list of schemas, as the API accepts it: objects have no
// additional properties, oneOf is anyOf, and constraints that the API refuses are in the
// description, where the model reads them.
func answerSchema(schema json.RawMessage) json.RawMessage {
	return mapJSON(schema, answerSchema, restrictSchema)
}

func restrictSchema(s map[string]json.RawMessage) {
	if s["$ref"] != nil { // the API accepts nothing beside it
		maps.DeleteFunc(s, func(keyword string, _ json.RawMessage) bool {
			return keyword != "$ref" && !isSchemaMap(keyword)
		})
	}
	if s["oneOf"] != nil && s["anyOf"] == nil {
		s["anyOf"] = s["oneOf"]
		delete(s, "oneOf")
	}
	var notes []string
	for _, keyword := range slices.Sorted(maps.Keys(s)) {
		value := s[keyword]
		switch {
		case isSchemaMap(keyword):
			s[keyword] = mapJSON(value, answerSchema, restrictSchemas)
		case keyword == "allOf" || keyword == "anyOf" || keyword == "items":
			s[keyword] = answerSchema(value)
		case !supportsKeyword(keyword, value):
			delete(s, keyword)
			if !strings.HasPrefix(keyword, "$") { // $schema and $id tell the model nothing
				notes = append(notes, keyword+": "+cmp.Or(jsonString(value), string(value)))
			}
		}
	}
	if len(notes) > 0 {
		text := jsonString(s["description"]) + "\n\n{" + strings.Join(notes, ", ") + "}"
		s["description"] = marshal(strings.TrimPrefix(text, "\n\n"))
	}
	isObject := s["properties"] != nil || bytes.Contains(s["type"], []byte(`"object"`))
	// A schema of additional properties stays: the server says that it refuses it.
	if more := string(s["additionalProperties"]); isObject && (more == "" || more == "true") {
		s["additionalProperties"] = json.RawMessage("false")
	}
}

// isSchemaMap reports whether the value of a keyword has schemas as its members.
func isSchemaMap(keyword string) bool {
	return keyword == "properties" || keyword == "$defs" || keyword == "definitions"
}

func restrictSchemas(schemas map[string]json.RawMessage) {
	for name, s := range schemas {
		schemas[name] = answerSchema(s)
	}
}

// supportsKeyword reports whether the API supports a keyword with this value.
func supportsKeyword(keyword string, value json.RawMessage) bool {
	switch keyword {
	case "format":
		return slices.Contains(answerFormats, jsonString(value))
	case "minItems":
		return string(value) == "0" || string(value) == "1"
	}
	return slices.Contains(answerKeywords, keyword)
}
