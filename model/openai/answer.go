package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/httperror"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

// An answer turns the stream of a server into chunks. It yields each part at once, except extras, which it yields
// at the end, and arguments that arrive before the name of their call.
type answer struct {
	yield        func(model.Chunk, error) bool
	endpoint     string             // recorded in extras
	tools        *toolList          // for the tools' own names
	conversation []*message.Message // its call ids must not be used again

	chunk   chunk         // the last decoded chunk
	frame   frame         // of the payload of chunk
	pending []byte        // JSON of an event that continues on the next data line
	usage   message.Usage // the last that the server has sent
	reason  string        // the server's finish reason; empty until it is sent
	done    bool          // the server has sent [DONE]
	stopped bool          // the consumer has stopped ranging

	calls     []call
	firstCall [1]call                    // memory for calls, of which most answers have one
	firstArgs [64]byte                   // memory for the first call's arguments
	details   reasoning                  // sent back with the message
	extras    map[string]json.RawMessage // other members that are sent back with the message
}

// A call is a tool call that is being assembled.
type call struct {
	index  int    // as numbered by the server, or noIndex
	id     string // the server's; may differ from sentID
	name   string // on the wire
	args   []byte
	extra  json.RawMessage // members received before the name
	sentID string          // the id we yield; empty until the first delta is sent
}

// data handles the payload of a data line. JSON may be spread over several lines.
func (a *answer) handleData(event string, payload []byte) error {
	if string(payload) == "[DONE]" {
		a.done = true
		return nil
	}
	if text, ok := a.frame.content(payload); ok && len(a.pending) == 0 { // the rest equals that of a.chunk
		a.chunk.Choices[0].Delta.Content = text
		return a.process(event, payload)
	}
	if len(a.pending) > 0 {
		a.pending = append(append(a.pending, '\n'), payload...)
		payload = a.pending
	}
	if len(payload) == 0 {
		return nil
	}
	valid, isObject := a.chunk.decode(payload)
	switch {
	case !valid && len(a.pending) > provider.MaxPending:
		return httperror.BadAnswer("a part of the stream is not valid JSON", a.pending)
	case !valid:
		if len(a.pending) == 0 { // the next line may continue the JSON; at a blank line handleBlankLine fails
			a.pending = bytes.Clone(payload)
		}
		return nil
	case !isObject:
		return httperror.BadAnswer("a part of the stream is not a JSON object", payload)
	}
	a.frame.keep(&a.chunk, payload)
	err := a.process(event, payload)
	a.pending = a.pending[:0]
	return err
}

// handleUnstreamed handles an answer that is not a stream. Servers also send one to a stream request if they
// cannot stream, or cannot stream with tools; some send errors with status 200.
func (a *answer) handleUnstreamed(data []byte) error {
	valid, isObject := a.chunk.decode(data)
	if valid && len(a.chunk.Choices) > 0 {
		return a.process("", data)
	}
	if e := httperror.InBody(0, data); valid && e != nil {
		return e
	}
	if !valid || !isObject {
		return httperror.BadAnswer("the answer is not a JSON object", data)
	}
	return httperror.BadAnswer("the answer has no choices", data)
}

// process yields the content of the current chunk. It checks for an error even if there are choices:
// servers that fail midway send both.
func (a *answer) process(event string, payload []byte) error {
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
		if c.Choices[i].Index == 0 { // the request asks for one choice
			a.addChoice(&c.Choices[i])
		}
	}
	if a.stopped {
		return errStopped
	}
	return nil
}

// addChoice yields the content of a choice. Moonshot puts the usage into the choice.
func (a *answer) addChoice(c *choice) {
	if c.Usage != (message.Usage{}) {
		a.usage = c.Usage
	}
	a.addDelta(&c.Delta)
	for i := range c.Message.ToolCalls { // a whole message, in which each item is a separate call
		c.Message.ToolCalls[i].Index = i
	}
	a.addDelta(&c.Message)
	if c.FinishReason != "" {
		a.reason = c.FinishReason
	}
}

// addDelta yields the content of a delta, in the order in which a model produces it.
func (a *answer) addDelta(d *delta) {
	a.addReasoning(d)
	a.sendText(d.Content)
	a.addParts(d.Parts)
	a.sendText(d.Refusal)
	a.addParts(d.Images)
	for i := range d.ToolCalls {
		a.addCall(&d.ToolCalls[i])
	}
}

// addReasoning yields the reasoning in a delta. A server that sends both reasoning_content and reasoning sends the same
// text twice, so only one is used. DeepSeek and compatible servers require the text back as reasoning_content,
// OpenRouter its reasoning_details, and Gemini its extra_content.
func (a *answer) addReasoning(d *delta) {
	text := d.ReasoningContent
	if text != "" {
		a.addExtra("reasoning_content", json.RawMessage("null")) // null stands for the text of the thinking; see encoder.reasoningMembers
	} else {
		text = d.Reasoning
	}
	detailText := a.details.add(d.ReasoningDetails)
	if d.ExtraContent != nil {
		a.addExtra("extra_content", d.ExtraContent)
	}
	a.sendThinking(cmp.Or(text, detailText))
}

// addExtra records a member that must be sent back with the message.
func (a *answer) addExtra(name string, value json.RawMessage) {
	if a.extras == nil {
		a.extras = map[string]json.RawMessage{}
	}
	a.extras[name] = value
}

// addParts yields content parts: text and thinking of Mistral, and images.
func (a *answer) addParts(parts []contentPart) {
	for _, p := range parts {
		switch {
		case p.ImageURL != "":
			d, ok := parseDataURL(p.ImageURL)
			if !ok {
				d = &message.Data{URL: p.ImageURL}
			}
			a.send(&model.DataBlock{Data: d})
		case len(p.Thinking) > 0:
			a.sendThinking(strings.Join(p.Thinking, ""))
		default:
			a.sendText(p.Text)
		}
	}
}

// sendText yields text unless it is empty.
func (a *answer) sendText(s string) {
	if s != "" {
		a.send(&model.TextDelta{Text: s})
	}
}

// sendThinking yields reasoning unless it is empty.
func (a *answer) sendThinking(s string) {
	if s != "" {
		a.send(&model.ThinkingDelta{Text: s})
	}
}

// send yields a chunk, unless the consumer has stopped.
func (a *answer) send(c model.Chunk) {
	a.stopped = a.stopped || !a.yield(c, nil)
}

// addCall yields a piece of a tool call. The first delta that is yielded must have the name. Arguments that a server
// sends before the name are kept until the name arrives.
func (a *answer) addCall(d *callDelta) {
	i := a.findCall(d)
	if i < 0 {
		i = len(a.calls)
		if i == 0 {
			a.firstCall[0].args = a.firstArgs[:0]
			a.calls = a.firstCall[:]
		} else {
			a.calls = append(a.calls, call{})
		}
		a.calls[i].index, a.calls[i].id = d.Index, d.ID
	}
	c := &a.calls[i]
	if c.id == "" {
		c.id = d.ID
	}
	c.args = append(c.args, d.Args...)
	extra := a.encodeExtras(d.Extra)
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
		a.startCall(i)
	}
}

// findCall returns the index in calls of the call that a piece continues, or -1 for a new one. The server's
// index decides, unless it is missing or reused for a second call: one with another id, or one that
// begins after complete arguments.
func (a *answer) findCall(d *callDelta) int {
	for i := len(a.calls) - 1; i >= 0; i-- {
		c := &a.calls[i]
		switch {
		// Another call: the id tells if the server leaves out the index, otherwise the index.
		case d.Index == noIndex && d.ID != "" && c.id != d.ID:
			continue
		case d.Index != noIndex && c.index != d.Index:
			continue
		// The server reuses the index for a new call.
		case d.ID != "" && c.id != "" && c.id != d.ID:
			return -1
		case d.Name != "" && c.sentID != "" && (c.name != d.Name || (strings.HasPrefix(d.Args, "{") && json.Valid(c.args))):
			return -1
		}
		return i
	}
	return -1
}

// startCall yields the first piece of a call, with the arguments that came before its name.
func (a *answer) startCall(i int) {
	c := &a.calls[i]
	c.sentID = provider.UniqueID(c.id, a.conversation, a.chunk.ID, i, func(id string) bool {
		return slices.ContainsFunc(a.calls, func(c call) bool { return c.sentID == id })
	})
	a.send(&model.ToolCallDelta{Index: i, ID: c.sentID, Name: a.tools.toolName(c.name), Args: string(c.args), Extra: c.extra})
}

// encodeExtras encodes extras together with the endpoint that they belong to. Without extras it returns nil.
func (a *answer) encodeExtras(extras map[string]json.RawMessage) json.RawMessage {
	if len(extras) == 0 {
		return nil
	}
	extras[endpointMember] = quote(a.endpoint)
	data, err := json.Marshal(extras)
	if err != nil {
		return nil // unreachable: each value is valid JSON
	}
	return data
}

// finish yields the calls whose name never came, the extras and the finish. The result of a call
// without a name will say that there is no such tool.
func (a *answer) finish() error {
	if a.reason == "error" || a.reason == "insufficient_system_resource" { // of gateways, and of DeepSeek
		return httperror.BadAnswer("the server ended the answer with finish reason "+strconv.Quote(a.reason), nil)
	}
	for i, c := range a.calls {
		if c.sentID == "" {
			a.startCall(i)
		}
	}
	if details := a.details.encode(); details != nil { // the details include the text of reasoning_content
		a.addExtra("reasoning_details", details)
		delete(a.extras, "reasoning_content")
	}
	if len(a.calls) == 0 {
		delete(a.extras, "reasoning_content") // required back only with tool calls
	}
	if extra := a.encodeExtras(a.extras); extra != nil {
		a.send(&model.ThinkingDelta{Extra: extra})
	}
	a.send(&model.Finish{ID: a.chunk.ID, Model: a.chunk.Model, Usage: a.usage, Reason: finishReason(a.reason, len(a.calls) > 0)})
	if a.stopped {
		return errStopped
	}
	return nil
}

// finishReason maps a server's reason to ours. Many servers say "stop" after tool calls too, and some say nothing,
// so hasCalls decides. An unknown reason is returned unchanged.
func finishReason(reason string, hasCalls bool) model.FinishReason {
	switch strings.ToLower(reason) {
	case "", "stop", "eos", "end_turn", "stop_sequence", "tool_calls", "tool_call", "function_call", "tool_use":
		if hasCalls {
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
