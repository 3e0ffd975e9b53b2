// Package mcpcontent converts the content of MCP results to blocks, and keeps content that blocks cannot
// represent: links to resources, embedded resources, annotations. A model does not need it, but a gateway must
// pass it on unchanged. Package mcpclient stores it in the result's metadata, from where mcpserver sends it.
package mcpcontent

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/message"
)

// GroupsKey is the name of the groups extension, and the member of _meta that names the groups of a
// tool, a group, a prompt or a resource.
const GroupsKey = "io.modelcontextprotocol/groups"

// Key is the member of a result's metadata with the content that its blocks do not represent completely: a JSON
// array with an element for each original block, which is null if the block represents everything. It never
// leaves the program.
const Key = "kitbag/content"

// Keep returns the value of [Key] for content, or nil if there is nothing to keep.
func Keep(content []json.RawMessage) json.RawMessage {
	kept := make([]json.RawMessage, len(content))
	anyKept := false
	for i, raw := range content {
		if mustKeep(raw) && !hidesText(raw) {
			kept[i], anyKept = raw, true
		}
	}
	if !anyKept {
		return nil
	}
	value, _ := json.Marshal(kept) // mustKeep has decoded every element
	return value
}

// hidesText reports whether content has characters that people do not see, anywhere: its block may be without them.
func hidesText(raw json.RawMessage) bool {
	text := string(strictjson.Canonical(raw))
	return visible.Result(text) != text
}

// content is a piece of content of any type.
type content struct {
	Type     string    `json:"type"`
	Text     *string   `json:"text"`
	Data     *string   `json:"data"`
	MIME     string    `json:"mimeType"`
	URI      string    `json:"uri"`
	Name     string    `json:"name"`
	Title    string    `json:"title"`
	About    string    `json:"description"`
	Resource *resource `json:"resource"`
}

type resource struct {
	URI  string  `json:"uri"`
	MIME string  `json:"mimeType"`
	Text *string `json:"text"`
	Blob *string `json:"blob"`
}

// mustKeep reports whether raw is valid content of a known type that [Block] does not represent completely.
// Invalid content is not kept, because a client may reject the whole result for it.
func mustKeep(raw json.RawMessage) bool {
	if justText(raw) != nil {
		return false
	}
	var members map[string]json.RawMessage
	var c content
	var further struct { // what no block represents
		Size        *float64                   `json:"size"`
		Meta        map[string]json.RawMessage `json:"_meta"`
		Annotations *struct {
			Audience []string `json:"audience"`
			Priority *float64 `json:"priority"`
			Modified *string  `json:"lastModified"`
		} `json:"annotations"`
	}
	if json.Unmarshal(raw, &members) != nil || strictjson.Unmarshal(raw, &c) != nil || strictjson.Unmarshal(raw, &further) != nil {
		return false
	}
	_, isData := c.block().(*message.Data)
	switch c.Type {
	case "text":
		return c.Text != nil && len(members) > 2 // more than type and text
	case "image", "audio":
		family, _, _ := strings.Cut(c.MIME, "/")
		return isData && c.MIME != "" && (len(members) > 3 || family != c.Type) // more than type, data and mimeType; or audio with mimeType image/png
	case "resource_link":
		return c.URI != "" && c.Name != ""
	case "resource":
		return c.Resource != nil && c.Resource.URI != "" && (c.Resource.Text != nil || isData)
	}
	return false
}

// justText returns the JSON string s of content that is exactly {"type":"text","text":s}, or nil for other content. It is
// a fast path, because nearly all content has this form.
func justText(raw json.RawMessage) []byte {
	value, begins := bytes.CutPrefix(raw, []byte(`{"type":"text","text":`))
	value, ends := bytes.CutSuffix(value, []byte("}"))
	if !begins || !ends || len(value) == 0 || value[0] != '"' || strictjson.StringEnd(value, 0) != len(value) {
		return nil
	}
	return value
}

// Of returns the original content of each block of a result. An element is nil if the block represents everything, or if
// the block was changed, for example by middleware that removes secrets.
func Of(res *message.ToolResult) []json.RawMessage {
	out := make([]json.RawMessage, len(res.Blocks))
	var kept []json.RawMessage
	if json.Unmarshal(res.Meta[Key], &kept) != nil {
		return out
	}
	original := make([]message.Block, len(kept)) // the block for each kept piece of content; nil if none was kept
	for k, raw := range kept {
		if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '{' {
			original[k] = Block(raw)
		}
	}
	if len(kept) == len(out) {
		for i := range out {
			if original[i] != nil && reflect.DeepEqual(original[i], res.Blocks[i]) {
				out[i] = kept[i]
			}
		}
		return out
	}
	// Blocks were added or removed; the remaining ones are still in order.
	places := map[key][]int{} // indices of the pieces with this key, in order
	for k, b := range original {
		if b != nil {
			id := keyOf(b)
			places[id] = append(places[id], k)
		}
	}
	next := 0
	for i, b := range res.Blocks {
		id := keyOf(b)
		at, _ := slices.BinarySearch(places[id], next)
		places[id] = places[id][at:]
		if len(places[id]) > 0 && reflect.DeepEqual(original[places[id][0]], b) {
			out[i], next = kept[places[id][0]], places[id][0]+1
		}
	}
	return out
}

// A key contains the fields that [Block] sets: equal blocks have equal keys.
type key struct{ name, mediaType, content string }

func keyOf(b message.Block) key {
	switch b := b.(type) {
	case *message.Text:
		return key{content: b.Text}
	case *message.Data:
		return key{"data " + b.Name, b.MediaType, string(b.Bytes)}
	}
	return key{name: "other"}
}

// Block converts one piece of content. Unknown or invalid content becomes text, because models can often use it.
func Block(raw json.RawMessage) message.Block {
	var text string
	if value := justText(raw); value != nil && json.Unmarshal(value, &text) == nil {
		return &message.Text{Text: text}
	}
	var c content
	if strictjson.Unmarshal(raw, &c) == nil {
		if b := c.block(); b != nil {
			return b
		}
	}
	return &message.Text{Text: string(raw)}
}

// block returns nil for content that is invalid or of an unknown type.
func (c *content) block() message.Block {
	switch {
	case c.Type == "text" && c.Text != nil:
		return &message.Text{Text: *c.Text}
	case (c.Type == "image" || c.Type == "audio") && c.Data != nil:
		return data(c.Name, c.MIME, *c.Data)
	case c.Type == "resource_link" && c.URI != "":
		return c.link()
	case c.Type != "resource" || c.Resource == nil:
		return nil
	case c.Resource.Text != nil:
		return &message.Text{Text: "resource " + c.Resource.URI + ":\n" + *c.Resource.Text}
	case c.Resource.Blob != nil:
		return data(c.Resource.URI, c.Resource.MIME, *c.Resource.Blob)
	}
	return nil
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

// link converts a resource link to text, because the model API could not fetch the resource.
func (c *content) link() message.Block {
	s := "resource " + c.URI
	if title := cmp.Or(c.Title, c.Name); title != "" {
		s += " (" + title + ")"
	}
	if c.MIME != "" {
		s += ", " + c.MIME
	}
	if c.About != "" {
		s += ": " + c.About
	}
	return &message.Text{Text: s}
}
