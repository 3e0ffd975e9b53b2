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

// A validator checks arguments against one schema. It is safe for concurrent
// use: nothing in it changes once it is made.
type validator struct {
	compiled *jsonschema.Schema
	schema   *value  // the same schema, parsed, for hints
	prover   *prover // nil if the schema has keywords that provers do not know
	err      error   // why arguments cannot be checked; compiled is nil then
}

// maxValidators bounds the memory for the schemas of servers, which may change.
const maxValidators = 1024

var validators = validatorCache{bySchema: map[string]*validator{}}

// A validatorCache keeps the last validators made, by the schema's bytes, so
// that a schema is compiled once even if its tool is wrapped or listed again.
type validatorCache struct {
	mu       sync.RWMutex
	bySchema map[string]*validator
	order    []string // oldest first
}

// get returns the validator of a schema. Compiling takes a while and happens outside of the lock; if two
// goroutines do it for one schema, the first result is kept. A full cache drops the oldest.
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

// newValidator compiles a schema that may come from anywhere. Nothing is ever loaded: neither files nor URLs.
// Parts that are valid but unsupported (an unknown dialect, a regular expression that Go does not support) are
// ignored, so that the tool stays usable.
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
	if v.heaviest(doc, map[*value]int{}) >= maxWeight {
		v.err = errors.New("the schema combines too many alternatives to be checked")
		return v
	}
	// Schemas are often of an older draft and do not say so.
	for _, draft := range []*jsonschema.Draft{jsonschema.Draft2020, jsonschema.Draft7, jsonschema.Draft4} {
		v.compiled, err = compile(doc, draft)
		if err == nil {
			v.err = nil
			if draft == jsonschema.Draft2020 { // provers know its keywords only
				v.prover = (&proverMaker{validator: v, made: map[*value]*prover{}}).make(doc)
			}
			return v
		}
		if v.err == nil { // keep the error of the newest draft
			v.err = fmt.Errorf("the schema cannot be compiled: %w", err)
		}
		// Another draft only helps if a keyword has another form in it.
		if _, ok := errors.AsType[*jsonschema.SchemaValidationError](err); !ok {
			return v
		}
	}
	return v
}

// compile compiles a schema according to a draft, unless the schema names its own. Formats and encodings are
// checked, which draft 2020-12 leaves open: a tool that asks for a date needs one.
func compile(doc *value, draft *jsonschema.Draft) (*jsonschema.Schema, error) {
	const url = "tool://schema/input"
	c := jsonschema.NewCompiler()
	c.DefaultDraft(draft)
	c.UseLoader(jsonschema.SchemeURLLoader{}) // has no scheme: refuses all
	c.AssertFormat()
	c.AssertContent()
	if err := c.AddResource(url, doc.generic()); err != nil {
		return nil, err
	}
	return c.Compile(url)
}

// validate returns nil, or what is wrong with a result of value.generic. v.err must be nil.
func (v *validator) validate(x any) *jsonschema.ValidationError {
	err, _ := errors.AsType[*jsonschema.ValidationError](v.compiled.Validate(x)) // Validate returns no other error
	return err
}

// Where schemas are inside a schema. In older drafts items may be a list.
var (
	schemaMaps = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
	schemaList = []string{"allOf", "anyOf", "oneOf", "prefixItems", "items"}
	schemaOne  = []string{
		"items", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties",
		"contains", "propertyNames", "not", "if", "then", "else",
	}
)

// eachSubschema calls visit with each schema directly below s.
func (s *value) eachSubschema(visit func(*value)) {
	for _, m := range s.members {
		switch {
		case m.value.kind == objectValue && slices.Contains(schemaMaps, m.name):
			for _, e := range m.value.members {
				visit(e.value)
			}
		case m.value.kind == arrayValue && slices.Contains(schemaList, m.name):
			for _, e := range m.value.items {
				visit(e)
			}
		case m.value.kind == objectValue && slices.Contains(schemaOne, m.name):
			visit(m.value)
		}
	}
}

// removeUnsupported removes from a schema, in place, parts that would only make it fail: dialects that the
// library does not know and would have to load, and patterns in the syntax of ECMA 262 that
// Go does not support, such as (?!x). Arguments are then checked against the rest.
func removeUnsupported(s *value) {
	if s.kind != objectValue {
		return
	}
	refused := false
	s.members = slices.DeleteFunc(s.members, func(m member) bool {
		switch m.name {
		case "$schema":
			return m.value.kind != stringValue || !knownDialect(m.value.text())
		case "pattern":
			return m.value.kind == stringValue && badPattern(m.value.text())
		case "patternProperties":
			if m.value.kind == objectValue {
				m.value.members = slices.DeleteFunc(m.value.members, func(p member) bool {
					refused = refused || badPattern(p.name)
					return badPattern(p.name)
				})
			}
		}
		return false
	})
	if refused {
		// The fields that the pattern allowed must not become unknown ones.
		s.members = slices.DeleteFunc(s.members, func(m member) bool {
			return m.name == "additionalProperties" || m.name == "unevaluatedProperties"
		})
	}
	s.eachSubschema(removeUnsupported)
}

// maxWeight bounds how many schemas one value may be checked against. A short
// schema can double it with each reference.
const maxWeight = 10_000

// heaviest returns the weight of the heaviest schema in s, at most maxWeight.
func (v *validator) heaviest(s *value, memo map[*value]int) int {
	w := v.weight(s, memo)
	s.eachSubschema(func(sub *value) { w = max(w, v.heaviest(sub, memo)) })
	return w
}

// weight returns the number of schemas that a value is checked against when it is checked against s, including s.
func (v *validator) weight(s *value, memo map[*value]int) int {
	if s == nil {
		return 0
	}
	if w, ok := memo[s]; ok {
		return w
	}
	memo[s] = 1 // in case of a cycle
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

func badPattern(p string) bool {
	_, err := regexp.Compile(p)
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
