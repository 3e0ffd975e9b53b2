package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A validator checks arguments against one schema. It is safe for concurrent use, as its fields never change.
type validator struct {
	compiled *jsonschema.Schema
	schema   *value // the same schema, parsed, for hints and examples
	err      error  // why arguments cannot be checked; compiled is nil then
}

// maxValidators bounds the memory for the schemas of servers, which may send ever new schemas.
const maxValidators = 1024

var validators = validatorCache{bySchema: map[string]*validator{}}

// A validatorCache keeps the last validators made, by the schema's bytes, so
// that a schema is compiled once even if its tool is wrapped or listed again.
type validatorCache struct {
	mu       sync.RWMutex
	bySchema map[string]*validator
	order    []string // oldest first
}

// get returns the validator of a schema. Compiling takes a while and happens outside of the lock; if two goroutines
// compile the same schema, the cache keeps the first validator. A full cache drops the oldest validator.
func (c *validatorCache) get(schema json.RawMessage) *validator {
	c.mu.RLock()
	v, ok := c.bySchema[string(schema)]
	c.mu.RUnlock()
	if ok {
		return v
	}
	v = newValidator(schema)
	c.mu.Lock()
	defer c.mu.Unlock()
	key := string(schema)
	if _, ok := c.bySchema[key]; !ok {
		if len(c.order) >= maxValidators {
			delete(c.bySchema, c.order[0])
			c.order = c.order[1:]
		}
		c.bySchema[key] = v
		c.order = append(c.order, key)
	}
	return v
}

// newValidator compiles an untrusted schema. References to files and URLs are not loaded. Parts that are valid but
// unsupported (an unknown dialect, a regular expression that Go does not support) are ignored, so that the tool stays
// usable.
func newValidator(raw json.RawMessage) (v *validator) {
	defer func() { // an untrusted schema must not end the program
		if p := recover(); p != nil {
			v = &validator{schema: &value{}, err: fmt.Errorf("the schema cannot be compiled: %v", p)}
		}
	}()
	if len(raw) == 0 { // an absent schema accepts everything
		raw = json.RawMessage("true")
	}
	doc, err := parseValue(raw)
	if err != nil {
		return &validator{schema: &value{}, err: fmt.Errorf("the schema is %w", err)}
	}
	v = &validator{schema: doc}
	if doc.kind != objectValue && doc.kind != boolValue {
		v.err = errors.New("the schema is neither an object nor a boolean")
		return v
	}
	removeUnsupported(doc)
	if v.heaviestWeight(doc, map[*value]int{}) >= maxWeight {
		v.err = errors.New("the schema combines too many alternatives to be checked")
		return v
	}
	// Schemas are often written for an older draft without $schema.
	for _, draft := range []*jsonschema.Draft{jsonschema.Draft2020, jsonschema.Draft7, jsonschema.Draft4} {
		v.compiled, err = compile(doc, draft)
		if err == nil {
			v.err = nil
			return v
		}
		if v.err == nil { // keep the error of the newest draft
			v.err = fmt.Errorf("the schema cannot be compiled: %w", err)
		}
		// An older draft only helps if the schema breaks a rule of this draft.
		if _, ok := errors.AsType[*jsonschema.SchemaValidationError](err); !ok {
			return v
		}
	}
	return v
}

// compile compiles a schema as the $schema in it says, else as draft. The validator checks formats and encodings, which
// draft 2020-12 makes optional: a tool that asks for a date needs a date.
func compile(doc *value, draft *jsonschema.Draft) (*jsonschema.Schema, error) {
	const url = "tool://schema/input"
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(draft)
	compiler.UseLoader(jsonschema.SchemeURLLoader{}) // knows no URL scheme, so references to files and URLs are errors
	compiler.AssertFormat()
	compiler.AssertContent()
	if err := compiler.AddResource(url, doc.generic()); err != nil {
		return nil, err
	}
	return compiler.Compile(url)
}

// validate returns what is wrong with arguments in the form of value.generic, or nil. v.err must be nil.
func (v *validator) validate(args any) *jsonschema.ValidationError {
	err, _ := errors.AsType[*jsonschema.ValidationError](v.compiled.Validate(args)) // Validate returns no other error
	return err
}

// The keywords whose values are schemas: an object of schemas, a list of schemas, or one schema. In older drafts items
// may be a list.
var (
	schemaObjectKeywords = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
	schemaListKeywords   = []string{"allOf", "anyOf", "oneOf", "prefixItems", "items"}
	schemaKeywords       = []string{
		"items", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties",
		"contains", "propertyNames", "not", "if", "then", "else",
	}
)

// eachSubschema calls visit with each schema directly below s.
func (s *value) eachSubschema(visit func(*value)) {
	for _, m := range s.members {
		switch {
		case m.value.kind == objectValue && slices.Contains(schemaObjectKeywords, m.name):
			for _, e := range m.value.members {
				visit(e.value)
			}
		case m.value.kind == arrayValue && slices.Contains(schemaListKeywords, m.name):
			for _, e := range m.value.items {
				visit(e)
			}
		case m.value.kind == objectValue && slices.Contains(schemaKeywords, m.name):
			visit(m.value)
		}
	}
}

// removeUnsupported removes from a schema, in place, parts that do not compile: dialects that the library does not know
// and would have to load, and patterns in the syntax of ECMA 262 that Go does not support, such as (?!x). Arguments
// are then checked against the rest.
func removeUnsupported(s *value) {
	if s.kind != objectValue {
		return
	}
	removedPattern := false
	s.members = slices.DeleteFunc(s.members, func(m member) bool {
		switch m.name {
		case "$schema":
			return m.value.kind != stringValue || !knownDialect(m.value.text())
		case "pattern":
			return m.value.kind == stringValue && badPattern(m.value.text())
		case "patternProperties":
			if m.value.kind == objectValue {
				patterns := len(m.value.members)
				m.value.members = slices.DeleteFunc(m.value.members, func(p member) bool { return badPattern(p.name) })
				removedPattern = len(m.value.members) < patterns
			}
		}
		return false
	})
	if removedPattern {
		// The fields that the pattern allowed must not be refused as unknown fields.
		s.members = slices.DeleteFunc(s.members, func(m member) bool {
			return m.name == "additionalProperties" || m.name == "unevaluatedProperties"
		})
	}
	s.eachSubschema(removeUnsupported)
}

// maxWeight bounds the weight of a schema: how many schemas, itself included, a value is checked against. In a short
// schema each reference can double the weight.
const maxWeight = 10_000

// heaviestWeight returns the largest weight of s and all schemas in it, at most maxWeight.
func (v *validator) heaviestWeight(s *value, memo map[*value]int) int {
	w := v.weight(s, memo)
	s.eachSubschema(func(sub *value) { w = max(w, v.heaviestWeight(sub, memo)) })
	return w
}

// weight returns the weight of s, at most maxWeight. memo holds the weights that are known.
func (v *validator) weight(s *value, memo map[*value]int) int {
	if s == nil {
		return 0
	}
	if w, ok := memo[s]; ok {
		return w
	}
	memo[s] = 1 // ends a cycle of references
	w := 1
	for _, m := range s.members {
		switch m.name {
		case "$ref":
			w += v.weight(v.resolve(s), memo)
		case "allOf", "anyOf", "oneOf":
			for _, e := range m.value.items {
				w += v.weight(e, memo)
			}
		case "not", "if", "then", "else":
			w += v.weight(m.value, memo)
		case "dependentSchemas", "dependencies":
			for _, e := range m.value.members {
				w += v.weight(e.value, memo)
			}
		}
		w = min(w, maxWeight)
	}
	memo[s] = w
	return w
}

func badPattern(pattern string) bool {
	_, err := regexp.Compile(pattern)
	return err != nil
}

// knownDialect reports whether the library contains the meta-schema of a dialect.
func knownDialect(url string) bool {
	url = strings.TrimSuffix(url, "#")
	for _, d := range []*jsonschema.Draft{
		jsonschema.Draft4, jsonschema.Draft6, jsonschema.Draft7, jsonschema.Draft2019, jsonschema.Draft2020,
	} {
		if strings.TrimSuffix(d.String(), "#") == url {
			return true
		}
	}
	return false
}
