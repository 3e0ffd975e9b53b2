package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/httperror"
	sdk "github.com/sashabaranov/go-openai"
)

// A response turns the events of a Responses API stream into chunks. Servers send the content of an item up to four
// times: as deltas, at the end of a part, at the end of the item and at the end of the response. Only new content
// is yielded each time.
type response struct {
	answer // shared with chat completions

	items      []*outputItem
	incomplete string // why the response is incomplete; empty if it is not
	lastText   bool   // the last yielded chunk is text
	lines      int    // the number of lines in pending
}

// maxLines bounds the lines over which the JSON of an event is spread.
const maxLines = 1000

// An outputItem is an item of a response that is being assembled.
type outputItem struct {
	index    int // output_index, or noIndex
	id       string
	kind     string
	name     string                     // of a function_call, on the wire
	members  map[string]json.RawMessage // the latest received
	parts    []keptPart                 // of a message
	content  []int                      // for each part of the content its index in parts, -1 if it is empty
	thoughts []int                      // for each part of the reasoning how many bytes were yielded
	call     int                        // of a function_call: index in answer.calls
	ended    bool
	raw      json.RawMessage // the JSON of the complete item; nil until the item has ended
	matched  bool            // the complete response contains the item
}

// complete reports whether reasoning can be sent back: its encrypted or its plain content is known.
func (item *outputItem) complete() bool {
	content := jsonReader{data: item.members["content"]}
	for range content.items {
		return true
	}
	return jsonString(item.members["encrypted_content"]) != ""
}

// data handles the payload of a data line. JSON may be spread over several lines.
func (r *response) data(event string, payload []byte) error {
	if string(payload) == "[DONE]" {
		r.end()
		return nil
	}
	if len(r.pending) > 0 {
		r.pending = append(append(r.pending, '\n'), payload...)
		payload = r.pending
		r.lines++
	}
	if len(payload) == 0 || event == "response.in_progress" { // in_progress adds nothing to response.created
		return nil
	}
	var ev responseEvent
	if valid, matches := ev.decode(payload); !valid || !matches {
		switch {
		case valid:
			return httperror.BadAnswer("an event of the stream does not match the API", payload)
		case len(r.pending) > maxPending || r.lines > maxLines: // each line costs another attempt to decode
			return httperror.BadAnswer("a part of the stream is not valid JSON", payload)
		case len(r.pending) == 0: // the next line may continue the JSON; at a blank line eventEnd fails
			r.pending, r.lines = bytes.Clone(payload), 0
		}
		return nil
	}
	if ev.Type == "" {
		ev.Type = event
	}
	err := r.event(&ev, payload)
	r.pending = r.pending[:0]
	if err == nil && r.stopped {
		err = errStopped
	}
	return err
}

// unstreamed handles an answer that is not a stream.
func (r *response) unstreamed(data []byte) error {
	if body := decodeBody(data); body != nil && (body.Output != nil || body.Status != "") {
		return r.terminal(body)
	}
	if e := httperror.InBody(0, data); e != nil {
		return e
	}
	var ev responseEvent
	if valid, matches := ev.decode(data); valid && matches && ev.Choices != nil {
		return errChat()
	}
	return httperror.BadAnswer("the answer has no output", data)
}

func errChat() error {
	return &model.Error{Kind: model.KindInvalidRequest, Message: "the server answers with chat completions; set Config.API (KITBAG_API) to " + string(APIChat)}
}

func (r *response) event(ev *responseEvent, payload []byte) error {
	switch ev.Type {
	case "response.output_item.added":
		r.itemAdded(ev)
	case "response.output_item.done":
		members, copied := itemMembers(ev.Item)
		item := r.endedItem(ev, members)
		r.item(item, members, true)
		item.raw = copied
	case "response.content_part.added", "response.content_part.done":
		r.text(r.find(ev), ev.ContentIndex, ev.Part.Type, ev.Part.Text, true)
	case "response.output_text.delta":
		r.text(r.find(ev), ev.ContentIndex, "output_text", jsonString(ev.Delta), false)
	case "response.output_text.done":
		r.text(r.find(ev), ev.ContentIndex, "output_text", ev.Text, true)
	case "response.refusal.delta":
		r.text(r.find(ev), ev.ContentIndex, "refusal", jsonString(ev.Delta), false)
	case "response.refusal.done":
		r.text(r.find(ev), ev.ContentIndex, "refusal", ev.Refusal, true)
	case "response.reasoning_summary_text.delta":
		r.thought(r.find(ev), ev.SummaryIndex, jsonString(ev.Delta), false)
	case "response.reasoning_summary_text.done":
		r.thought(r.find(ev), ev.SummaryIndex, ev.Text, true)
	case "response.reasoning_text.delta", "response.reasoning.delta":
		r.thought(r.find(ev), ev.ContentIndex, jsonString(ev.Delta), false)
	case "response.reasoning_text.done", "response.reasoning.done":
		r.thought(r.find(ev), ev.ContentIndex, ev.Text, true)
	case "response.function_call_arguments.delta":
		r.arguments(r.find(ev), jsonString(ev.Delta), false)
	case "response.function_call_arguments.done":
		r.arguments(r.find(ev), argumentText(ev.Arguments), true)
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done":
		if ev.Response == nil {
			ev.Response = new(responseBody)
		}
		if ev.Response.Status == "" {
			ev.Response.Status = strings.TrimPrefix(ev.Type, "response.")
		}
		return r.terminal(ev.Response)
	case "error":
		return r.failed(payload)
	default:
		return r.other(ev, payload)
	}
	return nil
}

// other handles an event without content. Unknown events are ignored: the API documentation
// says that more will be added.
func (r *response) other(ev *responseEvent, payload []byte) error {
	switch {
	case ev.Response != nil:
		r.chunk.ID, r.chunk.Model = ev.Response.ID, ev.Response.Model
	case ev.Choices != nil:
		return errChat()
	case ev.Object == "response":
		return r.unstreamed(payload)
	case ev.Type == "":
		if e := httperror.InBody(0, payload); e != nil {
			return e
		}
	}
	return nil
}

// failed returns the error that a server reports.
func (r *response) failed(payload []byte) error {
	if e := httperror.InBody(0, payload); e != nil {
		return e
	}
	return httperror.BadAnswer("the server reports an error without a message", payload)
}

// find returns the item that an event belongs to: by id, else by index, or the last one if the event has
// neither. Some servers give each event another id, some give each item the same index.
func (r *response) find(ev *responseEvent) *outputItem {
	for _, item := range r.items {
		if ev.ItemID != "" && item.id == ev.ItemID {
			return item
		}
	}
	for n := len(r.items) - 1; n >= 0; n-- {
		item := r.items[n]
		if ev.OutputIndex == nil && (ev.ItemID == "" || item.id == "") || ev.OutputIndex != nil && item.index == *ev.OutputIndex {
			return item
		}
	}
	return r.open(ev)
}

// endedItem returns the item whose end an event reports.
func (r *response) endedItem(ev *responseEvent, members map[string]json.RawMessage) *outputItem {
	if ev.ItemID == "" && ev.OutputIndex == nil {
		if item := r.match(members, func(item *outputItem) bool { return !item.ended }); item != nil {
			return item
		}
	}
	return r.find(ev)
}

// match returns the item that members describe: the one with the same id, else the first free one with the same
// call_id, else the first free one of the same type; nil if there is none.
func (r *response) match(members map[string]json.RawMessage, free func(*outputItem) bool) *outputItem {
	id, call, kind := jsonString(members["id"]), jsonString(members["call_id"]), jsonString(members["type"])
	for _, same := range []func(*outputItem) bool{
		func(item *outputItem) bool { return id != "" && item.id == id },
		func(item *outputItem) bool {
			return call != "" && jsonString(item.members["call_id"]) == call && free(item)
		},
		func(item *outputItem) bool { return item.kind == kind && free(item) },
	} {
		if n := slices.IndexFunc(r.items, same); n >= 0 {
			return r.items[n]
		}
	}
	return nil
}

// open appends a new item, to which ev belongs.
func (r *response) open(ev *responseEvent) *outputItem {
	item := &outputItem{index: noIndex, id: ev.ItemID, call: -1}
	if ev.OutputIndex != nil {
		item.index = *ev.OutputIndex
	}
	r.items = append(r.items, item)
	return item
}

// itemAdded handles the start of an item, which is new unless an item with the same index and id is known.
func (r *response) itemAdded(ev *responseEvent) {
	members, _ := itemMembers(ev.Item)
	ev.ItemID = jsonString(members["id"])
	var item *outputItem
	for _, known := range r.items {
		if ev.OutputIndex != nil && known.index == *ev.OutputIndex && known.id == ev.ItemID {
			item = known
		}
	}
	if item == nil {
		item = r.open(ev)
	}
	r.item(item, members, false)
}

// item stores the current state of an item and yields what is new in it.
func (r *response) item(item *outputItem, members map[string]json.RawMessage, ended bool) {
	if members == nil {
		return
	}
	item.members, item.ended = members, item.ended || ended
	if kind := jsonString(members["type"]); kind != "" {
		item.kind = kind
	}
	if id := jsonString(members["id"]); id != "" {
		item.id = id
	}
	switch item.kind {
	case "message":
		for n, p := range partsOf(members["content"]) {
			r.text(item, n, p.Type, p.Text+p.Refusal, true)
		}
	case "reasoning":
		thoughts := partsOf(members["summary"])
		if len(thoughts) == 0 {
			thoughts = partsOf(members["content"])
		}
		for n, p := range thoughts {
			r.thought(item, n, p.Text, true)
		}
	case "function_call":
		r.functionCall(item, ended)
	case "image_generation_call":
		if data := jsonString(members["result"]); ended && data != "" && len(item.parts) == 0 {
			item.parts = []keptPart{{}} // yield it only once
			if d, ok := parseDataURL("data:image/" + cmp.Or(jsonString(members["output_format"]), "png") + ";base64," + data); ok {
				r.emit(&model.DataBlock{Data: d}, false)
			}
		}
	}
}

// partsOf returns the parts of a content or summary; a string is one part.
func partsOf(raw json.RawMessage) (parts []sdk.ResponseOutputContent) {
	if s := jsonString(raw); s != "" {
		return []sdk.ResponseOutputContent{{Type: "output_text", Text: s}}
	}
	var list []json.RawMessage
	_ = json.Unmarshal(raw, &list)
	for _, item := range list {
		var p struct{ Type, Text, Refusal string }
		_ = json.Unmarshal(item, &p)
		parts = append(parts, sdk.ResponseOutputContent{Type: p.Type, Text: p.Text, Refusal: p.Refusal})
	}
	return parts
}

// text yields s, a piece of the n-th part of a message. If whole is set, s is the complete part, of which only the
// end that was not yielded yet is yielded.
func (r *response) text(item *outputItem, n int, kind, s string, whole bool) {
	if item.kind == "" {
		item.kind, item.members = "message", map[string]json.RawMessage{"type": quote("message"), "role": quote("assistant")}
	}
	if item.kind != "message" || n < 0 || n > maxParts {
		return
	}
	if kind != "refusal" {
		kind = "output_text"
	}
	for len(item.content) <= n {
		item.content = append(item.content, -1)
	}
	sent := 0
	if at := item.content[n]; at >= 0 {
		sent = item.parts[at].Size
	}
	if s = unsent(s, sent, whole); s == "" {
		return
	}
	if item.content[n] < 0 {
		if r.lastText && len(item.parts) == 0 { // the last text belongs to another item
			item.parts = append(item.parts, keptPart{Size: len(itemBreak)})
			r.emit(&model.TextDelta{Text: itemBreak}, true)
		}
		item.content[n] = len(item.parts)
		item.parts = append(item.parts, keptPart{Type: kind})
	}
	item.parts[item.content[n]].Size += len(s)
	r.emit(&model.TextDelta{Text: s}, true)
}

// unsent returns the part of s that was not yielded yet: all of a delta, and the end of a whole text.
func unsent(s string, sent int, whole bool) string {
	if whole {
		return s[min(sent, len(s)):]
	}
	return s
}

const (
	itemBreak = "\n\n" // between the texts of two items, which become one block
	maxParts  = 10_000 // of an item; bounds the memory for a large index
)

// thought yields s, a piece of the n-th part of reasoning, or, if whole is set, what is new in the part; see text.
func (r *response) thought(item *outputItem, n int, s string, whole bool) {
	if item.kind == "" {
		item.kind = "reasoning"
	}
	if item.kind != "reasoning" || n < 0 || n > maxParts {
		return
	}
	for len(item.thoughts) <= n {
		item.thoughts = append(item.thoughts, 0)
	}
	if s = unsent(s, item.thoughts[n], whole); s == "" {
		return
	}
	first := item.thoughts[n] == 0
	item.thoughts[n] += len(s)
	if first && n > 0 && item.thoughts[n-1] > 0 {
		s = itemBreak + s
	}
	r.emit(&model.ThinkingDelta{Text: s}, false)
}

// emit yields a chunk and records whether it is text.
func (r *response) emit(c model.Chunk, text bool) {
	r.lastText = text
	r.send(c)
}

func (r *response) callOf(item *outputItem) *call {
	if item.call < 0 {
		item.call = len(r.calls)
		r.calls = append(r.calls, call{})
	}
	return &r.calls[item.call]
}

// functionCall starts a call once its name is known.
func (r *response) functionCall(item *outputItem, ended bool) {
	c := r.callOf(item)
	if c.sentID == "" {
		c.name, c.id = jsonString(item.members["name"]), jsonString(item.members["call_id"])
		item.name = c.name
		if c.name != "" {
			r.lastText = false
			r.startCall(item.call)
		}
	}
	if ended {
		r.arguments(item, argumentText(item.members["arguments"]), true)
	}
}

// arguments yields s, a piece of the arguments of a call, or, if whole is set, what is new in them; see text.
func (r *response) arguments(item *outputItem, s string, whole bool) {
	if item.kind == "" {
		item.kind = "function_call"
	}
	if item.kind != "function_call" {
		return
	}
	c := r.callOf(item)
	s = unsent(s, len(c.args), whole)
	c.args = append(c.args, s...)
	if c.sentID != "" && s != "" {
		r.emit(&model.ToolCallDelta{Index: item.call, Args: s}, false)
	}
}

// argumentText returns the text of arguments, which some servers send as an object.
func argumentText(raw json.RawMessage) string {
	if len(raw) > 0 && raw[0] == '{' {
		return string(raw)
	}
	return jsonString(raw)
}
