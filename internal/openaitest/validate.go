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

// Validate checks the body of a chat completions request by the rules of OpenAI's API reference and of the
// strictest compatible servers: content is never empty, call ids are unique in the whole conversation, and results
// are in the order of the calls. allow names members that are accepted in addition to OpenAI's.
func Validate(body []byte, allow ...string) error {
	top, err := wiretest.DecodeObject(body)
	if err != nil {
		return fmt.Errorf("the body %w", err)
	}
	v := validator{allow: allow, ids: map[string]bool{}}
	return errors.Join(v.request(top), v.conversation(top["messages"]))
}

// A validator checks one request. Its methods return the first error of a part, if possible in the API's words.
type validator struct {
	allow     []string
	ids       map[string]bool // of all calls
	responses bool            // the request is for the Responses API
}

// nameRule is the API's rule for the names of tools and of output formats.
var nameRule = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// requestMembers are those of the API reference except functions and function_call, which tools have replaced.
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
	c := &checkErrors{v.known("request", o, requestMembers...)}
	c.common(o)
	check := c.check
	check(o["stream_options"] == nil || string(o["stream"]) == "true", "stream_options without stream")
	check(o["max_tokens"] == nil || o["max_completion_tokens"] == nil, "max_tokens and max_completion_tokens exclude each other")
	for _, name := range []string{"max_tokens", "max_completion_tokens"} {
		var n int
		check(o[name] == nil || (json.Unmarshal(o[name], &n) == nil && n > 0), "%s is not a positive integer: %s", name, o[name])
	}
	names, err := v.tools(o["tools"])
	return errors.Join(append(*c, err, v.toolChoice(o["tool_choice"], names), v.responseFormat(o["response_format"]))...)
}

// checkErrors are the errors of a request.
type checkErrors []error

// check adds an error unless ok is true.
func (c *checkErrors) check(ok bool, format string, args ...any) {
	if !ok {
		*c = append(*c, fmt.Errorf(format, args...))
	}
}

// common checks members that are the same in both APIs.
func (c *checkErrors) common(o map[string]json.RawMessage) {
	name, err := wiretest.DecodeString(o["model"])
	c.check(err == nil && name != "", "model is not a name: %s", o["model"])
	for _, name := range []string{"stream", "store", "parallel_tool_calls"} {
		c.check(o[name] == nil || string(o[name]) == "true" || string(o[name]) == "false", "%s is not a boolean: %s", name, o[name])
	}
	var t float64
	c.check(o["temperature"] == nil || json.Unmarshal(o["temperature"], &t) == nil && t >= 0 && t <= 2, "temperature is not between 0 and 2: %s", o["temperature"])
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
		Type, Name string
		Function   struct{ Name string }
	}
	err := json.Unmarshal(raw, &named)
	name := named.Function.Name
	if v.responses {
		name = named.Name
	}
	if err != nil || named.Type != "function" || !slices.Contains(names, name) {
		return fmt.Errorf("tool_choice does not name a tool of the request: %s", raw)
	}
	return nil
}

// responseFormat checks response_format.
func (v validator) responseFormat(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	var f struct {
		Type   string
		Schema outputFormat `json:"json_schema"`
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return fmt.Errorf("response_format: %w", err)
	}
	f.Schema.Type = f.Type
	return f.Schema.check("response_format")
}

// An outputFormat is the format of the answer.
type outputFormat struct {
	Type, Name string
	Schema     json.RawMessage
	Strict     bool
}

// check checks the format. A schema in strict mode must follow the rules of structured outputs.
func (f *outputFormat) check(where string) error {
	switch {
	case f.Type == "text", f.Type == "json_object":
		return nil
	case f.Type != "json_schema":
		return fmt.Errorf("%s: type is %q; want text, json_object or json_schema", where, f.Type)
	case !nameRule.MatchString(f.Name):
		return fmt.Errorf("%s: name %q does not match %s", where, f.Name, nameRule)
	case f.Strict:
		return strictSchema(where, f.Schema)
	}
	_, err := wiretest.DecodeObject(f.Schema)
	return err
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
