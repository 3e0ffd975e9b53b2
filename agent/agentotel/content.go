package agentotel

import (
	"encoding/json"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/kitbag-go/kitbag/internal/genai"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// A chatMessage is a message in the format of the conventions' schemas gen-ai-input-messages.json and
// gen-ai-output-messages.json. Secrets are removed from each text before it is encoded.
type chatMessage struct {
	Role   string `json:"role"`
	Parts  []part `json:"parts"`
	Finish string `json:"finish_reason,omitempty"`
}

type part struct {
	Type      string          `json:"type"`
	Content   *string         `json:"content,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Response  *string         `json:"response,omitempty"`
	MediaType string          `json:"mime_type,omitempty"`
	Modality  string          `json:"modality,omitempty"`
	URI       string          `json:"uri,omitempty"`
	Bytes     int             `json:"bytes,omitempty"` // the size of data, which is not recorded itself
}

func (r *recorder) inputMessages(req *model.Request) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	if req.System != "" {
		attrs = append(attrs, jsonAttribute(genai.Instructions, []part{r.textPart("text", req.System)}))
	}
	all := make([]chatMessage, len(req.Messages))
	for i, m := range req.Messages {
		all[i] = chatMessage{Role: string(m.Role), Parts: r.parts(m)}
	}
	return append(attrs, jsonAttribute(genai.Inputs, all))
}

func (r *recorder) outputMessage(op *genai.Op) attribute.KeyValue {
	reason := "error" // the conventions' reason for an answer that broke off
	if op.Finish != nil {
		reason = string(op.Finish.Reason)
	}
	if reason == string(model.FinishToolCalls) {
		reason = "tool_call" // the conventions use the singular
	}
	return jsonAttribute(genai.Outputs, []chatMessage{{Role: "assistant", Parts: r.parts(op.Answer), Finish: reason}})
}

func jsonAttribute(key string, v any) attribute.KeyValue {
	data, _ := json.Marshal(v) // cannot fail: arguments is the only raw JSON in v, and valid
	return attribute.String(key, string(data))
}

func (r *recorder) textPart(kind, text string) part {
	text = r.cfg.Redact.Text(text)
	return part{Type: kind, Content: &text}
}

func (r *recorder) parts(m *message.Message) []part {
	parts := []part{}
	for _, b := range m.Blocks {
		switch b := b.(type) {
		case *message.Text:
			parts = append(parts, r.textPart("text", b.Text))
		case *message.Hint: // the model reads a hint as text
			parts = append(parts, r.textPart("text", b.Text))
		case *message.Thinking:
			parts = append(parts, r.textPart("reasoning", b.Text))
		case *message.ToolCall:
			parts = append(parts, part{Type: "tool_call", ID: b.ID, Name: b.Name, Arguments: r.arguments(b.Input)})
		case *message.ToolResult:
			text := r.cfg.Redact.Text(b.Text())
			parts = append(parts, part{Type: "tool_call_response", ID: b.ID, Response: &text})
		case *message.Data:
			modality, _, _ := strings.Cut(b.MediaType, "/")
			p := part{Type: "data", MediaType: b.MediaType, Modality: modality, Bytes: len(b.Bytes)}
			if b.URL != "" {
				p.Type, p.URI = "uri", r.cfg.Redact.Text(b.URL)
			}
			parts = append(parts, p)
		case *message.Unknown:
			parts = append(parts, part{Type: b.Type})
		}
	}
	return parts
}

// arguments returns the arguments that a model sent as valid JSON: invalid JSON becomes a string.
func (r *recorder) arguments(raw json.RawMessage) json.RawMessage {
	if json.Valid(raw) {
		return r.cfg.Redact.JSON(raw)
	}
	data, _ := json.Marshal(r.cfg.Redact.Text(string(raw))) // a string always encodes
	return data
}
