package tool

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Args are the arguments of a call, ready to be judged and run.
type Args struct {
	JSON json.RawMessage // a JSON object that is valid against the tool's schema

	// Repaired says what was put right in what the model sent, a phrase each;
	// empty when nothing was.
	Repaired []string
}

// An ArgumentError says why arguments cannot be used. Its text is for the
// model: what was wrong, where, and what is allowed.
type ArgumentError struct{ Text string }

func (e *ArgumentError) Error() string { return e.Text }

// Arguments makes valid arguments for t of what a model sent: repaired where
// that is safe, and checked against the schema. The error is an
// [*ArgumentError]. Empty input is the empty object.
func Arguments(t Tool, raw json.RawMessage) (Args, error) {
	info := t.Info()
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return Args{}, &ArgumentError{fmt.Sprintf("the arguments of %s are not valid JSON: %v", info.Name, err)}
	}
	if _, ok := v.(map[string]any); !ok {
		return Args{}, &ArgumentError{fmt.Sprintf("the arguments of %s must be a JSON object", info.Name)}
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(info.Input))
	if err != nil {
		return Args{}, &ArgumentError{fmt.Sprintf("the schema of %s cannot be read: %v", info.Name, err)}
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // loads nothing: schemas are untrusted
	if err := c.AddResource("tool:input", doc); err != nil {
		return Args{}, &ArgumentError{err.Error()}
	}
	s, err := c.Compile("tool:input")
	if err != nil {
		return Args{}, &ArgumentError{err.Error()}
	}
	if err := s.Validate(v); err != nil {
		return Args{}, &ArgumentError{err.Error()}
	}
	return Args{JSON: raw}, nil
}
