package tool

import (
	"bytes"
	"encoding/json"

	"github.com/kitbag-go/kitbag/message"
)

// A Collector joins chunks into one result.
type Collector struct {
	res  message.ToolResult
	open map[string]message.Block // by block id
}

// NewCollector returns a collector for the result of a call.
func NewCollector(call Call) *Collector {
	return &Collector{res: message.ToolResult{ID: call.ID, Name: call.Name, Outcome: message.OutcomeSuccess}}
}

// Add takes one more chunk.
func (c *Collector) Add(ch Chunk) {
	if ch.Failed {
		c.res.Outcome = message.OutcomeError
	}
	if ch.Structured != nil {
		c.res.Structured = ch.Structured
	}
	for k, v := range ch.Meta {
		if c.res.Meta == nil {
			c.res.Meta = map[string]json.RawMessage{}
		}
		c.res.Meta[k] = v
	}
	if ch.Block == nil {
		return
	}
	to := &c.res.Blocks
	if ch.ForUser {
		to = &c.res.ForUser
	}
	if !c.extend(ch.Block) {
		*to = append(*to, c.start(ch.Block))
	}
}

// extend appends b to the open block of its id.
func (c *Collector) extend(b message.Block) bool {
	id := b.BlockID()
	if id == "" {
		return false
	}
	switch open := c.open[id].(type) {
	case *message.Text:
		if b, ok := b.(*message.Text); ok {
			open.Text += b.Text
			return true
		}
	case *message.Data:
		if b, ok := b.(*message.Data); ok && b.URL == "" && open.URL == "" {
			open.Bytes = append(open.Bytes, b.Bytes...)
			return true
		}
	}
	return false
}

// start returns a copy of b, which later chunks may extend.
func (c *Collector) start(b message.Block) message.Block {
	switch orig := b.(type) {
	case *message.Text:
		cp := *orig
		b = &cp
	case *message.Data:
		cp := *orig
		cp.Bytes = bytes.Clone(cp.Bytes)
		b = &cp
	}
	if id := b.BlockID(); id != "" {
		if c.open == nil {
			c.open = map[string]message.Block{}
		}
		c.open[id] = b
	}
	return b
}

// Result returns what was collected. The collector must not be used after.
func (c *Collector) Result() *message.ToolResult { return &c.res }
