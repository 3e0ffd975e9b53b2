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
	"github.com/kitbag-go/kitbag/model/httperror"
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
	stopped bool          // the consumer wants no more

	calls   []call
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
	valid, object := a.chunk.decode(payload)
	switch {
	case !valid && len(a.pending) > maxPending:
		return httperror.BadAnswer("a part of the stream is not valid JSON", a.pending)
	case !valid:
		if len(a.pending) == 0 { // the next line may continue it; stream fails at a blank one
			a.pending = bytes.Clone(payload)
		}
		return nil
	case !object:
		return httperror.BadAnswer("a part of the stream is not as the API says", payload)
	}
	a.frame.keep(&a.chunk, payload)
	err := a.take(event, payload)
	a.pending = a.pending[:0]
	return err
}

// whole takes an answer that is not a stream. Servers send one to a stream request too, when they
// do not stream, or not with tools; and some send errors with status 200.
func (a *answer) whole(data []byte) error {
	valid, object := a.chunk.decode(data)
	if valid && len(a.chunk.Choices) > 0 {
		return a.take("", data)
	}
	if e := httperror.InBody(0, data); valid && e != nil {
		return e
	}
	if !valid || !object {
		return httperror.BadAnswer("the answer is not as the API says", data)
	}
	return httperror.BadAnswer("the answer has no choices", data)
}

// take yields what the chunk holds. An error in it counts even beside a choice: servers that fail
// midway send both.
func (a *answer) take(event string, payload []byte) error {
	c := &a.chunk
	if c.Failed || (event == "error" && len(c.Choices) == 0) {
		if e := httperror.InBody(0, payload); e != nil {
			return e
		}
	}
	if c.Usage != (message.Usage{}) {
		a.usage = c.Usage
	}
	for i := range c.Choices {
		if c.Choices[i].Index == 0 { // the request asks for one
			a.choice(&c.Choices[i])
		}
	}
	if a.stopped {
		return errStopped
	}
	return nil
}

// choice yields what a choice holds. Moonshot has the usage in it.
func (a *answer) choice(c *choice) {
	if c.Usage != (message.Usage{}) {
		a.usage = c.Usage
	}
	a.delta(&c.Delta)
	for i := range c.Message.ToolCalls { // whole, so that each item is a call of its own
		c.Message.ToolCalls[i].Index = i
	}
	a.delta(&c.Message)
	if c.FinishReason != "" {
		a.reason = c.FinishReason
	}
}

// delta yields what a delta holds, in the order in which a model produces it.
func (a *answer) delta(d *delta) {
	a.reasoning(d)
	a.text(d.Content)
	a.parts(d.Parts)
	a.text(d.Refusal)
	a.parts(d.Images)
	for i := range d.ToolCalls {
		a.call(&d.ToolCalls[i])
	}
}

// reasoning takes the reasoning in a delta. Servers that send its text by two names send the same
// text twice, so only one of them counts. DeepSeek, and servers that follow it, want the
// text back as reasoning_content; OpenRouter wants its reasoning_details, Gemini its
// extra_content.
func (a *answer) reasoning(d *delta) {
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
	a.thinking(text)
}

// extra notes a member that must go back with the message.
func (a *answer) extra(name string, value json.RawMessage) {
	if a.extras == nil {
		a.extras = map[string]json.RawMessage{}
	}
	a.extras[name] = value
}

// parts yields content in parts: what Mistral streams, and pictures.
func (a *answer) parts(ps []contentPart) {
	for _, p := range ps {
		switch {
		case p.ImageURL != "":
			a.send(&model.DataBlock{Data: picture(p.ImageURL)})
		case len(p.Thinking) > 0:
			a.thinking(strings.Join(p.Thinking, ""))
		default:
			a.text(p.Text)
		}
	}
}

// text yields text of the answer, if there is any.
func (a *answer) text(s string) {
	if s != "" {
		a.send(&model.TextDelta{Text: s})
	}
}

// thinking yields reasoning, if there is any.
func (a *answer) thinking(s string) {
	if s != "" {
		a.send(&model.ThinkingDelta{Text: s})
	}
}

// send yields a chunk, unless the consumer has stopped.
func (a *answer) send(c model.Chunk) {
	a.stopped = a.stopped || !a.yield(c, nil)
}

// call takes a piece of a tool call. The first delta that we send of a call must have its name,
// which some servers send after the first arguments: until then these are held back.
func (a *answer) call(d *callDelta) {
	i := a.find(d)
	if i < 0 {
		i = len(a.calls)
		a.calls = append(a.calls, call{index: d.Index, id: d.ID, args: make([]byte, 0, 64)})
	}
	c := &a.calls[i]
	if c.id == "" {
		c.id = d.ID
	}
	c.args = append(c.args, d.Args...)
	extra := a.tagged(d.Extra)
	if c.sentID != "" {
		if d.Args != "" || extra != nil {
			a.send(&model.ToolCallDelta{Index: i, Args: d.Args, Extra: extra})
		}
		return
	}
	c.name = d.Name
	if extra != nil {
		c.extra = extra
	}
	if c.name != "" {
		a.start(i)
	}
}

// find returns our index of the call that a piece continues, or -1 for a new one. The server's
// index decides, unless it is missing or given to a second call, which then has another id or
// comes after complete arguments.
func (a *answer) find(d *callDelta) int {
	for i := len(a.calls) - 1; i >= 0; i-- {
		c := &a.calls[i]
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
func (a *answer) start(i int) {
	c := &a.calls[i]
	c.sentID = a.uniqueID(c.id, i)
	a.send(&model.ToolCallDelta{Index: i, ID: c.sentID, Name: a.tools.ownName(c.name), Args: string(c.args), Extra: c.extra})
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

// finish sends what is known at the end only, and the finish. A call whose name never came
// is passed on without one: its result then says that there is no such tool.
func (a *answer) finish() error {
	if err := failedFinish(a.reason); err != nil {
		return err
	}
	for i, c := range a.calls {
		if c.sentID == "" {
			a.start(i)
		}
	}
	if details := a.details.encode(); details != nil { // they hold the text as well
		a.extra("reasoning_details", details)
		delete(a.extras, "reasoning_content")
	}
	if len(a.calls) == 0 {
		delete(a.extras, "reasoning_content") // wanted back beside tool calls only
	}
	if extra := a.tagged(a.extras); extra != nil {
		a.send(&model.ThinkingDelta{Extra: extra})
	}
	a.send(&model.Finish{ID: a.chunk.ID, Model: a.chunk.Model, Usage: a.usage, Reason: finishReason(a.reason, len(a.calls) > 0)})
	if a.stopped {
		return errStopped
	}
	return nil
}

// finishReason returns a server's reason in our words. Many servers say "stop"
// after calls too, and some say nothing: that there are calls decides. A reason that is not
// known is passed on as it is.
func finishReason(reason string, calls bool) model.FinishReason {
	switch strings.ToLower(reason) {
	case "", "stop", "eos", "end_turn", "stop_sequence", "tool_calls", "tool_call", "function_call", "tool_use":
		if calls {
			return model.FinishToolCalls
		}
		return model.FinishStop
	case "length", "max_tokens", "model_length":
		return model.FinishLength
	case "content_filter", "safety":
		return model.FinishFilter
	}
	return model.FinishReason(reason)
}

// failedFinish returns the error for a reason that means one: gateways
// and DeepSeek end the stream of a failed upstream like that.
func failedFinish(reason string) error {
	switch reason {
	case "error", "insufficient_system_resource":
		return httperror.BadAnswer("the server ended the answer with the reason "+strconv.Quote(reason), nil)
	}
	return nil
}
