package openai

import (
	"bytes"
	"encoding/json"
	"strconv"

	sdk "github.com/sashabaranov/go-openai"
)

// A responseEvent is an event of the stream. Its JSON is part of the payload, so it must not be kept.
type responseEvent struct {
	Type         string
	OutputIndex  *int
	ItemID       string
	ContentIndex int
	SummaryIndex int
	Delta        json.RawMessage
	Text         string
	Refusal      string
	Arguments    json.RawMessage
	Part         struct{ Type, Text string } // the text may be a refusal
	Item         json.RawMessage
	Response     *responseBody
	Object       string
	Choices      json.RawMessage
}

// A responseBody is a complete response.
type responseBody struct {
	ID, Model, Status string
	Output            []json.RawMessage // nil if the member is missing
	Usage             *sdk.ResponseUsage
	Error             json.RawMessage
	Incomplete        string // the reason; empty if the response is complete
}

// An eventReader reads the events of a response. Unlike a jsonReader it records values of an unexpected type.
type eventReader struct {
	jsonReader
	mismatch bool
}

// is reports whether the next value starts with the byte. Otherwise it skips the value, which is a mismatch unless
// it is null.
func (r *eventReader) is(first byte) bool {
	if r.null() {
		return false
	}
	if r.peek() != first {
		r.mismatch = true
		r.raw()
		return false
	}
	return true
}

// members is like that of jsonReader; a value that is not an object is a mismatch.
func (r *eventReader) members(yield func(name []byte) bool) {
	if r.is('{') {
		r.jsonReader.members(yield)
	}
}

// items is like that of jsonReader; a value that is not an array is a mismatch.
func (r *eventReader) items(yield func() bool) {
	if r.is('[') {
		r.jsonReader.items(yield)
	}
}

func (r *eventReader) text() string {
	if !r.is('"') {
		return ""
	}
	return unquote(r.quoted())
}

func (r *eventReader) number() *int {
	if r.null() {
		return nil
	}
	n, err := strconv.Atoi(string(r.raw()))
	r.mismatch = r.mismatch || err != nil
	return &n
}

// value reads any value; it is nil for null.
func (r *eventReader) value() json.RawMessage {
	if r.null() {
		return nil
	}
	return r.raw()
}

// decode reads an event. It reports whether the payload is valid JSON, and whether its values have the right types.
func (e *responseEvent) decode(payload []byte) (valid, matches bool) {
	r := eventReader{jsonReader: jsonReader{data: payload}}
	for name := range r.members {
		switch string(name) {
		case `"type"`:
			e.Type = r.text()
		case `"output_index"`:
			e.OutputIndex = r.number()
		case `"item_id"`:
			e.ItemID = r.text()
		case `"content_index"`:
			e.ContentIndex = orZero(r.number())
		case `"summary_index"`:
			e.SummaryIndex = orZero(r.number())
		case `"delta"`:
			e.Delta = r.value()
		case `"text"`:
			e.Text = r.text()
		case `"refusal"`:
			e.Refusal = r.text()
		case `"arguments"`:
			e.Arguments = r.value()
		case `"part"`:
			e.Part.Type, e.Part.Text = r.part()
		case `"item"`:
			e.Item = r.value()
		case `"response"`:
			if r.is('{') {
				e.Response = r.body()
			}
		case `"object"`:
			e.Object = r.text()
		case `"choices"`:
			e.Choices = r.value()
		default:
			r.raw()
		}
	}
	r.end()
	return !r.bad, !r.mismatch
}

func orZero(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func (r *eventReader) part() (kind, text string) {
	var refusal string
	for name := range r.members {
		switch string(name) {
		case `"type"`:
			kind = r.text()
		case `"text"`:
			text = r.text()
		case `"refusal"`:
			refusal = r.text()
		default:
			r.raw()
		}
	}
	return kind, text + refusal
}

// decodeBody reads a complete response; it returns nil if data is not one.
func decodeBody(data []byte) *responseBody {
	r := eventReader{jsonReader: jsonReader{data: data}}
	if !r.is('{') {
		return nil
	}
	b := r.body()
	r.end()
	if r.bad || r.mismatch {
		return nil
	}
	return b
}

func (r *eventReader) body() *responseBody {
	b := new(responseBody)
	for name := range r.members {
		switch string(name) {
		case `"id"`:
			b.ID = r.text()
		case `"model"`:
			b.Model = r.text()
		case `"status"`:
			b.Status = r.text()
		case `"output"`:
			if r.is('[') {
				b.Output = []json.RawMessage{}
				for range r.items {
					b.Output = append(b.Output, r.raw())
				}
			}
		case `"usage"`:
			if u := r.value(); u != nil {
				b.Usage = new(sdk.ResponseUsage)
				r.mismatch = json.Unmarshal(u, b.Usage) != nil || r.mismatch
			}
		case `"error"`:
			b.Error = r.value()
		case `"incomplete_details"`:
			for name := range r.members {
				if string(name) == `"reason"` {
					b.Incomplete = r.text()
				} else {
					r.raw()
				}
			}
		default:
			r.raw()
		}
	}
	return b
}

// itemMembers returns the members of an item, and the copy of its JSON that they are slices of; nil if it is not an
// object.
func itemMembers(item json.RawMessage) (members map[string]json.RawMessage, copied json.RawMessage) {
	copied = bytes.ToValidUTF8(bytes.Clone(item), []byte("\ufffd"))
	return membersOf(copied), copied
}

// membersOf returns the members of an object as slices of data, or nil if data is not an object.
func membersOf(data []byte) map[string]json.RawMessage {
	r := jsonReader{data: data}
	if r.peek() != '{' {
		return nil
	}
	members := map[string]json.RawMessage{}
	for name := range r.members {
		members[unquote(name)] = r.raw()
	}
	r.end()
	if r.bad {
		return nil
	}
	return members
}

// decodeKept reads the kept items of an answer. ok is false if keep did not write them.
func decodeKept(data []byte) (kept []keptItem, ok bool) {
	r := eventReader{jsonReader: jsonReader{data: data}}
	for range r.items {
		var k keptItem
		for name := range r.members {
			switch string(name) {
			case `"item"`:
				if item := r.value(); item != nil {
					k.Item = membersOf(item)
					r.mismatch = r.mismatch || k.Item == nil
				}
			case `"parts"`:
				k.Parts = r.keptParts()
			default:
				r.raw()
			}
		}
		kept = append(kept, k)
	}
	r.end()
	return kept, !r.bad && !r.mismatch
}

func (r *eventReader) keptParts() (parts []keptPart) {
	for range r.items {
		var p keptPart
		for name := range r.members {
			switch string(name) {
			case `"type"`:
				p.Type = r.text()
			case `"size"`:
				p.Size = orZero(r.number())
			default:
				r.raw()
			}
		}
		parts = append(parts, p)
	}
	return parts
}
