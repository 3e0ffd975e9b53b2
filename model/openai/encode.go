package openai

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/message"
	sdk "github.com/sashabaranov/go-openai"
)

// This file writes messages as the strictest of the servers wants them. What one of them
// refuses, no other needs.

// A wireMessage is go-openai's ChatCompletionMessage but for what that has no place for: audio and
// files in the content, and members of vendors' own.
type wireMessage struct {
	Role       string `json:"role"`
	Name       string `json:"name,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
	Content    any    `json:"content,omitempty"`    // a string, or a slice of parts
	ToolCalls  []any  `json:"tool_calls,omitempty"` // sdk.ToolCall, or its JSON with more members
}

// An audioPart and a filePart are parts of a content beside those of sdk.ChatMessagePart.
type (
	audioPart struct {
		Type  string    `json:"type"`
		Audio audioData `json:"input_audio"`
	}
	audioData struct {
		Data   string `json:"data"`
		Format string `json:"format"`
	}
	filePart struct {
		Type string   `json:"type"`
		File fileData `json:"file"`
	}
	fileData struct {
		Name string `json:"filename"`
		Data string `json:"file_data"`
	}
)

// An encoder appends messages to wire, a comma in front of each. It depends on the
// messages alone, so that what it wrote can be kept; see history.
type encoder struct {
	wire     bytes.Buffer
	json     json.Encoder // to wire
	message  wireMessage  // the last
	endpoint string       // whose extras go back
	err      error        // the first

	responses bool // writes items of the Responses API; see responses_items.go
}

// newEncoder returns an encoder that appends to wire.
func newEncoder(wire []byte, endpoint string) *encoder {
	e := &encoder{wire: *bytes.NewBuffer(wire), endpoint: endpoint}
	e.json = *json.NewEncoder(&e.wire)
	e.json.SetEscapeHTML(false) // what <, > and & are in JSON matters to web pages only
	return e
}

// unit appends the messages that belong together at the start of msgs: one, or
// an assistant message with the results of its calls. It returns how many they
// were, and whether a later message can no longer change them.
func (e *encoder) unit(msgs []*message.Message) (n int, settled bool, err error) {
	m := msgs[0]
	if m == nil {
		return 0, false, errors.New("a message is nil")
	}
	switch m.Role {
	case message.RoleSystem:
		if text := plainText(m.Blocks); text != "" && e.responses {
			e.item(inputMessage(sdk.ChatMessageRoleSystem, text))
		} else if text != "" {
			e.add(wireMessage{Role: sdk.ChatMessageRoleSystem, Name: wireName(m.Name), Content: text})
		}
	case message.RoleUser:
		e.user(m.Name, m.Blocks)
	case message.RoleTool: // results of no call, or of one that has a result already
		e.user("", append(hints(m.Blocks), strayResults(m.Blocks, nil)...))
	case message.RoleAssistant:
		return e.assistantUnit(msgs)
	default:
		return 0, false, fmt.Errorf("a message has the role %q; it must be system, user, assistant or tool", m.Role)
	}
	return 1, true, e.err
}

// add appends a message, with members of a vendor's own.
func (e *encoder) add(m wireMessage, extras ...member) {
	e.message = m
	e.wire.WriteByte(',')
	e.object(&e.message, extras)
}

// object appends an object with further members.
func (e *encoder) object(v any, extras []member) {
	if err := e.json.Encode(v); err != nil {
		e.err = cmp.Or(e.err, err)
		return
	}
	e.wire.Truncate(e.wire.Len() - len("}\n"))
	for _, mb := range extras {
		e.wire.WriteByte(',')
		e.wire.Write(quote(mb.name))
		e.wire.WriteByte(':')
		e.wire.Write(mb.value)
	}
	e.wire.WriteByte('}')
}

// assistantUnit appends an assistant message and a result for each of its
// calls, in their order, from the tool messages that follow. What else those say
// comes after: the API allows nothing between calls and results.
func (e *encoder) assistantUnit(msgs []*message.Message) (n int, settled bool, err error) {
	calls := msgs[0].ToolCalls()
	open := make(map[string]bool, len(calls))
	for _, c := range calls {
		if c.ID == "" || open[c.ID] {
			return 0, false, fmt.Errorf("tool call %q (%s): its id is empty or used twice in one message", c.ID, c.Name)
		}
		open[c.ID] = true
	}
	e.assistant(msgs[0], calls)
	later := hints(msgs[0].Blocks)
	// The results may be spread over several messages: a batch of which some calls had to
	// wait for approval. The first result of a call counts.
	results := make(map[string]*message.ToolResult, len(calls))
	for n = 1; n < len(msgs) && len(results) < len(calls) && msgs[n].Role == message.RoleTool; n++ {
		for _, b := range msgs[n].Blocks {
			if r, ok := b.(*message.ToolResult); ok && open[r.ID] && results[r.ID] == nil {
				results[r.ID] = r
			}
		}
		later = append(later, hints(msgs[n].Blocks)...)
		later = append(later, strayResults(msgs[n].Blocks, results)...)
	}
	for _, c := range calls {
		later = append(later, e.result(c, results[c.ID])...)
	}
	e.user("", later)
	// Once something else follows no more results come.
	return n, len(results) == len(calls) || n < len(msgs), e.err
}

// assistant appends an assistant message, unless there is nothing in it that a
// server would accept: a message needs content or calls.
func (e *encoder) assistant(m *message.Message, calls []*message.ToolCall) {
	if e.responses {
		e.output(m, calls)
		return
	}
	w := wireMessage{Role: sdk.ChatMessageRoleAssistant}
	if text := assistantText(m.Blocks); text != "" {
		w.Content = text
	} else if len(calls) == 0 {
		return
	}
	for _, c := range calls {
		var call any = sdk.ToolCall{ID: c.ID, Type: sdk.ToolTypeFunction,
			Function: sdk.FunctionCall{Name: cmp.Or(wireName(c.Name), "unknown"), Arguments: arguments(c.Input)}}
		if extras := e.extras(c.Extra); extras != nil {
			one := newEncoder(nil, e.endpoint)
			one.object(call, extras)
			call = json.RawMessage(one.wire.Bytes())
		}
		w.ToolCalls = append(w.ToolCalls, call)
	}
	e.add(w, e.thinking(m.Blocks)...)
}

// arguments returns the text of a call's input, which must be an object: a model may have
// sent anything, and the conversation holds it as it was.
func arguments(input json.RawMessage) string {
	trimmed := bytes.TrimSpace(input)
	if len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(trimmed) {
		return "{}"
	}
	return string(trimmed)
}

// result appends the tool message for a call, and returns the files in it for
// the user message after the batch: many servers take text only in results. Both messages
// say what the files belong to. A call without a result gets one that says so.
func (e *encoder) result(c *message.ToolCall, r *message.ToolResult) (files message.Blocks) {
	text := "(the call was interrupted and has no result)"
	if r != nil {
		var parts []string
		for _, b := range r.Blocks {
			switch b := b.(type) {
			case *message.Text:
				parts = append(parts, b.Text)
			case *message.Data:
				name := fileName(b)
				parts = append(parts, "("+name+" follows the results)")
				files = append(files, &message.Text{Text: "From " + c.Name + " (" + c.ID + "), " + name + ":"}, b)
			}
		}
		text = strings.Join(parts, "\n")
		if strings.TrimSpace(text) == "" {
			text = "(no output)" // several servers refuse empty content
		}
	}
	if e.responses {
		e.item(sdk.ResponseFunctionCallOutput{Type: "function_call_output", CallID: c.ID, Output: text})
	} else {
		e.add(wireMessage{Role: sdk.ChatMessageRoleTool, ToolCallID: c.ID, Content: text})
	}
	return files
}

// user appends a user message, unless there is nothing in it: a string where it
// is all text, because some servers know nothing else, and parts where there
// are files.
func (e *encoder) user(name string, blocks message.Blocks) {
	w := wireMessage{Role: sdk.ChatMessageRoleUser, Name: wireName(name)}
	if slices.ContainsFunc(blocks, func(b message.Block) bool { _, ok := b.(*message.Data); return ok }) {
		var parts []any
		for _, block := range blocks {
			if d, ok := block.(*message.Data); ok {
				parts = append(parts, e.dataPart(d))
			} else if text := textOf(block); text != "" {
				parts = append(parts, e.textPart(text))
			}
		}
		w.Content = parts
	} else if text := plainText(blocks); text != "" {
		w.Content = text
	} else {
		return
	}
	if e.responses { // which has no place for a name
		e.item(inputMessage(w.Role, w.Content))
		return
	}
	e.add(w)
}

// textOf returns the text that a block is for the model in a user or system
// message; "" for text that is blank, which several servers refuse.
func textOf(b message.Block) string {
	var text string
	switch b := b.(type) {
	case *message.Text:
		text = b.Text
	case *message.Hint:
		text = b.Text
	}
	if strings.TrimSpace(text) == "" {
		return ""
	}
	return text
}

// plainText joins the texts that a model reads, with a blank line between; empty if there
// are none.
func plainText(blocks message.Blocks) string {
	var parts []string
	for _, b := range blocks {
		if text := textOf(b); text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "\n\n")
}

// assistantText is the text of an assistant message. Files it made cannot be
// sent back in it; they are named, so that the model knows of them.
func assistantText(blocks message.Blocks) string {
	var parts []string
	for _, b := range blocks {
		switch b := b.(type) {
		case *message.Text:
			if text := textOf(b); text != "" {
				parts = append(parts, text)
			}
		case *message.Data:
			parts = append(parts, "("+fileName(b)+")")
		}
	}
	return strings.Join(parts, "\n\n")
}

// hints returns the hints among blocks, which no role but the user's has a place for.
func hints(blocks message.Blocks) (found message.Blocks) {
	for _, b := range blocks {
		if h, ok := b.(*message.Hint); ok {
			found = append(found, h)
		}
	}
	return found
}

// strayResults returns, as text, the results that answer no call: those that
// are not the ones in used.
func strayResults(blocks message.Blocks, used map[string]*message.ToolResult) (texts message.Blocks) {
	for _, b := range blocks {
		if r, ok := b.(*message.ToolResult); ok && used[r.ID] != r {
			texts = append(texts, &message.Text{Text: "Result of " + r.Name + " (" + r.ID + "):\n" + r.Text()})
		}
	}
	return texts
}

// dataPart returns the content part for a file: by its kind if the API has one,
// as text if it is text, and as a note otherwise. Audio and PDF the API takes as bytes only,
// not by an address.
func (e *encoder) dataPart(d *message.Data) any {
	url, encoded := d.URL, ""
	if url == "" {
		encoded = base64.StdEncoding.EncodeToString(d.Bytes)
		url = "data:" + d.MediaType + ";base64," + encoded
	}
	switch {
	case strings.HasPrefix(d.MediaType, "image/") && e.responses:
		return sdk.ResponseInputImage{Type: "input_image", Detail: "auto", ImageURL: url}
	case strings.HasPrefix(d.MediaType, "image/"):
		return sdk.ChatMessagePart{Type: sdk.ChatMessagePartTypeImageURL, ImageURL: &sdk.ChatMessageImageURL{URL: url}}
	case encoded != "" && audioFormat(d.MediaType) != "" && !e.responses:
		return audioPart{"input_audio", audioData{encoded, audioFormat(d.MediaType)}}
	case d.MediaType == "application/pdf" && e.responses:
		if encoded == "" {
			return sdk.ResponseInputFile{Type: "input_file", FileURL: url}
		}
		return sdk.ResponseInputFile{Type: "input_file", Filename: cmp.Or(d.Name, "file.pdf"), FileData: url}
	case encoded != "" && d.MediaType == "application/pdf":
		return filePart{"file", fileData{cmp.Or(d.Name, "file.pdf"), url}}
	case encoded != "" && isText(d):
		return e.textPart(fileName(d) + ":\n" + string(d.Bytes))
	}
	note := "(" + fileName(d) + ", which cannot be shown here"
	if d.URL != "" {
		note += ": " + d.URL
	}
	return e.textPart(note + ")")
}

func (e *encoder) textPart(text string) any {
	if e.responses {
		return sdk.ResponseInputText{Type: "input_text", Text: text}
	}
	return sdk.ChatMessagePart{Type: sdk.ChatMessagePartTypeText, Text: text}
}

// audioFormat returns what the API calls a type of audio, empty for one that it does not
// take.
func audioFormat(mediaType string) string {
	switch mediaType {
	case "audio/wav", "audio/x-wav", "audio/wave":
		return "wav"
	case "audio/mpeg", "audio/mp3":
		return "mp3"
	}
	return ""
}

// isText reports whether a file can be shown as text.
func isText(d *message.Data) bool {
	return (strings.HasPrefix(d.MediaType, "text/") || d.MediaType == "application/json") && utf8.Valid(d.Bytes)
}

// fileName returns what a file is called in text: its type and its name.
func fileName(d *message.Data) string {
	kind := cmp.Or(d.MediaType, "file")
	if d.Name == "" {
		return kind
	}
	return fmt.Sprintf("%s %q", kind, d.Name)
}

// thinking returns the members by which reasoning goes back: those of all thinking in the
// message, the first of each name. A null means the text of the thinking, which the
// message holds already; see answer.think.
func (e *encoder) thinking(blocks message.Blocks) (ms []member) {
	var text strings.Builder
	for _, b := range blocks {
		if t, ok := b.(*message.Thinking); ok {
			text.WriteString(t.Text)
		}
	}
	for _, b := range blocks {
		t, ok := b.(*message.Thinking)
		if !ok {
			continue
		}
		for _, mb := range e.extras(t.Extra) {
			if string(mb.value) == "null" {
				mb.value = quote(text.String())
			}
			if !slices.ContainsFunc(ms, func(o member) bool { return o.name == mb.name }) {
				ms = append(ms, mb)
			}
		}
	}
	return ms
}

// endpointMember is the member of an Extra that says where it came from.
const endpointMember = "endpoint"

// ownMembers are no extras, whatever a stored Extra says: a second "content"
// would make two messages of one.
var ownMembers = []string{endpointMember, "role", "content", "name", "tool_calls", "tool_call_id", "id", "type", "function"}

// extras returns the members of extra in order, if they came from this
// endpoint or from somewhere unknown. Another vendor's are not understood here, and may be
// meant for its eyes alone; what is not an object is none.
func (e *encoder) extras(extra json.RawMessage) (ms []member) {
	if len(extra) == 0 {
		return nil
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(extra, &all) != nil {
		return nil
	}
	var from string
	if raw, ok := all[endpointMember]; ok && (json.Unmarshal(raw, &from) != nil || from != e.endpoint) {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(ownMembers, name) {
			ms = append(ms, member{name, all[name]})
		}
	}
	return ms
}

// A member is a member of a JSON object, its value as JSON.
type member struct {
	name  string
	value json.RawMessage
}

// encoded returns a value as JSON.
func encoded(v any) ([]byte, error) {
	e := newEncoder(nil, "")
	err := e.json.Encode(v)
	return bytes.TrimSuffix(e.wire.Bytes(), []byte("\n")), err
}

// quote returns s as a JSON string.
func quote(s string) json.RawMessage {
	data, _ := encoded(s) // a string always encodes
	return data
}
