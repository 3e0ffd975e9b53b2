package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/provider"
	sdk "github.com/sashabaranov/go-openai"
)

// A wireRequest is go-openai's ChatCompletionRequest without messages and tools, which are
// encoded separately, and with what that type cannot express: a temperature of 0.
type wireRequest struct {
	Model               string                            `json:"model"`
	Stream              bool                              `json:"stream,omitempty"`
	StreamOptions       *sdk.StreamOptions                `json:"stream_options,omitempty"`
	MaxTokens           int                               `json:"max_tokens,omitempty"`
	MaxCompletionTokens int                               `json:"max_completion_tokens,omitempty"`
	Temperature         *float64                          `json:"temperature,omitempty"`
	ToolChoice          any                               `json:"tool_choice,omitempty"`
	ResponseFormat      *sdk.ChatCompletionResponseFormat `json:"response_format,omitempty"`
}

// encode returns a request's body, the same bytes for the same request, and the encoded tools. What
// an earlier request has encoded is not copied: see toolCache, opening and history.
func (m *Model) encode(p *protocol, req *model.Request) (b body, tools *toolList, err error) {
	infos, digest, changes := provider.ToolsOf(req, m.reveals && p.responses && !m.noLateTools.Load() && m.cfg.Extra["tools"] == nil, 0)
	head, err := p.tools.get(infos, digest)
	if err != nil {
		return nil, nil, err
	}
	o, err := m.opening(p, req, head)
	if err != nil {
		return nil, nil, err
	}
	if tools, err = head.with(changes); err != nil {
		return nil, nil, err
	}
	settled, rest, err := p.history.encode(req.Messages, p.origin, tools)
	if err != nil {
		return nil, nil, err
	}
	b = body{o.head, o.tools, o.start, o.systemWire, settled, rest, bodyEnd}
	for i, messages := range b[3:6] {
		if len(messages) > 0 {
			b[3+i] = messages[1:] // without the comma before the first message
			return b, tools, nil
		}
	}
	if p.responses {
		return nil, nil, errors.New("no message of the request has content; the Responses API needs one in addition to the system prompt")
	}
	return nil, nil, errors.New("the request has neither a system prompt nor a message with content; add one")
}

var bodyEnd = []byte("]}")

// An opening is the part of a body before the messages. Usually it equals that of the previous
// request. It is immutable.
type opening struct {
	system    string
	choice    model.ToolChoice
	maxTokens int

	head, tools, start, systemWire []byte
}

// opening returns the opening of a request, if possible the last one with this tool list. An opening
// with a temperature, output schema or extras is not kept.
func (m *Model) opening(p *protocol, req *model.Request, tools *toolList) (*opening, error) {
	plain := req.Temperature == nil && req.Output == nil && len(req.Extra) == 0
	if o := tools.last.Load(); plain && o != nil && o.system == req.System && o.choice == req.Choice && o.maxTokens == req.MaxTokens {
		return o, nil
	}
	head, err := m.head(p, req, tools)
	if err != nil {
		return nil, err
	}
	if len(head) > len("{") {
		head = append(head, ',')
	}
	list := `"messages":[`
	if p.responses {
		list = `"input":[`
	}
	o := &opening{system: req.System, choice: req.Choice, maxTokens: req.MaxTokens, head: head, start: []byte(list)}
	// An extra named "tools" replaces the tools; override has written it.
	if len(tools.wire) > 0 && m.cfg.Extra["tools"] == nil && req.Extra["tools"] == nil {
		o.head, o.tools, o.start = append(head, `"tools":`...), tools.wire, []byte(","+list)
	}
	if req.System != "" && !p.responses {
		e := newEncoder(nil, "")
		e.add(wireMessage{Role: sdk.ChatMessageRoleSystem, Content: req.System})
		o.systemWire = e.wire.Bytes()
	}
	if plain {
		tools.last.Store(o)
	}
	return o, nil
}

// head returns the start of the request's JSON, without the tools and the messages.
func (m *Model) head(p *protocol, req *model.Request, tools *toolList) (head []byte, err error) {
	var members any
	if p.responses {
		members, err = m.responsesHead(req, tools)
	} else {
		members, err = m.chatHead(req, tools)
	}
	if err != nil {
		return nil, err
	}
	if head, err = encoded(members); err != nil {
		return nil, err
	}
	for _, extra := range []map[string]json.RawMessage{m.cfg.Extra, req.Extra} {
		if p.responses {
			extra = responsesExtra(extra)
		}
		if head, err = override(head, extra); err != nil {
			return nil, err
		}
	}
	return bytes.TrimSuffix(head, []byte("}")), nil
}

func (m *Model) chatHead(req *model.Request, tools *toolList) (w *wireRequest, err error) {
	w = &wireRequest{Model: m.cfg.Model, Stream: !m.cfg.NoStream, Temperature: req.Temperature}
	if w.Stream {
		w.StreamOptions = &sdk.StreamOptions{IncludeUsage: true}
	}
	if m.isOpenAI() {
		w.MaxCompletionTokens = max(0, req.MaxTokens)
	} else {
		w.MaxTokens = max(0, req.MaxTokens)
	}
	if len(tools.wire) > 0 {
		if w.ToolChoice, err = toolChoice(req.Choice, false); err != nil {
			return nil, err
		}
	}
	if req.Output != nil {
		if w.ResponseFormat, err = responseFormat(req.Output); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// override sets members of an object, or removes those whose new value is null. The result is sorted by name.
func override(object []byte, extra map[string]json.RawMessage) ([]byte, error) {
	if len(extra) == 0 {
		return object, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		value := extra[name]
		switch {
		case !json.Valid(value):
			return nil, fmt.Errorf("extra member %q is not valid JSON: %.60s; quote strings", name, value)
		case name == "messages", name == "input":
			return nil, fmt.Errorf("extra member %q: messages cannot be an extra; set Request.Messages", name)
		case string(value) == "null":
			delete(members, name)
		default:
			members[name] = value
		}
	}
	return encoded(members)
}

// isOpenAI reports whether the server is OpenAI's own. Its reasoning models reject max_tokens, instead of which they
// need max_completion_tokens; many other servers know only max_tokens.
func (m *Model) isOpenAI() bool {
	host, _ := m.Server()
	return host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com")
}

// responseFormat returns the response_format that requires answers to match a schema.
func responseFormat(out *model.OutputSchema) (*sdk.ChatCompletionResponseFormat, error) {
	if err := provider.CheckOutput(out); err != nil {
		return nil, err
	}
	return &sdk.ChatCompletionResponseFormat{
		Type: sdk.ChatCompletionResponseFormatTypeJSONSchema,
		JSONSchema: &sdk.ChatCompletionResponseFormatJSONSchema{
			Name: cmp.Or(wireName(out.Name), "output"), Schema: out.Schema, Strict: out.Strict},
	}, nil
}
