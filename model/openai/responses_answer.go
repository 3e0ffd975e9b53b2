package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/httperror"
	sdk "github.com/sashabaranov/go-openai"
)

// A response turns the events of a Responses API stream into chunks. Servers send the content of an item up
// to four times: as deltas, at the end of a part, at the end of the item and at the end of the response.
// Only what is new is yielded each time.
type response struct {
	answer // shared with chat completions

	items      []*outputItem
	incomplete string // why the response is incomplete; empty if it is not
	lastText   bool   // the last yielded chunk is text
	lines      int    // in pending
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
	raw      json.RawMessage // as it ended; nil if it has not
}

// complete reports whether reasoning can be sent back: its encrypted or its plain content is known.
func (i *outputItem) complete() bool {
	content := jsonReader{data: i.members["content"]}
	for range content.items {
		return true
	}
	return jsonString(i.members["encrypted_content"]) != ""
}

// data handles the payload of a data line. JSON may be spread over several lines.
func (r *response) data(event string, payload []byte) error {
	if string(payload) == "[DONE]" {
		return r.end()
	}
	if len(r.pending) > 0 {
		r.pending = append(append(r.pending, '\n'), payload...)
		payload = r.pending
		r.lines++
	}
	if len(payload) == 0 || event == "response.in_progress" { // which says no more than response.created
		return nil
	}
	var ev responseEvent
	if valid, matches := ev.decode(payload); !valid || !matches {
		switch {
		case valid:
			return httperror.BadAnswer("an event of the stream does not match the API", payload)
		case len(r.pending) > maxPending || r.lines > maxLines: // each line costs another attempt to decode
			return httperror.BadAnswer("a part of the stream is not valid JSON", payload)
		case len(r.pending) == 0: // the next line may continue it; stream fails at a blank one
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
		r.added(ev)
	case "response.output_item.done":
		i := r.find(ev)
		members, copied := itemMembers(ev.Item)
		r.item(i, members, true)
		i.raw = copied
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
	for _, i := range r.items {
		if ev.ItemID != "" && i.id == ev.ItemID {
			return i
		}
	}
	for n := len(r.items) - 1; n >= 0; n-- {
		i := r.items[n]
		if ev.OutputIndex == nil && (ev.ItemID == "" || i.id == "") || ev.OutputIndex != nil && i.index == *ev.OutputIndex {
			return i
		}
	}
	return r.open(ev)
}

// open appends a new item.
func (r *response) open(ev *responseEvent) *outputItem {
	i := &outputItem{index: noIndex, id: ev.ItemID, call: -1}
	if ev.OutputIndex != nil {
		i.index = *ev.OutputIndex
	}
	r.items = append(r.items, i)
	return i
}

// added handles the start of an item. It is a known item only if both the index and the id are the same.
func (r *response) added(ev *responseEvent) {
	members, _ := itemMembers(ev.Item)
	ev.ItemID = jsonString(members["id"])
	i := (*outputItem)(nil)
	for _, known := range r.items {
		if ev.OutputIndex != nil && known.index == *ev.OutputIndex && known.id == ev.ItemID {
			i = known
		}
	}
	if i == nil {
		i = r.open(ev)
	}
	r.item(i, members, false)
}

// item stores the current state of an item and yields what is new in it.
func (r *response) item(i *outputItem, members map[string]json.RawMessage, ended bool) {
	if members == nil {
		return
	}
	i.members, i.ended = members, i.ended || ended
	if kind := jsonString(members["type"]); kind != "" {
		i.kind = kind
	}
	if id := jsonString(members["id"]); id != "" {
		i.id = id
	}
	switch i.kind {
	case "message":
		for n, p := range partsOf(members["content"]) {
			r.text(i, n, p.Type, p.Text+p.Refusal, true)
		}
	case "reasoning":
		thoughts := partsOf(members["summary"])
		if len(thoughts) == 0 {
			thoughts = partsOf(members["content"])
		}
		for n, p := range thoughts {
			r.thought(i, n, p.Text, true)
		}
	case "function_call":
		r.functionCall(i, ended)
	case "image_generation_call":
		if data := jsonString(members["result"]); ended && data != "" && len(i.parts) == 0 {
			i.parts = []keptPart{{}} // yield it only once
			if d, ok := parseDataURL("data:image/" + imageFormat(jsonString(members["output_format"])) + ";base64," + data); ok {
				r.emit(&model.DataBlock{Data: d}, false)
			}
		}
	}
}

func imageFormat(format string) string {
	if format == "" {
		return "png"
	}
	return format
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

// text yields s, a piece of the n-th part of a message; if whole is set s is all of the part, and the rest of it is yielded.
func (r *response) text(i *outputItem, n int, kind, s string, whole bool) {
	if i.kind == "" {
		i.kind, i.members = "message", map[string]json.RawMessage{"type": quote("message"), "role": quote("assistant")}
	}
	if i.kind != "message" || n < 0 || n > maxParts {
		return
	}
	if kind != "refusal" {
		kind = "output_text"
	}
	for len(i.content) <= n {
		i.content = append(i.content, -1)
	}
	sent := 0
	if at := i.content[n]; at >= 0 {
		sent = i.parts[at].Size
	}
	if whole {
		if len(s) <= sent {
			return
		}
		s = s[sent:]
	}
	if s == "" {
		return
	}
	if i.content[n] < 0 {
		if r.lastText && len(i.parts) == 0 { // of another item
			i.parts = append(i.parts, keptPart{Size: len(itemBreak)})
			r.emit(&model.TextDelta{Text: itemBreak}, true)
		}
		i.content[n] = len(i.parts)
		i.parts = append(i.parts, keptPart{Type: kind})
	}
	i.parts[i.content[n]].Size += len(s)
	r.emit(&model.TextDelta{Text: s}, true)
}

const (
	itemBreak = "\n\n" // between the texts of two items, which become one block
	maxParts  = 10_000 // of an item, against large indexes
)

// thought yields s, a piece of the n-th part of reasoning; if whole is set s is all of the part, and the rest of it is yielded.
func (r *response) thought(i *outputItem, n int, s string, whole bool) {
	if i.kind == "" {
		i.kind = "reasoning"
	}
	if i.kind != "reasoning" || n < 0 || n > maxParts {
		return
	}
	for len(i.thoughts) <= n {
		i.thoughts = append(i.thoughts, 0)
	}
	if whole {
		if len(s) <= i.thoughts[n] {
			return
		}
		s = s[i.thoughts[n]:]
	}
	if s == "" {
		return
	}
	first := i.thoughts[n] == 0
	i.thoughts[n] += len(s)
	if first && n > 0 && i.thoughts[n-1] > 0 {
		s = itemBreak + s
	}
	r.emit(&model.ThinkingDelta{Text: s}, false)
}

// emit yields a chunk and records whether it is text.
func (r *response) emit(c model.Chunk, text bool) {
	r.lastText = text
	r.send(c)
}

// functionCall starts a call once its name is known.
func (r *response) functionCall(i *outputItem, ended bool) {
	if i.call < 0 {
		i.call = len(r.calls)
		r.calls = append(r.calls, call{})
	}
	c := &r.calls[i.call]
	if c.sentID == "" {
		c.name, c.id = jsonString(i.members["name"]), jsonString(i.members["call_id"])
		i.name = c.name
		if c.name != "" {
			r.lastText = false
			r.start(i.call)
		}
	}
	if ended {
		r.arguments(i, argumentText(i.members["arguments"]), true)
	}
}

// arguments yields s, a piece of a call's arguments; if whole is set s is all of them, and the rest is yielded.
func (r *response) arguments(i *outputItem, s string, whole bool) {
	if i.kind == "" {
		i.kind = "function_call"
	}
	if i.kind != "function_call" {
		return
	}
	if i.call < 0 {
		i.call = len(r.calls)
		r.calls = append(r.calls, call{})
	}
	c := &r.calls[i.call]
	if whole {
		if len(s) <= len(c.args) {
			return
		}
		s = s[len(c.args):]
	}
	c.args = append(c.args, s...)
	if c.sentID != "" && s != "" {
		r.emit(&model.ToolCallDelta{Index: i.call, Args: s}, false)
	}
}

// argumentText returns the text of arguments, which some servers send as an object.
func argumentText(raw json.RawMessage) string {
	if len(raw) > 0 && raw[0] == '{' {
		return string(raw)
	}
	return jsonString(raw)
}
