package openai

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/model"
	openai "github.com/sashabaranov/go-openai"
)

// encode returns a request's body, the same bytes for the same request, and
// the tools it offers. All parts may be shared with other bodies.
func (m *Model) encode(req *model.Request) (b body, tools *toolList, err error) {
	if tools, err = m.tools.get(req); err != nil {
		return b, nil, err
	}
	said, rest, err := m.history.encode(req.Messages, m.host)
	if err != nil {
		return b, nil, err
	}
	o, err := m.opening(req, tools)
	if err != nil {
		return b, nil, err
	}
	// The messages of the history have a comma in front.
	switch {
	case req.System != "":
	case len(said) > 0:
		said = said[1:]
	case len(rest) > 0:
		rest = rest[1:]
	default:
		return b, nil, errors.New("there is nothing to send: no system prompt, and no message with content")
	}
	return body{o.head, o.tools, o.start, said, rest, bodyEnd}, tools, nil
}

var bodyEnd = []byte("]}")

// An opening is what stands in a body before the messages of a conversation. It
// is mostly the same as in the request before. It is not changed once it is made.
type opening struct {
	system    string // the prompt, which is not part of the history because it may change
	choice    model.ToolChoice
	maxTokens int

	head, tools, start []byte
}

// opening returns that of a request, the last one of its tool list if that fits. Requests
// with settings of their own are rare and are not kept. Two goroutines that differ replace
// each other's, which costs time only.
func (m *Model) opening(req *model.Request, tools *toolList) (*opening, error) {
	plain := req.Temperature == nil && req.Output == nil && len(req.Extra) == 0
	if o := tools.last.Load(); plain && o != nil && o.system == req.System && o.choice == req.Choice && o.maxTokens == req.MaxTokens {
		return o, nil
	}
	members, err := m.members(req, tools)
	if err != nil {
		return nil, err
	}
	o := &opening{system: req.System, choice: req.Choice, maxTokens: req.MaxTokens, head: []byte{'{'}}
	for _, mb := range members {
		if mb.name == "tools" && mb.value == "" {
			o.tools = tools.wire
			continue
		}
		o.head = appendMember(o.head, mb)
	}
	if o.tools != nil {
		o.head = append(o.head, `,"tools":`...)
	}
	o.start = []byte(`,"messages":[`)
	if req.System != "" {
		o.start = appendTextMessage(o.start, "system", "", req.System)
	}
	if plain {
		tools.last.Store(o)
	}
	return o, nil
}

// A member is a member of the request's JSON object, its value as JSON.
type member struct{ name, value string }

// members returns all but the messages, in the order in which they are sent.
// The value of tools is empty where they are those of the request, which are encoded
// already.
func (m *Model) members(req *model.Request, tools *toolList) ([]member, error) {
	ms := append(make([]member, 0, 8), member{"model", m.wireName})
	add := func(name, value string) { ms = append(ms, member{name, value}) }
	if !m.cfg.NoStream {
		add("stream", "true")
		add("stream_options", `{"include_usage":true}`)
	}
	if req.MaxTokens > 0 {
		add(m.maxTokensName(), strconv.Itoa(req.MaxTokens))
	}
	if req.Temperature != nil {
		t, err := json.Marshal(*req.Temperature)
		if err != nil {
			return nil, fmt.Errorf("temperature: %w", err)
		}
		add("temperature", string(t))
	}
	if len(tools.wire) > 0 {
		add("tools", "")
		choice, err := tools.choice(req.Choice)
		if err != nil {
			return nil, err
		}
		if choice != "" {
			add("tool_choice", choice)
		}
	}
	if req.Output != nil {
		format, err := responseFormat(req.Output)
		if err != nil {
			return nil, err
		}
		add("response_format", format)
	}
	ms, err := override(ms, m.cfg.Extra)
	if err != nil {
		return nil, err
	}
	return override(ms, req.Extra)
}

// override replaces, adds and, where the value is null, removes members. New ones come last,
// sorted by name.
func override(ms []member, extra map[string]json.RawMessage) ([]member, error) {
	if len(extra) == 0 {
		return ms, nil
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		value := extra[name]
		switch {
		case !json.Valid(value):
			return nil, fmt.Errorf("extra member %q is not valid JSON: %.60s", name, value)
		case name == "messages":
			return nil, errors.New(`extra member "messages": messages are given as such, not as an extra`)
		}
		i := slices.IndexFunc(ms, func(mb member) bool { return mb.name == name })
		switch remove := string(value) == "null"; {
		case i < 0 && !remove:
			ms = append(ms, member{name, string(value)})
		case i >= 0 && remove:
			ms = slices.Delete(ms, i, i+1)
		case i >= 0:
			ms[i].value = string(value)
		}
	}
	return ms, nil
}

// maxTokensName returns the member for the limit on an answer. OpenAI's reasoning models
// refuse max_tokens, and many other servers know nothing else.
func (m *Model) maxTokensName() string {
	if m.host == "api.openai.com" || strings.HasSuffix(m.host, ".openai.azure.com") {
		return "max_completion_tokens"
	}
	return "max_tokens"
}

// responseFormat returns the member by which an answer is held to a schema.
func responseFormat(out *model.OutputSchema) (string, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(out.Schema, &object); err != nil || object == nil {
		return "", fmt.Errorf("output schema %q is not a JSON object: %.60s", out.Name, out.Schema)
	}
	format, err := json.Marshal(openai.ChatCompletionResponseFormat{
		Type: openai.ChatCompletionResponseFormatTypeJSONSchema,
		JSONSchema: &openai.ChatCompletionResponseFormatJSONSchema{
			Name: cmp.Or(wireName(out.Name), "output"), Schema: out.Schema, Strict: out.Strict},
	})
	return string(format), err
}

// appendMember appends a member to an object that is still open, with a comma unless it is
// the first.
func appendMember(b []byte, mb member) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(append(appendString(b, mb.name), ':'), mb.value...)
}
