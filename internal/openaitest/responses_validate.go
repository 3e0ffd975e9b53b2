package openaitest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/wiretest"
)

// encryptedPrefix and the id of an item make up the encrypted_content of reasoning.
const encryptedPrefix = "encrypted-"

// responsesMembers are the request members of the API reference's "Create a model response".
var responsesMembers = strings.Fields(`background context_management conversation include input instructions max_output_tokens max_tool_calls
	metadata model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_options prompt_cache_retention
	reasoning safety_identifier service_tier store stream stream_options temperature text tool_choice tools top_logprobs top_p truncation user verbosity`)

// ValidateResponses checks the body of a Responses API request by the rules of OpenAI's API reference and of
// its server: calls and outputs match, reasoning is complete and followed by an item, and ids have the prefix
// of their kind. allow names members that are accepted in addition to the API's.
func ValidateResponses(body []byte, allow ...string) error {
	o, err := wiretest.DecodeObject(body)
	if err != nil {
		return fmt.Errorf("the body %w", err)
	}
	v := validator{allow: allow, ids: map[string]bool{}, responses: true}
	c := &checkErrors{v.known("request", o, responsesMembers...)}
	c.common(o)
	var n int
	c.check(o["max_output_tokens"] == nil || json.Unmarshal(o["max_output_tokens"], &n) == nil && n >= 16,
		"invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got %s instead", o["max_output_tokens"])
	names, err := v.responseTools(o["tools"])
	return errors.Join(append(*c, err, v.toolChoice(o["tool_choice"], names), v.responseText(o["text"]),
		v.input(o["input"], string(o["store"]) == "false", names))...)
}

// responseTools checks the tools and returns the names of functions.
func (v validator) responseTools(raw json.RawMessage) (names []string, err error) {
	if raw == nil {
		return nil, nil
	}
	list, err := wiretest.DecodeList(raw)
	if err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	for i, item := range list {
		o, err := wiretest.DecodeObject(item)
		if err != nil {
			return nil, fmt.Errorf("tools[%d] %w", i, err)
		}
		if kind, _ := wiretest.DecodeString(o["type"]); kind != "function" { // a tool that the server runs
			continue
		}
		name, _ := wiretest.DecodeString(o["name"])
		switch {
		case o["function"] != nil:
			err = fmt.Errorf("unknown parameter: 'tools[%d].function'", i)
		case !nameRule.MatchString(name):
			err = fmt.Errorf("name %s does not match %s", o["name"], nameRule)
		case slices.Contains(names, name):
			err = errors.New("its name is a duplicate")
		default:
			err = v.known("tool", o, "type", "name", "description", "parameters", "strict", "defer_loading", "allowed_callers", "output_schema")
		}
		if err == nil && string(o["strict"]) != "false" { // true is the default
			err = strictSchema("parameters", o["parameters"])
		}
		if err == nil {
			err = topSchema(o["parameters"])
		}
		if err != nil {
			return nil, fmt.Errorf("tools[%d] %q: %w", i, name, err)
		}
		names = append(names, name)
	}
	return names, nil
}

func (v validator) responseText(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	var text struct{ Format *outputFormat }
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("text: %w", err)
	}
	if text.Format == nil {
		return nil
	}
	return text.Format.check("text.format")
}

// inputState is what the checks of an item need to know of the previous items.
type inputState struct {
	calls     []string        // the ids of calls without an output, in order
	reasoning map[string]bool // the ids of reasoning
	last      string          // the kind of the last item
	lastID    string
	listed    []string          // the names in the list of tools
	added     []string          // the names in items of additional tools
	spaces    map[string]string // the namespace of the calls of each tool
}

// input checks the items of the input. listed are the names in the list of tools.
func (v validator) input(raw json.RawMessage, notStored bool, listed []string) error {
	if text, err := wiretest.DecodeString(raw); err == nil {
		if text == "" {
			return errors.New("input is empty")
		}
		return nil
	}
	list, err := wiretest.DecodeList(raw)
	if err != nil {
		return fmt.Errorf("input: %w", err)
	}
	st := &inputState{reasoning: map[string]bool{}, listed: listed, spaces: map[string]string{}}
	for i, item := range list {
		o, err := wiretest.DecodeObject(item)
		if err == nil {
			err = v.inputItem(o, st, notStored)
		}
		if err != nil {
			return fmt.Errorf("input[%d]: %w", i, err)
		}
	}
	switch {
	case len(st.calls) > 0:
		return fmt.Errorf("no tool output found for function call %s", st.calls[0])
	case st.last == "reasoning":
		return fmt.Errorf("item '%s' of type 'reasoning' was provided without its required following item", st.lastID)
	}
	return st.checkNamespaces()
}

// checkNamespaces checks the calls against the tools of the whole request: calls of a tool that an item added are in a
// namespace with the tool's name, others in none.
func (st *inputState) checkNamespaces() error {
	for _, name := range slices.Sorted(maps.Keys(st.spaces)) {
		space, added := st.spaces[name], slices.Contains(st.added, name)
		switch {
		case added && space == "":
			return fmt.Errorf("missing namespace for function_call '%s'. It does not exist in the default namespace. Round-trip the model's function_call item with its namespace field included", name)
		case space != "" && (!added || space != name):
			return fmt.Errorf("namespace '%s' of function_call '%s' does not exist", space, name)
		}
	}
	return nil
}

// inputItem checks one item.
func (v validator) inputItem(o map[string]json.RawMessage, st *inputState, notStored bool) error {
	kind, _ := wiretest.DecodeString(o["type"])
	kind = cmp.Or(kind, "message")
	id, _ := wiretest.DecodeString(o["id"])
	role, _ := wiretest.DecodeString(o["role"])
	fromModel := kind == "function_call" || kind == "reasoning" || kind == "message" && role == "assistant" || strings.HasSuffix(kind, "_call")
	if st.last == "reasoning" && !fromModel {
		return fmt.Errorf("item '%s' of type 'reasoning' was provided without its required following item", st.lastID)
	}
	if len(st.calls) > 0 && !fromModel && kind != "function_call_output" {
		return fmt.Errorf("no tool output found for function call %s", st.calls[0])
	}
	st.last, st.lastID = kind, id
	if prefix, ok := map[string]string{"function_call": "fc", "reasoning": "rs", "message": "msg"}[kind]; ok && id != "" && !strings.HasPrefix(id, prefix+"_") {
		return fmt.Errorf("invalid 'id': '%s'. Expected an ID that begins with '%s'", id, prefix)
	}
	// The ids of items of a response with reasoning contain r and its number; see Turn.output.
	if _, number, ok := strings.Cut(id, "_r"); ok && kind != "reasoning" {
		number, _, _ = strings.Cut(number, "_")
		if !st.reasoning["rs_r"+number] {
			return fmt.Errorf("item '%s' of type '%s' was provided without its required 'reasoning' item: 'rs_r%s'", id, kind, number)
		}
	}
	switch kind {
	case "message":
		return v.inputMessage(o, role)
	case "reasoning":
		st.reasoning[id] = true
		return v.inputReasoning(o, id, notStored)
	case "function_call":
		return v.inputCall(o, st)
	case "additional_tools":
		return v.inputTools(o, st, role)
	case "function_call_output":
		callID, _ := wiretest.DecodeString(o["call_id"])
		at := slices.Index(st.calls, callID)
		if at < 0 {
			return fmt.Errorf("no tool call found for function call output with call_id %s", callID)
		}
		st.calls = slices.Delete(st.calls, at, at+1)
		if err := v.known(kind, o, "type", "id", "call_id", "output", "status"); err != nil {
			return err
		}
		return v.inputContent(o["output"], "input_text", "input_image", "input_file")
	}
	if !strings.HasSuffix(kind, "_call") && kind != "compaction" {
		return fmt.Errorf("invalid value: '%s'. Supported values are: 'message', 'reasoning', 'function_call', …", kind)
	}
	return nil
}

// inputTools checks an item by which the developer adds tools.
func (v validator) inputTools(o map[string]json.RawMessage, st *inputState, role string) error {
	if err := v.known("additional_tools", o, "type", "id", "role", "tools"); err != nil {
		return err
	}
	names, err := v.responseTools(o["tools"])
	switch {
	case err != nil:
		return err
	case role != "developer":
		return fmt.Errorf("invalid value: '%s'. Supported values are: 'developer'", role)
	}
	for _, name := range names {
		if slices.Contains(st.listed, name) || slices.Contains(st.added, name) {
			return fmt.Errorf("tool '%s' was already provided", name)
		}
		st.added = append(st.added, name)
	}
	return nil
}

func (v validator) inputMessage(o map[string]json.RawMessage, role string) error {
	if err := v.known("message", o, "type", "id", "role", "content", "status", "phase"); err != nil {
		return err
	}
	switch role {
	case "user", "system", "developer":
		return v.inputContent(o["content"], "input_text", "input_image", "input_file")
	case "assistant":
		return v.inputContent(o["content"], "output_text", "refusal")
	}
	return fmt.Errorf("invalid value: '%s'. Supported values are: 'assistant', 'system', 'developer', and 'user'", role)
}

// inputReasoning checks that reasoning has a summary and, if the server stores nothing, its content, encrypted or plain.
func (v validator) inputReasoning(o map[string]json.RawMessage, id string, notStored bool) error {
	var summary []json.RawMessage
	if o["summary"] == nil || json.Unmarshal(o["summary"], &summary) != nil {
		return errors.New("missing required parameter: 'summary'")
	}
	content, _ := wiretest.DecodeString(o["encrypted_content"])
	var text []json.RawMessage
	_ = json.Unmarshal(o["content"], &text)
	switch {
	case content == "" && len(text) == 0 && notStored:
		return fmt.Errorf("item with id '%s' not found. Items are not persisted when `store` is set to false", id)
	case content != "" && content != encryptedPrefix+id:
		return fmt.Errorf("the encrypted content %s could not be verified", content)
	}
	return nil
}

func (v validator) inputCall(o map[string]json.RawMessage, st *inputState) error {
	if err := v.known("function_call", o, "type", "id", "call_id", "name", "arguments", "status", "namespace"); err != nil {
		return err
	}
	callID, name, err := v.decodeCall(o["call_id"], o["name"], o["arguments"])
	if err != nil {
		return err
	}
	space, err := wiretest.DecodeString(o["namespace"])
	if o["namespace"] != nil && (err != nil || space == "") {
		return fmt.Errorf("invalid namespace: %s", o["namespace"])
	}
	if former, ok := st.spaces[name]; ok && former != space {
		return fmt.Errorf("function_call '%s' is in the namespaces '%s' and '%s'", name, former, space)
	}
	st.spaces[name] = space
	st.calls = append(st.calls, callID)
	return nil
}

// inputContent checks content: text, or parts of the given kinds.
func (v validator) inputContent(raw json.RawMessage, kinds ...string) error {
	return v.textOrParts(raw, func(item json.RawMessage) error {
		var p struct {
			Type, Text, Refusal, Detail, Filename string
			ImageURL                              string `json:"image_url"`
			FileData                              string `json:"file_data"`
			FileURL                               string `json:"file_url"`
		}
		if err := json.Unmarshal(item, &p); err != nil {
			return err
		}
		ok := slices.Contains(kinds, p.Type)
		switch p.Type {
		case "input_text", "output_text":
			ok = ok && strings.TrimSpace(p.Text) != ""
		case "refusal":
			ok = ok && p.Refusal != ""
		case "input_image":
			ok = ok && (strings.HasPrefix(p.ImageURL, "http") || strings.HasPrefix(p.ImageURL, "data:image/") && strings.Contains(p.ImageURL, ";base64,"))
		case "input_file":
			ok = ok && (p.FileURL != "" || p.Filename != "" && strings.HasPrefix(p.FileData, "data:"))
		}
		if !ok {
			return fmt.Errorf("invalid value: '%s'. Supported values are: %q; or the part is not valid: %.80s", p.Type, kinds, item)
		}
		return nil
	})
}
