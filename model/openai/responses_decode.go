package openai

import (
	"bytes"
	"encoding/json"

	sdk "github.com/sashabaranov/go-openai"
)

// A responseEvent is an event of the stream. The raw JSON in it is a slice of the payload, which must not be kept.
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
	Part         struct{ Type, Text string } // Text may be a refusal
	Item         json.RawMessage
	Response     *responseBody
	Object       string          // "response" if the event is a complete response
	Choices      json.RawMessage // only in chat completions
}

// A responseBody is a complete response.
type responseBody struct {
	ID, Model, Status string
	Output            []json.RawMessage // nil if the member is missing
	Usage             *sdk.ResponseUsage
	Error             json.RawMessage
	Incomplete        string // incomplete_details.reason
}

// decode reads an event. It reports whether the payload is valid JSON, and whether the values in it have the expected
// types.
func (e *responseEvent) decode(payload []byte) (valid, matches bool) {
	r := jsonReader{data: payload}
	for name := range r.members {
		switch string(name) {
		case `"type"`:
			e.Type = r.text()
		case `"output_index"`:
			e.OutputIndex = r.optionalInteger()
		case `"item_id"`:
			e.ItemID = r.text()
		case `"content_index"`:
			e.ContentIndex = r.integer()
		case `"summary_index"`:
			e.SummaryIndex = r.integer()
		case `"delta"`:
			e.Delta = r.optionalValue()
		case `"text"`:
			e.Text = r.text()
		case `"refusal"`:
			e.Refusal = r.text()
		case `"arguments"`:
			e.Arguments = r.optionalValue()
		case `"part"`:
			e.Part.Type, e.Part.Text = r.eventPart()
		case `"item"`:
			e.Item = r.optionalValue()
		case `"response"`:
			if r.starts('{') {
				e.Response = r.body()
			}
		case `"object"`:
			e.Object = r.text()
		case `"choices"`:
			e.Choices = r.optionalValue()
		default:
			r.raw()
		}
	}
	r.end()
	return !r.invalid, !r.mismatch
}

func (r *jsonReader) eventPart() (kind, text string) {
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
	r := jsonReader{data: data}
	if !r.starts('{') {
		return nil
	}
	b := r.body()
	r.end()
	if r.invalid || r.mismatch {
		return nil
	}
	return b
}

func (r *jsonReader) body() *responseBody {
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
			if r.starts('[') {
				b.Output = []json.RawMessage{}
				for range r.items {
					b.Output = append(b.Output, r.raw())
				}
			}
		case `"usage"`:
			if u := r.optionalValue(); u != nil {
				b.Usage = new(sdk.ResponseUsage)
				r.mismatch = json.Unmarshal(u, b.Usage) != nil || r.mismatch
			}
		case `"error"`:
			b.Error = r.optionalValue()
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

// itemMembers copies the JSON of an item. It returns the members, which are slices of the copy, and the copy. The members
// of JSON that is not an object are nil.
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
	if r.invalid {
		return nil
	}
	return members
}

// decodeKept reads the kept items of an answer. ok is false if encodeKept cannot have written them.
func decodeKept(data []byte) (kept []keptItem, ok bool) {
	r := jsonReader{data: data}
	for range r.items {
		var k keptItem
		for name := range r.members {
			switch string(name) {
			case `"item"`:
				if item := r.optionalValue(); item != nil {
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
	return kept, !r.invalid && !r.mismatch
}

func (r *jsonReader) keptParts() (parts []keptPart) {
	for range r.items {
		var p keptPart
		for name := range r.members {
			switch string(name) {
			case `"type"`:
				p.Type = r.text()
			case `"size"`:
				p.Size = r.integer()
			default:
				r.raw()
			}
		}
		parts = append(parts, p)
	}
	return parts
}
