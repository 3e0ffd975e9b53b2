package anthropic

import "encoding/json"

// The types of this file are parts of a request in the API's form. The order of their fields
// counts: a server's cache, and the extras of stored messages, depend on the bytes before them.

type (
	wireText struct {
		Text string `json:"text"`
		Type string `json:"type"` // "text"
	}
	wireFile struct {
		Source wireSource `json:"source"`
		Title  string     `json:"title,omitempty"`
		Type   string     `json:"type"` // "image" or "document"
	}
	wireSource struct {
		Data      string `json:"data,omitempty"`
		MediaType string `json:"media_type,omitempty"`
		URL       string `json:"url,omitempty"`
		Type      string `json:"type"` // "base64", "text" or "url"
	}
	wireCall struct {
		ID    string          `json:"id"`
		Input json.RawMessage `json:"input"`
		Name  string          `json:"name"`
		Type  string          `json:"type"` // "tool_use"
	}
	wireResult struct {
		CallID  string            `json:"tool_use_id"`
		IsError bool              `json:"is_error,omitempty"`
		Content []json.RawMessage `json:"content"`
		Type    string            `json:"type"` // "tool_result"
	}
	wireTool struct {
		Schema      json.RawMessage `json:"input_schema"`
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
	}
	wireChange struct {
		Tool any    `json:"tool"` // a wireReference or a wireDefinition
		Type string `json:"type"` // "tool_addition" or "tool_removal"
	}
	wireReference struct {
		Name string `json:"name"`
		Type string `json:"type"` // "tool_reference"
	}
	wireDefinition struct {
		Definition json.RawMessage `json:"definition"`
		Type       string          `json:"type"` // "tool_definition"
	}
)

// A wireHead has the members of a request other than tools, system and messages.
type wireHead struct {
	Model       string        `json:"model"`
	MaxTokens   int           `json:"max_tokens"`
	Stream      bool          `json:"stream"`
	Temperature *float64      `json:"temperature,omitempty"`
	Thinking    *wireThinking `json:"thinking,omitempty"`
	Choice      *wireChoice   `json:"tool_choice,omitempty"`
	Output      wireOutput    `json:"output_config,omitzero"`
}

type (
	wireThinking struct {
		Budget  int          `json:"budget_tokens,omitempty"`
		Display string       `json:"display,omitempty"`
		Type    ThinkingMode `json:"type"`
	}
	wireChoice struct {
		Name string `json:"name,omitempty"`
		Type string `json:"type"`
	}
	wireOutput struct {
		Effort string      `json:"effort,omitempty"`
		Format *wireFormat `json:"format,omitempty"`
	}
	wireFormat struct {
		Schema json.RawMessage `json:"schema"`
		Type   string          `json:"type"` // "json_schema"
	}
)

func textBlock(s string) json.RawMessage { return marshal(wireText{s, "text"}) }

// marshal encodes a value that cannot fail to encode: strings and valid JSON.
func marshal(v any) json.RawMessage {
	data, _ := json.Marshal(v)
	return data
}
