package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/message"
)

// This file has what a server sends as Go types, for encoding/json. It is what usual and
// frame, which are faster, must agree with.

// A chunk is a piece of a stream, or a whole answer: the two differ in "delta"
// and "message" only. What servers disagree about is kept raw or lenient.
type chunk struct {
	ID      lenient         `json:"id"`
	Model   lenient         `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

// decode reads a chunk. A member of another type than expected is read as
// missing, as long as something of the chunk is understood.
func (c *chunk) decode(data []byte) error {
	err := json.Unmarshal(data, c)
	if isTypeError(err) && (len(c.Choices) > 0 || c.Usage != nil || present(c.Error)) {
		return nil
	}
	return err
}

// present reports whether a raw member was there and is not null.
func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// isTypeError reports whether JSON was valid but a member had another type. encoding/json
// has then read all the others.
func isTypeError(err error) bool {
	_, ok := errors.AsType[*json.UnmarshalTypeError](err)
	return ok
}

// A choice is one of the answers to a request, of which we want one.
type choice struct {
	Index        int     `json:"index"`
	Delta        *delta  `json:"delta"`
	Message      *delta  `json:"message"`
	FinishReason lenient `json:"finish_reason"`
	Usage        *usage  `json:"usage"`
}

// A delta is what a chunk adds, or a whole message.
type delta struct {
	Content   json.RawMessage `json:"content"` // a string, or parts
	Refusal   lenient         `json:"refusal"`
	Reasoning lenient         `json:"reasoning"`
	// ReasoningContent is the older name, DeepSeek's, by which it must go back.
	ReasoningContent lenient           `json:"reasoning_content"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details"`
	ToolCalls        []callDelta       `json:"tool_calls"`
	Images           []contentPart     `json:"images"`        // of OpenRouter
	ExtraContent     json.RawMessage   `json:"extra_content"` // of Gemini
}

// A contentPart is a part of a content that is not just a string.
type contentPart struct {
	Type     string          `json:"type"`
	Text     lenient         `json:"text"`
	Thinking json.RawMessage `json:"thinking"` // parts again
	ImageURL *struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

// A callDelta is a piece of a tool call. Extra holds the members that the API
// does not define.
type callDelta struct {
	Index *int
	ID    lenient
	Name  lenient
	Args  argumentText
	Extra map[string]json.RawMessage
}

// UnmarshalJSON decodes twice only if there is a member that the API does not define.
func (c *callDelta) UnmarshalJSON(data []byte) error {
	var known struct {
		Index    *int    `json:"index"`
		ID       lenient `json:"id"`
		Function struct {
			Name      lenient      `json:"name"`
			Arguments argumentText `json:"arguments"`
		} `json:"function"`
	}
	if err := json.Unmarshal(data, &known); err != nil && !isTypeError(err) {
		return err
	}
	*c = callDelta{Index: known.Index, ID: known.ID, Name: known.Function.Name, Args: known.Function.Arguments}
	if !hasOtherMembers(data, "index", "id", "type", "function") {
		return nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for name, value := range all {
		switch name {
		case "index", "id", "type", "function":
			continue
		}
		if string(value) == "null" {
			continue
		}
		if c.Extra == nil {
			c.Extra = map[string]json.RawMessage{}
		}
		c.Extra[name] = value
	}
	return nil
}

// hasOtherMembers reports whether a JSON object has members of other
// names. It spares most calls a second decoding. The object must be valid JSON: it looks for
// no end of a string that may not be there.
func hasOtherMembers(object []byte, known ...string) bool {
	depth := 0
	for i := 0; i < len(object); i++ {
		switch object[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			start := i + 1
			for i = start; object[i] != '"'; i++ {
				if object[i] == '\\' {
					i++
				}
			}
			isKey := depth == 1 && bytes.HasPrefix(bytes.TrimLeft(object[i+1:], " \t\r\n"), []byte(":"))
			if isKey && !slices.Contains(known, string(object[start:i])) {
				return true
			}
		}
	}
	return false
}

// lenient is a string; anything else than a string, such as a number for an id, is read
// as none.
type lenient string

func (s *lenient) UnmarshalJSON(data []byte) error {
	if data[0] != '"' {
		return nil
	}
	return unquote(data, (*string)(s))
}

// unquote is json.Unmarshal of a string, faster where nothing is escaped.
func unquote(data []byte, s *string) error {
	if bytes.IndexByte(data, '\\') >= 0 || !utf8.Valid(data) {
		return json.Unmarshal(data, s)
	}
	switch text := data[1 : len(data)-1]; string(text) { // the words that end answers need no memory
	case "stop":
		*s = "stop"
	case "tool_calls":
		*s = "tool_calls"
	default:
		*s = string(text)
	}
	return nil
}

// argumentText are the text of a call's arguments; a server that sends them as a
// value instead of text is understood too.
type argumentText string

func (s *argumentText) UnmarshalJSON(data []byte) error {
	switch data[0] {
	case '"':
		return unquote(data, (*string)(s))
	case 'n':
		return nil
	}
	*s = argumentText(data)
	return nil
}

// usage is the OpenAI form and the other places where vendors count cached
// tokens.
type usage struct {
	Prompt        int `json:"prompt_tokens"`
	Completion    int `json:"completion_tokens"`
	PromptDetails struct {
		Cached     int `json:"cached_tokens"`
		CacheWrite int `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	CacheHit    int `json:"prompt_cache_hit_tokens"`     // DeepSeek
	CacheRead   int `json:"cache_read_input_tokens"`     // gateways to Anthropic
	CacheCreate int `json:"cache_creation_input_tokens"` // gateways to Anthropic
	Cached      int `json:"cached_tokens"`               // Moonshot
}

// message returns the usage in our words. A vendor fills in one of the places for a number,
// and the others are 0.
func (u *usage) message() message.Usage {
	return message.Usage{
		Input:      u.Prompt,
		Output:     u.Completion,
		Cached:     max(u.PromptDetails.Cached, u.CacheHit, u.CacheRead, u.Cached),
		CacheWrite: max(u.PromptDetails.CacheWrite, u.CacheCreate),
		Reasoning:  u.CompletionDetails.Reasoning,
	}
}

// text returns the content if it is a string.
func (d *delta) text() string {
	if len(d.Content) == 0 || d.Content[0] != '"' {
		return ""
	}
	var s string
	if unquote(d.Content, &s) != nil {
		return ""
	}
	return s
}

// parts returns the parts of a content that is a list; nil for any other.
func parts(content json.RawMessage) []contentPart {
	if len(content) == 0 || content[0] != '[' {
		return nil
	}
	var ps []contentPart
	if json.Unmarshal(content, &ps) != nil {
		return nil
	}
	return ps
}
