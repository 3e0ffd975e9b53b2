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

// A chatRequest is go-openai's ChatCompletionRequest without messages and tools, which are encoded separately. Unlike
// that type it can express a temperature of 0.
type chatRequest struct {
	Model               string                            `json:"model"`
	Stream              bool                              `json:"stream,omitempty"`
	StreamOptions       *sdk.StreamOptions                `json:"stream_options,omitempty"`
	MaxTokens           int                               `json:"max_tokens,omitempty"`
	MaxCompletionTokens int                               `json:"max_completion_tokens,omitempty"`
	Temperature         *float64                          `json:"temperature,omitempty"`
	ToolChoice          any                               `json:"tool_choice,omitempty"`
	ResponseFormat      *sdk.ChatCompletionResponseFormat `json:"response_format,omitempty"`
}

// encode returns a request's body, the same bytes for the same request, and the encoded tools. The body shares parts
// with the bodies of earlier requests: see toolCache, opening and history.
func (m *Model) encode(p *protocol, req *model.Request) (b body, tools *toolList, err error) {
	lateTools := m.lateTools && p.responses && !m.noLateTools.Load() && m.cfg.Extra["tools"] == nil
	infos, digest, changes := provider.ToolsOf(req, lateTools, 0)
	initial, err := p.tools.get(infos, digest)
	if err != nil {
		return nil, nil, err
	}
	o, err := m.opening(p, req, initial)
	if err != nil {
		return nil, nil, err
	}
	if tools, err = initial.withChanges(changes); err != nil {
		return nil, nil, err
	}
	settled, rest, err := p.history.encode(req.Messages, p.endpoint, tools)
	if err != nil {
		return nil, nil, err
	}
	b = body{o.members, o.tools, o.listStart, o.systemMessage, settled, rest, bodyEnd}
	messages := b[3:6] // the system message, settled and rest
	if first := slices.IndexFunc(messages, func(part []byte) bool { return len(part) > 0 }); first >= 0 {
		messages[first] = messages[first][1:] // without the comma before the first message
		return b, tools, nil
	}
	if p.responses {
		return nil, nil, errors.New("no message of the request has content; the Responses API needs one in addition to the system prompt")
	}
	return nil, nil, errors.New("the request has neither a system prompt nor a message with content; add one")
}

var bodyEnd = []byte("]}")

// An opening is the part of a body up to the system message. It is kept unchanged for later requests.
type opening struct {
	system    string
	choice    model.ToolChoice
	maxTokens int

	members, tools, listStart, systemMessage []byte
}

// opening returns the opening of a request, if possible the last opening with these tools. An opening with a
// temperature, output schema or extras is not kept, since few requests have them.
func (m *Model) opening(p *protocol, req *model.Request, tools *toolList) (*opening, error) {
	keep := req.Temperature == nil && req.Output == nil && len(req.Extra) == 0
	if o := tools.lastOpening.Load(); keep && o != nil && o.system == req.System && o.choice == req.Choice && o.maxTokens == req.MaxTokens {
		return o, nil
	}
	members, err := m.openingMembers(p, req, tools)
	if err != nil {
		return nil, err
	}
	if len(members) > len("{") {
		members = append(members, ',')
	}
	listStart := `"messages":[`
	if p.responses {
		listStart = `"input":[`
	}
	o := &opening{system: req.System, choice: req.Choice, maxTokens: req.MaxTokens, members: members, listStart: []byte(listStart)}
	// An extra named "tools" replaces the tools, and is among the members.
	if len(tools.wire) > 0 && m.cfg.Extra["tools"] == nil && req.Extra["tools"] == nil {
		o.members, o.tools, o.listStart = append(members, `"tools":`...), tools.wire, []byte(","+listStart)
	}
	if req.System != "" && !p.responses {
		e := newEncoder(nil, "")
		e.addMessage(wireMessage{Role: sdk.ChatMessageRoleSystem, Content: req.System})
		o.systemMessage = e.wire.Bytes()
	}
	if keep {
		tools.lastOpening.Store(o)
	}
	return o, nil
}

// openingMembers returns the request's JSON without the tools, the messages and the closing brace.
func (m *Model) openingMembers(p *protocol, req *model.Request, tools *toolList) (members []byte, err error) {
	var wire any
	if p.responses {
		wire, err = m.newResponsesRequest(req, tools)
	} else {
		wire, err = m.newChatRequest(req, tools)
	}
	if err != nil {
		return nil, err
	}
	if members, err = encodeJSON(wire); err != nil {
		return nil, err
	}
	for _, extra := range []map[string]json.RawMessage{m.cfg.Extra, req.Extra} {
		if p.responses {
			extra = responsesExtra(extra)
		}
		if members, err = override(members, extra); err != nil {
			return nil, err
		}
	}
	return bytes.TrimSuffix(members, []byte("}")), nil
}

func (m *Model) newChatRequest(req *model.Request, tools *toolList) (w *chatRequest, err error) {
	w = &chatRequest{Model: m.cfg.Model, Stream: !m.cfg.NoStream, Temperature: req.Temperature}
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

// override replaces or adds members of an object, and removes a member whose new value is null. The result is sorted by
// name.
func override(object []byte, extra map[string]json.RawMessage) ([]byte, error) {
	if len(extra) == 0 {
		return object, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		value := bytes.TrimSpace(extra[name])
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
	return encodeJSON(members)
}

// isOpenAI reports whether the server is OpenAI's own. Its reasoning models accept only max_completion_tokens, many
// other servers only max_tokens.
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
