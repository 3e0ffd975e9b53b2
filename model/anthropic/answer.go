package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/httperror"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

// errStopped ends reading when the consumer has stopped. It is not returned to callers.
var errStopped = errors.New("the consumer of the answer stopped")

// An answer turns the events of a stream into chunks. It yields each piece as it arrives. Blocks
// that the next request must contain unchanged are yielded as an extra at the end.
type answer struct {
	yield        func(model.Chunk, error) bool
	origin       string            // recorded in the extra; see keptAnswer
	prefix       string            // identifies the request; see keptAnswer
	names        map[string]string // tool names by the names on the wire
	renames      map[string]renames
	conversation []*message.Message // its call ids must not be used again

	id, model string
	usage     usage
	earlier   message.Usage // the usage of the earlier requests of a paused answer
	reason    string        // the server's stop reason; empty until it is sent
	done      bool          // the server has sent message_stop
	stopped   bool          // the consumer has stopped reading

	pauses   int
	blocks   []*answerBlock
	calls    []call
	thoughts strings.Builder // all thinking
	lastText bool            // the last yielded chunk is text
}

// An answerBlock is a block of an answer that is being received.
type answerBlock struct {
	index     int // as numbered by the server
	kind      string
	members   map[string]json.RawMessage // from content_block_start
	gap       int                        // length of the blockBreak yielded before it
	text      []byte                     // or thinking
	signature string
	citations []json.RawMessage
	args      []byte // the input of a tool as JSON text
	call      int    // of a tool_use: its index in answer.calls
	ended     bool
	broken    bool // incomplete; must not be sent back
}

// A call is a tool call of the answer.
type call struct{ id, name string }

// An event is an event of the stream.
type event struct {
	Type         string
	Index        int
	Message      *wholeMessage
	ContentBlock json.RawMessage `json:"content_block"`
	Delta        delta
	Usage        usage
	Error        json.RawMessage
}

// A delta is the delta of a block or of the message.
type delta struct {
	Type        string
	Text        string
	Thinking    string
	Signature   string
	PartialJSON string `json:"partial_json"`
	Citation    json.RawMessage
	StopReason  string `json:"stop_reason"`
}

// A wholeMessage is an answer that is not streamed, or the beginning of one that is.
type wholeMessage struct {
	ID, Model  string
	Content    []json.RawMessage
	StopReason string `json:"stop_reason"`
	Usage      usage
}

// A usage counts tokens. Unlike in message.Usage, Input does not include the tokens that were read
// from or written to the cache.
type usage struct {
	Input      int `json:"input_tokens"`
	Output     int `json:"output_tokens"`
	CacheRead  int `json:"cache_read_input_tokens"`
	CacheWrite int `json:"cache_creation_input_tokens"`
	Details    struct {
		Thinking int `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// merge takes over the counts of an event, which are totals of the answer so far. An event may lack
// some of them.
func (u *usage) merge(v usage) {
	u.Input, u.Output = max(u.Input, v.Input), max(u.Output, v.Output)
	u.CacheRead, u.CacheWrite = max(u.CacheRead, v.CacheRead), max(u.CacheWrite, v.CacheWrite)
	u.Details.Thinking = max(u.Details.Thinking, v.Details.Thinking)
}

func (u *usage) message() message.Usage {
	return message.Usage{Input: u.Input + u.CacheRead + u.CacheWrite, Output: u.Output,
		Cached: u.CacheRead, CacheWrite: u.CacheWrite, Reasoning: u.Details.Thinking}
}

// data reads the data of an event, which is blank for the blank lines around a comment.
func (a *answer) data(data []byte) error {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || string(data) == "[DONE]" {
		return nil
	}
	if !json.Valid(data) {
		return httperror.BadAnswer("a part of the stream is not valid JSON", data)
	}
	var kind struct{ Type string }
	if json.Unmarshal(data, &kind) == nil && kind.Type != "" && !documented[kind.Type] {
		return nil // its members may have any form
	}
	var ev event
	if err := json.Unmarshal(data, &ev); err != nil {
		return httperror.BadAnswer("an event of the stream"+notAsDocumented, data)
	}
	if err := a.event(&ev, data); err != nil {
		return err
	}
	if a.stopped {
		return errStopped
	}
	return nil
}

// documented has the types of events that the answer depends on. The API may add others.
var documented = map[string]bool{
	"message_start": true, "content_block_start": true, "content_block_delta": true,
	"content_block_stop": true, "message_delta": true, "message_stop": true, "error": true,
}

// notAsDocumented ends the errors for a part of an answer.
const notAsDocumented = " does not have the form that the API documents"

// event handles an event of a documented type, or one without a type.
func (a *answer) event(ev *event, raw json.RawMessage) error {
	switch ev.Type {
	case "message_start":
		if ev.Message != nil {
			a.begin(ev.Message)
		}
	case "content_block_start":
		return a.start(ev.Index, ev.ContentBlock)
	case "content_block_delta":
		a.delta(a.find(ev.Index, ev.Delta.Type), &ev.Delta)
	case "content_block_stop":
		if b := a.find(ev.Index, ""); b != nil {
			a.end(b)
		}
	case "message_delta":
		a.usage.merge(ev.Usage)
		if ev.Delta.StopReason != "" {
			a.reason = ev.Delta.StopReason
		}
	case "message_stop":
		a.done = true
	case "error":
		return failure(raw)
	case "":
		if ev.Error != nil {
			return failure(raw)
		}
	}
	return nil
}

// statusOf is the HTTP status that goes with a type of error (API reference, "Errors"). A stream
// reports only the type.
var statusOf = map[string]int{
	"invalid_request_error": 400,
	"authentication_error":  401,
	"billing_error":         402,
	"permission_error":      403,
	"not_found_error":       404,
	"request_too_large":     413,
	"rate_limit_error":      429,
	"api_error":             500,
	"timeout_error":         504,
	"overloaded_error":      529,
}

// failure returns the error that a server reports in a stream.
func failure(raw json.RawMessage) error {
	var body struct {
		Error struct{ Type string }
	}
	_ = json.Unmarshal(raw, &body)
	e := httperror.InBody(statusOf[body.Error.Type], raw)
	if e == nil {
		return httperror.BadAnswer("the server reports an error without a message", raw)
	}
	e.Status = 0 // the response itself had status 200
	return e
}

func (a *answer) begin(m *wholeMessage) {
	a.id, a.model = m.ID, m.Model
	a.usage.merge(m.Usage)
}

// unstreamed reads an answer that is not a stream. Some gateways do not stream, and some send
// errors with status 200.
func (a *answer) unstreamed(data []byte) error {
	var m wholeMessage
	err := json.Unmarshal(data, &m)
	if err != nil || m.StopReason == "" {
		if e := httperror.InBody(0, data); e != nil {
			return e
		}
		return httperror.BadAnswer("the answer"+notAsDocumented, data)
	}
	a.begin(&m)
	for i, raw := range m.Content {
		if err := a.start(i, raw); err != nil {
			return err
		}
		a.end(a.blocks[len(a.blocks)-1])
		if a.stopped {
			return errStopped
		}
	}
	a.reason = m.StopReason
	return nil
}

// kindOfDelta has the types of blocks that may begin with a delta.
var kindOfDelta = map[string]string{
	"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "tool_use",
}

// find returns the last block with an index. If the server left out the start of the block, find
// starts one of the type that fits the delta, or returns nil if the type of the delta is unknown.
func (a *answer) find(index int, deltaType string) *answerBlock {
	for i := len(a.blocks) - 1; i >= 0; i-- {
		if b := a.blocks[i]; b.index == index && (!b.ended || deltaType == "") {
			return b
		}
	}
	kind := kindOfDelta[deltaType]
	if kind == "" || a.start(index, json.RawMessage(`{"type":"`+kind+`"}`)) != nil {
		return nil
	}
	return a.blocks[len(a.blocks)-1]
}

// start begins a block, which may have content already.
func (a *answer) start(index int, raw json.RawMessage) error {
	b := &answerBlock{index: index}
	if err := json.Unmarshal(raw, &b.members); err != nil || b.members == nil {
		return httperror.BadAnswer("a block of the answer"+notAsDocumented, raw)
	}
	var begun struct {
		Type, ID, Name, Text, Thinking, Signature string
		Citations                                 []json.RawMessage
	}
	if err := json.Unmarshal(raw, &begun); err != nil && begun.Type == "" {
		return httperror.BadAnswer("a block of the answer"+notAsDocumented, raw)
	}
	b.kind = begun.Type
	a.blocks = append(a.blocks, b)
	switch b.kind {
	case "text":
		b.citations = begun.Citations
		a.text(b, begun.Text)
	case "thinking":
		b.signature = begun.Signature
		a.thinking(b, begun.Thinking)
	case "tool_use":
		b.call = len(a.calls)
		a.calls = append(a.calls, call{id: a.uniqueID(begun.ID), name: begun.Name})
		c := &a.calls[b.call]
		a.send(&model.ToolCallDelta{Index: b.call, ID: c.id, Name: renamed(a.names, c.name)}, false)
	}
	return nil
}

func (a *answer) delta(b *answerBlock, d *delta) {
	if b == nil {
		return
	}
	switch d.Type {
	case "text_delta":
		a.text(b, d.Text)
	case "thinking_delta":
		a.thinking(b, d.Thinking)
	case "signature_delta":
		b.signature += d.Signature
	case "citations_delta":
		if len(d.Citation) > 0 {
			b.citations = append(b.citations, d.Citation)
		}
	case "input_json_delta":
		b.args = append(b.args, d.PartialJSON...)
		if b.kind == "tool_use" && d.PartialJSON != "" && a.ownProperties(b) == nil {
			a.send(&model.ToolCallDelta{Index: b.call, Args: d.PartialJSON}, false)
		}
	default: // the delta is unknown, so a block of an unknown type is incomplete without it
		b.broken = b.broken || !slices.Contains([]string{"text", "thinking", "tool_use"}, b.kind)
	}
}

// ownProperties returns, by their names on the wire, the names that the called tool has for its
// properties; nil if none is renamed. If some are, the arguments are yielded at the end of the
// block.
func (a *answer) ownProperties(b *answerBlock) map[string]string {
	return a.renames[renamed(a.names, a.calls[b.call].name)].toOwn
}

// end ends a block. Servers that do not stream arguments send them at the start of the block.
func (a *answer) end(b *answerBlock) {
	if b.ended {
		return
	}
	b.ended = true
	if b.kind != "tool_use" {
		return
	}
	names, input := a.ownProperties(b), b.args
	switch first := b.members["input"]; {
	case len(input) == 0 && bytes.HasPrefix(first, []byte("{")) && string(first) != "{}":
		input = first
	case len(input) == 0 || names == nil: // there is no input, or delta has yielded it
		return
	}
	a.send(&model.ToolCallDelta{Index: b.call, Args: string(renameKeys(input, names))}, false)
}

// blockBreak separates two blocks of text with a call of a server tool between them.
const blockBreak = "\n\n"

// text yields a piece of text.
func (a *answer) text(b *answerBlock, s string) {
	if s == "" || b.kind != "text" {
		return
	}
	if len(b.text) == 0 && a.lastText && a.afterServerTool(b) {
		b.gap = len(blockBreak)
		a.send(&model.TextDelta{Text: blockBreak}, true)
	}
	b.text = append(b.text, s...)
	a.send(&model.TextDelta{Text: s}, true)
}

// afterServerTool reports whether b is the last block, and the one before it is not text.
func (a *answer) afterServerTool(b *answerBlock) bool {
	n := len(a.blocks)
	return n > 1 && a.blocks[n-1] == b && a.blocks[n-2].kind != "text"
}

// thinking yields a piece of thinking.
func (a *answer) thinking(b *answerBlock, s string) {
	if s == "" || b.kind != "thinking" {
		return
	}
	b.text = append(b.text, s...)
	a.thoughts.WriteString(s)
	a.send(&model.ThinkingDelta{Text: s}, false)
}

// send yields a chunk, unless the consumer has stopped.
func (a *answer) send(c model.Chunk, text bool) {
	a.lastText = text
	a.stopped = a.stopped || !a.yield(c, nil)
}

// finish yields the extra with the answer's blocks, and the Finish. There is no extra for an answer
// that was cut off, whose last block may be incomplete, or refused, which must not be sent back.
func (a *answer) finish() error {
	if a.paused() {
		return nil
	}
	for _, b := range a.blocks {
		a.end(b) // the server may have left out the end of the last block
	}
	reason := a.finishReason()
	if reason != model.FinishLength && reason != model.FinishFilter {
		if extra := a.extra(); extra != nil {
			a.send(&model.ThinkingDelta{Extra: extra}, false)
		}
	}
	total := a.earlier
	total.Add(a.usage.message())
	a.send(&model.Finish{ID: a.id, Model: a.model, Usage: total, Reason: reason}, false)
	if a.stopped {
		return errStopped
	}
	return nil
}

// paused reports whether another request must continue the answer: the server pauses long turns
// that call its own tools.
func (a *answer) paused() bool {
	mayPause := len(a.calls) == 0 && a.pauses < maxPauses
	return a.reason == "pause_turn" && mayPause && len(a.soFar()) > 0
}

// resume prepares for the rest of a paused answer.
func (a *answer) resume() {
	a.pauses++
	a.earlier.Add(a.usage.message())
	a.usage, a.reason, a.done = usage{}, "", false
	for _, b := range a.blocks {
		b.ended = true
	}
}

// finishReason converts the stop reason. An unknown one is passed on unchanged.
func (a *answer) finishReason() model.FinishReason {
	switch a.reason {
	case "", "end_turn", "stop_sequence", "tool_use", "pause_turn":
		switch {
		case len(a.calls) > 0:
			return model.FinishToolCalls
		case a.reason == "pause_turn":
			return model.FinishReason(a.reason)
		}
		return model.FinishStop
	case "max_tokens", "model_context_window_exceeded":
		return model.FinishLength
	case "refusal":
		return model.FinishFilter
	}
	return model.FinishReason(a.reason)
}

// uniqueID returns id, or a new one if it is empty or already used.
func (a *answer) uniqueID(id string) string {
	return provider.UniqueID(id, a.conversation, a.id, len(a.calls), func(id string) bool {
		return slices.ContainsFunc(a.calls, func(c call) bool { return c.id == id })
	})
}
