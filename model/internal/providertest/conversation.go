package providertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
)

// A Conversation is one in which the tools change; its requests have a model.Reveal.
type Conversation struct {
	Messages []*message.Message
	Open     []string // the names of the tools
	Head     []tool.Info
	Changes  []*model.ToolChange
}

// Request returns the next request.
func (c *Conversation) Request() *model.Request {
	req := &model.Request{System: "Be exact.", Messages: c.Messages}
	for _, name := range c.Open {
		req.Tools = append(req.Tools, Tool(name))
	}
	if c.Head == nil {
		c.Head, c.Changes = req.Tools, nil
	}
	known := c.Head
	for _, change := range c.Changes {
		known = slices.DeleteFunc(slices.Clone(known), func(t tool.Info) bool { return slices.Contains(change.Remove, t.Name) })
		known = append(known, change.Add...)
	}
	change := &model.ToolChange{At: len(c.Messages), Add: without(req.Tools, known)}
	for _, t := range without(known, req.Tools) {
		change.Remove = append(change.Remove, t.Name)
	}
	if change.Add != nil || change.Remove != nil {
		c.Changes = append(slices.Clip(c.Changes), change)
	}
	req.Reveal = &model.Reveal{Head: c.Head, Digest: fmt.Sprint(c.Head), Changes: c.Changes}
	return req
}

// without returns the tools whose names are not among those of others.
func without(tools, others []tool.Info) (out []tool.Info) {
	for _, t := range tools {
		if !slices.ContainsFunc(others, func(o tool.Info) bool { return o.Name == t.Name }) {
			out = append(out, t)
		}
	}
	return out
}

// Tool returns a tool without parameters.
func Tool(name string) tool.Info {
	return tool.Info{Name: name, Description: "Does " + name + ".", Input: json.RawMessage(`{"type":"object"}`)}
}

// Results returns the results of the calls of an answer.
func Results(answer *message.Message) *message.Message {
	m := &message.Message{Role: message.RoleTool}
	for _, c := range answer.ToolCalls() {
		m.Blocks = append(m.Blocks, &message.ToolResult{ID: c.ID, Name: c.Name, Blocks: message.Blocks{&message.Text{Text: "2"}}})
	}
	return m
}

// Stored returns a message as a session would return it.
func Stored(t *testing.T, m *message.Message) *message.Message {
	t.Helper()
	out := new(message.Message)
	if err := json.Unmarshal([]byte(JSON(t, m)), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The edits of a conversation that a program may make between two requests. Edit makes no change for any
// other number.
const (
	RedactText = iota + 1
	ChangeInput
	RemoveExtra
	ChangeThinking
	Compact
	ChangeOld
)

// Edit returns a conversation after an edit. Its last messages are an answer and the reply to it.
func Edit(msgs []*message.Message, edit int) []*message.Message {
	n := len(msgs) - 2
	answer := *msgs[n]
	answer.Blocks = slices.Clone(answer.Blocks)
	for i, b := range answer.Blocks {
		switch b := b.(type) {
		case *message.Text:
			if edit == RedactText {
				answer.Blocks[i] = &message.Text{Text: "[redacted]"}
			}
		case *message.ToolCall:
			if edit == ChangeInput {
				call := *b
				call.Input = json.RawMessage(`{"a":2}`)
				answer.Blocks[i] = &call
			}
		case *message.Thinking:
			if edit == RemoveExtra {
				answer.Blocks[i] = &message.Thinking{Text: b.Text}
			}
			if edit == ChangeThinking {
				answer.Blocks[i] = &message.Thinking{Text: strings.ToUpper(b.Text), Extra: b.Extra}
			}
		}
	}
	if edit == Compact {
		summary := &message.Hint{Source: "summary", Text: "Summary of the conversation."}
		return []*message.Message{{Role: message.RoleUser, Blocks: message.Blocks{summary}}, &answer, msgs[n+1]}
	}
	msgs = append(slices.Clone(msgs[:n]), &answer, msgs[n+1])
	if edit == ChangeOld && n > 2 {
		msgs[2] = message.User("Something else.")
	}
	return msgs
}
