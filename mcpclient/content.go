package mcpclient

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// A result is the answer to tools/call, as it came.
type result struct {
	Content    []json.RawMessage          `json:"content"`
	Structured json.RawMessage            `json:"structuredContent"`
	IsError    bool                       `json:"isError"`
	Meta       map[string]json.RawMessage `json:"_meta"`

	ResultType string                     `json:"resultType"`
	Inputs     map[string]json.RawMessage `json:"inputRequests"`
	State      string                     `json:"requestState"`
}

// chunks turns a result into what the model reads. A result that says nothing
// but has structured content says that.
func (r *result) chunks() []tool.Chunk {
	var out []tool.Chunk
	for _, raw := range r.Content {
		out = append(out, tool.Chunk{Block: block(raw)})
	}
	structured := r.Structured
	if bytes.Equal(structured, []byte("null")) {
		structured = nil
	}
	if len(out) == 0 && structured != nil {
		out = append(out, tool.Text(string(structured)))
	}
	if len(out) == 0 && r.IsError {
		out = append(out, tool.Failure(""))
	}
	if len(out) == 0 {
		out = append(out, tool.Text(""))
	}
	last := &out[len(out)-1]
	last.Structured, last.Failed, last.Meta = structured, r.IsError, r.Meta
	return out
}

// block reads one piece of content. What it does not know, or what is broken,
// becomes text: the model can often make something of it.
func block(raw json.RawMessage) message.Block {
	var c struct {
		Type     string          `json:"type"`
		Text     *string         `json:"text"`
		Data     *string         `json:"data"`
		MIME     string          `json:"mimeType"`
		URI      string          `json:"uri"`
		Name     string          `json:"name"`
		Title    string          `json:"title"`
		About    string          `json:"description"`
		Resource json.RawMessage `json:"resource"`
	}
	if json.Unmarshal(raw, &c) == nil {
		switch {
		case c.Type == "text" && c.Text != nil:
			return &message.Text{Text: *c.Text}
		case (c.Type == "image" || c.Type == "audio") && c.Data != nil:
			return data(c.Name, c.MIME, *c.Data)
		case c.Type == "resource_link" && c.URI != "":
			return link(c.URI, c.MIME, c.Title, c.Name, c.About)
		case c.Type == "resource" && c.Resource != nil:
			if b := resource(c.Resource); b != nil {
				return b
			}
		}
	}
	return &message.Text{Text: string(raw)}
}

func data(name, mime, base64data string) message.Block {
	b, err := base64.StdEncoding.DecodeString(base64data)
	if err != nil {
		b, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(base64data, "="))
	}
	if err != nil {
		return &message.Text{Text: fmt.Sprintf("[%s that is not valid base64, %d characters]", mime, len(base64data))}
	}
	return &message.Data{Name: name, MediaType: mime, Bytes: b}
}

// link names a resource instead of holding it. It is text, since the model API
// could not fetch it.
func link(uri, mime, title, name, about string) message.Block {
	s := "resource " + uri
	if title == "" {
		title = name
	}
	if title != "" {
		s += " (" + title + ")"
	}
	if mime != "" {
		s += ", " + mime
	}
	if about != "" {
		s += ": " + about
	}
	return &message.Text{Text: s}
}

func resource(raw json.RawMessage) message.Block {
	var r struct {
		URI  string  `json:"uri"`
		MIME string  `json:"mimeType"`
		Text *string `json:"text"`
		Blob *string `json:"blob"`
	}
	if json.Unmarshal(raw, &r) != nil {
		return nil
	}
	switch {
	case r.Text != nil:
		return &message.Text{Text: "resource " + r.URI + ":\n" + *r.Text}
	case r.Blob != nil:
		return data(r.URI, r.MIME, *r.Blob)
	}
	return nil
}
