package agui

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
)

// protocolVersion is the version of AG-UI, https://docs.ag-ui.com/spec/1.0, whose schema this file follows.
const protocolVersion = "1.0"

// A wireEvent is an event of AG-UI. Which fields it has depends on its type.
type wireEvent struct {
	Type      string         `json:"type"`
	Timestamp int64          `json:"timestamp,omitempty"` // in milliseconds
	Metadata  map[string]any `json:"metadata,omitempty"`

	ThreadID string `json:"threadId,omitempty"`
	RunID    string `json:"runId,omitempty"`
	Version  string `json:"protocolVersion,omitempty"`

	MessageID string  `json:"messageId,omitempty"`
	Role      string  `json:"role,omitempty"`
	Delta     any     `json:"delta,omitempty"`   // a string, or a list of patches
	Content   *string `json:"content,omitempty"` // nil if absent; may be ""

	ToolCallID      string `json:"toolCallId,omitempty"`
	ToolCallName    string `json:"toolCallName,omitempty"`
	ParentMessageID string `json:"parentMessageId,omitempty"`

	Snapshot json.RawMessage `json:"snapshot,omitempty"`
	Messages any             `json:"messages,omitempty"` // nil if absent, or a []wireMessage, which may be empty

	StepName string `json:"stepName,omitempty"`

	SubagentRunID    string `json:"subagentRunId,omitempty"`
	Name             string `json:"name,omitempty"`
	ParentToolCallID string `json:"parentToolCallId,omitempty"`
	ParentSubagent   string `json:"parentSubagentRunId,omitempty"`

	Value any `json:"value,omitempty"`

	Outcome *wireOutcome    `json:"outcome,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Usage   []wireUsage     `json:"usage,omitempty"`
	Message string          `json:"message,omitempty"`
	Code    string          `json:"code,omitempty"`
}

type wireOutcome struct {
	Type       string          `json:"type"`
	Pending    []string        `json:"pendingToolCallIds,omitempty"`
	Interrupts []wireInterrupt `json:"interrupts,omitempty"`
}

type wireInterrupt struct {
	ID             string          `json:"id"`
	Reason         string          `json:"reason"`
	Message        string          `json:"message,omitempty"`
	ToolCallID     string          `json:"toolCallId,omitempty"`
	ResponseSchema json.RawMessage `json:"responseSchema,omitempty"`
	Metadata       map[string]any  `json:"metadata,omitempty"`
}

type wireUsage struct {
	Input      int `json:"inputTokens"`
	Output     int `json:"outputTokens"`
	Total      int `json:"totalTokens"`
	Reasoning  int `json:"reasoningTokens,omitempty"`
	Cached     int `json:"cachedInputTokens,omitempty"`
	CacheWrite int `json:"cacheWriteInputTokens,omitempty"`
}

func usageOf(u message.Usage) []wireUsage {
	if u == (message.Usage{}) {
		return nil
	}
	return []wireUsage{{u.Input, u.Output, u.Input + u.Output, u.Reasoning, u.Cached, u.CacheWrite}}
}

// A wireMessage is a message of AG-UI.
type wireMessage struct {
	ID         string          `json:"id"`
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content,omitempty"` // a string, or a list of parts
	ToolCalls  []wireCall      `json:"toolCalls,omitempty"`
	ToolCallID string          `json:"toolCallId,omitempty"`
	Error      string          `json:"error,omitempty"`
}

type wireCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type wirePart struct {
	Type   string `json:"type"`
	Text   string `json:"text,omitempty"`
	Source *struct {
		Type     string `json:"type"`
		Value    string `json:"value"`
		MimeType string `json:"mimeType,omitempty"`
	} `json:"source,omitempty"`
}

// approvalSchema is the schema of the answer to an approval.
func approvalSchema(q *event.Approval) json.RawMessage {
	remember := ""
	if len(q.Suggest) > 0 {
		remember = `"remember":{"type":"boolean","description":"do not ask again for calls like this one"},`
	}
	return json.RawMessage(`{"type":"object","properties":{"approved":{"type":"boolean"},` + remember +
		`"editedArgs":{"type":"object","description":"replaces all arguments of the call"},` +
		`"reason":{"type":"string","description":"why not, for the model"}},"required":["approved"],"additionalProperties":false}`)
}

// interruptOf returns the interrupt of a question. Another question about the same call has another id.
func interruptOf(q *event.Approval) wireInterrupt {
	return wireInterrupt{ID: interruptID(q.Call, q.Question), Reason: "tool_call", Message: q.Reason, ToolCallID: q.Call,
		ResponseSchema: approvalSchema(q), Metadata: map[string]any{"kitbag": q}}
}

func jsonString(s string) json.RawMessage {
	data, _ := json.Marshal(s) // never fails
	return data
}

func resultID(call string) string { return call + ".result" }

// partID returns the id of the AG-UI message for the nth part of a message. The first text gets the message's own id,
// which is the parent of the message's tool calls.
func partID(msg string, n int, firstText bool) string {
	if firstText {
		return msg
	}
	return msg + "." + strconv.Itoa(n)
}

// A part is a text or a reasoning of a message of the model.
type part struct {
	id        string
	reasoning bool
	text      string
}

// partsOf returns the parts of a message that are not empty. Empty parts have no deltas, so they must not count in partID.
func partsOf(m *message.Message) []part {
	var list []part
	texts := 0
	for _, b := range m.Blocks {
		switch b := b.(type) {
		case *message.Thinking:
			if b.Text != "" {
				list = append(list, part{partID(m.ID, len(list), false), true, b.Text})
			}
		case *message.Text:
			if b.Text != "" {
				texts++
				list = append(list, part{partID(m.ID, len(list), texts == 1), false, b.Text})
			}
		}
	}
	return list
}

// messagesOf returns the AG-UI messages of a conversation, without messages that have only hints for the model.
func messagesOf(msgs []*message.Message) []wireMessage {
	list := []wireMessage{}
	for _, m := range msgs {
		switch m.Role {
		case message.RoleUser:
			if slices.ContainsFunc(m.Blocks, func(b message.Block) bool { _, isHint := b.(*message.Hint); return !isHint }) {
				list = append(list, wireMessage{ID: m.ID, Role: "user", Content: jsonString(m.Text())})
			}
		case message.RoleAssistant:
			list = append(list, assistantMessages(m)...)
		case message.RoleTool:
			for _, r := range m.ToolResults() {
				list = append(list, wireMessage{ID: resultID(r.ID), Role: "tool", ToolCallID: r.ID, Content: jsonString(r.Text())})
			}
		}
	}
	return list
}

// assistantMessages returns the AG-UI messages of a message of the model: those that a client builds from the
// messageEvents.
func assistantMessages(m *message.Message) []wireMessage {
	var list []wireMessage
	withCalls := -1 // index of the AG-UI message with the id of m, to which the tool calls belong
	for _, p := range partsOf(m) {
		w := wireMessage{ID: p.id, Role: "assistant", Content: jsonString(p.text)}
		if p.reasoning {
			w.Role = "reasoning"
		}
		if p.id == m.ID {
			withCalls = len(list)
		}
		list = append(list, w)
	}
	calls := m.ToolCalls()
	if len(calls) > 0 && withCalls < 0 {
		withCalls = len(list)
		list = append(list, wireMessage{ID: m.ID, Role: "assistant"})
	}
	for _, c := range calls {
		w := wireCall{ID: c.ID, Type: "function"}
		w.Function.Name, w.Function.Arguments = c.Name, string(c.Input)
		list[withCalls].ToolCalls = append(list[withCalls].ToolCalls, w)
	}
	return list
}
