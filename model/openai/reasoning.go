package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/kitbag-go/kitbag/message"
)

// reasoning collects OpenRouter's reasoning_details, which must be sent back in the form of an unstreamed answer:
// consecutive pieces with the same type and index are joined to one detail. The members of a detail depend on the model:
// a text, a summary, or encrypted data.
type reasoning []detail

// A detail is one of the reasoning_details, assembled from pieces.
type detail struct {
	members map[string]json.RawMessage
	texts   map[string]*strings.Builder // the members whose pieces are joined; encode moves them to members
}

// add adds pieces of details, and returns the readable text in them.
func (r *reasoning) add(details []json.RawMessage) string {
	var text strings.Builder
	for _, raw := range details {
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			continue // not an object
		}
		n := len(*r)
		if n == 0 || !(*r)[n-1].continuedBy(members) {
			*r = append(*r, detail{map[string]json.RawMessage{}, map[string]*strings.Builder{}})
			n++
		}
		(*r)[n-1].add(members, &text)
	}
	return text.String()
}

// continuedBy reports whether members are another piece of d. Without an index each piece is a detail of its own.
func (d detail) continuedBy(members map[string]json.RawMessage) bool {
	_, indexed := members["index"]
	return indexed && bytes.Equal(d.members["type"], members["type"]) && bytes.Equal(d.members["index"], members["index"])
}

// add adds the members of a piece. Texts are joined, and appended to readable unless they are encrypted. Of all other
// members the last value that is not null counts.
func (d detail) add(members map[string]json.RawMessage, readable *strings.Builder) {
	for name, value := range members {
		var piece string
		switch name {
		case "text", "summary", "data":
			if json.Unmarshal(value, &piece) != nil || string(value) == "null" {
				continue
			}
			if d.texts[name] == nil {
				d.texts[name] = new(strings.Builder)
			}
			d.texts[name].WriteString(piece)
			if name != "data" {
				readable.WriteString(piece)
			}
		default:
			if _, known := d.members[name]; !known || string(value) != "null" {
				d.members[name] = value
			}
		}
	}
}

// encode returns the details as a JSON array, nil if there are none.
func (r reasoning) encode() json.RawMessage {
	if len(r) == 0 {
		return nil
	}
	all := make([]map[string]json.RawMessage, len(r))
	for i, d := range r {
		for name, text := range d.texts {
			d.members[name] = quote(text.String())
		}
		all[i] = d.members
	}
	data, err := encodeJSON(all)
	if err != nil {
		return nil // unreachable: each member is valid JSON
	}
	return data
}

// parseDataURL reads a data URL in base64 (RFC 2397).
func parseDataURL(url string) (*message.Data, bool) {
	rest, isData := strings.CutPrefix(url, "data:")
	mediaType, encoded, isBase64 := strings.Cut(rest, ";base64,")
	data, err := base64.StdEncoding.DecodeString(encoded)
	if !isData || !isBase64 || err != nil {
		return nil, false
	}
	return &message.Data{MediaType: mediaType, Bytes: data}, true
}
