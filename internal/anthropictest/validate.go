package anthropictest

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

// Validate checks the body of a request by the rules of the API reference, "Create a Message", and
// the refusals of the server. The errors have the server's texts where they are known. It is
// stricter in two ways: it refuses consecutive messages of one role, which the server joins, and
// thinking of another model, which the server drops. betas are the values of the header
// anthropic-beta.
func Validate(body []byte, betas ...string) error {
	_, _, err := validate(body, betas)
	return err
}

// A validator checks one request.
type validator struct {
	betas    []string
	tools    []string // names of the tools that may be called
	removed  []string // names of removed tools
	thinking thinkingConfig
	model    string
	ids      map[string]bool // ids of all calls
	seen     *prefix         // of everything checked so far
	caches   []string        // the times to live of the cache breakpoints, in order
	paused   string          // see validate; empty if the request continues no answer
	thoughts int             // number of thinking blocks in the paused answer
}

// validate checks a request. The prefix identifies everything before the answer. If the request
// continues a paused answer, thoughts is the number of its thinking blocks.
func validate(body []byte, betas []string) (prefix string, thoughts int, err error) {
	o, err := wiretest.DecodeObject(body)
	if err != nil {
		return "", 0, fmt.Errorf("the request body %w", err)
	}
	v := &validator{betas: betas, ids: map[string]bool{}, seen: newPrefix()}
	if err := v.request(o); err != nil {
		return "", 0, err
	}
	if v.paused != "" {
		return v.paused, v.thoughts, nil
	}
	return v.seen.sum(), 0, nil
}

// requestMembers are the members that the API reference lists, including those of beta features.
var requestMembers = strings.Fields(`model messages max_tokens cache_control container
	context_management diagnostics fallbacks inference_geo mcp_servers metadata output_config
	service_tier speed stop_sequences stream system temperature thinking tool_choice tools top_k top_p`)

var (
	nameRule     = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	idRule       = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	propertyRule = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
)

// known refuses members that the API does not know.
func known(where string, o map[string]json.RawMessage, members ...string) error {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if !slices.Contains(members, name) {
			return fmt.Errorf("%s: Extra inputs are not permitted",
				strings.TrimPrefix(where+"."+name, "."))
		}
	}
	return nil
}

// request checks a request in the order in which the model reads it: tools, system prompt,
// messages.
func (v *validator) request(o map[string]json.RawMessage) error {
	if err := known("", o, requestMembers...); err != nil {
		return err
	}
	for _, name := range []string{"model", "max_tokens", "messages"} {
		if o[name] == nil {
			return fmt.Errorf("%s: Field required", name)
		}
	}
	var maxTokens int
	if json.Unmarshal(o["max_tokens"], &maxTokens) != nil || maxTokens < 1 {
		return fmt.Errorf("max_tokens: Input should be greater than or equal to 1")
	}
	var err error
	if v.model, err = wiretest.DecodeString(o["model"]); err != nil || v.model == "" {
		return errors.New("model: Input should be a valid string")
	}
	if o["stream"] != nil && string(o["stream"]) != "true" && string(o["stream"]) != "false" {
		return errors.New("stream: Input should be a valid boolean")
	}
	for _, check := range []func() error{
		func() error { return v.toolList(o["tools"]) },
		func() error { return v.system(o["system"]) },
		func() error { return v.settings(o, maxTokens) },
		func() error { return v.conversation(o["messages"]) },
		v.cache,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// A thinkingConfig is the member thinking.
type thinkingConfig struct {
	Type    string
	Budget  int `json:"budget_tokens"`
	Display string
}

func (t thinkingConfig) on() bool { return t.Type == "enabled" || t.Type == "adaptive" }

// settings checks thinking, temperature, the choice of a tool and the format of the answer.
func (v *validator) settings(o map[string]json.RawMessage, maxTokens int) error {
	if raw := o["thinking"]; raw != nil {
		kinds := []string{"adaptive", "disabled", "enabled"}
		if json.Unmarshal(raw, &v.thinking) != nil || !slices.Contains(kinds, v.thinking.Type) {
			return unexpectedTag("thinking", v.thinking.Type, kinds...)
		}
		if !slices.Contains([]string{"", "summarized", "omitted"}, v.thinking.Display) {
			return errors.New("thinking.display: Input should be 'summarized' or 'omitted'")
		}
	}
	switch t := v.thinking; {
	case t.Type == "enabled" && t.Budget < 1024:
		return errors.New("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
	case t.Type == "enabled" && t.Budget >= maxTokens:
		return errors.New("`max_tokens` must be greater than `thinking.budget_tokens`")
	}
	if raw := o["temperature"]; raw != nil {
		var t float64
		if json.Unmarshal(raw, &t) != nil || t < 0 || t > 1 {
			return errors.New("temperature: range: 0..1")
		}
		if v.thinking.on() && t != 1 {
			return errors.New("`temperature` may only be set to 1 when thinking is enabled")
		}
	}
	if err := v.toolChoice(o["tool_choice"]); err != nil {
		return err
	}
	return outputConfig(o["output_config"])
}

func (v *validator) toolChoice(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	var c struct{ Type, Name string }
	kinds := []string{"auto", "any", "tool", "none"}
	if json.Unmarshal(raw, &c) != nil || !slices.Contains(kinds, c.Type) {
		return unexpectedTag("tool_choice", c.Type, kinds...)
	}
	switch {
	case len(v.tools) == 0:
		return errors.New("tool_choice may only be specified while providing tools")
	case c.Type == "tool" && !slices.Contains(v.tools, c.Name):
		return fmt.Errorf("tool_choice: Tool '%s' not found in provided tools", c.Name)
	case (c.Type == "any" || c.Type == "tool") && v.thinking.on():
		return errors.New("thinking may not be enabled when tool_choice forces tool use")
	}
	return nil
}

// outputConfig checks the effort, and the schema by the rules of "Structured outputs", "JSON Schema
// limitations".
func outputConfig(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	o, err := wiretest.DecodeObject(raw)
	if err != nil {
		return fmt.Errorf("output_config: %w", err)
	}
	if err := known("output_config", o, "effort", "format", "task_budget"); err != nil {
		return err
	}
	efforts := []string{`"low"`, `"medium"`, `"high"`, `"xhigh"`, `"max"`}
	if effort := o["effort"]; effort != nil && !slices.Contains(efforts, string(effort)) {
		return fmt.Errorf("output_config.effort: Input should be one of %s", efforts)
	}
	if o["format"] == nil {
		return nil
	}
	var f struct {
		Type   string
		Schema json.RawMessage
	}
	if json.Unmarshal(o["format"], &f) != nil || f.Type != "json_schema" {
		return unexpectedTag("output_config.format", f.Type, "json_schema")
	}
	if _, err := wiretest.DecodeObject(f.Schema); err != nil {
		return fmt.Errorf("output_config.format.schema: %w", err)
	}
	return closedObjects("output_config.format.schema", f.Schema)
}

// closedObjects checks that no object in a schema allows additional properties, and that no
// constraint is unsupported.
func closedObjects(where string, raw json.RawMessage) error {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		for _, item := range list {
			if err := closedObjects(where, item); err != nil {
				return err
			}
		}
		return nil
	}
	o, err := wiretest.DecodeObject(raw)
	if err != nil {
		return nil // a value, not a schema
	}
	kind, _ := wiretest.DecodeString(o["type"])
	isOpen := string(o["additionalProperties"]) != "false"
	if kind == "object" && o["properties"] != nil && isOpen {
		return fmt.Errorf("%s: For 'object' type, 'additionalProperties' must be explicitly set to "+
			"false", where)
	}
	for _, name := range []string{"minimum", "maximum", "minLength", "maxLength", "maxItems"} {
		if raw := o[name]; raw != nil && raw[0] != '{' {
			return fmt.Errorf("%s: property '%s' is not supported", where, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if err := closedObjects(where+"."+name, o[name]); err != nil {
			return err
		}
	}
	return nil
}

func (v *validator) toolList(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	list, err := wiretest.DecodeList(raw)
	if err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	for i, item := range list {
		if err := v.tool(fmt.Sprintf("tools.%d", i), item); err != nil {
			return err
		}
		v.seen.add("tools", item)
	}
	return nil
}

// tool checks a tool. Server tools have a type.
func (v *validator) tool(where string, raw json.RawMessage) error {
	o, err := wiretest.DecodeObject(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	name, _ := wiretest.DecodeString(o["name"])
	if slices.Contains(v.tools, name) {
		return errors.New("tools: Tool names must be unique")
	}
	v.tools = append(v.tools, name)
	if err := v.breakpoint(where, o); err != nil {
		return err
	}
	if kind, _ := wiretest.DecodeString(o["type"]); kind != "" && kind != "custom" {
		return nil
	}
	where += ".custom"
	if err := known(where, o, "type", "name", "description", "input_schema", "cache_control",
		"strict", "defer_loading", "eager_input_streaming",
		"allowed_callers", "input_examples"); err != nil {
		return err
	}
	if !nameRule.MatchString(name) {
		return fmt.Errorf("%s.name: String should match pattern '%s'", where, nameRule)
	}
	return inputSchema(where+".input_schema", o["input_schema"])
}

func inputSchema(where string, raw json.RawMessage) error {
	if raw == nil {
		return fmt.Errorf("%s: Field required", where)
	}
	o, err := wiretest.DecodeObject(raw)
	if err != nil {
		return fmt.Errorf("%s: Input should be a valid dictionary", where)
	}
	if kind, _ := wiretest.DecodeString(o["type"]); kind != "object" {
		return fmt.Errorf("%s.type: Input should be 'object'", where)
	}
	if o["oneOf"] != nil || o["allOf"] != nil || o["anyOf"] != nil {
		return fmt.Errorf("%s: input_schema does not support oneOf, allOf, or anyOf at the top level",
			where)
	}
	properties, _ := wiretest.DecodeObject(o["properties"])
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !propertyRule.MatchString(name) {
			return fmt.Errorf("%s.properties: Property keys should match pattern '%s'", where,
				propertyRule)
		}
	}
	if err := wiretest.CompileSchema(raw); err != nil {
		return fmt.Errorf("%s: JSON schema is invalid. It must match JSON Schema draft 2020-12: %w",
			where, err)
	}
	return nil
}

// system checks the system prompt: text, or blocks of text.
func (v *validator) system(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	if _, err := wiretest.DecodeString(raw); err == nil {
		v.seen.add("system", raw)
		return nil
	}
	list, err := wiretest.DecodeList(raw)
	if err != nil {
		return fmt.Errorf("system: %w", err)
	}
	for i, item := range list {
		if err := v.block(fmt.Sprintf("system.%d", i), item, "text"); err != nil {
			return err
		}
		v.seen.add("system", item)
	}
	return nil
}

// breakpoint checks and records a cache breakpoint.
func (v *validator) breakpoint(where string, o map[string]json.RawMessage) error {
	raw := o["cache_control"]
	if raw == nil || string(raw) == "null" {
		return nil
	}
	var c struct{ Type, TTL string }
	err := json.Unmarshal(raw, &c)
	hasTTL := slices.Contains([]string{"", "5m", "1h"}, c.TTL)
	if err != nil || c.Type != "ephemeral" || !hasTTL {
		return fmt.Errorf("%s.cache_control: Input should be of the type 'ephemeral' with a ttl of "+
			"'5m' or '1h'", where)
	}
	v.caches = append(v.caches, c.TTL)
	return nil
}

// cache checks the rules of "Prompt caching" for all breakpoints.
func (v *validator) cache() error {
	if n := len(v.caches); n > 4 {
		return fmt.Errorf("a maximum of 4 blocks with cache_control may be provided. Found %d", n)
	}
	for i, ttl := range v.caches {
		if ttl == "1h" && i > 0 && v.caches[i-1] != "1h" {
			return errors.New("a ttl='1h' cache_control block must not come after a ttl='5m' " +
				"cache_control block")
		}
	}
	return nil
}
