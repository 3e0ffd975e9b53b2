package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// intake joins the deltas of one answer into the blocks of a message. Ids are
// given when a block starts, so that events and stored blocks share them.
type intake struct {
	run    *run
	msg    *message.Message
	silent bool // nobody is told

	early *early // its calls that start before it is there; nil for none

	finish *model.Finish

	made  int             // ids
	text  strings.Builder // of the last block, while it is text or thinking
	calls []callIntake
	first [1]callIntake // of calls: mostly there is one
	args  [64]byte      // of that one

	ans answer // what is returned, with its memory
	raw [1]json.RawMessage
}

// A callIntake is a call that is coming. Its arguments are kept as they came until
// the whole answer is there: a prefix of JSON can be valid by itself.
type callIntake struct {
	index int // the model's
	call  *message.ToolCall
	args  []byte
}

// take takes in a piece of the answer.
func (in *intake) take(ch model.Chunk) {
	switch ch := ch.(type) {
	case *model.Finish:
		in.finish = ch
		return
	case *model.TextDelta:
		if ch.Text == "" {
			return
		}
		b, ok := in.last().(*message.Text)
		if !ok {
			b = &message.Text{ID: in.newID()}
			in.start(b)
		}
		in.text.WriteString(ch.Text)
		in.emit(&TextDelta{Message: in.msg.ID, Block: b.ID, Text: ch.Text})
	case *model.ThinkingDelta:
		b, ok := in.last().(*message.Thinking)
		if !ok {
			b = &message.Thinking{ID: in.newID()}
			in.start(b)
		}
		b.Extra = mergeObjects(b.Extra, ch.Extra)
		if ch.Text != "" {
			in.text.WriteString(ch.Text)
			in.emit(&ThinkingDelta{Message: in.msg.ID, Block: b.ID, Text: ch.Text})
		}
	case *model.ToolCallDelta:
		in.addCall(ch)
	case *model.DataBlock:
		d := *ch.Data
		d.ID = in.newID()
		in.start(&d)
	}
	if in.early != nil && !in.run.consumer.gone {
		in.early.look(in)
	}
}

// addCall takes a piece of a call. Servers send the pieces of several calls side by
// side, told apart by the index; some leave out ids, or use one twice.
func (in *intake) addCall(d *model.ToolCallDelta) {
	i := slices.IndexFunc(in.calls, func(c callIntake) bool { return c.index == d.Index })
	if i < 0 {
		id := d.ID
		if id == "" || in.run.dialog.ids[id] || slices.ContainsFunc(in.calls, func(c callIntake) bool { return joins(id, c.call.ID) }) {
			id = in.newID()
		}
		in.run.dialog.ids[id] = true
		if in.calls == nil {
			in.calls = in.first[:0]
		}
		i = len(in.calls)
		in.calls = append(in.calls, callIntake{index: d.Index, call: &message.ToolCall{ID: id}})
		in.start(in.calls[i].call)
	}
	c := &in.calls[i]
	if d.Name != "" {
		c.call.Name = d.Name
	}
	c.call.Extra = mergeObjects(c.call.Extra, d.Extra)
	if c.args == nil && i == 0 {
		c.args = in.args[:0]
	}
	c.args = append(c.args, d.Args...)
	in.emit(&ToolCallDelta{Message: in.msg.ID, Call: c.call.ID, Name: c.call.Name, Args: d.Args})
}

// joins reports whether one of two ids of an answer's calls is the other with
// something after a slash. That is how the calls of sub-agents, and steps, are named
// after a call: two of those could get one name, and a person's answer about the one
// would count for the other.
func joins(a, b string) bool { return strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/") }

// newID makes an id from that of the message: one that is random is enough for an answer.
func (in *intake) newID() string {
	for {
		in.made++
		if id := fmt.Sprintf("%s_%d", in.msg.ID, in.made); !in.run.dialog.ids[id] {
			return id
		}
	}
}

// emit tells of ev, unless the answer is for the agent itself, as a summary is.
func (in *intake) emit(ev Event) {
	if !in.silent {
		in.run.emit(ev)
	}
}

func (in *intake) last() message.Block {
	if n := len(in.msg.Blocks); n > 0 {
		return in.msg.Blocks[n-1]
	}
	return nil
}

// start closes the last block and appends b.
func (in *intake) start(b message.Block) {
	in.close()
	in.msg.Blocks = append(in.msg.Blocks, b)
}

// close gives the last block the text that came for it.
func (in *intake) close() {
	switch b := in.last().(type) {
	case *message.Text:
		b.Text = in.text.String()
	case *message.Thinking:
		b.Text = in.text.String()
	}
	in.text.Reset()
}

// answer returns what came so far. Nothing may be added after it.
func (in *intake) answer(finish model.FinishReason) *answer {
	in.close()
	ans := &in.ans
	*ans = answer{Message: in.msg, Finish: finish}
	if len(in.calls) > 0 {
		ans.Raw = in.raw[:0]
	}
	for _, c := range in.calls {
		ans.Raw = append(ans.Raw, slices.Clone(c.args)) // a session keeps it, the buffer is larger
		c.call.Input = json.RawMessage("{}")            // until the run has looked at the arguments
	}
	return ans
}

// mergeObjects returns the members of both JSON objects, those of b winning.
func mergeObjects(a, b json.RawMessage) json.RawMessage {
	if len(a) == 0 || len(b) == 0 {
		return append(a[:len(a):len(a)], b...)
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(a, &m) != nil || json.Unmarshal(b, &m) != nil {
		return b
	}
	out, _ := json.Marshal(m) // of members that were JSON
	return out
}

// An answer is what came of one model call.
type answer struct {
	Message *message.Message
	Raw     []json.RawMessage // the arguments of its calls, as the model sent them: they may be no JSON
	Finish  model.FinishReason
}
