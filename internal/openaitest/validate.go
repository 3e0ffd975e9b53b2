package openaitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/wiretest"
)

// Validate checks the body of a chat completions request by the rules of OpenAI's API
// reference and of the strictest compatible servers: content is never empty,
// call ids are unique in the whole conversation, and results are in the order of the
// calls. Allow has members that are accepted in addition to OpenAI's.
func Validate(body []byte, allow ...string) error {
	top, err := wiretest.DecodeObject(body)
	if err != nil {
		return fmt.Errorf("the body %w", err)
	}
	v := validator{allow: allow, ids: map[string]bool{}}
	return errors.Join(v.request(top), v.conversation(top["messages"]))
}

// A validator checks one request. Its methods return the first error of a part, if possible in the
// API's words.
type validator struct {
	allow []string
	ids   map[string]bool // of all calls
}

// nameRule is the API's rule for the names of tools and of output formats.
var nameRule = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// requestMembers are those of the API reference except functions and function_call, which
// tools have replaced.
var requestMembers = strings.Fields(`audio frequency_penalty logit_bias logprobs max_completion_tokens max_tokens messages metadata
	modalities model n parallel_tool_calls prediction presence_penalty prompt_cache_key reasoning_effort response_format safety_identifier
	seed service_tier stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options`)

// known rejects members that are neither the API's nor allowed, as some servers do.
func (v validator) known(where string, o map[string]json.RawMessage, members ...string) error {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if !slices.Contains(members, name) && !slices.Contains(v.allow, name) {
			return fmt.Errorf("%s: %q is not a known member", where, name)
		}
	}
	return nil
}

// request checks everything except the messages, and returns all errors.
func (v validator) request(o map[string]json.RawMessage) error {
	errs := []error{v.known("request", o, requestMembers...)}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if name, err := wiretest.DecodeString(o["model"]); err != nil || name == "" {
		check(false, "model is not a name: %s", o["model"])
	}
	stream := string(o["stream"]) == "true"
	check(o["stream"] == nil || stream || string(o["stream"]) == "false", "stream is not a boolean: %s", o["stream"])
	check(o["stream_options"] == nil || stream, "stream_options without stream")
	check(o["max_tokens"] == nil || o["max_completion_tokens"] == nil, "max_tokens and max_completion_tokens exclude each other")
	for _, name := range []string{"max_tokens", "max_completion_tokens"} {
		var n int
		check(o[name] == nil || (json.Unmarshal(o[name], &n) == nil && n > 0), "%s is not a positive integer: %s", name, o[name])
	}
	if raw := o["temperature"]; raw != nil {
		var t float64
		check(json.Unmarshal(raw, &t) == nil && t >= 0 && t <= 2, "temperature is not between 0 and 2: %s", raw)
	}
	names, err := v.tools(o["tools"])
	errs = append(errs, err, v.toolChoice(o["tool_choice"], names), v.responseFormat(o["response_format"]))
	return errors.Join(errs...)
}

// tools checks the tools and returns their names, nil if there are none.
func (v validator) tools(raw json.RawMessage) ([]string, error) {
	if raw == nil {
		return nil, nil
	}
	list, err := wiretest.DecodeList(raw)
	if err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	var names []string
	for i, item := range list {
		name, err := v.tool(item)
		if err == nil && slices.Contains(names, name) {
			err = errors.New("its name is a duplicate")
		}
		if err != nil {
			return nil, fmt.Errorf("tools[%d] %q: %w", i, name, err)
		}
		names = append(names, name)
	}
	return names, nil
}

// tool checks one tool and returns its name, if possible also with an error.
func (v validator) tool(raw json.RawMessage) (string, error) {
	o, err := wiretest.DecodeObject(raw)
	if err != nil {
		return "", err
	}
	if kind, _ := wiretest.DecodeString(o["type"]); kind != "function" {
		return "", fmt.Errorf("type is %s", o["type"])
	}
	f, err := wiretest.DecodeObject(o["function"])
	if err != nil {
		return "", fmt.Errorf("function %w", err)
	}
	name, err := wiretest.DecodeString(f["name"])
	if err != nil || !nameRule.MatchString(name) {
		return name, fmt.Errorf("name %s does not match %s", f["name"], nameRule)
	}
	if err := errors.Join(v.known("tool", o, "type", "function"), v.known("function", f, "name", "description", "parameters", "strict")); err != nil {
		return name, err
	}
	if f["parameters"] == nil {
		return name, nil
	}
	return name, topSchema(f["parameters"])
}

// topSchema checks the schema of a tool's arguments: it must compile, describe an object,
// and not use the keywords that the API rejects at the top level.
func topSchema(raw json.RawMessage) error {
	o, err := wiretest.DecodeObject(raw)
	if err != nil {
		return fmt.Errorf("parameters %w", err)
	}
	if kind, _ := wiretest.DecodeString(o["type"]); kind != "object" {
		return fmt.Errorf(`parameters must have type "object", not %s`, o["type"])
	}
	if _, err := wiretest.DecodeObject(o["properties"]); err != nil {
		return fmt.Errorf("object schema missing properties: properties %w", err)
	}
	for _, keyword := range []string{"oneOf", "anyOf", "allOf", "enum", "not"} {
		if o[keyword] != nil {
			return fmt.Errorf("parameters must not have %q at the top level", keyword)
		}
	}
	return wiretest.CompileSchema(raw)
}

// toolChoice checks the tool choice, which may only name tools of the request.
func (v validator) toolChoice(raw json.RawMessage, names []string) error {
	if raw == nil {
		return nil
	}
	if len(names) == 0 {
		return errors.New("tool_choice is only allowed when tools are specified")
	}
	if s, err := wiretest.DecodeString(raw); err == nil {
		if !slices.Contains([]string{"none", "auto", "required"}, s) {
			return fmt.Errorf("tool_choice is %q", s)
		}
		return nil
	}
	var named struct {
		Type     string
		Function struct{ Name string }
	}
	if err := json.Unmarshal(raw, &named); err != nil || named.Type != "function" || !slices.Contains(names, named.Function.Name) {
		return fmt.Errorf("tool_choice does not name a tool of the request: %s", raw)
	}
	return nil
}

// responseFormat checks response_format; a schema in strict mode must follow the
// rules of structured outputs.
func (v validator) responseFormat(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	var f struct {
		Type   string
		Schema *struct {
			Name   string
			Schema json.RawMessage
			Strict bool
		} `json:"json_schema"`
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return fmt.Errorf("response_format: %w", err)
	}
	switch {
	case f.Type == "text", f.Type == "json_object":
		return nil
	case f.Type != "json_schema" || f.Schema == nil:
		return fmt.Errorf("response_format: %s", raw)
	case !nameRule.MatchString(f.Schema.Name):
		return fmt.Errorf("response_format: name %q does not match %s", f.Schema.Name, nameRule)
	}
	if !f.Schema.Strict {
		_, err := wiretest.DecodeObject(f.Schema.Schema)
		return err
	}
	return strictSchema("response_format", f.Schema.Schema)
}

// strictSchema checks every object in raw by the rules of structured outputs: it must have no
// additional properties, and all properties must be required.
func strictSchema(where string, raw json.RawMessage) error {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		for _, item := range list {
			if err := strictSchema(where, item); err != nil {
				return err
			}
		}
		return nil
	}
	o, err := wiretest.DecodeObject(raw)
	if err != nil {
		return nil // a value, not a schema
	}
	if kind, _ := wiretest.DecodeString(o["type"]); kind == "object" {
		if string(o["additionalProperties"]) != "false" {
			return fmt.Errorf("%s: additionalProperties must be false", where)
		}
		var required []string
		_ = json.Unmarshal(o["required"], &required)
		properties, _ := wiretest.DecodeObject(o["properties"])
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			if !slices.Contains(required, name) {
				return fmt.Errorf("%s: property %q must be required", where, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if err := strictSchema(where+"."+name, o[name]); err != nil {
			return err
		}
	}
	return nil
}
