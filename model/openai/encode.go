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
)

// This file writes messages as the strictest of the servers wants them. What one of them
// refuses, no other needs.

// An encoder appends messages to wire, a comma in front of each. It depends on the
// messages alone, so that what it wrote can be kept; see history.
type encoder struct {
	wire     []byte
	endpoint string // whose extras go back
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
		if text := plainText(m.Blocks); text != "" {
			e.next()
			e.wire = appendTextMessage(e.wire, "system", m.Name, text)
		}
		return 1, true, nil
	case message.RoleUser:
		e.user(m.Name, m.Blocks)
		return 1, true, nil
	case message.RoleTool: // results nobody asked for, or asked for twice
		e.user("", append(hints(m.Blocks), strayResults(m.Blocks, nil)...))
		return 1, true, nil
	case message.RoleAssistant:
		return e.assistantUnit(msgs)
	}
	return 0, false, fmt.Errorf("a message has the role %q; it must be system, user, assistant or tool", m.Role)
}

// assistantUnit appends an assistant message and a result for each of its
// calls, in their order, from the tool messages that follow. What else is said
// in those comes behind: nothing may stand between calls and results.
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
	// wait for a person. The first result of a call counts.
	results := make(map[string]*message.ToolResult, len(calls))
	for n = 1; n < len(msgs) && len(results) < len(calls) && msgs[n].Role == message.RoleTool; n++ {
		for _, r := range msgs[n].ToolResults() {
			if open[r.ID] && results[r.ID] == nil {
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
	return n, len(results) == len(calls) || n < len(msgs), nil
}

// next begins a message.
func (e *encoder) next() { e.wire = append(e.wire, ',') }

// assistant appends an assistant message, unless there is nothing in it that a
// server would accept: a message needs content or calls.
func (e *encoder) assistant(m *message.Message, calls []*message.ToolCall) {
	text := assistantText(m.Blocks)
	if text == "" && len(calls) == 0 {
		return
	}
	e.next()
	b := append(e.wire, `{"role":"assistant"`...)
	if text != "" {
		b = appendString(append(b, `,"content":`...), text)
	}
	for _, mb := range e.thinking(m.Blocks) {
		b = appendMember(b, mb)
	}
	for i, c := range calls {
		if i == 0 {
			b = append(b, `,"tool_calls":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"id":`...), c.ID)
		b = appendString(append(b, `,"type":"function","function":{"name":`...), cmp.Or(wireName(c.Name), "unknown"))
		b = appendString(append(b, `,"arguments":`...), arguments(c.Input))
		b = append(b, '}')
		for _, mb := range e.extras(c.Extra) {
			b = appendMember(b, mb)
		}
		b = append(b, '}')
	}
	if len(calls) > 0 {
		b = append(b, ']')
	}
	e.wire = append(b, '}')
}

// arguments returns the text of a call's input, which must be an object: a model may have
// sent anything, and it stands in the conversation as it was.
func arguments(input json.RawMessage) []byte {
	trimmed := bytes.TrimSpace(input)
	if len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(trimmed) {
		return noArguments
	}
	return trimmed
}

var noArguments = []byte("{}")

// result appends the tool message for a call, and returns the files in it for
// the user message after the batch: many servers take text only in results. What they
// belong to is said on both sides. A call without a result gets one that says so.
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
	e.next()
	b := appendString(append(e.wire, `{"role":"tool","tool_call_id":`...), c.ID)
	b = appendString(append(b, `,"content":`...), text)
	e.wire = append(b, '}')
	return files
}

// user appends a user message, unless there is nothing in it: a string where it
// is all text, because some servers know nothing else, and parts where there
// are files.
func (e *encoder) user(name string, blocks message.Blocks) {
	if !hasFiles(blocks) {
		if text := plainText(blocks); text != "" {
			e.next()
			e.wire = appendTextMessage(e.wire, "user", name, text)
		}
		return
	}
	e.next()
	b := append(appendName(append(e.wire, `{"role":"user"`...), name), `,"content":[`...)
	comma := ""
	for _, block := range blocks {
		part := ""
		if d, ok := block.(*message.Data); ok {
			part = filePart(d)
		} else if text := textOf(block); text != "" {
			part = textPart(text)
		}
		if part != "" {
			b = append(append(b, comma...), part...)
			comma = ","
		}
	}
	e.wire = append(b, "]}"...)
}

// hasFiles reports whether there is anything but text.
func hasFiles(blocks message.Blocks) bool {
	return slices.ContainsFunc(blocks, func(b message.Block) bool { _, ok := b.(*message.Data); return ok })
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
	if len(blocks) == 1 {
		return textOf(blocks[0])
	}
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

// filePart returns the content part for a file: by its kind if the API has one,
// as text if it is text, and as a note otherwise. Audio and PDF the API takes as bytes only,
// not by an address.
func filePart(d *message.Data) string {
	url := d.URL
	encoded := ""
	if url == "" {
		encoded = base64.StdEncoding.EncodeToString(d.Bytes)
		url = "data:" + d.MediaType + ";base64," + encoded
	}
	switch {
	case strings.HasPrefix(d.MediaType, "image/"):
		return `{"type":"image_url","image_url":{"url":` + quote(url) + `}}`
	case encoded != "" && audioFormat(d.MediaType) != "":
		return `{"type":"input_audio","input_audio":{"data":` + quote(encoded) + `,"format":` + quote(audioFormat(d.MediaType)) + `}}`
	case encoded != "" && d.MediaType == "application/pdf":
		name := d.Name
		if name == "" {
			name = "file.pdf"
		}
		return `{"type":"file","file":{"filename":` + quote(name) + `,"file_data":` + quote(url) + `}}`
	case encoded != "" && isText(d):
		return textPart(fileName(d) + ":\n" + string(d.Bytes))
	}
	note := "(" + fileName(d) + ", which cannot be shown here"
	if d.URL != "" {
		note += ": " + d.URL
	}
	return textPart(note + ")")
}

// textPart returns the content part for text.
func textPart(text string) string { return `{"type":"text","text":` + quote(text) + `}` }

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
	kind := d.MediaType
	if kind == "" {
		kind = "file"
	}
	if d.Name == "" {
		return kind
	}
	return fmt.Sprintf("%s %q", kind, d.Name)
}

// thinking returns the members by which reasoning goes back: those of all thinking in the
// message, the first of each name. A null stands for the text of the thinking, which the
// message holds already; see answer.think.
func (e *encoder) thinking(blocks message.Blocks) (ms []member) {
	for _, b := range blocks {
		t, ok := b.(*message.Thinking)
		if !ok {
			continue
		}
		for _, mb := range e.extras(t.Extra) {
			if mb.value == "null" {
				mb.value = quote(thinkingText(blocks))
			}
			if !slices.ContainsFunc(ms, func(o member) bool { return o.name == mb.name }) {
				ms = append(ms, mb)
			}
		}
	}
	return ms
}

// thinkingText returns the reasoning as the server sent it.
func thinkingText(blocks message.Blocks) string {
	var parts []string
	for _, b := range blocks {
		if t, ok := b.(*message.Thinking); ok {
			parts = append(parts, t.Text)
		}
	}
	return strings.Join(parts, "")
}

// endpointMember is the member of an Extra that says where it came from.
const endpointMember = "endpoint"

// ownMembers are no extras, whatever a stored Extra says: a second "content"
// would make two messages of one.
var ownMembers = []string{endpointMember, "role", "content", "name", "tool_calls", "id", "type", "function"}

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
			ms = append(ms, member{name, string(all[name])})
		}
	}
	return ms
}

// appendTextMessage appends a message that is all text.
func appendTextMessage(b []byte, role, name, text string) []byte {
	b = appendString(append(b, `{"role":`...), role)
	b = appendName(b, name)
	return append(appendString(append(b, `,"content":`...), text), '}')
}

// appendName appends the member that says who speaks, in the characters that
// the API allows.
func appendName(b []byte, name string) []byte {
	if name == "" {
		return b
	}
	return appendString(append(b, `,"name":`...), wireName(name))
}

// quote returns s as a JSON string.
func quote(s string) string { return string(appendString(nil, s)) }
