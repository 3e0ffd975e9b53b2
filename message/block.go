package message

import "encoding/json"

// A Block is a part of a message: a [*Text], [*Thinking], [*Data], [*Hint],
// [*ToolCall], [*ToolResult] or [*Unknown]. The set is closed.
type Block interface {
	// BlockID returns the id that the block shares with the events that
	// announced it; empty for a block that was never streamed.
	BlockID() string
	kind() string
}

// Text is plain text, usually markdown.
type Text struct {
	ID   string `json:"id,omitempty"`
	Text string `json:"text"`
}

// Thinking is a model's reasoning. Extra is what the provider must get back with
// it unchanged (a signature, an encrypted payload), a JSON object or nil.
type Thinking struct {
	ID    string          `json:"id,omitempty"`
	Text  string          `json:"text"`
	Extra json.RawMessage `json:"extra,omitempty"`
}

// Data is an image, a sound, or any other file: either the bytes themselves or
// a URL where they can be fetched, never both.
type Data struct {
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`       // of the file; empty if unknown
	MediaType string `json:"media_type,omitempty"` // RFC 6838, such as "image/png"
	Bytes     []byte `json:"bytes,omitempty"`      // base64 in JSON
	URL       string `json:"url,omitempty"`
}

// Hint is something the program tells the model in the middle of a
// conversation: the time, open tasks, the instructions of an opened tool group. The model
// gets it as user text. Source names the part of the program that added the hint.
type Hint struct {
	ID     string `json:"id,omitempty"`
	Source string `json:"source,omitempty"`
	Text   string `json:"text"`
}

// ToolCall is a model's request to run a tool. ID is unique in a conversation
// and Input is a valid JSON object: anything else that a model sends is repaired
// before it is stored. Extra is what the provider must get back with the call.
type ToolCall struct {
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
	Extra json.RawMessage `json:"extra,omitempty"`
}

// Outcome says how a tool call ended.
type Outcome string

// The outcomes.
const (
	OutcomeSuccess     Outcome = "success"
	OutcomeError       Outcome = "error"       // the tool failed, or it did not run for another reason than the following
	OutcomeDenied      Outcome = "denied"      // refused by a rule or by the user
	OutcomeInterrupted Outcome = "interrupted" // the call was cut off; whether it had an effect may be unknown
)

// ToolResult answers the ToolCall of the same id. Blocks, which are [*Text] and [*Data] only, are for the model;
// ForUser is for the user only (a diff, an image). Structured is the result as JSON if the tool has an output schema.
// Meta is for the program, such as _meta of MCP, and not for the model.
//
// Pinned marks a result that compaction must not shorten, such as instructions. Kept marks a result whose text is
// only a part of what the tool returned: the full text is stored outside of the conversation, under the same id.
type ToolResult struct {
	ID         string                     `json:"id"`
	Name       string                     `json:"name"`
	Outcome    Outcome                    `json:"outcome"`
	Blocks     Blocks                     `json:"blocks"`
	ForUser    Blocks                     `json:"for_user,omitempty"`
	Structured json.RawMessage            `json:"structured,omitempty"`
	Meta       map[string]json.RawMessage `json:"meta,omitempty"`
	Pinned     bool                       `json:"pinned,omitempty"`
	Kept       bool                       `json:"kept,omitempty"`
}

// Text returns the text blocks of r, joined by newlines.
func (r *ToolResult) Text() string { return r.Blocks.Text() }

// Unknown is a block of a type that this version does not know. It encodes to
// Raw, the JSON object from which it was decoded.
type Unknown struct {
	Type string
	Raw  json.RawMessage
}

func (b *Text) BlockID() string       { return b.ID }
func (b *Thinking) BlockID() string   { return b.ID }
func (b *Data) BlockID() string       { return b.ID }
func (b *Hint) BlockID() string       { return b.ID }
func (b *ToolCall) BlockID() string   { return b.ID }
func (b *ToolResult) BlockID() string { return b.ID }
func (b *Unknown) BlockID() string    { return "" }

func (*Text) kind() string       { return "text" }
func (*Thinking) kind() string   { return "thinking" }
func (*Data) kind() string       { return "data" }
func (*Hint) kind() string       { return "hint" }
func (*ToolCall) kind() string   { return "tool_call" }
func (*ToolResult) kind() string { return "tool_result" }
func (b *Unknown) kind() string  { return b.Type }
