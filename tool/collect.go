package tool

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/kitbag-go/kitbag/message"
)

// A Collector joins chunks into one result. Make one with [NewCollector]. It is for one goroutine at a time.
type Collector struct {
	res  message.ToolResult
	open map[blockKey]*openBlock
}

// A blockKey identifies a block: one for the user is never joined with one for the model.
type blockKey struct {
	id      string
	forUser bool
}

// An openBlock is a block that later chunks may extend. Its text is in a builder, as appending many small pieces to a
// string is quadratic.
type openBlock struct {
	text *message.Text
	grow strings.Builder
	data *message.Data
}

// NewCollector returns a collector for the result of a call.
func NewCollector(call Call) *Collector {
	return &Collector{res: message.ToolResult{ID: call.ID, Name: call.Name, Outcome: message.OutcomeSuccess}}
}

// Add adds a chunk. It copies the chunk's block, which belongs to the tool, but not
// Structured and the values of Meta.
func (c *Collector) Add(ch Chunk) {
	if ch.Failed {
		c.res.Outcome = message.OutcomeError
	}
	c.res.Pinned = c.res.Pinned || ch.Pinned
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
	blocks := &c.res.Blocks
	if ch.ForUser {
		blocks = &c.res.ForUser
	}
	key := blockKey{ch.Block.BlockID(), ch.ForUser}
	if key.id == "" || !c.open[key].extend(ch.Block) {
		*blocks = append(*blocks, c.start(key, ch.Block))
	}
}

// extend appends b, and reports whether it could: b must be of the same kind, and neither block may be data at a URL. It
// may be called on nil.
func (o *openBlock) extend(b message.Block) bool {
	if o == nil {
		return false
	}
	switch b := b.(type) {
	case *message.Text:
		if o.text != nil {
			o.grow.WriteString(b.Text)
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

// start returns a copy of b, since b belongs to the tool. If b has an id, later chunks extend the copy.
func (c *Collector) start(key blockKey, b message.Block) message.Block {
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
		o.grow.WriteString(text.Text)
	}
	c.finish(key) // the block that this one replaces, if any: it was of another kind
	if c.open == nil {
		c.open = map[blockKey]*openBlock{}
	}
	c.open[key] = o
	return b
}

// finish copies the text of an open block from its builder into the block.
func (c *Collector) finish(key blockKey) {
	if o := c.open[key]; o != nil && o.text != nil {
		o.text.Text = o.grow.String()
	}
}

// Result returns the collected result. The collector must not be used after.
func (c *Collector) Result() *message.ToolResult {
	for key := range c.open {
		c.finish(key)
	}
	return &c.res
}
