package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// A modelCall is the flight of a call of the model. It joins the deltas of the answer into the blocks of
// a message. Ids are given when a block starts, so that events and stored blocks share them.
type modelCall struct {
	flight
	run    *run
	msg    *message.Message
	silent bool   // no event is emitted
	early  *early // its calls that start before it is there; nil for none

	// Written by its goroutine before the last report:
	err      error // what it ended with
	finished bool  // a Finish has come

	finish *model.Finish

	made  int             // ids
	text  strings.Builder // of the last block, while it is text or thinking
	calls []callIntake
	first [1]callIntake // of calls: mostly there is one
	args  [64]byte      // of that one
}

// A callIntake is a call that is coming. Its arguments are kept as they came until
// the whole answer is there: a prefix of JSON can be valid by itself.
type callIntake struct {
	index int // the model's
	call  *message.ToolCall
	args  []byte
}

// onReport takes in a piece of the answer.
func (mc *modelCall) onReport(r *run, rep report) error {
	if r.consumer.stopped {
		return nil
	}
	mc.take(rep.piece)
	if mc.early != nil && mc.finish == nil && !r.consumer.stopped {
		mc.early.look(mc)
	}
	return nil
}

func (mc *modelCall) onEnd(*run) error {
	mc.repeat()
	return nil
}

func (mc *modelCall) take(ch model.Chunk) {
	switch ch := ch.(type) {
	case *model.Finish:
		mc.finish = ch
	case *model.TextDelta:
		if ch.Text == "" {
			return
		}
		b, ok := mc.last().(*message.Text)
		if !ok {
			b = &message.Text{ID: mc.newID()}
			mc.start(b)
		}
		mc.text.WriteString(ch.Text)
		mc.emit(&event.TextDelta{Message: mc.msg.ID, Block: b.ID, Text: ch.Text})
	case *model.ThinkingDelta:
		b, ok := mc.last().(*message.Thinking)
		for i := len(mc.msg.Blocks); !ok && ch.Text == "" && i > 0; i-- { // it may be signed at the very end
			b, ok = mc.msg.Blocks[i-1].(*message.Thinking)
		}
		if !ok {
			b = &message.Thinking{ID: mc.newID()}
			mc.start(b)
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
		mc.start(&d)
	}
}

// addCall takes a piece of a call. Servers send the pieces of several calls side by
// side, told apart by the index; some leave out ids, or use one twice.
func (mc *modelCall) addCall(d *model.ToolCallDelta) {
	i := slices.IndexFunc(mc.calls, func(c callIntake) bool { return c.index == d.Index })
	if i < 0 {
		id := d.ID
		if id == "" || mc.run.dialog.ids[id] || slices.ContainsFunc(mc.calls, func(c callIntake) bool { return joins(id, c.call.ID) }) {
			id = mc.newID()
		}
		mc.run.dialog.ids[id] = true
		if mc.calls == nil {
			mc.calls = mc.first[:0]
		}
		i = len(mc.calls)
		mc.calls = append(mc.calls, callIntake{index: d.Index, call: &message.ToolCall{ID: id}})
		mc.start(mc.calls[i].call)
	}
	c := &mc.calls[i]
	if d.Name != "" {
		c.call.Name = d.Name
	}
	c.call.Extra = strictjson.Merge(c.call.Extra, d.Extra)
	if c.args == nil && i == 0 {
		c.args = mc.args[:0]
	}
	c.args = append(c.args, d.Args...)
	mc.emit(&event.ToolCallDelta{Message: mc.msg.ID, Call: c.call.ID, Name: c.call.Name, Args: d.Args})
}

// joins reports whether one of two ids of an answer's calls is the other with something after a
// slash. That is how the calls of sub-agents are named after a call: two of those could get one name,
// and a person's answer about the one would count for the other.
func joins(a, b string) bool { return strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/") }

// newID makes an id from that of the message: one that is random is enough for an answer.
func (mc *modelCall) newID() string {
	for {
		mc.made++
		if id := fmt.Sprintf("%s_%d", mc.msg.ID, mc.made); !mc.run.dialog.ids[id] {
			return id
		}
	}
}

// emit emits ev, unless the answer is for the agent itself, as a summary is.
func (mc *modelCall) emit(ev event.Event) {
	if !mc.silent {
		mc.run.emit(ev)
	}
}

func (mc *modelCall) last() message.Block {
	if n := len(mc.msg.Blocks); n > 0 {
		return mc.msg.Blocks[n-1]
	}
	return nil
}

// start closes the last block and appends b.
func (mc *modelCall) start(b message.Block) {
	mc.close()
	mc.msg.Blocks = append(mc.msg.Blocks, b)
}

// close gives the last block the text that came for it.
func (mc *modelCall) close() {
	switch b := mc.last().(type) {
	case *message.Text:
		b.Text = mc.text.String()
	case *message.Thinking:
		b.Text = mc.text.String()
	}
	mc.text.Reset()
}

// complete closes the answer. Nothing may be added after it.
func (mc *modelCall) complete() {
	mc.close()
	for i := range mc.calls {
		c := &mc.calls[i]
		c.args = slices.Clone(c.args)        // a session keeps it, the buffer is larger
		c.call.Input = json.RawMessage("{}") // until the run has looked at the arguments
	}
}

// reason returns why the model stopped, "" if it did not.
func (mc *modelCall) reason() model.FinishReason {
	if mc.finish == nil {
		return ""
	}
	return mc.finish.Reason
}
