package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/kitbag-go/kitbag/message"
)

// A Handler runs one call of a tool.
type Handler func(ctx context.Context, t Tool, call Call) iter.Seq2[Chunk, error]

// A Middleware wraps a Handler. It sees every call of every tool it is
// installed for, streaming or not, after validation and permission. It must
// not change call.Input: what was judged is what runs.
type Middleware func(next Handler) Handler

// Run runs a call whose arguments are valid and which is allowed, through the
// middleware, the first being the outermost. The sequence yields chunks; a
// failure of the tool, a panic included, ends it with a Failed chunk that the
// model reads. It yields an error only if that wraps [ErrAbort] or the context
// ended.
func Run(ctx context.Context, t Tool, call Call, middleware ...Middleware) iter.Seq2[Chunk, error] {
	h := Handler(func(ctx context.Context, t Tool, call Call) iter.Seq2[Chunk, error] {
		return t.Call(ctx, call)
	})
	for i := len(middleware) - 1; i >= 0; i-- {
		h = middleware[i](h)
	}
	return func(yield func(Chunk, error) bool) {
		// A panic in the consumer's loop body is not the tool's: let it pass.
		inBody := false
		defer func() {
			if inBody {
				return
			}
			if r := recover(); r != nil {
				yield(Failure(fmt.Sprintf("tool %s failed unexpectedly (panic: %v)", call.Name, r)), nil)
			}
		}()
		for c, err := range h(ctx, t, call) {
			if err != nil {
				if errors.Is(err, ErrAbort) || ctx.Err() != nil {
					inBody = true
					yield(Chunk{}, err)
					return
				}
				c = Failure(err.Error())
			}
			inBody = true
			more := yield(c, nil)
			inBody = false
			if !more || err != nil {
				return
			}
		}
	}
}

// Failure returns a chunk that makes the result an error, with a text for the
// model.
func Failure(text string) Chunk {
	if text == "" {
		text = "the tool failed without saying why"
	}
	return Chunk{Block: &message.Text{Text: text}, Failed: true}
}

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
