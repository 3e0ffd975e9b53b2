package openai

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/internal/slab"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// An answer turns what a server sends into chunks. It yields each piece as it
// comes and holds back only what must be known first: a call's name, and at the
// end the extras that must go back.
type answer struct {
	yield        func(model.Chunk, error) bool
	endpoint     string             // marks the extras
	tools        *toolList          // for the tools' own names
	conversation []*message.Message // whose call ids are taken

	pending []byte       // of an event whose JSON is spread over several data lines
	fin     model.Finish // put together from what the chunks say
	reason  string       // as the server gave it; empty until it does
	done    bool         // nothing more follows

	calls   []*call                    // in the workspace's list
	details reasoning                  // to be sent back
	extras  map[string]json.RawMessage // of the message as a whole, to be sent back

	slabs slabs // what is handed out
	*workspace
}

// A workspace is the memory in which an answer is read. Nothing that is handed
// out points into it, so that the next answer, of whatever model, may have it.
type workspace struct {
	frame frame
	usual usual
	calls []*call // to be used again; those of the answer are the first
}

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// newAnswer takes a workspace, which release must give back. The answer must not be used
// after that.
func newAnswer(endpoint string, tools *toolList, conversation []*message.Message, yield func(model.Chunk, error) bool) *answer {
	a := &answer{yield: yield, endpoint: endpoint, tools: tools, conversation: conversation}
	a.workspace = workspaces.Get().(*workspace)
	a.usual.slabs, a.calls = &a.slabs, a.workspace.calls
	return a
}

// release gives back the workspace: empty, but for its memory, and not with all of the memory
// that a single large call took.
func (a *answer) release() {
	w := a.workspace
	a.workspace = nil
	w.frame.reset()
	w.calls = a.calls[:0]
	for _, c := range a.calls {
		*c = call{args: c.args[:0]}
		if cap(c.args) > readSize {
			c.args = nil
		}
	}
	w.usual = usual{model: w.usual.model, name: w.usual.name} // the next answer is likely of the same
	workspaces.Put(w)
}

// A call is a tool call in the making.
type call struct {
	index    *int   // the server's
	id       string // the server's, which need not be the one we gave it
	name     string // on the wire
	args     []byte
	extra    json.RawMessage // that came before the name
	announce string          // the id that we give it; empty until it was announced
}

// data takes the payload of a data line. JSON that is spread over several lines
// is put together.
func (a *answer) data(event string, payload []byte) error {
	if string(payload) == "[DONE]" {
		a.done = true
		return nil
	}
	// Three ways to read a payload, from the fastest: it is like the last one, it is of the
	// usual form, or encoding/json reads it. They agree; see FuzzAnswer and FuzzUsual.
	if len(a.pending) == 0 {
		if kind, index, text, ok := a.frame.match(payload, &a.slabs); ok {
			return a.delta(kind, index, text)
		}
	} else {
		a.pending = append(append(a.pending, '\n'), payload...)
		payload = a.pending
	}
	if len(payload) == 0 {
		return nil
	}
	c := a.usual.decode(payload)
	if c == nil {
		c = new(chunk)
		if err := c.decode(payload); err != nil {
			if json.Valid(payload) {
				return badAnswer("a part of the stream is not as the API says: " + errorText(payload))
			}
			if len(a.pending) == 0 { // it may go on in the next line; the blank line will tell
				a.pending = append(a.pending, payload...)
			}
			return nil
		}
	}
	err := a.chunk(c, event, payload)
	a.frame.learn(c, payload, a.find)
	a.pending = a.pending[:0]
	return err
}

// whole takes an answer that is not a stream. Servers send one to a stream
// request too, when they do not stream, or not with tools; and some send errors
// with status 200.
func (a *answer) whole(data []byte) error {
	c := a.usual.decode(data)
	if c == nil {
		c = new(chunk)
		if err := c.decode(data); err != nil {
			if e := bodyError(0, data); e != nil && json.Valid(data) {
				return e
			}
			return badAnswer(fmt.Sprintf("the answer is not as the API says (%v): %s", err, errorText(data)))
		}
	}
	if len(c.Choices) == 0 {
		if e := bodyError(0, data); e != nil {
			return e
		}
		return badAnswer("the answer has no choices: " + errorText(data))
	}
	return a.chunk(c, "", data)
}

// chunk takes a chunk that was decoded. An error in it counts even beside a choice: servers
// that fail midway send both. The id and the model are those of the first chunk that has
// them, the usage that of the last.
func (a *answer) chunk(c *chunk, event string, payload []byte) error {
	if present(c.Error) || (event == "error" && len(c.Choices) == 0) {
		if e := bodyError(0, payload); e != nil {
			return e
		}
	}
	if a.fin.ID == "" {
		a.fin.ID = string(c.ID)
	}
	if a.fin.Model == "" {
		a.fin.Model = string(c.Model)
	}
	if c.Usage != nil {
		a.fin.Usage = c.Usage.message()
	}
	for i := range c.Choices {
		if err := a.choice(&c.Choices[i]); err != nil {
			return err
		}
	}
	return nil
}

// choice takes one choice. What usage it holds is Moonshot's way to tell it.
func (a *answer) choice(c *choice) error {
	if c.Index != 0 { // nobody asked for more than one
		return nil
	}
	if c.Usage != nil {
		a.fin.Usage = c.Usage.message()
	}
	if c.Delta != nil {
		if err := a.pieces(c.Delta); err != nil {
			return err
		}
	}
	if c.Message != nil { // whole, so that each item is a call of its own
		for i := range c.Message.ToolCalls {
			c.Message.ToolCalls[i].Index = &i
		}
		if err := a.pieces(c.Message); err != nil {
			return err
		}
	}
	if c.FinishReason != "" {
		a.reason = string(c.FinishReason)
	}
	return nil
}

// pieces takes what a delta holds, in the order in which a model produces it.
func (a *answer) pieces(d *delta) error {
	if err := a.think(d); err != nil {
		return err
	}
	if err := a.text(d.text()); err != nil {
		return err
	}
	if err := a.content(parts(d.Content)); err != nil {
		return err
	}
	if err := a.text(string(d.Refusal)); err != nil {
		return err
	}
	if err := a.content(d.Images); err != nil {
		return err
	}
	for i := range d.ToolCalls {
		if err := a.call(&d.ToolCalls[i]); err != nil {
			return err
		}
	}
	return nil
}

// think takes reasoning. Servers that send its text by two names send the same
// text twice, so only one of them counts. DeepSeek, and servers that follow it, want the
// text back as reasoning_content; OpenRouter wants its reasoning_details, Gemini its
// extra_content.
func (a *answer) think(d *delta) error {
	text := string(d.ReasoningContent)
	if text != "" {
		a.extra("reasoning_content", json.RawMessage("null")) // null: the text of the thinking
	} else {
		text = string(d.Reasoning)
	}
	said := a.details.add(d.ReasoningDetails)
	if text == "" {
		text = said
	}
	if present(d.ExtraContent) {
		a.extra("extra_content", d.ExtraContent)
	}
	return a.delta(thinkingDelta, 0, text)
}

// extra notes a member that must go back with the message.
func (a *answer) extra(name string, value json.RawMessage) {
	if a.extras == nil {
		a.extras = map[string]json.RawMessage{}
	}
	a.extras[name] = value
}

// content takes content in parts: what Mistral streams, and pictures.
func (a *answer) content(ps []contentPart) error {
	for _, p := range ps {
		var err error
		switch {
		case p.ImageURL != nil && p.ImageURL.URL != "":
			err = a.send(&model.DataBlock{Data: picture(p.ImageURL.URL)})
		case len(p.Thinking) > 0:
			thought := delta{Content: p.Thinking} // a string or parts again
			err = a.delta(thinkingDelta, 0, thought.text())
			for _, t := range parts(p.Thinking) {
				if err == nil {
					err = a.delta(thinkingDelta, 0, string(t.Text))
				}
			}
		default:
			err = a.text(string(p.Text))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// text sends text of the answer.
func (a *answer) text(s string) error { return a.delta(textDelta, 0, s) }

// deltaKind is the kind of a delta that is text alone.
type deltaKind int

const (
	textDelta deltaKind = iota + 1
	thinkingDelta
	argsDelta
)

// delta sends more text of a kind, if there is any; index is our index of the call it is
// for, and means nothing otherwise.
func (a *answer) delta(kind deltaKind, index int, s string) error {
	if s == "" {
		return nil
	}
	switch kind {
	case textDelta:
		return a.send(a.slabs.text(s))
	case thinkingDelta:
		return a.send(a.slabs.thinking(s))
	}
	c := a.calls[index]
	c.args = append(c.args, s...)
	return a.send(a.slabs.args(index, s))
}

// send yields a chunk. The error, which is errStopped, goes up through all of the answer and
// no further.
func (a *answer) send(c model.Chunk) error {
	if !a.yield(c, nil) {
		return errStopped
	}
	return nil
}

// call takes a piece of a tool call. The first delta of a call must have its name, which some
// servers send after the first arguments: until then these are held back.
func (a *answer) call(d *callDelta) error {
	i := a.find(d)
	if i < 0 {
		i = len(a.calls)
		a.frame.forget()
		a.newCall(d)
	}
	c := a.calls[i]
	if c.id == "" {
		c.id = string(d.ID)
	}
	var extra json.RawMessage
	if len(d.Extra) > 0 {
		extra = a.tagged(d.Extra)
	}
	if c.announce != "" {
		if extra != nil {
			if err := a.send(&model.ToolCallDelta{Index: i, Extra: extra}); err != nil {
				return err
			}
		}
		return a.delta(argsDelta, i, string(d.Args))
	}
	c.name = string(d.Name)
	c.args = append(c.args, d.Args...)
	if extra != nil {
		c.extra = extra
	}
	if c.name == "" { // it is still to come
		return nil
	}
	return a.announce(i)
}

// newCall appends a call, in memory of an earlier one if there is some.
func (a *answer) newCall(d *callDelta) {
	if n := len(a.calls); n < cap(a.calls) && a.calls[:n+1][n] != nil {
		a.calls = a.calls[:n+1]
	} else {
		a.calls = append(a.calls, new(call))
	}
	c := a.calls[len(a.calls)-1]
	c.index, c.id = d.Index, string(d.ID)
}

// find returns our index of the call that a piece continues, or -1 for a new
// one. The server's index decides, unless it is missing or given to a second
// call, which then has another id or comes after complete arguments.
func (a *answer) find(d *callDelta) int {
	for i := len(a.calls) - 1; i >= 0; i-- {
		c := a.calls[i]
		switch {
		// Another call: by its id where there are no indexes, by its index where there are.
		case d.Index == nil && d.ID != "" && c.id != string(d.ID):
			continue
		case d.Index != nil && (c.index == nil || *c.index != *d.Index):
			continue
		// The index comes again for a new call.
		case d.ID != "" && c.id != "" && c.id != string(d.ID):
			return -1
		case d.Name != "" && c.announce != "" && (c.name != string(d.Name) || (strings.HasPrefix(string(d.Args), "{") && json.Valid(c.args))):
			return -1
		}
		return i
	}
	return -1
}

// announce sends the first piece of a call, with all that came until its name.
func (a *answer) announce(i int) error {
	c := a.calls[i]
	c.announce = a.uniqueID(c.id, i)
	d := slab.Take(&a.slabs.callArgs)
	*d = model.ToolCallDelta{Index: i, ID: c.announce, Name: a.tools.ownName(c.name), Args: string(c.args), Extra: c.extra}
	return a.send(d)
}

// uniqueID returns id, or a new one if it is empty or taken in the
// conversation. A new one depends on the conversation's length, the answer's id
// and the call's place alone. It has nine letters and digits, the only form
// that Mistral takes.
func (a *answer) uniqueID(id string, place int) string {
	for n := 0; a.taken(id); n++ {
		h := fnv.New64a()
		fmt.Fprint(h, len(a.conversation), " ", place, " ", n, " ", a.fin.ID)
		s := "00000000" + strconv.FormatUint(h.Sum64(), 36)
		id = "c" + s[len(s)-8:]
	}
	return id
}

// taken looks through the conversation, which costs less than a set of its ids:
// most answers have one call.
func (a *answer) taken(id string) bool {
	if id == "" {
		return true
	}
	for _, c := range a.calls {
		if c.announce == id {
			return true
		}
	}
	for _, m := range a.conversation {
		if m.Role != message.RoleAssistant {
			continue
		}
		for _, b := range m.Blocks {
			if c, ok := b.(*message.ToolCall); ok && c.ID == id {
				return true
			}
		}
	}
	return false
}

// tagged encodes extras together with the endpoint they must go back to.
func (a *answer) tagged(extras map[string]json.RawMessage) json.RawMessage {
	extras[endpointMember] = appendString(nil, a.endpoint)
	data, err := json.Marshal(extras)
	if err != nil {
		return nil // cannot be: each value was valid JSON
	}
	return data
}

// picture returns the file at a URL, which may hold the file itself.
func picture(url string) *message.Data {
	if d, ok := parseDataURL(url); ok {
		return d
	}
	return &message.Data{URL: url}
}
