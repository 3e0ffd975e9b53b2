package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/httperror"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

// A response turns the events of a Responses API stream into chunks. Servers send the content of an item up to four
// times: as deltas, at the end of a part, at the end of the item and at the end of the response. Each time only the
// content that was not yielded yet is yielded.
type response struct {
	answer // shared with chat completions

	items        []*outputItem
	incomplete   string // why the response is incomplete; empty for a complete response
	lastIsText   bool   // the last yielded chunk is text
	pendingLines int    // the number of lines that were added to pending
}

// maxLines bounds the lines over which the JSON of an event is spread, since each line costs an attempt to decode.
const maxLines = 1000

// An outputItem is an item of a response that is being assembled.
type outputItem struct {
	index     int // output_index, or noIndex
	id        string
	kind      string                     // the type; empty until it is known
	members   map[string]json.RawMessage // as last received; nil if only deltas were received
	ended     bool                       // the complete item was received
	endedJSON json.RawMessage            // of the complete item; nil until it was received
	matched   bool                       // the complete response contains the item

	parts          []keptPart // of a message: the yielded parts
	contentParts   []int      // of a message: for each part of the content its index in parts, -1 if nothing was yielded
	reasoningSizes []int      // of reasoning: for each part the number of yielded bytes
	call           int        // of a function_call: index in answer.calls; -1 if it has no call yet
	name           string     // of a function_call, on the wire
}

// canSendBack reports whether the API accepts the reasoning item, which needs its encrypted or its plain content.
func (item *outputItem) canSendBack() bool {
	content := jsonReader{data: item.members["content"]}
	for range content.items { // at least one
		return true
	}
	return jsonString(item.members["encrypted_content"]) != ""
}

// handleData handles the payload of a data line. JSON may be spread over several data lines.
func (r *response) handleData(event string, payload []byte) error {
	if string(payload) == "[DONE]" {
		r.endStream()
		return nil
	}
	if len(r.pending) > 0 {
		r.pending = append(append(r.pending, '\n'), payload...)
		payload = r.pending
		r.pendingLines++
	}
	if len(payload) == 0 || event == "response.in_progress" { // in_progress adds nothing to response.created
		return nil
	}
	var ev responseEvent
	switch valid, matches := ev.decode(payload); {
	case valid && !matches:
		return httperror.BadAnswer("an event of the stream does not match the API", payload)
	case !valid && (len(r.pending) > provider.MaxPending || r.pendingLines > maxLines):
		return httperror.BadAnswer("a part of the stream is not valid JSON", payload)
	case !valid: // the next line may continue the JSON; at a blank line handleBlankLine fails
		if len(r.pending) == 0 {
			r.pending, r.pendingLines = bytes.Clone(payload), 0
		}
		return nil
	}
	if ev.Type == "" {
		ev.Type = event
	}
	err := r.process(&ev, payload)
	r.pending = r.pending[:0]
	if err == nil && r.stopped {
		err = errStopped
	}
	return err
}

// handleUnstreamed handles an answer that is not a stream.
func (r *response) handleUnstreamed(data []byte) error {
	if body := decodeBody(data); body != nil && (body.Output != nil || body.Status != "") {
		return r.handleResponse(body)
	}
	if e := httperror.InBody(0, data); e != nil {
		return e
	}
	var ev responseEvent
	if valid, matches := ev.decode(data); valid && matches && ev.Choices != nil {
		return errIsChat()
	}
	return httperror.BadAnswer("the answer has no output", data)
}

func errIsChat() error {
	return &model.Error{Kind: model.KindInvalidRequest, Message: "the server answers with chat completions; set Config.API (KITBAG_API) to " + string(APIChat)}
}

// process handles an event; payload is its JSON.
func (r *response) process(ev *responseEvent, payload []byte) error {
	switch ev.Type {
	case "response.output_item.added":
		r.startItem(ev)
	case "response.output_item.done":
		members, copied := itemMembers(ev.Item)
		item := r.endedItem(ev, members)
		r.updateItem(item, members, true)
		item.endedJSON = copied
	case "response.content_part.added", "response.content_part.done":
		r.addText(r.findOrAdd(ev), ev.ContentIndex, ev.Part.Type, ev.Part.Text, true)
	case "response.output_text.delta":
		r.addText(r.findOrAdd(ev), ev.ContentIndex, "output_text", jsonString(ev.Delta), false)
	case "response.output_text.done":
		r.addText(r.findOrAdd(ev), ev.ContentIndex, "output_text", ev.Text, true)
	case "response.refusal.delta":
		r.addText(r.findOrAdd(ev), ev.ContentIndex, "refusal", jsonString(ev.Delta), false)
	case "response.refusal.done":
		r.addText(r.findOrAdd(ev), ev.ContentIndex, "refusal", ev.Refusal, true)
	case "response.reasoning_summary_text.delta":
		r.addThinking(r.findOrAdd(ev), ev.SummaryIndex, jsonString(ev.Delta), false)
	case "response.reasoning_summary_text.done":
		r.addThinking(r.findOrAdd(ev), ev.SummaryIndex, ev.Text, true)
	case "response.reasoning_text.delta", "response.reasoning.delta":
		r.addThinking(r.findOrAdd(ev), ev.ContentIndex, jsonString(ev.Delta), false)
	case "response.reasoning_text.done", "response.reasoning.done":
		r.addThinking(r.findOrAdd(ev), ev.ContentIndex, ev.Text, true)
	case "response.function_call_arguments.delta":
		r.addArguments(r.findOrAdd(ev), jsonString(ev.Delta), false)
	case "response.function_call_arguments.done":
		r.addArguments(r.findOrAdd(ev), argumentText(ev.Arguments), true)
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done":
		if ev.Response == nil {
			ev.Response = new(responseBody)
		}
		if ev.Response.Status == "" {
			ev.Response.Status = strings.TrimPrefix(ev.Type, "response.")
		}
		return r.handleResponse(ev.Response)
	case "error":
		return r.serverError(payload)
	default:
		return r.processOther(ev, payload)
	}
	return nil
}

// processOther handles an event without content, and answers in other forms than the API's. Unknown events are ignored:
// the API documentation says that more will be added.
func (r *response) processOther(ev *responseEvent, payload []byte) error {
	switch {
	case ev.Response != nil:
		r.chunk.ID, r.chunk.Model = ev.Response.ID, ev.Response.Model
	case ev.Choices != nil:
		return errIsChat()
	case ev.Object == "response":
		return r.handleUnstreamed(payload)
	case ev.Type == "":
		if e := httperror.InBody(0, payload); e != nil {
			return e
		}
	}
	return nil
}

// serverError returns the error that a server reports.
func (r *response) serverError(payload []byte) error {
	if e := httperror.InBody(0, payload); e != nil {
		return e
	}
	return httperror.BadAnswer("the server reports an error without a message", payload)
}

// findOrAdd returns the item that an event belongs to, or a new item. The id decides, since some servers give all items
// the same index; an unknown id does not, since some servers give each event another id. Then the index
// decides; for an event without an index it is the last item, or if the event has an id, the last item without an id.
func (r *response) findOrAdd(ev *responseEvent) *outputItem {
	for _, item := range r.items {
		if ev.ItemID != "" && item.id == ev.ItemID {
			return item
		}
	}
	for n := len(r.items) - 1; n >= 0; n-- {
		item := r.items[n]
		sameIndex := ev.OutputIndex != nil && item.index == *ev.OutputIndex
		if sameIndex || ev.OutputIndex == nil && (ev.ItemID == "" || item.id == "") {
			return item
		}
	}
	return r.addItem(ev)
}

// endedItem returns the item whose end an event reports.
func (r *response) endedItem(ev *responseEvent, members map[string]json.RawMessage) *outputItem {
	if ev.ItemID == "" && ev.OutputIndex == nil {
		if item := r.match(members, func(item *outputItem) bool { return !item.ended }); item != nil {
			return item
		}
	}
	return r.findOrAdd(ev)
}

// match returns the item that members describe: the item with the same id, else the first free item with the same
// call_id, else the first free item of the same type, else nil.
func (r *response) match(members map[string]json.RawMessage, isFree func(*outputItem) bool) *outputItem {
	id, call, kind := jsonString(members["id"]), jsonString(members["call_id"]), jsonString(members["type"])
	for _, same := range []func(*outputItem) bool{
		func(item *outputItem) bool { return id != "" && item.id == id },
		func(item *outputItem) bool {
			return call != "" && jsonString(item.members["call_id"]) == call && isFree(item)
		},
		func(item *outputItem) bool { return item.kind == kind && isFree(item) },
	} {
		if n := slices.IndexFunc(r.items, same); n >= 0 {
			return r.items[n]
		}
	}
	return nil
}

// addItem adds the item that ev belongs to.
func (r *response) addItem(ev *responseEvent) *outputItem {
	item := &outputItem{index: noIndex, id: ev.ItemID, call: -1}
	if ev.OutputIndex != nil {
		item.index = *ev.OutputIndex
	}
	r.items = append(r.items, item)
	return item
}

// startItem handles the start of an item: of a new item, unless an item with the same index and id is known.
func (r *response) startItem(ev *responseEvent) {
	members, _ := itemMembers(ev.Item)
	ev.ItemID = jsonString(members["id"])
	var item *outputItem
	for _, known := range r.items {
		if ev.OutputIndex != nil && known.index == *ev.OutputIndex && known.id == ev.ItemID {
			item = known
		}
	}
	if item == nil {
		item = r.addItem(ev)
	}
	r.updateItem(item, members, false)
}

// updateItem stores the latest members of an item and yields the content that was not yielded yet. ended says that the
// item is complete.
func (r *response) updateItem(item *outputItem, members map[string]json.RawMessage, ended bool) {
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
			r.addText(item, n, p.Type, p.Text+p.Refusal, true)
		}
	case "reasoning":
		parts := partsOf(members["summary"])
		if len(parts) == 0 {
			parts = partsOf(members["content"])
		}
		for n, p := range parts {
			r.addThinking(item, n, p.Text, true)
		}
	case "function_call":
		r.updateCall(item, ended)
	case "image_generation_call":
		if data := jsonString(members["result"]); ended && data != "" && len(item.parts) == 0 {
			item.parts = []keptPart{{}} // the image is yielded only once
			if d, ok := parseDataURL("data:image/" + cmp.Or(jsonString(members["output_format"]), "png") + ";base64," + data); ok {
				r.emit(&model.DataBlock{Data: d}, false)
			}
		}
	}
}

// An outputPart is a part of a content or summary.
type outputPart struct{ Type, Text, Refusal string }

// partsOf returns the parts of a content or summary; a string is one part.
func partsOf(raw json.RawMessage) (parts []outputPart) {
	if s := jsonString(raw); s != "" {
		return []outputPart{{Type: "output_text", Text: s}}
	}
	var list []json.RawMessage
	_ = json.Unmarshal(raw, &list) // any other value has no parts
	for _, part := range list {
		var p outputPart
		_ = json.Unmarshal(part, &p) // a member with an unexpected type stays empty
		parts = append(parts, p)
	}
	return parts
}

// addText yields s, a piece of the n-th part of a message's content. If whole is set, s is the complete part: then only
// the rest of s that was not yielded yet is yielded.
func (r *response) addText(item *outputItem, n int, kind, s string, whole bool) {
	if item.kind == "" { // some servers do not announce items
		item.kind, item.members = "message", map[string]json.RawMessage{"type": quote("message"), "role": quote("assistant")}
	}
	if item.kind != "message" || n < 0 || n > maxParts {
		return
	}
	if kind != "refusal" {
		kind = "output_text"
	}
	for len(item.contentParts) <= n {
		item.contentParts = append(item.contentParts, -1)
	}
	yielded := 0
	if i := item.contentParts[n]; i >= 0 {
		yielded = item.parts[i].Size
	}
	if s = notYielded(s, yielded, whole); s == "" {
		return
	}
	if item.contentParts[n] < 0 {
		if r.lastIsText && len(item.parts) == 0 { // the last text belongs to another item
			item.parts = append(item.parts, keptPart{Size: len(itemBreak)})
			r.emit(&model.TextDelta{Text: itemBreak}, true)
		}
		item.contentParts[n] = len(item.parts)
		item.parts = append(item.parts, keptPart{Type: kind})
	}
	item.parts[item.contentParts[n]].Size += len(s)
	r.emit(&model.TextDelta{Text: s}, true)
}

// notYielded returns all of a delta s, and a whole text s without its first, yielded bytes.
func notYielded(s string, yielded int, whole bool) string {
	if whole {
		return s[min(yielded, len(s)):]
	}
	return s
}

const (
	itemBreak = "\n\n" // between the texts of two items, or two parts of reasoning, which become one block
	maxParts  = 10_000 // of an item; bounds the memory that a server can claim with a large index
)

// addThinking is like addText, for the n-th part of reasoning.
func (r *response) addThinking(item *outputItem, n int, s string, whole bool) {
	if item.kind == "" {
		item.kind = "reasoning"
	}
	if item.kind != "reasoning" || n < 0 || n > maxParts {
		return
	}
	for len(item.reasoningSizes) <= n {
		item.reasoningSizes = append(item.reasoningSizes, 0)
	}
	if s = notYielded(s, item.reasoningSizes[n], whole); s == "" {
		return
	}
	partBegins := item.reasoningSizes[n] == 0
	item.reasoningSizes[n] += len(s)
	if partBegins && n > 0 && item.reasoningSizes[n-1] > 0 {
		s = itemBreak + s
	}
	r.emit(&model.ThinkingDelta{Text: s}, false)
}

// emit yields a chunk and records whether it is text.
func (r *response) emit(c model.Chunk, isText bool) {
	r.lastIsText = isText
	r.send(c)
}

// callOf returns the call of an item, and adds the call if the item has none.
func (r *response) callOf(item *outputItem) *call {
	if item.call < 0 {
		item.call = len(r.calls)
		r.calls = append(r.calls, call{})
	}
	return &r.calls[item.call]
}

// updateCall starts a call once its name is known.
func (r *response) updateCall(item *outputItem, ended bool) {
	c := r.callOf(item)
	if c.sentID == "" {
		c.name, c.id = jsonString(item.members["name"]), jsonString(item.members["call_id"])
		item.name = c.name
		if c.name != "" {
			r.lastIsText = false
			r.startCall(item.call)
		}
	}
	if ended {
		r.addArguments(item, argumentText(item.members["arguments"]), true)
	}
}

// addArguments is like addText, for the arguments of a call. They are yielded once the call has started.
func (r *response) addArguments(item *outputItem, s string, whole bool) {
	if item.kind == "" {
		item.kind = "function_call"
	}
	if item.kind != "function_call" {
		return
	}
	c := r.callOf(item)
	s = notYielded(s, len(c.args), whole)
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
