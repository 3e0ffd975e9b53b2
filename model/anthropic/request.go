package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/kitbag-go/kitbag/model"
)

// minBudget is the API's lower limit of thinking.budget_tokens.
const minBudget = 1024

// A body is an encoded request.
type body struct {
	head   map[string]json.RawMessage // all members but system, tools and messages
	system []json.RawMessage
	tools  []json.RawMessage
	turns  []turn
	betas  []string
	names  map[string]string // of the tools: the name on the wire → the tool's own
	prefix string            // identifies all that comes before the answer

	late, forced, off bool // it has what refusals are about
}

// encode returns a request as it is sent, the same bytes for the same request.
func (m *Model) encode(req *model.Request) (*body, error) {
	list, digest, changes := m.revealed(req)
	tools, err := m.tools.get(list, digest)
	if err != nil {
		return nil, err
	}
	b := &body{betas: m.cfg.Betas, late: m.reveals && !m.refuses.late.Load()}
	if b.names = tools.with(changes); b.names == nil { // two names become one, maybe of tools that are never open together
		changes = nil
		if tools, err = m.tools.get(req.Tools, req.Digest); err != nil {
			return nil, err
		}
		b.names = tools.names
	}
	if b.late { // also without changes, so that all requests are rendered alike
		b.betas = append(slices.Clip(b.betas), sdk.AnthropicBetaInlineTools2026_09_15)
	}
	if textOf(req.System) != "" {
		b.system = append(b.system, textBlock(req.System))
	}
	b.tools = slices.Concat(m.cfg.ServerTools, tools.wire)
	e := m.newEncoder(b.tools, tools.names, b.system)
	if err := e.messages(req.Messages, changes); err != nil {
		return nil, err
	}
	if len(e.turns) == 0 {
		return nil, errors.New("there is nothing to send: no message with content, which the API needs in addition to the system prompt")
	}
	if err := m.setHead(b, req, e); err != nil {
		return nil, err
	}
	b.turns, b.prefix = e.turns, e.sum()
	m.mark(b, e)
	return b, nil
}

// setHead sets the object of a request without its system prompt, tools and messages, unless an extra has them.
func (m *Model) setHead(b *body, req *model.Request, e *encoder) error {
	p := sdk.BetaMessageNewParams{Model: m.cfg.Model, MaxTokens: int64(m.cfg.MaxTokens)}
	if req.MaxTokens > 0 {
		p.MaxTokens = int64(req.MaxTokens)
	}
	var err error
	if len(b.tools) > 0 {
		if p.ToolChoice, err = toolChoice(req.Choice); err != nil {
			return err
		}
		if b.forced = p.ToolChoice.OfAny != nil || p.ToolChoice.OfTool != nil; b.forced && m.refuses.forced.Load() {
			p.ToolChoice, b.forced = sdk.BetaToolChoiceUnionParam{}, false
		}
	}
	m.setThinking(b, &p, e)
	if req.Temperature != nil && p.Thinking.OfEnabled == nil && p.Thinking.OfAdaptive == nil { // the API refuses both together
		p.Temperature = sdk.Float(*req.Temperature)
	}
	p.OutputConfig.Effort = sdk.BetaOutputConfigEffort(m.cfg.Effort)
	if req.Output != nil {
		var schema map[string]any
		if err := json.Unmarshal(req.Output.Schema, &schema); err != nil || schema == nil {
			return fmt.Errorf("output schema %q is not a JSON object: %.60s", req.Output.Name, req.Output.Schema)
		}
		p.OutputConfig.Format = sdk.BetaJSONSchemaOutputFormat(schema)
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &b.head); err != nil {
		return err
	}
	delete(b.head, "messages")
	b.head["stream"] = json.RawMessage("true")
	for _, extra := range []map[string]json.RawMessage{m.cfg.Extra, req.Extra} {
		if err := override(b.head, extra); err != nil {
			return err
		}
	}
	return nil
}

// setThinking sets the thinking of a request. It is off where the API refuses it: where a tool must be called,
// where the budget is not below the limit of the answer, and, with a budget, in the middle of
// tool calls that another model began.
func (m *Model) setThinking(b *body, p *sdk.BetaMessageNewParams, e *encoder) {
	mode := m.cfg.Thinking.Mode
	if mode == ThinkingAdaptive && b.forced ||
		mode == ThinkingBudget && (b.forced || int64(m.cfg.Thinking.Budget) >= p.MaxTokens || e.unthought()) {
		mode, b.off = ThinkingOff, true
		if m.refuses.off.Load() {
			mode = ThinkingDefault
		}
	}
	t := &p.Thinking
	switch mode {
	case ThinkingAdaptive:
		t.OfAdaptive = &sdk.BetaThinkingConfigAdaptiveParam{Display: sdk.BetaThinkingConfigAdaptiveDisplay(m.cfg.Thinking.Display)}
	case ThinkingBudget:
		t.OfEnabled = &sdk.BetaThinkingConfigEnabledParam{BudgetTokens: int64(m.cfg.Thinking.Budget),
			Display: sdk.BetaThinkingConfigEnabledDisplay(m.cfg.Thinking.Display)}
	case ThinkingOff:
		t.OfDisabled = &sdk.BetaThinkingConfigDisabledParam{}
	}
}

// override replaces, adds and, where the value is null, removes members of an object.
func override(object, extra map[string]json.RawMessage) error {
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		value := extra[name]
		switch {
		case !json.Valid(value):
			return fmt.Errorf("extra member %q is not valid JSON: %.60s", name, value)
		case name == "messages":
			return fmt.Errorf("extra member %q: messages are given as such, not as an extra", name)
		case name == "stream":
			return fmt.Errorf("extra member %q: answers are always streamed", name)
		case name == "reasoning_effort":
			if err := setEffort(object, value); err != nil {
				return err
			}
		case string(value) == "null" && name != "tools" && name != "system":
			delete(object, name)
		default:
			object[name] = value
		}
	}
	return nil
}

// setEffort sets the effort as this API has it from the one of chat completions.
func setEffort(object map[string]json.RawMessage, value json.RawMessage) error {
	var effort string
	_ = json.Unmarshal(value, &effort)
	switch effort {
	case "":
		return nil
	case "none", "minimal":
		effort = "low"
	}
	config := map[string]json.RawMessage{}
	if raw := object["output_config"]; raw != nil {
		if err := json.Unmarshal(raw, &config); err != nil {
			return fmt.Errorf("output_config is not an object: %.60s", raw)
		}
	}
	data, err := json.Marshal(effort)
	if err != nil {
		return err
	}
	config["effort"] = data
	object["output_config"], err = json.Marshal(config)
	return err
}

// mark sets the cache breakpoints, of which the API allows four: after the tools, after the system prompt, at
// the end of the conversation, and after the summary in it. Without a summary the fourth one is at the end of the
// turn of the user before the last one.
func (m *Model) mark(b *body, e *encoder) {
	if m.cfg.Cache == CacheOff {
		return
	}
	control := `,"cache_control":{"type":"ephemeral"}}`
	if m.cfg.Cache != CacheShort {
		control = `,"cache_control":{"type":"ephemeral","ttl":"` + string(m.cfg.Cache) + `"}}`
	}
	set := func(block *json.RawMessage) {
		*block = append(bytes.TrimSuffix(slices.Clone(*block), []byte("}")), control...)
	}
	if n := len(b.tools); n > 0 {
		set(&b.tools[n-1])
	}
	if n := len(b.system); n > 0 {
		set(&b.system[n-1])
	}
	ends := e.userTurns()
	last := ends[len(ends)-1]
	set(last)
	if e.summary != nil && e.summary != last {
		set(e.summary)
	} else if len(ends) > 1 {
		set(ends[len(ends)-2])
	}
}

// json returns the request as it is sent: what stays the same from one to the next comes first. A null among the
// members of head removes a member, another value replaces one.
func (b *body) json() []byte {
	var out bytes.Buffer
	name := func(s string) {
		if out.Len() == 0 {
			out.WriteByte('{')
		} else {
			out.WriteByte(',')
		}
		out.Write(quote(s))
		out.WriteByte(':')
	}
	if b.head["tools"] == nil && len(b.tools) > 0 {
		name("tools")
		writeList(&out, b.tools)
	}
	if b.head["system"] == nil && len(b.system) > 0 {
		name("system")
		writeList(&out, b.system)
	}
	for _, key := range slices.Sorted(maps.Keys(b.head)) {
		if string(b.head[key]) != "null" {
			name(key)
			out.Write(b.head[key])
		}
	}
	name("messages")
	out.WriteByte('[')
	for i, t := range b.turns {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, `{"role":%q,"content":`, t.role)
		blocks := make([]json.RawMessage, len(t.blocks))
		for i, block := range t.blocks {
			blocks[i] = *block
		}
		writeList(&out, blocks)
		out.WriteByte('}')
	}
	out.WriteString("]}")
	return out.Bytes()
}

func writeList(b *bytes.Buffer, list []json.RawMessage) {
	b.WriteByte('[')
	for i, item := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(item)
	}
	b.WriteByte(']')
}
