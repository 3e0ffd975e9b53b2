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
// the tools it offers.
func (m *Model) encode(req *model.Request) (body, *toolList, error) {
	tools, err := m.tools.get(req)
	if err != nil {
		return nil, nil, err
	}
	members, err := m.members(req, tools)
	if err != nil {
		return nil, nil, err
	}
	said, rest, err := m.history.encode(req.Messages, m.endpoint)
	if err != nil {
		return nil, nil, err
	}
	head := []byte("{")
	for _, mb := range members {
		if mb.name == "tools" {
			continue
		}
		head = appendMember(head, mb.name, mb.value)
	}
	if i := slices.IndexFunc(members, func(mb member) bool { return mb.name == "messages" }); i >= 0 {
		return body{append(head, '}')}, tools, nil
	}
	var parts body
	if i := slices.IndexFunc(members, func(mb member) bool { return mb.name == "tools" }); i >= 0 {
		parts = append(parts, append(head, `,"tools":`...), members[i].value)
		head = nil
	}
	head = append(head, `,"messages":[`...)
	if req.System != "" {
		head = appendTextMessage(head, "system", "", req.System)
	} else {
		if len(said)+len(rest) == 0 {
			return nil, nil, errors.New("there is nothing to send: no system prompt, and no message with content")
		}
		said, rest = withoutComma(said, rest)
	}
	return append(parts, head, said, rest, []byte("]}")), tools, nil
}

// withoutComma takes the comma off the first message.
func withoutComma(said, rest []byte) ([]byte, []byte) {
	if len(said) > 0 {
		return said[1:], rest
	}
	return said, rest[1:]
}

// A member is a member of the request's JSON object.
type member struct {
	name  string
	value []byte
}

// members returns all but the messages, in the order in which they are sent.
func (m *Model) members(req *model.Request, tools *toolList) ([]member, error) {
	ms := make([]member, 0, 8)
	add := func(name string, value []byte) { ms = append(ms, member{name, value}) }
	add("model", appendString(nil, m.cfg.Model))
	if !m.cfg.NoStream {
		add("stream", []byte("true"))
		add("stream_options", []byte(`{"include_usage":true}`))
	}
	if req.MaxTokens > 0 {
		add(m.maxTokensName(), strconv.AppendInt(nil, int64(req.MaxTokens), 10))
	}
	if req.Temperature != nil {
		t, err := json.Marshal(*req.Temperature)
		if err != nil {
			return nil, fmt.Errorf("temperature: %w", err)
		}
		add("temperature", t)
	}
	if len(tools.wire) > 0 {
		add("tools", tools.wire)
		choice, err := tools.choice(req.Choice)
		if err != nil {
			return nil, err
		}
		if choice != nil {
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

// override replaces, adds and, where the value is null, removes members.
func override(ms []member, extra map[string]json.RawMessage) ([]member, error) {
	if len(extra) == 0 {
		return ms, nil
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		value := extra[name]
		if !json.Valid(value) {
			return nil, fmt.Errorf("extra member %q is not valid JSON: %.60s", name, value)
		}
		i := slices.IndexFunc(ms, func(mb member) bool { return mb.name == name })
		switch remove := string(value) == "null"; {
		case i < 0 && !remove:
			ms = append(ms, member{name, value})
		case i >= 0 && remove:
			ms = slices.Delete(ms, i, i+1)
		case i >= 0:
			ms[i].value = value
		}
	}
	return ms, nil
}

// maxTokensName: OpenAI's reasoning models refuse max_tokens, and many other
// servers know nothing else.
func (m *Model) maxTokensName() string {
	if m.endpoint == "api.openai.com" || strings.HasSuffix(m.endpoint, ".openai.azure.com") {
		return "max_completion_tokens"
	}
	return "max_tokens"
}

func responseFormat(out *model.OutputSchema) ([]byte, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(out.Schema, &object); err != nil || object == nil {
		return nil, fmt.Errorf("output schema %q is not a JSON object: %.60s", out.Name, out.Schema)
	}
	return json.Marshal(openai.ChatCompletionResponseFormat{
		Type:       openai.ChatCompletionResponseFormatTypeJSONSchema,
		JSONSchema: &openai.ChatCompletionResponseFormatJSONSchema{Name: cmp.Or(wireName(out.Name), "output"), Schema: out.Schema, Strict: out.Strict},
	})
}

func appendMember(b []byte, name string, value []byte) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(append(appendString(b, name), ':'), value...)
}
