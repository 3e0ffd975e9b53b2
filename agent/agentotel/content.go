package agentotel

import (
	"encoding/json"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/kitbag-go/kitbag/internal/genai"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// Messages are recorded in the JSON of gen-ai-input-messages.json and gen-ai-output-messages.json
// of the conventions. Secrets are removed from each text before it is written.

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
	Bytes     int             `json:"bytes,omitempty"` // the size
}

func (r *recorder) inputMessages(req *model.Request) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	if req.System != "" {
		attrs = append(attrs, encoded(genai.Instructions, []part{r.text("text", req.System)}))
	}
	all := make([]chatMessage, len(req.Messages))
	for i, m := range req.Messages {
		all[i] = chatMessage{Role: string(m.Role), Parts: r.parts(m)}
	}
	return append(attrs, encoded(genai.Inputs, all))
}

func (r *recorder) outputMessage(op *genai.Op) attribute.KeyValue {
	reason := "error"
	if op.Finish != nil {
		reason = strings.Replace(string(op.Finish.Reason), string(model.FinishToolCalls), "tool_call", 1)
	}
	return encoded(genai.Outputs, []chatMessage{{Role: "assistant", Parts: r.parts(op.Answer), Finish: reason}})
}

func encoded(key string, v any) attribute.KeyValue {
	data, err := json.Marshal(v)
	if err != nil { // arguments that are not JSON were replaced by text
		data = []byte("null")
	}
	return attribute.String(key, string(data))
}

func (r *recorder) text(kind, text string) part {
	text = r.cfg.Redact.Text(text)
	return part{Type: kind, Content: &text}
}

func (r *recorder) parts(m *message.Message) []part {
	parts := []part{}
	for _, b := range m.Blocks {
		switch b := b.(type) {
		case *message.Text:
			parts = append(parts, r.text("text", b.Text))
		case *message.Hint: // the model reads it as text
			parts = append(parts, r.text("text", b.Text))
		case *message.Thinking:
			parts = append(parts, r.text("reasoning", b.Text))
		case *message.ToolCall:
			parts = append(parts, part{Type: "tool_call", ID: b.ID, Name: b.Name, Arguments: r.arguments(b.Input)})
		case *message.ToolResult:
			text := r.cfg.Redact.Text(b.Text())
			parts = append(parts, part{Type: "tool_call_response", ID: b.ID, Response: &text})
		case *message.Data:
			kind, _, _ := strings.Cut(b.MediaType, "/")
			p := part{Type: "data", MediaType: b.MediaType, Modality: kind, Bytes: len(b.Bytes)}
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

// arguments returns the arguments that a model sent, which may be invalid JSON.
func (r *recorder) arguments(raw json.RawMessage) json.RawMessage {
	if json.Valid(raw) {
		return r.cfg.Redact.JSON(raw)
	}
	data, err := json.Marshal(r.cfg.Redact.Text(string(raw)))
	if err != nil { // a string encodes
		return nil
	}
	return data
}
