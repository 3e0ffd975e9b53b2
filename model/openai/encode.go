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

	sdk "github.com/sashabaranov/go-openai"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

// This file writes messages in the form that the strictest servers require; the others accept it too.

// A wireMessage is go-openai's ChatCompletionMessage, extended by audio and files in the content and by vendors'
// own members.
type wireMessage struct {
	Role       string `json:"role"`
	Name       string `json:"name,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
	Content    any    `json:"content,omitempty"`    // a string, or a slice of parts
	ToolCalls  []any  `json:"tool_calls,omitempty"` // sdk.ToolCall, or its JSON with more members
}

// An audioPart and a filePart are content parts that sdk.ChatMessagePart lacks.
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

// An encoder appends messages to wire, each after a comma. Its output depends only on the
// messages and the changes to the tools, so that it can be kept; see history.
type encoder struct {
	wire     bytes.Buffer
	json     json.Encoder // to wire
	message  wireMessage  // the message being encoded
	endpoint string       // only extras of this endpoint are sent back
	err      error        // the first error

	responses bool      // write items of the Responses API; see responses_items.go
	tools     *toolList // of the request

	withoutReasoning *provider.MessageSet // see history
}

func newEncoder(wire []byte, endpoint string) *encoder {
	e := &encoder{wire: *bytes.NewBuffer(wire), endpoint: endpoint}
	e.json = *json.NewEncoder(&e.wire)
	e.json.SetEscapeHTML(false) // escaping <, > and & matters only in web pages
	return e
}

// unit appends the first message of msgs, with the results of its calls if it is an assistant message. It returns the
// number of messages, and whether they are settled: later messages cannot change how they are encoded.
func (e *encoder) unit(msgs []*message.Message) (n int, settled bool, err error) {
	m := msgs[0]
	if m == nil {
		return 0, false, errors.New("a message is nil; remove it from Request.Messages")
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
	case message.RoleTool: // results without a call, or of a call that has a result already
		e.user("", provider.Unmatched(m, nil))
	case message.RoleAssistant:
		return e.assistantUnit(msgs)
	default:
		return 0, false, fmt.Errorf("a message has the role %q; it must be system, user, assistant or tool", m.Role)
	}
	return 1, true, e.err
}

// add appends a message, with extra members of a vendor.
func (e *encoder) add(m wireMessage, extras ...member) {
	e.message = m
	e.wire.WriteByte(',')
	e.object(&e.message, extras)
}

// object appends v, an object, with extra members.
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

// assistantUnit appends an assistant message and a result for each of its calls, in order.
func (e *encoder) assistantUnit(msgs []*message.Message) (n int, settled bool, err error) {
	calls, results, later, n, err := provider.Calls(msgs)
	if err != nil {
		return 0, false, err
	}
	e.assistant(msgs[0], calls)
	for _, c := range calls {
		later = append(later, e.result(c, results[c.ID])...)
	}
	e.user("", later)
	return n, len(results) == len(calls) || n < len(msgs), e.err // no results follow a message of another role
}

// assistant appends an assistant message, unless it has neither text nor calls, which servers reject.
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
			Function: sdk.FunctionCall{Name: callName(c), Arguments: string(provider.Arguments(c.Input))}}
		if extras := e.extras(c.Extra); extras != nil {
			withExtras := newEncoder(nil, e.endpoint)
			withExtras.object(call, extras)
			call = json.RawMessage(withExtras.wire.Bytes())
		}
		w.ToolCalls = append(w.ToolCalls, call)
	}
	e.add(w, e.thinking(m.Blocks)...)
}

// result appends the tool message for a call. It returns the files in the result, which go into the user message after
// all results, since many servers accept only text in a result. Both messages name the files. For a call without a
// result the message says so.
func (e *encoder) result(c *message.ToolCall, r *message.ToolResult) (files message.Blocks) {
	text := "(the call was interrupted and has no result)"
	if r != nil {
		var parts []string
		for _, b := range r.Blocks {
			switch b := b.(type) {
			case *message.Text:
				parts = append(parts, b.Text)
			case *message.Data:
				name := provider.DescribeFile(b)
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

// user appends a user message, unless it is empty. Without files the content is a string, because some servers accept
// nothing else; otherwise it is parts.
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
	if e.responses { // the API has no member for the name
		e.item(inputMessage(w.Role, w.Content))
		return
	}
	e.add(w)
}

// textOf returns the text of a block in a user or system message, or "" if it is blank, which several servers reject.
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

// plainText joins the texts in blocks, with a blank line between them; empty if there are none.
func plainText(blocks message.Blocks) string {
	var parts []string
	for _, b := range blocks {
		if text := textOf(b); text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "\n\n")
}

// assistantText returns the text of an assistant message. Files that the model made cannot be
// sent back in it; they are named instead.
func assistantText(blocks message.Blocks) string {
	var parts []string
	for _, b := range blocks {
		switch b := b.(type) {
		case *message.Text:
			if text := textOf(b); text != "" {
				parts = append(parts, text)
			}
		case *message.Data:
			parts = append(parts, "("+provider.DescribeFile(b)+")")
		}
	}
	return strings.Join(parts, "\n\n")
}

// dataPart returns the content part for a file: of the file's kind if the API has one, text for a text file, and
// otherwise a note. The API takes audio and PDF files only as bytes, not by URL.
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
	case encoded != "" && provider.IsText(d):
		return e.textPart(provider.DescribeFile(d) + ":\n" + string(d.Bytes))
	}
	return e.textPart(provider.FileNote(d))
}

func (e *encoder) textPart(text string) any {
	if e.responses {
		return sdk.ResponseInputText{Type: "input_text", Text: text}
	}
	return sdk.ChatMessagePart{Type: sdk.ChatMessagePartTypeText, Text: text}
}

// audioFormat returns the API's name of a type of audio, empty if the API does not take it.
func audioFormat(mediaType string) string {
	switch mediaType {
	case "audio/wav", "audio/x-wav", "audio/wave":
		return "wav"
	case "audio/mpeg", "audio/mp3":
		return "mp3"
	}
	return ""
}

// thinking returns the members in which reasoning is sent back. If several blocks have a member of the same name, the
// first counts. A null stands for the text of the thinking blocks, and is replaced with it; see answer.reasoning.
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

// endpointMember is the member of an Extra that says which endpoint has sent the Extra.
const endpointMember = "endpoint"

// ownMembers are the members that the encoder itself writes. They are never taken from a stored Extra, since a message
// must not have two members with the same name.
var ownMembers = []string{endpointMember, "role", "content", "name", "tool_calls", "tool_call_id", "id", "type", "function"}

// extras returns the members of extra, sorted, if it is for this endpoint or names none. The extras of another vendor
// mean nothing to this endpoint, and may be confidential. An extra that is not an object has no members.
func (e *encoder) extras(extra json.RawMessage) (ms []member) {
	all := membersOf(extra)
	if len(all) == 0 {
		return nil // the usual case
	}
	if origin, ok := all[endpointMember]; ok && (origin[0] != '"' || unquote(origin) != e.endpoint) {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(ownMembers, name) {
			ms = append(ms, member{name, all[name]})
		}
	}
	return ms
}

// A member is a member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

func encoded(v any) ([]byte, error) {
	e := newEncoder(nil, "")
	err := e.json.Encode(v)
	return bytes.TrimSuffix(e.wire.Bytes(), []byte("\n")), err
}

func quote(s string) json.RawMessage {
	data, _ := encoded(s) // a string always encodes
	return data
}
