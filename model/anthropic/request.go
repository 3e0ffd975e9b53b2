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
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

// minBudget is the API's lower limit of thinking.budget_tokens.
const minBudget = 1024

// A body is an encoded request.
type body struct {
	head   map[string]json.RawMessage // all members except system, tools and messages
	system []json.RawMessage
	tools  []json.RawMessage
	turns  []turn
	betas  []string
	names  map[string]string // tool names by the names on the wire
	prefix string            // identifies everything before the answer

	renames map[string]renames // by tool name

	// Features that a server may refuse; see refusals.
	inlineTools  bool // tools may be added and removed in the conversation
	forcedChoice bool // a tool must be called
	thinkingOff  bool // thinking is turned off for this request, although the configuration turns it on
	keptThinking bool // earlier answers may be sent with their thinking
}

// encode returns a request in its form on the wire: the same bytes for the same request.
func (m *Model) encode(req *model.Request) (*body, error) {
	b := &body{betas: m.cfg.Betas, inlineTools: m.reveals && !m.refused.inlineTools.Load()}
	list, digest, changes := provider.ToolsOf(req, b.inlineTools && m.cfg.Extra["tools"] == nil, len(m.cfg.ServerTools))
	tools, err := m.tools.Get(list, digest, newToolList)
	if err != nil {
		return nil, err
	}
	// Tools that are never open together may have the same name on the wire: then only those of this request are sent.
	if b.names = tools.with(changes); b.names == nil {
		changes = nil
		if tools, err = m.tools.Get(req.Tools, req.Digest, newToolList); err != nil {
			return nil, err
		}
		b.names = tools.names
	}
	if b.inlineTools { // even without changes, so that the server's cache fits all requests of a conversation
		b.betas = append(slices.Clip(b.betas), sdk.AnthropicBetaInlineTools2026_09_15)
	}
	if textOf(req.System) != "" {
		b.system = append(b.system, textBlock(req.System))
	}
	b.tools = slices.Concat(m.cfg.ServerTools, tools.wire)
	e := m.newEncoder(b.tools, tools, b.system)
	if err := e.messages(req.Messages, changes); err != nil {
		return nil, err
	}
	if len(e.turns) == 0 {
		return nil, errors.New("the conversation has no message with content; the API requires one in addition to the system prompt")
	}
	if err := m.setHead(b, req, e); err != nil {
		return nil, err
	}
	b.turns, b.renames, b.prefix, b.keptThinking = e.turns, e.renames, e.sum(), e.keptThinking
	m.setBreakpoints(b, e)
	return b, nil
}

// setHead sets the members of a request except system prompt, tools and messages, which it includes only if an
// extra sets them.
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
		if b.forcedChoice = p.ToolChoice.OfAny != nil || p.ToolChoice.OfTool != nil; b.forcedChoice && m.refused.forcedChoice.Load() {
			p.ToolChoice, b.forcedChoice = sdk.BetaToolChoiceUnionParam{}, false
		}
	}
	m.setThinking(b, &p, e)
	if req.Temperature != nil && p.Thinking.OfEnabled == nil && p.Thinking.OfAdaptive == nil { // the API refuses a temperature with thinking
		p.Temperature = sdk.Float(*req.Temperature)
	}
	p.OutputConfig.Effort = sdk.BetaOutputConfigEffort(m.cfg.Effort)
	if req.Output != nil {
		if err := provider.CheckOutput(req.Output); err != nil {
			return err
		}
		var schema map[string]any
		_ = json.Unmarshal(req.Output.Schema, &schema) // CheckOutput has decoded it
		p.OutputConfig.Format = sdk.BetaJSONSchemaOutputFormat(splitTypes(schema).(map[string]any))
		if made, _ := p.OutputConfig.Format.Schema.(map[string]any); made == nil { // the SDK cannot decode it; the server says what is wrong with it
			p.OutputConfig.Format.Schema = req.Output.Schema
		}
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

// splitTypes returns a schema with an anyOf in place of each list of types, which the SDK cannot decode.
func splitTypes(schema any) any {
	switch v := schema.(type) {
	case []any:
		for i := range v {
			v[i] = splitTypes(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = splitTypes(v[name])
		}
		types, _ := v["type"].([]any)
		var branches []any
		for _, t := range types {
			b := maps.Clone(v)
			b["type"] = t
			branches = append(branches, b)
		}
		if branches != nil {
			return map[string]any{"anyOf": branches}
		}
	}
	return schema
}

// setThinking sets the thinking of a request. Thinking is off where the API refuses it: if a tool must be called, if the
// budget is not below the limit of the answer, and, with a budget, after tool calls that were made without thinking.
func (m *Model) setThinking(b *body, p *sdk.BetaMessageNewParams, e *encoder) {
	mode := m.cfg.Thinking.Mode
	if mode == ThinkingAdaptive && b.forcedChoice ||
		mode == ThinkingBudget && (b.forcedChoice || int64(m.cfg.Thinking.Budget) >= p.MaxTokens || e.lacksThinking()) {
		if mode = ThinkingOff; m.refused.thinkingOff.Load() {
			mode = ThinkingDefault
		}
		b.thinkingOff = mode == ThinkingOff
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
		value := bytes.TrimSpace(extra[name])
		switch {
		case !json.Valid(value):
			return fmt.Errorf("extra member %q is not valid JSON: %.60s; quote strings", name, value)
		case name == "messages":
			return fmt.Errorf("extra member %q: messages cannot be an extra; set Request.Messages", name)
		case name == "stream":
			return fmt.Errorf("extra member %q cannot be set: answers are always streamed", name)
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

// setEffort converts the reasoning_effort of chat completions to output_config.effort.
func setEffort(object map[string]json.RawMessage, value json.RawMessage) error {
	var effort string
	if err := json.Unmarshal(value, &effort); err != nil {
		return fmt.Errorf("extra member \"reasoning_effort\" is %.60s; it must be a string, such as \"low\"", value)
	}
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
	config["effort"] = quote(effort)
	var err error
	object["output_config"], err = json.Marshal(config)
	return err
}

// setBreakpoints sets the cache breakpoints, of which the API allows four: after the tools, after the system prompt, at
// the end of the conversation, and after the summary in it. Without a summary the fourth one is at the end of the
// user's last turn but one.
func (m *Model) setBreakpoints(b *body, e *encoder) {
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

// json returns the bytes of the request. The parts that all requests of a conversation share come first. A null
// among the members of head removes a member, another value replaces one.
func (b *body) json() []byte {
	var out bytes.Buffer
	key := func(s string) {
		if out.Len() == 0 {
			out.WriteByte('{')
		} else {
			out.WriteByte(',')
		}
		out.Write(quote(s))
		out.WriteByte(':')
	}
	if b.head["tools"] == nil && len(b.tools) > 0 {
		key("tools")
		writeList(&out, b.tools)
	}
	if b.head["system"] == nil && len(b.system) > 0 {
		key("system")
		writeList(&out, b.system)
	}
	for _, name := range slices.Sorted(maps.Keys(b.head)) {
		if string(b.head[name]) != "null" {
			key(name)
			out.Write(b.head[name])
		}
	}
	key("messages")
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
