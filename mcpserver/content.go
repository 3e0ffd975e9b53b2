package mcpserver

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/internal/mcpcontent"
	"github.com/kitbag-go/kitbag/message"
)

// failure returns the result of a call that has failed.
func failure(text string) object {
	return object{"content": []object{{"type": "text", "text": text}}, "isError": true}
}

// result converts the result of a call to MCP's form. Before revision 2026-07-28 structured content must be an object;
// other structured content is left out, because the text contains it.
func (r *request) result(res *message.ToolResult) object {
	content := make([]any, 0, len(res.Blocks))
	original := mcpcontent.Of(res) // each block as an upstream server sent it, or nil
	for i, b := range res.Blocks {
		if original[i] != nil {
			content = append(content, original[i])
		} else if c := contentOf(b); c != nil {
			content = append(content, c)
		}
	}
	o := object{"content": content}
	if res.Outcome != message.OutcomeSuccess {
		o["isError"] = true
	}
	s := bytes.TrimSpace(res.Structured)
	if len(s) > 0 && (r.anyStructured || s[0] == '{') && json.Valid(s) {
		o["structuredContent"] = json.RawMessage(s)
	}
	meta := maps.Clone(res.Meta)
	delete(meta, mcpcontent.Key)
	delete(meta, mcp.MetaKeyServerInfo) // the upstream server's
	maps.DeleteFunc(meta, func(_ string, v json.RawMessage) bool { return !json.Valid(v) })
	if len(meta) > 0 {
		o["_meta"] = meta
	}
	return o
}

// contentOf converts a block to MCP's form. It returns nil if the block is neither Text nor Data.
func contentOf(b message.Block) object {
	switch b := b.(type) {
	case *message.Text:
		return object{"type": "text", "text": b.Text}
	case *message.Data:
		name := cmp.Or(b.Name, "data")
		if b.URL != "" {
			o := object{"type": "resource_link", "uri": b.URL, "name": name}
			if b.MediaType != "" {
				o["mimeType"] = b.MediaType
			}
			return o
		}
		kind, _, _ := strings.Cut(b.MediaType, "/")
		if kind == "image" || kind == "audio" {
			return object{"type": kind, "data": base64.StdEncoding.EncodeToString(b.Bytes), "mimeType": b.MediaType}
		}
		uri := name
		if !strings.Contains(uri, ":") { // an embedded resource must have a URI
			uri = "result:///" + uri
		}
		return object{"type": "resource", "resource": contentsOf(uri, b.MediaType, b.Bytes)}
	}
	return nil
}

// titled adds the title unless it is empty, because clients would show an empty title.
func titled(o object, title string) object {
	if title != "" {
		o["title"] = title
	}
	return o
}

// labelled adds the groups to the object's _meta, in the form of MCP's proposal for primitive grouping.
func labelled(o object, groups []string) object {
	if len(groups) > 0 {
		meta, _ := o["_meta"].(object)
		if meta == nil {
			meta = object{}
			o["_meta"] = meta
		}
		meta[mcpcontent.GroupsKey] = groups
	}
	return o
}

// withMembers adds members to an object.
func withMembers[V any](o object, members map[string]V) object {
	for k, v := range members {
		o[k] = v
	}
	return o
}

// cut returns s or, if s is longer than n bytes, its first characters and a mark, in at most n bytes.
func cut(s string, n int) string {
	const mark = " …"
	if len(s) <= n {
		return s
	}
	n = max(0, n-len(mark))
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}

// textual matches the media types of text, including those that do not begin with "text/".
var textual = lazy.Regexp(`^(text/.*|application/(json|xml|yaml|toml|javascript|sql|x-sh)|.*\+(json|xml|yaml))(;.*)?$`)

// contentsOf returns the content of a resource: as text if its media type, which may be empty, and its bytes are those of
// text, otherwise in base64.
func contentsOf(uri, mediaType string, data []byte) object {
	if (mediaType == "" || textual().MatchString(mediaType)) && utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 {
		return object{"uri": uri, "mimeType": cmp.Or(mediaType, "text/plain"), "text": string(data)}
	}
	return object{"uri": uri, "mimeType": cmp.Or(mediaType, http.DetectContentType(data)), "blob": base64.StdEncoding.EncodeToString(data)}
}
