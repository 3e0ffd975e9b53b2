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

// This file writes messages in the form that the strictest servers require; all other servers accept that form too.

// A wireMessage is go-openai's ChatCompletionMessage, extended by audio and files in the content and by vendors'
// members.
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

// An encoder appends messages to wire, each after a comma. The wire form depends only on the messages, the changes to
// the tools and withoutReasoning, so that a history can keep the wire form for later requests.
type encoder struct {
	wire     bytes.Buffer
	json     json.Encoder // to wire
	message  wireMessage  // being encoded; a local variable would be allocated for each message
	endpoint string       // only extras of this endpoint are sent back
	err      error        // the first error

	responses bool      // wire has items of the Responses API; see responses_items.go
	tools     *toolList // of the request

	withoutReasoning *provider.MessageSet // answers whose reasoning is not sent back
}

func newEncoder(wire []byte, endpoint string) *encoder {
	e := &encoder{wire: *bytes.NewBuffer(wire), endpoint: endpoint}
	e.json = *json.NewEncoder(&e.wire)
	e.json.SetEscapeHTML(false) // escaping <, > and & matters only in web pages
	return e
}

// addUnit appends the first message of msgs, and for an assistant message also the results of its calls. It returns the
// number of appended messages, and whether they are settled: later messages cannot change how they are encoded.
func (e *encoder) addUnit(msgs []*message.Message) (n int, settled bool, err error) {
	m := msgs[0]
	if m == nil {
		return 0, false, errors.New("a message is nil; remove it from Request.Messages")
	}
	switch m.Role {
	case message.RoleSystem:
		if text := plainText(m.Blocks); text != "" && e.responses {
			e.addItem(inputMessage(sdk.ChatMessageRoleSystem, text))
		} else if text != "" {
			e.addMessage(wireMessage{Role: sdk.ChatMessageRoleSystem, Name: wireName(m.Name), Content: text})
		}
	case message.RoleUser:
		e.addUser(m.Name, m.Blocks)
	case message.RoleTool: // results without a call, or second results of a call
		e.addUser("", provider.Unmatched(m, nil))
	case message.RoleAssistant:
		return e.addAssistantWithResults(msgs)
	default:
		return 0, false, fmt.Errorf("a message has the role %q; it must be system, user, assistant or tool", m.Role)
	}
	return 1, true, e.err
}

// addMessage appends a message with extra members that a vendor defines.
func (e *encoder) addMessage(m wireMessage, extras ...member) {
	e.message = m
	e.wire.WriteByte(',')
	e.addObject(&e.message, extras)
}

// addObject appends v, which encodes as a JSON object, with extra members.
func (e *encoder) addObject(v any, extras []member) {
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

// addAssistantWithResults appends an assistant message and a result for each of its calls, in order.
func (e *encoder) addAssistantWithResults(msgs []*message.Message) (n int, settled bool, err error) {
	calls, results, afterResults, n, err := provider.Calls(msgs)
	if err != nil {
		return 0, false, err
	}
	e.addAssistant(msgs[0], calls)
	for _, c := range calls {
		afterResults = append(afterResults, e.addResult(c, results[c.ID])...)
	}
	e.addUser("", afterResults)
	noMoreResults := len(results) == len(calls) || n < len(msgs) // the next message of another role ends the results
	return n, noMoreResults, e.err
}

// addAssistant appends an assistant message, unless it has neither text nor calls, which servers reject.
func (e *encoder) addAssistant(m *message.Message, calls []*message.ToolCall) {
	if e.responses {
		e.addOutput(m, calls)
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
			withExtras.addObject(call, extras)
			call = json.RawMessage(withExtras.wire.Bytes())
		}
		w.ToolCalls = append(w.ToolCalls, call)
	}
	e.addMessage(w, e.reasoningMembers(m.Blocks)...)
}

// addResult appends the tool message for a call; r is nil for a call without a result. Many servers accept only text in
// a result, so addResult returns the files in r, to be sent in a user message after all results. The tool message and
// the user message name the files.
func (e *encoder) addResult(c *message.ToolCall, r *message.ToolResult) (files message.Blocks) {
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
		e.addItem(sdk.ResponseFunctionCallOutput{Type: "function_call_output", CallID: c.ID, Output: text})
	} else {
		e.addMessage(wireMessage{Role: sdk.ChatMessageRoleTool, ToolCallID: c.ID, Content: text})
	}
	return files
}

// addUser appends a user message, unless blocks are empty. Without files the content is a string, because some servers
// accept nothing else; with files the content is an array of parts.
func (e *encoder) addUser(name string, blocks message.Blocks) {
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
	if e.responses { // this API has no member for the name
		e.addItem(inputMessage(w.Role, w.Content))
		return
	}
	e.addMessage(w)
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

// plainText joins the texts of user or system blocks, with a blank line between them.
func plainText(blocks message.Blocks) string {
	var parts []string
	for _, b := range blocks {
		if text := textOf(b); text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "\n\n")
}

// assistantText returns the text of an assistant message. The APIs accept no files in an assistant message, so the text
// names the files that the model made.
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

// dataPart returns the content part for a file: an image, audio or PDF part, a text part for a text file, and for all
// other files a note. Chat completions accepts audio and PDF files only as bytes, not by URL; the Responses API accepts
// PDF files in both ways, and no audio.
func (e *encoder) dataPart(d *message.Data) any {
	url, inBase64 := d.URL, ""
	if url == "" {
		inBase64 = base64.StdEncoding.EncodeToString(d.Bytes)
		url = "data:" + d.MediaType + ";base64," + inBase64
	}
	switch {
	case strings.HasPrefix(d.MediaType, "image/") && e.responses:
		return sdk.ResponseInputImage{Type: "input_image", Detail: "auto", ImageURL: url}
	case strings.HasPrefix(d.MediaType, "image/"):
		return sdk.ChatMessagePart{Type: sdk.ChatMessagePartTypeImageURL, ImageURL: &sdk.ChatMessageImageURL{URL: url}}
	case inBase64 != "" && audioFormat(d.MediaType) != "" && !e.responses:
		return audioPart{"input_audio", audioData{inBase64, audioFormat(d.MediaType)}}
	case d.MediaType == "application/pdf" && e.responses:
		if inBase64 == "" {
			return sdk.ResponseInputFile{Type: "input_file", FileURL: url}
		}
		return sdk.ResponseInputFile{Type: "input_file", Filename: cmp.Or(d.Name, "file.pdf"), FileData: url}
	case inBase64 != "" && d.MediaType == "application/pdf":
		return filePart{"file", fileData{cmp.Or(d.Name, "file.pdf"), url}}
	case inBase64 != "" && provider.IsText(d):
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

// audioFormat returns the name that chat completions has for a media type of audio, or "" if it accepts no such audio.
func audioFormat(mediaType string) string {
	switch mediaType {
	case "audio/wav", "audio/x-wav", "audio/wave":
		return "wav"
	case "audio/mpeg", "audio/mp3":
		return "mp3"
	}
	return ""
}

// reasoningMembers returns the members in which reasoning is sent back. If several blocks have a member of the same
// name, the first counts. A null, which answer.addReasoning stores, is replaced with the text of all thinking blocks.
func (e *encoder) reasoningMembers(blocks message.Blocks) (ms []member) {
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
			if !slices.ContainsFunc(ms, func(earlier member) bool { return earlier.name == mb.name }) {
				ms = append(ms, mb)
			}
		}
	}
	return ms
}

// endpointMember is the member of an Extra that says which protocol.endpoint sent the Extra.
const endpointMember = "endpoint"

// reservedMembers are never taken from a stored Extra: the encoder itself writes them, and a message must not have two
// members with the same name.
var reservedMembers = []string{endpointMember, "role", "content", "name", "tool_calls", "tool_call_id", "id", "type", "function"}

// extras returns the members of extra, sorted by name, unless extra names another endpoint: the extras of another
// vendor mean nothing to this endpoint, and may be confidential. An extra that is not an object has no members.
func (e *encoder) extras(extra json.RawMessage) (ms []member) {
	all := membersOf(extra)
	if sender, ok := all[endpointMember]; ok && jsonString(sender) != e.endpoint {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(reservedMembers, name) {
			ms = append(ms, member{name, all[name]})
		}
	}
	return ms
}

type member struct {
	name  string
	value json.RawMessage
}

// encodeJSON is json.Marshal without escaping <, > and &.
func encodeJSON(v any) ([]byte, error) {
	e := newEncoder(nil, "")
	err := e.json.Encode(v)
	return bytes.TrimSuffix(e.wire.Bytes(), []byte("\n")), err
}

func quote(s string) json.RawMessage {
	data, _ := encodeJSON(s) // a string always encodes
	return data
}
