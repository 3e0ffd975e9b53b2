package mcpclient

import (
	"bytes"
	"encoding/json"
	"maps"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/internal/mcpcontent"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// A result is the answer to tools/call, prompts/get or resources/read, as raw as possible.
type result struct {
	Content    []json.RawMessage          `json:"content"`
	Structured json.RawMessage            `json:"structuredContent"`
	IsError    bool                       `json:"isError"`
	Meta       map[string]json.RawMessage `json:"_meta"`

	ResultType string                     `json:"resultType"`
	Inputs     map[string]json.RawMessage `json:"inputRequests"`
	State      string                     `json:"requestState"`

	OldTask json.RawMessage `json:"task"` // only in revision 2025-11-25
	task    *task           // in all revisions; nil for none
}

// chunks turns a result into what the model reads: the content or, without content, the structured content.
func (r *result) chunks() []tool.Chunk {
	var out []tool.Chunk
	for _, raw := range r.Content {
		out = append(out, tool.Chunk{Block: visibleBlock(raw)})
	}
	structured := r.Structured
	if bytes.Equal(structured, []byte("null")) {
		structured = nil
	}
	switch {
	case len(out) > 0:
	case structured != nil:
		out = append(out, tool.Text(visible.Result(string(structured))))
	case r.IsError:
		out = append(out, tool.Failure(""))
	default:
		out = append(out, tool.Text(""))
	}
	last := &out[len(out)-1]
	last.Structured, last.Failed, last.Meta = structured, r.IsError, r.metadata()
	return out
}

// visibleBlock decodes a piece of content, and removes characters that people do not see.
func visibleBlock(raw json.RawMessage) message.Block {
	b := mcpcontent.Block(raw)
	switch b := b.(type) {
	case *message.Text:
		b.Text = visible.Result(b.Text)
	case *message.Data:
		removeInvisible(b)
	}
	return b
}

// removeInvisible removes invisible characters from the name, the media type and, if valid UTF-8, the bytes.
func removeInvisible(d *message.Data) {
	d.Name, d.MediaType = visible.Text(d.Name), visible.Text(d.MediaType)
	if text := string(d.Bytes); utf8.ValidString(text) && visible.Result(text) != text {
		d.Bytes = []byte(visible.Result(text))
	}
}

// metadata returns the server's metadata. Under [mcpcontent.Key], which a server cannot set, it has the content that the
// blocks do not represent completely.
func (r *result) metadata() map[string]json.RawMessage {
	out := maps.Clone(r.Meta)
	delete(out, mcpcontent.Key)
	if kept := mcpcontent.Keep(r.Content); kept != nil {
		if out == nil {
			out = map[string]json.RawMessage{}
		}
		out[mcpcontent.Key] = kept
	}
	return out
}

// A promptMessage is a message of a prompt or a sampling request.
type promptMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

func (m promptMessage) message() *message.Message {
	role := message.RoleUser
	if m.Role == "assistant" {
		role = message.RoleAssistant
	}
	return &message.Message{Role: role, Blocks: blocks(m.Content)}
}

// blocks decodes a content object, or a list of such objects.
func blocks(raw json.RawMessage) message.Blocks {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		list = []json.RawMessage{raw}
	}
	var out message.Blocks
	for _, item := range list {
		out = append(out, visibleBlock(item))
	}
	return out
}
