package model

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/message"
)

// Collect joins the stream of an answer into an assistant message. Consecutive deltas of one kind become one block;
// the pieces of a tool call are joined by their index, in order of appearance. A call's Input is what the model sent,
// or "{}" if it sent nothing; it may be invalid JSON, see [tool.Arguments]. The message has no id.
//
// If the stream ends with an error, or has a chunk after its Finish, Collect returns that error
// together with the message so far, which is never nil, and a nil Finish.
func Collect(chunks iter.Seq2[Chunk, error]) (*message.Message, *Finish, error) {
	var c collector
	var fin *Finish
	for chunk, err := range chunks {
		if err != nil {
			return c.message(), nil, err
		}
		if fin != nil {
			return c.message(), nil, fmt.Errorf("the model yielded a %T after its Finish, which must be the last chunk of an answer", chunk)
		}
		if f, ok := chunk.(*Finish); ok {
			fin = f
			continue
		}
		c.add(chunk)
	}
	msg := c.message()
	if fin == nil {
		return msg, nil, &Error{Kind: KindConnection, Message: "the stream ended without a Finish"}
	}
	usage := fin.Usage
	msg.Model, msg.Usage = fin.Model, &usage
	return msg, fin, nil
}

// A collector has a strings.Builder for each block, so that joining takes time linear in the
// size of the answer: a delta is often a single token.
type collector struct {
	parts    []*part
	calls    map[int]int // index in parts by ToolCallDelta.Index
	thinking int         // index of the last thinking part + 1; 0 if there is none
}

type part struct {
	block message.Block
	text  strings.Builder
}

func (c *collector) add(chunk Chunk) {
	switch chunk := chunk.(type) {
	case *TextDelta:
		if p := c.last(); p != nil {
			if _, ok := p.block.(*message.Text); ok {
				p.text.WriteString(chunk.Text)
				return
			}
		}
		c.open(&message.Text{}).text.WriteString(chunk.Text)
	case *ThinkingDelta:
		c.think(chunk)
	case *ToolCallDelta:
		c.call(chunk)
	case *DataBlock:
		c.open(chunk.Data)
	}
}

func (c *collector) last() *part {
	if len(c.parts) == 0 {
		return nil
	}
	return c.parts[len(c.parts)-1]
}

func (c *collector) open(b message.Block) *part {
	c.parts = append(c.parts, &part{block: b})
	return c.last()
}

// think adds to the thinking block that is the last part, or opens one. A delta without text belongs to the last
// thinking block even if other blocks follow it: providers send signatures at the end.
func (c *collector) think(d *ThinkingDelta) {
	if c.thinking == 0 || (d.Text != "" && c.thinking != len(c.parts)) {
		c.open(&message.Thinking{})
		c.thinking = len(c.parts)
	}
	p := c.parts[c.thinking-1]
	p.text.WriteString(d.Text)
	b := p.block.(*message.Thinking)
	b.Extra = strictjson.Merge(b.Extra, d.Extra)
}

// call adds to the call with the delta's index. A provider may interleave the pieces of several calls, and repeat a
// name or send it late.
func (c *collector) call(d *ToolCallDelta) {
	i, ok := c.calls[d.Index]
	if !ok {
		i = len(c.parts)
		c.open(&message.ToolCall{})
		if c.calls == nil {
			c.calls = map[int]int{}
		}
		c.calls[d.Index] = i
	}
	p := c.parts[i]
	p.text.WriteString(d.Args)
	b := p.block.(*message.ToolCall)
	if d.ID != "" {
		b.ID = d.ID
	}
	if d.Name != "" {
		b.Name = d.Name
	}
	b.Extra = strictjson.Merge(b.Extra, d.Extra)
}

// message copies the text of the builders into their blocks. It may be called after an incomplete stream.
func (c *collector) message() *message.Message {
	m := &message.Message{Role: message.RoleAssistant}
	for _, p := range c.parts {
		switch b := p.block.(type) {
		case *message.Text:
			b.Text = p.text.String()
		case *message.Thinking:
			b.Text = p.text.String()
		case *message.ToolCall:
			b.Input = json.RawMessage(p.text.String())
			if len(b.Input) == 0 {
				b.Input = json.RawMessage("{}")
			}
		}
		m.Blocks = append(m.Blocks, p.block)
	}
	return m
}
