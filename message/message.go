// Package message defines the messages that a user, a model and its tools exchange.
//
// A conversation is a list of messages. Each has a role and contains blocks, in
// the order in which they were produced:
//
//	m := message.User("What is 2+3?")
//	m.Text() // "What is 2+3?"
//
// A [Block] is one of [*Text], [*Thinking], [*Data], [*Hint], [*ToolCall], [*ToolResult] and [*Unknown]. An assistant
// message contains what one model call returned, tool calls included; the results of those calls follow in one
// message of the role [RoleTool].
//
// A message is immutable once it is part of a conversation: to change one, replace
// it with a new one. This lets a model client cache the bytes it has encoded.
//
// Messages and blocks encode to JSON. A block is an object with a "type" tag; a block whose type this version does
// not know becomes an [*Unknown] that encodes to the same JSON it was decoded from, so that an older program does not
// lose what a newer one stored.
package message

import (
	"crypto/rand"
	"strings"
	"time"
)

// Role says who wrote a message.
type Role string

// The roles.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool" // carries the results of one batch of tool calls
)

// A Message is one turn of a conversation.
type Message struct {
	ID      string    `json:"id"`
	Role    Role      `json:"role"`
	Name    string    `json:"name,omitempty"` // of the author, if several share a role
	Blocks  Blocks    `json:"blocks"`
	Created time.Time `json:"created,omitzero"`

	// Model and Usage are set on assistant messages: which model answered, and the tokens of the call.
	Model string `json:"model,omitempty"`
	Usage *Usage `json:"usage,omitempty"`
}

// User returns a user message with one text block. Its ID is empty: the
// agent sets it when the message enters a conversation.
func User(text string) *Message {
	return &Message{Role: RoleUser, Blocks: Blocks{&Text{Text: text}}}
}

// System returns a system message with one text block.
func System(text string) *Message {
	return &Message{Role: RoleSystem, Blocks: Blocks{&Text{Text: text}}}
}

// Assistant returns an assistant message with the given blocks.
func Assistant(blocks ...Block) *Message {
	return &Message{Role: RoleAssistant, Blocks: blocks}
}

// Text returns the text blocks of m, joined by newlines; "" if m is nil.
func (m *Message) Text() string { return m.blocks().Text() }

// ToolCalls returns the tool calls of m, in order; none if m is nil.
func (m *Message) ToolCalls() []*ToolCall { return blocksOf[*ToolCall](m.blocks()) }

// ToolResults returns the tool results of m, in order; none if m is nil.
func (m *Message) ToolResults() []*ToolResult { return blocksOf[*ToolResult](m.blocks()) }

// blocks returns m.Blocks, or nil if m is nil: callers often have an error and no message.
func (m *Message) blocks() Blocks {
	if m == nil {
		return nil
	}
	return m.Blocks
}

func blocksOf[B Block](blocks Blocks) []B {
	var out []B
	for _, b := range blocks {
		if b, ok := b.(B); ok {
			out = append(out, b)
		}
	}
	return out
}

// Text returns the text blocks joined by newlines.
func (bs Blocks) Text() string {
	var parts []string
	for _, t := range blocksOf[*Text](bs) {
		parts = append(parts, t.Text)
	}
	return strings.Join(parts, "\n")
}

// Usage counts the tokens of one or more model calls. Input includes the cached tokens, as in the OpenAI API; Cached
// and CacheWrite say how many of them were read from and written to the provider's prompt cache. Reasoning is the
// part of Output that was spent on thinking.
type Usage struct {
	Input      int `json:"input_tokens"`
	Output     int `json:"output_tokens"`
	Cached     int `json:"cached_tokens,omitempty"`
	CacheWrite int `json:"cache_write_tokens,omitempty"`
	Reasoning  int `json:"reasoning_tokens,omitempty"`
}

// Add adds v to u.
func (u *Usage) Add(v Usage) {
	u.Input += v.Input
	u.Output += v.Output
	u.Cached += v.Cached
	u.CacheWrite += v.CacheWrite
	u.Reasoning += v.Reasoning
}

// NewID returns a random id with the given prefix, such as "msg_…". It is the
// agent's default source of ids; a durable engine supplies its own.
func NewID(prefix string) string {
	return prefix + "_" + rand.Text()[:20] // 5 random bits in each letter, 100 in all
}
