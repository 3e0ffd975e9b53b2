package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

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
	thinkingOff  bool // thinking is off for this request, against the configuration
	keptThinking bool // earlier answers may be sent with their thinking
}

// encode returns a request in its form on the wire: the same bytes for the same request.
func (m *Model) encode(req *model.Request) (*body, error) {
	b := &body{betas: m.cfg.Betas, inlineTools: m.reveals && !m.refused.inlineTools.Load()}
	changesTools := b.inlineTools && m.cfg.Extra["tools"] == nil
	head, digest, changes := provider.ToolsOf(req, changesTools, len(m.cfg.ServerTools))
	tools, err := m.tools.Get(head, digest, newToolList)
	if err != nil {
		return nil, err
	}
	// Tools that are never open together may have the same name on the wire: then only those of
	// this request are sent.
	if b.names = tools.with(changes); b.names == nil {
		changes = nil
		if tools, err = m.tools.Get(req.Tools, req.Digest, newToolList); err != nil {
			return nil, err
		}
		b.names = tools.names
	}
	if b.inlineTools { // also without changes: the server's cache must fit all requests
		b.betas = append(slices.Clip(b.betas), betaLateTools)
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
		return nil, errors.New("the conversation has no message with content; " +
			"the API requires one in addition to the system prompt")
	}
	if err := m.setHead(b, req, e.lacksThinking()); err != nil {
		return nil, err
	}
	b.turns, b.renames, b.prefix, b.keptThinking = e.turns, e.renames, e.sum(), e.keptThinking
	m.setBreakpoints(b, e)
	return b, nil
}

// setHead sets the members of a request except system prompt, tools and messages, which it includes
// only if an extra sets them.
func (m *Model) setHead(b *body, req *model.Request, lacksThinking bool) error {
	w := wireHead{Model: m.cfg.Model, MaxTokens: m.cfg.MaxTokens, Stream: true}
	if req.MaxTokens > 0 {
		w.MaxTokens = req.MaxTokens
	}
	if err := m.setChoice(b, &w, req.Choice); err != nil {
		return err
	}
	m.setThinking(b, &w, lacksThinking)
	// With thinking the API refuses a temperature.
	if w.Thinking == nil || w.Thinking.Type == ThinkingOff {
		w.Temperature = req.Temperature
	}
	w.Output.Effort = m.cfg.Effort
	if req.Output != nil {
		if err := provider.CheckOutput(req.Output); err != nil {
			return err
		}
		w.Output.Format = &wireFormat{Schema: answerSchema(req.Output.Schema), Type: "json_schema"}
	}
	data, err := json.Marshal(w)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &b.head); err != nil {
		return err
	}
	for _, extra := range []map[string]json.RawMessage{m.cfg.Extra, req.Extra} {
		if err := override(b.head, extra); err != nil {
			return err
		}
	}
	return nil
}

// setChoice sets the choice of a tool, of which the API accepts none without tools.
func (m *Model) setChoice(b *body, w *wireHead, c model.ToolChoice) (err error) {
	if len(b.tools) == 0 {
		return nil
	}
	if w.Choice, err = encodeChoice(c); err != nil {
		return err
	}
	isForced := w.Choice != nil && w.Choice.Type != "none"
	if isForced && m.refused.forcedChoice.Load() {
		w.Choice = nil
		return nil
	}
	b.forcedChoice = isForced
	return nil
}

// setThinking sets the thinking of a request. Thinking is off where the API refuses it: if a tool
// must be called, if the budget is not below the limit of the answer, and, with a budget, after
// tool calls that were made without thinking.
func (m *Model) setThinking(b *body, w *wireHead, lacksThinking bool) {
	t := m.cfg.Thinking
	switch t.Mode {
	case ThinkingAdaptive:
		b.thinkingOff = b.forcedChoice
	case ThinkingBudget:
		b.thinkingOff = b.forcedChoice || t.Budget >= w.MaxTokens || lacksThinking
	}
	if b.thinkingOff {
		t = Thinking{Mode: ThinkingOff}
		if m.refused.thinkingOff.Load() {
			t, b.thinkingOff = Thinking{}, false
		}
	}
	if t.Mode != ThinkingDefault {
		w.Thinking = &wireThinking{Budget: t.Budget, Display: t.Display, Type: t.Mode}
	}
}

// override replaces, adds and, where the value is null, removes members of an object.
func override(object, extra map[string]json.RawMessage) error {
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		value := bytes.TrimSpace(extra[name])
		switch {
		case !json.Valid(value):
			return fmt.Errorf("extra member %q is not valid JSON: %.60s; quote strings", name,
				value)
		case name == "messages":
			return fmt.Errorf("extra member %q: messages cannot be an extra; set Request.Messages",
				name)
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
		return fmt.Errorf("extra member \"reasoning_effort\" is %.60s; it must be a string, "+
			"such as \"low\"", value)
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
	config["effort"] = marshal(effort)
	object["output_config"] = marshal(config)
	return nil
}

// setBreakpoints sets the cache breakpoints, of which the API allows four: after the tools, after
// the system prompt, at the end of the conversation, and after the summary in it. Without a summary
// the fourth one is at the end of the user's last turn but one.
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

// json returns the bytes of the request. The parts that all requests of a conversation share come
// first. A null among the members of head removes a member, another value replaces one.
func (b *body) json() []byte {
	var out bytes.Buffer
	key := func(s string) {
		if out.Len() == 0 {
			out.WriteByte('{')
		} else {
			out.WriteByte(',')
		}
		out.Write(marshal(s))
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
