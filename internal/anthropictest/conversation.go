package anthropictest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/wiretest"
)

// The rules for the messages of a request.

// A prefix identifies what comes before a block ("Prefix checks on thinking blocks"): tools, system
// prompt and messages, without cache breakpoints.
type prefix struct{ hash.Hash }

func newPrefix() *prefix { return &prefix{sha256.New()} }

func (p *prefix) add(where string, raw json.RawMessage) {
	var v any
	_ = json.Unmarshal(raw, &v) // the validator has decoded raw before
	if o, ok := v.(map[string]any); ok {
		delete(o, "cache_control")
	}
	fmt.Fprintln(p, where, wiretest.Marshal(v))
}

func (p *prefix) sum() string { return hex.EncodeToString(p.Sum(nil)[:8]) }

// signature returns the signature of the n-th thinking block of a model's answer.
func signature(model, prefix string, n int, text string) string {
	sum := sha256.Sum256(fmt.Append(nil, model, " ", prefix, " ", n, " ", text))
	return "sig-" + hex.EncodeToString(sum[:8])
}

// A wireMessage is a message of the request.
type wireMessage struct {
	role   string
	blocks []json.RawMessage
}

// conversation checks the messages, and how calls and results pair.
func (v *validator) conversation(raw json.RawMessage) error {
	list, err := wiretest.DecodeList(raw)
	if err != nil {
		return errors.New("messages: at least one message is required")
	}
	messages := make([]wireMessage, len(list))
	for i, item := range list {
		if messages[i], err = decodeMessage(i, item); err != nil {
			return err
		}
	}
	if messages[0].role != "user" {
		return errors.New(`messages: first message must use the "user" role`)
	}
	last := messages[len(messages)-1]
	kind := kindOf(last.blocks[len(last.blocks)-1])
	isServers := kind == "server_tool_use" || strings.HasSuffix(kind, "_tool_result")
	if last.role == "assistant" && !isServers {
		return errors.New("this model does not support assistant message prefill. " +
			"The conversation must end with a user message")
	}
	for i, m := range messages {
		if err := v.order(i, messages); err != nil {
			return err
		}
		if err := v.message(i, m); err != nil {
			return err
		}
		if err := results(i, messages); err != nil {
			return err
		}
	}
	return v.finalThinking(messages)
}

func decodeMessage(i int, raw json.RawMessage) (m wireMessage, err error) {
	where := fmt.Sprintf("messages.%d", i)
	o, err := wiretest.DecodeObject(raw)
	if err != nil {
		return m, fmt.Errorf("%s: %w", where, err)
	}
	if err := known(where, o, "role", "content"); err != nil {
		return m, err
	}
	m.role, _ = wiretest.DecodeString(o["role"])
	if text, err := wiretest.DecodeString(o["content"]); err == nil {
		block := wiretest.Marshal(object{"type": "text", "text": text})
		m.blocks = []json.RawMessage{json.RawMessage(block)}
		return m, nil
	}
	if m.blocks, err = wiretest.DecodeList(o["content"]); err != nil {
		return m, fmt.Errorf("%s.content: %w", where, err)
	}
	return m, nil
}

// order checks that user and assistant take turns. A system message comes between them, before the
// assistant, or at the end ("Mid-conversation system messages", "Limitations").
func (v *validator) order(i int, messages []wireMessage) error {
	role := messages[i].role
	switch {
	case role == "system" && (i == 0 || messages[i-1].role != "user"):
		return fmt.Errorf("messages.%d: role 'system' must follow a 'user' message", i)
	case role == "system" && i+1 < len(messages) && messages[i+1].role != "assistant":
		return fmt.Errorf("messages.%d: role 'system' must precede an 'assistant' message "+
			"or end the array", i)
	case role != "user" && role != "assistant" && role != "system":
		return fmt.Errorf("messages: Unexpected role %q. The Messages API accepts a top-level "+
			"`system` parameter, not \"system\" as an input message role", role)
	case i > 0 && messages[i-1].role == role:
		return fmt.Errorf("messages: roles must alternate between \"user\" and \"assistant\", "+
			"but found multiple %q roles in a row", role)
	}
	return nil
}

func (v *validator) message(i int, m wireMessage) error {
	before := v.seen.sum()
	thoughts := 0
	for n, raw := range m.blocks {
		where := fmt.Sprintf("messages.%d.content.%d", i, n)
		kinds := []string{"text", "image", "document", "search_result", "tool_result",
			"container_upload"}
		switch m.role {
		case "system":
			kinds = []string{"text", "tool_addition", "tool_removal"}
		case "assistant":
			kinds = []string{"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use",
				"web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result",
				"bash_code_execution_tool_result", "text_editor_code_execution_tool_result",
				"tool_search_tool_result", "mcp_tool_use", "mcp_tool_result", "compaction"}
		}
		if err := v.block(where, raw, kinds...); err != nil {
			return err
		}
		var b struct{ Type, Thinking, Signature, Data string }
		_ = json.Unmarshal(raw, &b) // block has decoded it
		if strings.HasSuffix(b.Type, "thinking") {
			if b.Signature+b.Data != signature(v.model, before, thoughts, b.Thinking) {
				return fmt.Errorf("%s: Invalid `signature` in `%s` block. "+
					"The block is bound to a different conversation", where, b.Type)
			}
			thoughts++
		}
		v.seen.add(m.role, raw)
	}
	kind := kindOf(m.blocks[len(m.blocks)-1])
	if m.role == "assistant" && strings.HasSuffix(kind, "thinking") {
		return fmt.Errorf("messages.%d: The final block in an assistant message cannot be `%s`",
			i, kind)
	}
	v.paused, v.thoughts = "", thoughts
	if m.role == "assistant" {
		v.paused = before
	}
	return nil
}

func (v *validator) block(where string, raw json.RawMessage, kinds ...string) error {
	o, err := wiretest.DecodeObject(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	kind, _ := wiretest.DecodeString(o["type"])
	if !slices.Contains(kinds, kind) {
		return unexpectedTag(where, kind, kinds...)
	}
	if err := v.breakpoint(where, o); err != nil {
		return err
	}
	where += "." + kind
	switch kind {
	case "text":
		return textBlock(where, o)
	case "thinking":
		if _, err := wiretest.DecodeString(o["thinking"]); err != nil || o["cache_control"] != nil {
			return fmt.Errorf("%s.thinking: Field required, or cache_control, which is not permitted",
				where)
		}
		return known(where, o, "type", "thinking", "signature")
	case "redacted_thinking":
		return known(where, o, "type", "data")
	case "tool_use":
		return v.toolUse(where, o)
	case "tool_result":
		return v.toolResult(where, o)
	case "image", "document":
		return file(where, kind, o)
	case "tool_addition", "tool_removal":
		return v.toolChange(where, kind, o)
	}
	return nil
}

func textBlock(where string, o map[string]json.RawMessage) error {
	text, err := wiretest.DecodeString(o["text"])
	switch {
	case err != nil:
		return fmt.Errorf("%s.text: Input should be a valid string", where)
	case text == "":
		return errors.New("messages: text content blocks must be non-empty")
	case strings.TrimSpace(text) == "":
		return errors.New("messages: text content blocks must contain non-whitespace text")
	}
	return known(where, o, "type", "text", "citations", "cache_control")
}

// The beta features that change the tools in the conversation.
const (
	betaInline  = "inline-tools-2026-09-15"
	betaChanges = "mid-conversation-tool-changes-2026-07-01"
)

// toolChange checks a block that adds or removes a tool ("Mid-conversation tool changes", "Define
// tools in a message"). It refuses to add a tool that is present or remove one that is absent,
// about which the server may be less strict.
func (v *validator) toolChange(where, kind string, o map[string]json.RawMessage) error {
	inline := slices.Contains(v.betas, betaInline)
	if !inline && !slices.Contains(v.betas, betaChanges) {
		return fmt.Errorf("%s: requires the beta header %s or %s", where, betaInline, betaChanges)
	}
	var c struct {
		Type, Name string
		Definition json.RawMessage
	}
	if err := json.Unmarshal(o["tool"], &c); err != nil {
		return fmt.Errorf("%s.tool: %w", where, err)
	}
	if c.Type == "tool_definition" && kind == "tool_addition" {
		if !inline {
			return fmt.Errorf("%s.tool.tool_definition: requires the beta header %s", where, betaInline)
		}
		return v.tool(where+".tool.tool_definition.definition", c.Definition)
	}
	if c.Type != "tool_reference" {
		return unexpectedTag(where+".tool", c.Type, "tool_definition", "tool_reference")
	}
	at := slices.Index(v.tools, c.Name)
	switch {
	case kind == "tool_removal" && at < 0,
		kind == "tool_addition" && (at >= 0 || !slices.Contains(v.removed, c.Name)):
		return fmt.Errorf("%s.tool.tool_reference.name: Tool '%s' not found in provided tools",
			where, c.Name)
	case kind == "tool_removal":
		v.tools = slices.Delete(slices.Clone(v.tools), at, at+1)
		v.removed = append(v.removed, c.Name)
	default:
		v.tools = append(v.tools, c.Name)
	}
	return nil
}

func (v *validator) toolUse(where string, o map[string]json.RawMessage) error {
	if err := known(where, o, "type", "id", "name", "input", "caller", "toolset_name",
		"cache_control"); err != nil {
		return err
	}
	id, _ := wiretest.DecodeString(o["id"])
	if !idRule.MatchString(id) {
		return fmt.Errorf("%s.id: String should match pattern '%s'", where, idRule)
	}
	if v.ids[id] {
		return errors.New("messages: `tool_use` ids must be unique")
	}
	v.ids[id] = true
	if name, _ := wiretest.DecodeString(o["name"]); !nameRule.MatchString(name) {
		return fmt.Errorf("%s.name: String should match pattern '%s'", where, nameRule)
	}
	if _, err := wiretest.DecodeObject(o["input"]); err != nil {
		return fmt.Errorf("%s.input: Input should be a valid dictionary", where)
	}
	return nil
}

func (v *validator) toolResult(where string, o map[string]json.RawMessage) error {
	if err := known(where, o, "type", "tool_use_id", "content", "is_error",
		"cache_control"); err != nil {
		return err
	}
	if o["content"] == nil {
		return nil
	}
	if _, err := wiretest.DecodeString(o["content"]); err == nil {
		return nil
	}
	list, err := wiretest.DecodeList(o["content"])
	if err != nil {
		return fmt.Errorf("%s.content: %w", where, err)
	}
	for i, item := range list {
		where := fmt.Sprintf("%s.content.%d", where, i)
		if err := v.block(where, item, "text", "image", "document", "search_result",
			"tool_reference"); err != nil {
			return err
		}
		if string(o["is_error"]) == "true" && kindOf(item) != "text" {
			return fmt.Errorf("%s: all content must be type `text` if `is_error` is true", where)
		}
	}
	return nil
}

// file checks the source of an image or a document.
func file(where, kind string, o map[string]json.RawMessage) error {
	if err := known(where, o, "type", "source", "title", "context", "citations",
		"cache_control"); err != nil {
		return err
	}
	var s struct {
		Type, Data, URL string
		MediaType       string `json:"media_type"`
	}
	if err := json.Unmarshal(o["source"], &s); err != nil {
		return fmt.Errorf("%s.source: %w", where, err)
	}
	types := map[string][]string{"image": {"image/jpeg", "image/png", "image/gif", "image/webp"},
		"document": {"application/pdf"}}[kind]
	switch {
	case s.Type == "base64" && !slices.Contains(types, s.MediaType):
		return fmt.Errorf("%s.source.base64.media_type: Input should be among %q", where, types)
	case s.Type == "base64":
		if _, err := base64.StdEncoding.DecodeString(s.Data); err != nil || s.Data == "" {
			return fmt.Errorf("%s.source.base64.data: Invalid base64 data", where)
		}
	case s.Type == "url":
		if !strings.HasPrefix(s.URL, "https://") && !strings.HasPrefix(s.URL, "http://") {
			return fmt.Errorf("%s.source.url.url: Only HTTP URLs are supported", where)
		}
	case s.Type == "text" && kind == "document":
		if s.MediaType != "text/plain" || s.Data == "" {
			return fmt.Errorf("%s.source.text: Input should be 'text/plain' with data", where)
		}
	default:
		return unexpectedTag(where+".source", s.Type, "base64", "text", "url")
	}
	return nil
}

// results checks that message i begins with a result for each call of the previous message, and has
// no other results.
func results(i int, messages []wireMessage) error {
	var unanswered []string // the ids of calls without a result
	if i > 0 && messages[i-1].role == "assistant" {
		for _, raw := range messages[i-1].blocks {
			var b struct{ Type, ID string }
			if json.Unmarshal(raw, &b) == nil && b.Type == "tool_use" {
				unanswered = append(unanswered, b.ID)
			}
		}
	}
	resultsEnded := false // a block other than a result was seen
	for n, raw := range messages[i].blocks {
		var b struct {
			Type string
			ID   string `json:"tool_use_id"`
		}
		_ = json.Unmarshal(raw, &b)
		if b.Type != "tool_result" {
			resultsEnded = true
			continue
		}
		at := slices.Index(unanswered, b.ID)
		if at < 0 || resultsEnded {
			return fmt.Errorf("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` "+
				"blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the "+
				"previous message", i, n, b.ID)
		}
		unanswered = slices.Delete(unanswered, at, at+1)
	}
	if len(unanswered) > 0 {
		return fmt.Errorf("messages.%d: `tool_use` ids were found without `tool_result` blocks "+
			"immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block "+
			"in the next message", i-1, strings.Join(unanswered, ", "))
	}
	return nil
}

// finalThinking checks, if thinking has a budget and the request ends with results, that the
// message with their calls begins with thinking.
func (v *validator) finalThinking(messages []wireMessage) error {
	n := len(messages)
	if messages[n-1].role == "system" {
		n--
	}
	if v.thinking.Type != "enabled" || n < 2 || kindOf(messages[n-1].blocks[0]) != "tool_result" {
		return nil
	}
	if kind := kindOf(messages[n-2].blocks[0]); !strings.HasSuffix(kind, "thinking") {
		return fmt.Errorf("messages.%d.content.0.type: Expected `thinking` or `redacted_thinking`, "+
			"but found `%s`. When `thinking` is enabled, a final `assistant` message must start with a "+
			"thinking block", n-2, kind)
	}
	return nil
}

// unexpectedTag refuses a type that is not among the expected ones.
func unexpectedTag(where, kind string, expected ...string) error {
	return fmt.Errorf("%s: Input tag '%s' found using 'type' does not match any of the expected tags: '%s'",
		where, kind, strings.Join(expected, "', '"))
}

// kindOf returns the type of a block.
func kindOf(raw json.RawMessage) string {
	var b struct{ Type string }
	_ = json.Unmarshal(raw, &b)
	return b.Type
}
