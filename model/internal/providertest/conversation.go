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

// A Conversation is a conversation in which the tools change. Its requests have a model.Reveal.
type Conversation struct {
	Messages []*message.Message
	Open     []string            // the names of the tools of the next request
	Head     []tool.Info         // the tools of the first request; nil starts with Open again
	Changes  []*model.ToolChange // since the first request
}

// Request returns the next request. It records the change from the tools of the previous request to Open.
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
	if len(change.Add) > 0 || change.Remove != nil {
		c.Changes = append(slices.Clip(c.Changes), change)
	}
	req.Reveal = &model.Reveal{Head: c.Head, Digest: fmt.Sprint(c.Head), Changes: c.Changes}
	return req
}

// without returns the tools whose names no tool in removed has.
func without(tools, removed []tool.Info) []tool.Info {
	return slices.DeleteFunc(slices.Clone(tools), func(t tool.Info) bool {
		return slices.ContainsFunc(removed, func(r tool.Info) bool { return r.Name == t.Name })
	})
}

// Tool returns a tool without parameters.
func Tool(name string) tool.Info {
	return tool.Info{Name: name, Description: "Does " + name + ".", Input: json.RawMessage(`{"type":"object"}`)}
}

// Results returns a result "2" for each call of an answer.
func Results(answer *message.Message) *message.Message {
	m := &message.Message{Role: message.RoleTool}
	for _, c := range answer.ToolCalls() {
		m.Blocks = append(m.Blocks, &message.ToolResult{ID: c.ID, Name: c.Name, Blocks: message.Blocks{&message.Text{Text: "2"}}})
	}
	return m
}

// Stored returns a copy of a message by way of JSON, as a session would return it.
func Stored(t *testing.T, m *message.Message) *message.Message {
	t.Helper()
	out := new(message.Message)
	if err := json.Unmarshal([]byte(JSON(t, m)), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The edits of a conversation that a program may make between two requests. Any other number is no edit.
const (
	RedactText     = iota + 1 // replace the texts of the last answer
	ChangeInput               // change the inputs of its calls
	RemoveExtra               // remove the Extra of its thinking
	ChangeThinking            // change the text of its thinking
	Compact                   // replace all messages before the answer with a summary
	ChangeOld                 // replace the third message
)

// Edit returns a conversation after an edit. The last two of msgs are an answer and the reply to it.
func Edit(msgs []*message.Message, edit int) []*message.Message {
	last := len(msgs) - 2 // the last answer
	answer := *msgs[last]
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
		return []*message.Message{{Role: message.RoleUser, Blocks: message.Blocks{summary}}, &answer, msgs[last+1]}
	}
	msgs = append(slices.Clone(msgs[:last]), &answer, msgs[last+1])
	if edit == ChangeOld && last > 2 {
		msgs[2] = message.User("Something else.")
	}
	return msgs
}
