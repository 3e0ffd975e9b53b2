package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/kitbag-go/kitbag/message"
)

// reasoning collects reasoning_details, which must go back in the form in which an unstreamed answer would have them:
// the pieces of one detail, which have the same type and index, are joined. OpenRouter sends these details; their
// members depend on the model behind it: a text, a summary, or encrypted data.
type reasoning []detail

// A detail is one of the reasoning_details, assembled from pieces.
type detail struct {
	members map[string]json.RawMessage
	pieces  map[string]*strings.Builder // of the members that come in pieces
}

// add adds pieces of details, and returns their readable text.
func (r *reasoning) add(details []json.RawMessage) string {
	var text strings.Builder
	for _, raw := range details {
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			continue
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

// continuedBy reports whether members are another piece of d. Without an index each detail is a separate one.
func (d detail) continuedBy(members map[string]json.RawMessage) bool {
	_, indexed := members["index"]
	return indexed && bytes.Equal(d.members["type"], members["type"]) && bytes.Equal(d.members["index"], members["index"])
}

// add adds the members of a piece. Texts are appended, and also appended to readable unless they
// are encrypted; of any other member the last value that is not null counts.
func (d detail) add(members map[string]json.RawMessage, readable *strings.Builder) {
	for name, value := range members {
		var piece string
		switch name {
		case "text", "summary", "data":
			if json.Unmarshal(value, &piece) != nil || string(value) == "null" {
				continue
			}
			if d.pieces[name] == nil {
				d.pieces[name] = new(strings.Builder)
			}
			d.pieces[name].WriteString(piece)
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
		for name, text := range d.pieces {
			d.members[name] = quote(text.String())
		}
		all[i] = d.members
	}
	data, err := encoded(all)
	if err != nil {
		return nil // unreachable: each member is valid JSON
	}
	return data
}

// parseDataURL reads a data URL in base64 (RFC 2397).
func parseDataURL(url string) (*message.Data, bool) {
	rest, ok := strings.CutPrefix(url, "data:")
	if !ok {
		return nil, false
	}
	kind, data, ok := strings.Cut(rest, ";base64,")
	if !ok {
		return nil, false
	}
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, false
	}
	return &message.Data{MediaType: kind, Bytes: b}, true
}
