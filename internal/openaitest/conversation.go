package openaitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/wiretest"
)

// The rules for the messages of a request. Most are the API's own. Stricter ones are from
// servers that reject what OpenAI accepts; see [Validate].

// conversation checks the messages and that calls and results match. At least one message is required.
func (v validator) conversation(raw json.RawMessage) error {
	list, err := wiretest.DecodeList(raw)
	if err != nil {
		return fmt.Errorf("messages: %w", err)
	}
	var unanswered []string // the ids of calls without a result
	for i, item := range list {
		o, err := wiretest.DecodeObject(item)
		if err != nil {
			return fmt.Errorf("messages[%d] %w", i, err)
		}
		if unanswered, err = v.message(o, unanswered); err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	if len(unanswered) > 0 {
		return fmt.Errorf("the last message has tool calls without a result: %v", unanswered)
	}
	return nil
}

// message checks one message. unanswered are the ids of the calls whose results must follow. It returns the ids that are
// unanswered after the message.
func (v validator) message(o map[string]json.RawMessage, unanswered []string) ([]string, error) {
	role, _ := wiretest.DecodeString(o["role"])
	if len(unanswered) > 0 && role != "tool" {
		return nil, fmt.Errorf("a %s message where the result of call %q must follow; send the result first", role, unanswered[0])
	}
	switch role {
	case "system", "developer":
		return nil, errors.Join(v.known(role, o, "role", "content", "name"), v.content(o["content"], "text"))
	case "user":
		return nil, errors.Join(v.known(role, o, "role", "content", "name"), v.content(o["content"], "text", "image_url", "input_audio", "file"))
	case "assistant":
		return v.assistant(o)
	case "tool":
		if err := errors.Join(v.known(role, o, "role", "content", "tool_call_id"), v.content(o["content"], "text")); err != nil {
			return nil, err
		}
		id, _ := wiretest.DecodeString(o["tool_call_id"])
		if len(unanswered) == 0 || unanswered[0] != id {
			return nil, fmt.Errorf("tool_call_id %q: the calls without a result are %q, in this order", id, unanswered)
		}
		return unanswered[1:], nil
	}
	return nil, fmt.Errorf("role is %s; want system, developer, user, assistant or tool", o["role"])
}

// assistant checks an assistant message and returns the ids of its calls. Content may be
// missing only if there are calls.
func (v validator) assistant(o map[string]json.RawMessage) ([]string, error) {
	if err := v.known("assistant", o, "role", "content", "name", "refusal", "audio", "tool_calls"); err != nil {
		return nil, err
	}
	if o["content"] != nil || o["tool_calls"] == nil {
		if err := v.content(o["content"], "text", "refusal"); err != nil {
			return nil, err
		}
	}
	if o["tool_calls"] == nil {
		return nil, nil
	}
	list, err := wiretest.DecodeList(o["tool_calls"])
	if err != nil {
		return nil, fmt.Errorf("tool_calls: %w", err)
	}
	var ids []string
	for i, item := range list {
		id, err := v.call(item)
		if err != nil {
			return nil, fmt.Errorf("tool_calls[%d]: %w", i, err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// call checks a tool call and returns its id.
func (v validator) call(raw json.RawMessage) (string, error) {
	o, err := wiretest.DecodeObject(raw)
	if err != nil {
		return "", err
	}
	f, err := wiretest.DecodeObject(o["function"])
	if err != nil {
		return "", fmt.Errorf("function %w", err)
	}
	if err := errors.Join(v.known("call", o, "id", "type", "function"), v.known("function", f, "name", "arguments")); err != nil {
		return "", err
	}
	if kind, _ := wiretest.DecodeString(o["type"]); kind != "function" {
		return "", fmt.Errorf("type is %s; want function", o["type"])
	}
	id, _, err := v.decodeCall(o["id"], f["name"], f["arguments"])
	return id, err
}

// decodeCall checks and decodes the members of a call in either API. Arguments must be the JSON of an object: OpenAI
// accepts any text, but other servers decode it.
func (v validator) decodeCall(rawID, rawName, rawArgs json.RawMessage) (id, name string, err error) {
	if name, _ = wiretest.DecodeString(rawName); !nameRule.MatchString(name) {
		return "", "", fmt.Errorf("name %s does not match %s", rawName, nameRule)
	}
	args, err := wiretest.DecodeString(rawArgs)
	if err != nil {
		return "", "", fmt.Errorf("arguments are not a string: %s", rawArgs)
	}
	if _, err := wiretest.DecodeObject(json.RawMessage(args)); err != nil {
		return "", "", fmt.Errorf("arguments: the text %w", err)
	}
	if id, _ = wiretest.DecodeString(rawID); id == "" || v.ids[id] {
		return "", "", fmt.Errorf("the call's id %s is empty or was used before", rawID)
	}
	v.ids[id] = true
	return id, name, nil
}

// content checks a message's content: text, or parts of the given kinds.
func (v validator) content(raw json.RawMessage, kinds ...string) error {
	return v.textOrParts(raw, func(item json.RawMessage) error { return v.part(item, kinds) })
}

// textOrParts checks content. Blank text is invalid, as it is for Anthropic's gateways.
func (v validator) textOrParts(raw json.RawMessage, part func(json.RawMessage) error) error {
	if raw == nil {
		return errors.New("content is missing")
	}
	if s, err := wiretest.DecodeString(raw); err == nil {
		if strings.TrimSpace(s) == "" {
			return errors.New("content is empty")
		}
		return nil
	}
	list, err := wiretest.DecodeList(raw)
	if err != nil {
		return fmt.Errorf("content is neither text nor parts: %w", err)
	}
	for i, item := range list {
		if err := part(item); err != nil {
			return fmt.Errorf("content[%d]: %w", i, err)
		}
	}
	return nil
}

// part checks a content part: its kind, and its required members.
func (v validator) part(raw json.RawMessage, kinds []string) error {
	var p struct {
		Type     string
		Text     string
		ImageURL struct{ URL string }          `json:"image_url"`
		Audio    struct{ Data, Format string } `json:"input_audio"`
		File     struct {
			Name string `json:"filename"`
			Data string `json:"file_data"`
		}
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	if !slices.Contains(kinds, p.Type) {
		return fmt.Errorf("type %q is not among %q", p.Type, kinds)
	}
	valid := true
	switch p.Type {
	case "text":
		valid = strings.TrimSpace(p.Text) != ""
	case "image_url":
		u := p.ImageURL.URL
		valid = strings.HasPrefix(u, "https://") || strings.HasPrefix(u, "http://") ||
			(strings.HasPrefix(u, "data:image/") && strings.Contains(u, ";base64,"))
	case "input_audio":
		valid = p.Audio.Data != "" && (p.Audio.Format == "wav" || p.Audio.Format == "mp3")
	case "file":
		valid = p.File.Name != "" && strings.HasPrefix(p.File.Data, "data:")
	}
	if !valid {
		return fmt.Errorf("the %s part is not valid: %.80s", p.Type, raw)
	}
	return nil
}
