package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// An answer turns what a server sends into chunks. It yields each piece as it comes and holds
// back only what must be known first: a call's name, and at the end the extras that must go back.
type answer struct {
	yield        func(model.Chunk, error) bool
	endpoint     string             // marks the extras
	tools        *toolList          // for the tools' own names
	conversation []*message.Message // whose call ids are taken

	chunk   chunk         // the one that was read last
	frame   frame         // around its content
	pending []byte        // of an event whose JSON is spread over several data lines
	usage   message.Usage // the last that came
	reason  string        // as the server gave it; empty until it does
	done    bool          // nothing more follows

	calls   []*call
	details reasoning                  // to be sent back
	extras  map[string]json.RawMessage // of the message as a whole, to be sent back
}

// A call is a tool call in the making.
type call struct {
	index  int    // the server's, or noIndex
	id     string // the server's, which need not be the one we gave it
	name   string // on the wire
	args   []byte
	extra  json.RawMessage // that came before the name
	sentID string          // the id that we give it; empty until its first delta was sent
}

// data takes the payload of a data line. JSON that is spread over several lines
// is put together.
func (a *answer) data(event string, payload []byte) error {
	if string(payload) == "[DONE]" {
		a.done = true
		return nil
	}
	if text, ok := a.frame.content(payload); ok && len(a.pending) == 0 {
		a.chunk.Choices[0].Delta.Content = text
		return a.take(event, payload)
	}
	if len(a.pending) > 0 {
		a.pending = append(append(a.pending, '\n'), payload...)
		payload = a.pending
	}
	if len(payload) == 0 {
		return nil
	}
	valid, understood := a.chunk.decode(payload)
	switch {
	case !valid:
		if len(a.pending) == 0 { // the next line may continue it; stream fails at a blank one
			a.pending = bytes.Clone(payload)
		}
		return nil
	case !understood:
		return badAnswer("a part of the stream is not as the API says: " + errorText(payload))
	}
	a.frame.keep(&a.chunk, payload)
	err := a.take(event, payload)
	a.pending = a.pending[:0]
	return err
}

// whole takes an answer that is not a stream. Servers send one to a stream request too, when they
// do not stream, or not with tools; and some send errors with status 200.
func (a *answer) whole(data []byte) error {
	valid, understood := a.chunk.decode(data)
	if valid && len(a.chunk.Choices) > 0 {
		return a.take("", data)
	}
	if e := bodyError(0, data); valid && e != nil {
		return e
	}
	if !valid || !understood {
		return badAnswer("the answer is not as the API says: " + errorText(data))
	}
	return badAnswer("the answer has no choices: " + errorText(data))
}

// take yields what the chunk holds. An error in it counts even beside a choice: servers that fail
// midway send both.
func (a *answer) take(event string, payload []byte) error {
	c := &a.chunk
	if c.Failed || (event == "error" && len(c.Choices) == 0) {
		if e := bodyError(0, payload); e != nil {
			return e
		}
	}
	if c.Usage != nil {
		a.usage = *c.Usage
	}
	for i := range c.Choices {
		if err := a.choice(&c.Choices[i]); err != nil {
			return err
		}
	}
	return nil
}

// choice takes one choice. Moonshot has the usage in it.
func (a *answer) choice(c *choice) error {
	if c.Index != 0 { // the request asks for one
		return nil
	}
	if c.Usage != nil {
		a.usage = *c.Usage
	}
	if err := a.pieces(&c.Delta); err != nil {
		return err
	}
	for i := range c.Message.ToolCalls { // whole, so that each item is a call of its own
		c.Message.ToolCalls[i].Index = i
	}
	if err := a.pieces(&c.Message); err != nil {
		return err
	}
	if c.FinishReason != "" {
		a.reason = c.FinishReason
	}
	return nil
}

// pieces takes what a delta holds, in the order in which a model produces it.
func (a *answer) pieces(d *delta) error {
	if err := a.think(d); err != nil {
		return err
	}
	if err := a.text(d.Content); err != nil {
		return err
	}
	if err := a.content(d.Parts); err != nil {
		return err
	}
	if err := a.text(d.Refusal); err != nil {
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
	text := d.ReasoningContent
	if text != "" {
		a.extra("reasoning_content", json.RawMessage("null")) // null: the text of the thinking
	} else {
		text = d.Reasoning
	}
	said := a.details.add(d.ReasoningDetails)
	if text == "" {
		text = said
	}
	if d.ExtraContent != nil {
		a.extra("extra_content", d.ExtraContent)
	}
	return a.thinking(text)
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
		case p.ImageURL != "":
			err = a.send(&model.DataBlock{Data: picture(p.ImageURL)})
		case len(p.Thinking) > 0:
			err = a.thinking(strings.Join(p.Thinking, ""))
		default:
			err = a.text(p.Text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// text sends text of the answer, if there is any.
func (a *answer) text(s string) error {
	if s == "" {
		return nil
	}
	return a.send(&model.TextDelta{Text: s})
}

// thinking sends reasoning, if there is any.
func (a *answer) thinking(s string) error {
	if s == "" {
		return nil
	}
	return a.send(&model.ThinkingDelta{Text: s})
}

// send yields a chunk. The error, which is errStopped, goes up through all of the answer and
// no further.
func (a *answer) send(c model.Chunk) error {
	if !a.yield(c, nil) {
		return errStopped
	}
	return nil
}

// call takes a piece of a tool call. The first delta that we send of a call must have its name,
// which some servers send after the first arguments: until then these are held back.
func (a *answer) call(d *callDelta) error {
	i := a.find(d)
	if i < 0 {
		i = len(a.calls)
		a.calls = append(a.calls, &call{index: d.Index, id: d.ID})
	}
	c := a.calls[i]
	if c.id == "" {
		c.id = d.ID
	}
	c.args = append(c.args, d.Args...)
	extra := a.tagged(d.Extra)
	if c.sentID != "" {
		if d.Args == "" && extra == nil {
			return nil
		}
		return a.send(&model.ToolCallDelta{Index: i, Args: d.Args, Extra: extra})
	}
	c.name = d.Name
	if extra != nil {
		c.extra = extra
	}
	if c.name == "" { // it is still to come
		return nil
	}
	return a.start(i)
}

// find returns our index of the call that a piece continues, or -1 for a new one. The server's
// index decides, unless it is missing or given to a second call, which then has another id or
// comes after complete arguments.
func (a *answer) find(d *callDelta) int {
	for i := len(a.calls) - 1; i >= 0; i-- {
		c := a.calls[i]
		switch {
		// Another call: by its id where there are no indexes, by its index where there are.
		case d.Index == noIndex && d.ID != "" && c.id != d.ID:
			continue
		case d.Index != noIndex && c.index != d.Index:
			continue
		// The index comes again for a new call.
		case d.ID != "" && c.id != "" && c.id != d.ID:
			return -1
		case d.Name != "" && c.sentID != "" && (c.name != d.Name || (strings.HasPrefix(d.Args, "{") && json.Valid(c.args))):
			return -1
		}
		return i
	}
	return -1
}

// start sends the first piece of a call, with all that came until its name.
func (a *answer) start(i int) error {
	c := a.calls[i]
	c.sentID = a.uniqueID(c.id, i)
	return a.send(&model.ToolCallDelta{Index: i, ID: c.sentID, Name: a.tools.ownName(c.name), Args: string(c.args), Extra: c.extra})
}

// uniqueID returns id, or a new one if it is empty or taken in the
// conversation. A new one depends on the conversation's length, the answer's id
// and the call's place alone. It has nine letters and digits, the only form
// that Mistral takes.
func (a *answer) uniqueID(id string, place int) string {
	for n := 0; a.taken(id); n++ {
		h := fnv.New64a()
		fmt.Fprint(h, len(a.conversation), " ", place, " ", n, " ", a.chunk.ID)
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
		if c.sentID == id {
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

// tagged encodes extras together with the endpoint they must go back to, nil if there are none.
func (a *answer) tagged(extras map[string]json.RawMessage) json.RawMessage {
	if len(extras) == 0 {
		return nil
	}
	extras[endpointMember] = quote(a.endpoint)
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
