package tool

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/kitbag-go/kitbag/message"
)

// A Collector joins chunks into one result. Make one with [NewCollector]. It is for one goroutine at a time.
type Collector struct {
	result message.ToolResult
	open   map[blockKey]*openBlock // the blocks with an id
}

// A blockKey identifies a block: a block for the user is never joined with a block for the model.
type blockKey struct {
	id      string
	forUser bool
}

// An openBlock is a block that later chunks may extend: either text or data is set. The builder has the text so far, as
// appending many small pieces to a string takes quadratic time.
type openBlock struct {
	text    *message.Text
	builder strings.Builder
	data    *message.Data
}

// NewCollector returns a collector for the result of a call.
func NewCollector(call Call) *Collector {
	return &Collector{result: message.ToolResult{ID: call.ID, Name: call.Name, Outcome: message.OutcomeSuccess}}
}

// Add adds a chunk. It copies the chunk's block, which belongs to the tool, but not
// Structured and the values of Meta.
func (c *Collector) Add(ch Chunk) {
	if ch.Failed {
		c.result.Outcome = message.OutcomeError
	}
	c.result.Pinned = c.result.Pinned || ch.Pinned
	if ch.Structured != nil {
		c.result.Structured = ch.Structured
	}
	for k, v := range ch.Meta {
		if c.result.Meta == nil {
			c.result.Meta = map[string]json.RawMessage{}
		}
		c.result.Meta[k] = v
	}
	if ch.Block == nil {
		return
	}
	blocks := &c.result.Blocks
	if ch.ForUser {
		blocks = &c.result.ForUser
	}
	key := blockKey{ch.Block.BlockID(), ch.ForUser}
	if key.id == "" || !c.open[key].extend(ch.Block) {
		*blocks = append(*blocks, c.openCopy(key, ch.Block))
	}
}

// extend appends b to the open block and returns true if both are text, or both are data and neither is at a URL. The
// receiver may be nil.
func (o *openBlock) extend(b message.Block) bool {
	if o == nil {
		return false
	}
	switch b := b.(type) {
	case *message.Text:
		if o.text != nil {
			o.builder.WriteString(b.Text)
			return true
		}
	case *message.Data:
		if o.data != nil && b.URL == "" && o.data.URL == "" {
			o.data.Bytes = append(o.data.Bytes, b.Bytes...)
			return true
		}
	}
	return false
}

// openCopy returns a copy of b, since b belongs to the tool. If b has an id, later chunks extend the copy.
func (c *Collector) openCopy(key blockKey, b message.Block) message.Block {
	var text *message.Text
	var data *message.Data
	switch orig := b.(type) {
	case *message.Text:
		cp := *orig
		text, b = &cp, &cp
	case *message.Data:
		cp := *orig
		cp.Bytes = bytes.Clone(orig.Bytes)
		data, b = &cp, &cp
	}
	if key.id == "" {
		return b
	}
	o := &openBlock{text: text, data: data}
	if text != nil {
		o.builder.WriteString(text.Text)
	}
	c.setText(key) // the new block replaces the open one, if there is one
	if c.open == nil {
		c.open = map[blockKey]*openBlock{}
	}
	c.open[key] = o
	return b
}

// setText copies the text of an open block from the builder into the block.
func (c *Collector) setText(key blockKey) {
	if o := c.open[key]; o != nil && o.text != nil {
		o.text.Text = o.builder.String()
	}
}

// Result returns the collected result. The collector must not be used afterwards.
func (c *Collector) Result() *message.ToolResult {
	for key := range c.open {
		c.setText(key)
	}
	return &c.result
}
