package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// A modelCall is the flight of a model call. It joins the deltas of the answer into the blocks of
// a message. Ids are assigned when a block starts, so that events and stored blocks share them.
type modelCall struct {
	flight
	run    *run
	msg    *message.Message
	silent bool // the answer is for the agent itself, such as a summary: emit no events

	started    time.Time
	firstToken time.Duration // after started; 0 before the first token

	// Written by the flight's goroutine before the last report:
	err       error // the error of the stream
	sawFinish bool  // a Finish was put into the inbox

	finish *model.Finish // nil until its report is handled

	idCount  int             // how many ids newID has tried
	text     strings.Builder // the text of the last block, if it is text or thinking
	calls    []partialCall
	callsBuf [1]partialCall // memory for calls: usually there is one call
	argsBuf  [64]byte       // memory for the arguments of the first call
}

// A partialCall is a call that is being received. Its arguments are kept verbatim until
// the answer is complete: a prefix of JSON can be valid by itself.
type partialCall struct {
	index int // identifies the call in the model's pieces
	call  *message.ToolCall
	args  []byte
}

// onReport handles a piece of the answer.
func (mc *modelCall) onReport(r *run, rep report) error {
	if r.consumer.stopped {
		return nil
	}
	mc.add(rep.piece)
	return nil
}

func (mc *modelCall) onEnd(*run) error {
	mc.repanic()
	return nil
}

func (mc *modelCall) add(ch model.Chunk) {
	switch ch := ch.(type) {
	case *model.Finish:
		mc.finish = ch
	case *model.TextDelta:
		if ch.Text == "" {
			return
		}
		b, ok := mc.lastBlock().(*message.Text)
		if !ok {
			b = &message.Text{ID: mc.newID()}
			mc.startBlock(b)
		}
		mc.text.WriteString(ch.Text)
		mc.emit(&event.TextDelta{Message: mc.msg.ID, Block: b.ID, Text: ch.Text})
	case *model.ThinkingDelta:
		b, ok := mc.lastBlock().(*message.Thinking)
		if ch.Text == "" { // a signature, which may come after other blocks: it belongs to the last thinking block
			for i := len(mc.msg.Blocks) - 1; i >= 0 && !ok; i-- {
				b, ok = mc.msg.Blocks[i].(*message.Thinking)
			}
		}
		if !ok {
			b = &message.Thinking{ID: mc.newID()}
			mc.startBlock(b)
		}
		b.Extra = strictjson.Merge(b.Extra, ch.Extra)
		if ch.Text != "" {
			mc.text.WriteString(ch.Text)
			mc.emit(&event.ThinkingDelta{Message: mc.msg.ID, Block: b.ID, Text: ch.Text})
		}
	case *model.ToolCallDelta:
		mc.addCall(ch)
	case *model.DataBlock:
		d := *ch.Data
		d.ID = mc.newID()
		mc.startBlock(&d)
	}
}

// addCall adds a piece of a call. Servers may interleave the pieces of several calls, distinguished by index. Some
// servers leave out ids, or use an id twice: such a call gets an id of ours.
func (mc *modelCall) addCall(d *model.ToolCallDelta) {
	i := slices.IndexFunc(mc.calls, func(c partialCall) bool { return c.index == d.Index })
	if i < 0 {
		id := d.ID
		if id == "" || mc.run.dialog.ids[id] || slices.ContainsFunc(mc.calls, func(c partialCall) bool { return isAmbiguous(id, c.call.ID) }) {
			id = mc.newID()
		}
		mc.run.dialog.ids[id] = true
		if mc.calls == nil {
			mc.calls = mc.callsBuf[:0]
		}
		i = len(mc.calls)
		mc.calls = append(mc.calls, partialCall{index: d.Index, call: &message.ToolCall{ID: id}})
		mc.startBlock(mc.calls[i].call)
	}
	c := &mc.calls[i]
	if d.Name != "" {
		c.call.Name = d.Name
	}
	c.call.Extra = strictjson.Merge(c.call.Extra, d.Extra)
	if c.args == nil && i == 0 {
		c.args = mc.argsBuf[:0]
	}
	c.args = append(c.args, d.Args...)
	mc.emit(&event.ToolCallDelta{Message: mc.msg.ID, Call: c.call.ID, Name: c.call.Name, Args: d.Args})
}

// isAmbiguous reports whether one of two call ids is the other followed by a slash and more. A sub-agent's call has the outer
// call's id, a slash and its own id, which could then be the id of the second call.
func isAmbiguous(a, b string) bool { return strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/") }

// newID returns an id that starts with the id of the message, which is random.
func (mc *modelCall) newID() string {
	for {
		mc.idCount++
		if id := fmt.Sprintf("%s_%d", mc.msg.ID, mc.idCount); !mc.run.dialog.ids[id] {
			return id
		}
	}
}

// emit emits ev, unless the call is silent.
func (mc *modelCall) emit(ev event.Event) {
	if mc.silent {
		return
	}
	mc.run.emit(ev)
	if at := ev.Head().Time; mc.firstToken == 0 && !at.IsZero() { // zero if redaction holds the text back
		mc.firstToken = at.Sub(mc.started)
	}
}

func (mc *modelCall) lastBlock() message.Block {
	if n := len(mc.msg.Blocks); n > 0 {
		return mc.msg.Blocks[n-1]
	}
	return nil
}

func (mc *modelCall) startBlock(b message.Block) {
	mc.endBlock()
	mc.msg.Blocks = append(mc.msg.Blocks, b)
}

// endBlock sets the text of the last block.
func (mc *modelCall) endBlock() {
	switch b := mc.lastBlock().(type) {
	case *message.Text:
		b.Text = mc.text.String()
	case *message.Thinking:
		b.Text = mc.text.String()
	}
	mc.text.Reset()
}

// complete ends the answer. Nothing may be added afterwards.
func (mc *modelCall) complete() {
	mc.endBlock()
	for i := range mc.calls {
		c := &mc.calls[i]
		c.args = slices.Clone(c.args)        // the State keeps them, and must not keep the larger buffer
		c.call.Input = json.RawMessage("{}") // until openCall sets the arguments
	}
}

// finishReason returns why the model stopped, "" if the answer broke off.
func (mc *modelCall) finishReason() model.FinishReason {
	if mc.finish == nil {
		return ""
	}
	return mc.finish.Reason
}
