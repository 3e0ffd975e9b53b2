package openai

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

// This file decodes answers of chat completions. A member with an unexpected type is treated as missing,
// since servers disagree about the details.

// A chunk is a chunk of a stream, or a whole answer: they differ only in "delta" and "message".
type chunk struct {
	ID, Model string // the same in all chunks of an answer
	Choices   []choice
	Usage     message.Usage
	Failed    bool // has an error, maybe choices too
}

// A choice is one of the alternative answers to a request; we ask for one.
type choice struct {
	Index          int
	Delta, Message delta
	FinishReason   string
	Usage          message.Usage
}

// A delta is what a chunk adds to a message, or a whole message. Its content is a text or parts.
type delta struct {
	Content   string
	from, to  int // offsets of Content in the payload; see frame
	Parts     []contentPart
	Refusal   string
	Reasoning string
	// ReasoningContent is the older name of Reasoning, by DeepSeek; reasoning is sent back by this name.
	ReasoningContent string
	ReasoningDetails []json.RawMessage
	ToolCalls        []callDelta
	Images           []contentPart   // of OpenRouter
	ExtraContent     json.RawMessage // of Gemini
}

// A contentPart is one part of a content that is an array.
type contentPart struct {
	Text     string
	Thinking []string
	ImageURL string
}

// A callDelta is a piece of a tool call. Extra has the members that the API does not define.
type callDelta struct {
	Index int // noIndex if the server leaves it out
	ID    string
	Name  string
	Args  string
	Extra map[string]json.RawMessage
}

const noIndex = -1

// decode decodes the next chunk, reusing memory of the previous chunk. It reports whether data is valid
// JSON, and whether it is an object or null.
func (c *chunk) decode(data []byte) (valid, isObject bool) {
	var calls []callDelta // the memory of the first choice's calls
	if len(c.Choices) > 0 {
		calls = c.Choices[0].Delta.ToolCalls[:0]
	}
	*c = chunk{ID: c.ID, Model: c.Model, Choices: c.Choices[:0]}
	r := &jsonReader{data: data}
	isObject = r.peek() == '{' || r.peek() == 'n' // some servers send null to keep the connection open
	for name := range r.members {
		switch string(name) {
		case `"id"`:
			r.textOnce(&c.ID)
		case `"model"`:
			r.textOnce(&c.Model)
		case `"choices"`:
			for range r.items {
				c.Choices = append(c.Choices, choice{Delta: delta{ToolCalls: calls}})
				calls = nil
				r.choice(&c.Choices[len(c.Choices)-1])
			}
		case `"usage"`:
			c.Usage = r.usage()
		case `"error"`:
			c.Failed = !r.skipNull()
			if c.Failed {
				r.raw()
			}
		default:
			r.raw()
		}
	}
	r.end()
	return !r.invalid, isObject
}

// A frame is the JSON before and after the content in a payload. Most servers repeat this JSON byte for byte around
// each token, so that only the token must be read.
type frame struct {
	payload  []byte // the last decoded payload, if it has content
	from, to int    // offsets of the content; to is 0 if there is no payload
}

// keep remembers the payload that c was read from, if it has content and is not so large that copying costs too much.
func (f *frame) keep(c *chunk, payload []byte) {
	f.to = 0
	if len(c.Choices) == 1 && c.Choices[0].Delta.Content != "" && len(payload) <= provider.ReadSize {
		d := &c.Choices[0].Delta
		f.payload, f.from, f.to = append(f.payload[:0], payload...), d.from, d.to
	}
}

// content returns the content of a payload that is otherwise equal to the kept payload. It rejects
// content with quotes, backslashes or control characters, which could change the meaning of the rest.
func (f *frame) content(payload []byte) (string, bool) {
	if f.to == 0 || !bytes.HasPrefix(payload, f.payload[:f.from]) {
		return "", false
	}
	text, ok := bytes.CutSuffix(payload[f.from:], f.payload[f.to:])
	if !ok || !utf8.Valid(text) {
		return "", false
	}
	for _, c := range text {
		if c < ' ' || c == '"' || c == '\\' {
			return "", false
		}
	}
	return string(text), true
}

// textOnce reads a string into s, or skips it if s is set already.
func (r *jsonReader) textOnce(s *string) {
	if *s == "" {
		*s = r.text()
	} else {
		r.raw()
	}
}

func (r *jsonReader) choice(c *choice) {
	for name := range r.members {
		switch string(name) {
		case `"index"`:
			c.Index = r.integer()
		case `"delta"`:
			r.delta(&c.Delta)
		case `"message"`:
			r.delta(&c.Message)
		case `"finish_reason"`:
			c.FinishReason = r.text()
		case `"usage"`:
			c.Usage = r.usage()
		default:
			r.raw()
		}
	}
}

func (r *jsonReader) delta(d *delta) {
	for name := range r.members {
		switch string(name) {
		case `"content"`:
			if r.peek() == '[' {
				d.Parts = r.parts()
			} else {
				d.from = r.pos + 1
				d.Content = r.text()
				d.to = r.pos - 1
			}
		case `"refusal"`:
			d.Refusal = r.text()
		case `"reasoning"`:
			d.Reasoning = r.text()
		case `"reasoning_content"`:
			d.ReasoningContent = r.text()
		case `"reasoning_details"`:
			for range r.items {
				d.ReasoningDetails = append(d.ReasoningDetails, r.clonedValue())
			}
		case `"tool_calls"`:
			for range r.items {
				d.ToolCalls = append(d.ToolCalls, r.call())
			}
		case `"images"`:
			d.Images = r.parts()
		case `"extra_content"`:
			d.ExtraContent = r.clonedValue()
		default:
			r.raw()
		}
	}
}

func (r *jsonReader) parts() (parts []contentPart) {
	for range r.items {
		parts = append(parts, r.part())
	}
	return parts
}

func (r *jsonReader) part() (p contentPart) {
	for name := range r.members {
		switch string(name) {
		case `"text"`:
			p.Text = r.text()
		case `"thinking"`:
			p.Thinking = r.thoughts()
		case `"image_url"`:
			for name := range r.members {
				if string(name) == `"url"` {
					p.ImageURL = r.text()
				} else {
					r.raw()
				}
			}
		default:
			r.raw()
		}
	}
	return p
}

// thoughts reads the thinking of a content part: a string or an array of parts.
func (r *jsonReader) thoughts() (texts []string) {
	if r.peek() != '[' {
		return []string{r.text()}
	}
	for range r.items {
		for name := range r.members {
			if string(name) == `"text"` {
				texts = append(texts, r.text())
			} else {
				r.raw()
			}
		}
	}
	return texts
}

func (r *jsonReader) call() callDelta {
	c := callDelta{Index: noIndex}
	for name := range r.members {
		switch string(name) {
		case `"index"`:
			if !r.skipNull() {
				c.Index = r.integer()
			}
		case `"id"`:
			c.ID = r.text()
		case `"type"`: // always "function"
			r.raw()
		case `"function"`:
			for name := range r.members {
				switch string(name) {
				case `"name"`:
					c.Name = r.text()
				case `"arguments"`:
					c.Args = r.arguments()
				default:
					r.raw()
				}
			}
		default:
			if value := r.clonedValue(); value != nil {
				if c.Extra == nil {
					c.Extra = map[string]json.RawMessage{}
				}
				c.Extra[unquote(name)] = value
			}
		}
	}
	return c
}

// arguments reads the arguments of a call: a string, or the object itself, which some servers send.
func (r *jsonReader) arguments() string {
	if r.peek() == '"' {
		return r.text()
	}
	return string(r.clonedValue())
}

// usage reads the numbers of tokens. Vendors name cached tokens differently; the largest number counts.
func (r *jsonReader) usage() (u message.Usage) {
	for name := range r.members {
		switch string(name) {
		case `"prompt_tokens"`:
			u.Input = r.integer()
		case `"completion_tokens"`:
			u.Output = r.integer()
		case `"prompt_tokens_details"`:
			for name := range r.members {
				switch string(name) {
				case `"cached_tokens"`:
					u.Cached = max(u.Cached, r.integer())
				case `"cache_write_tokens"`:
					u.CacheWrite = max(u.CacheWrite, r.integer())
				default:
					r.raw()
				}
			}
		case `"completion_tokens_details"`:
			for name := range r.members {
				if string(name) == `"reasoning_tokens"` {
					u.Reasoning = r.integer()
				} else {
					r.raw()
				}
			}
		// The names that DeepSeek, gateways to Anthropic, and Moonshot use.
		case `"prompt_cache_hit_tokens"`, `"cache_read_input_tokens"`, `"cached_tokens"`:
			u.Cached = max(u.Cached, r.integer())
		case `"cache_creation_input_tokens"`:
			u.CacheWrite = max(u.CacheWrite, r.integer())
		default:
			r.raw()
		}
	}
	return u
}
