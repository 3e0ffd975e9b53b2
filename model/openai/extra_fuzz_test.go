package openai

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// FuzzExtra: whatever a session file has as the extras of an answer, the request is JSON, and the texts and calls of
// the message are in it.
func FuzzExtra(f *testing.F) {
	for _, extra := range []string{
		``, `null`, `[]`, `{"items":null}`, `{"items":[{}]}`, `{"items":[null]}`, `{"items":[{"item":null,"parts":[{"type":"output_text","size":5}]}]}`,
		`{"items":[{"item":{"type":"reasoning","id":"rs_1","encrypted_content":"x","summary":[]}},{"item":{"type":"message"},"parts":[{"type":"output_text","size":5}]},{"item":{"type":"function_call","name":"add"}}]}`,
		`{"items":[{},{"item":{"type":"message"},"parts":[{"type":"output_text","size":5}]},{"item":{"type":"function_call","name":"add"}},null]}`,
		`{"items":[{"item":{"type":"message"},"parts":[{"type":"output_text","size":-1}]}]}`,
		`{"reasoning_content":null,"role":"system"}`, `{"extra_content":{"google":{"thought_signature":"x"}}}`, `{"endpoint":"localhost","a":1}`, `{"":1}`,
	} {
		f.Add([]byte(extra), []byte(extra), true)
		f.Add([]byte(extra), []byte(nil), false)
	}
	f.Fuzz(func(t *testing.T, thinking, call []byte, responses bool) {
		api := APIChat
		if responses {
			api = APIResponses
		}
		m, err := New(Config{Model: "m", BaseURL: "http://localhost/v1", API: api})
		if err != nil {
			t.Fatal(err)
		}
		said := message.Assistant(&message.Thinking{Text: "Hm.", Extra: thinking}, &message.Text{Text: "I add"},
			&message.ToolCall{ID: "c1", Name: "add", Input: json.RawMessage(`{"a":1}`), Extra: call})
		b, _, err := m.encode(m.protocol.Load(), &model.Request{Messages: []*message.Message{message.User("go"), said,
			{Role: message.RoleTool, Blocks: message.Blocks{&message.ToolResult{ID: "c1", Name: "add", Blocks: message.Blocks{&message.Text{Text: "2"}}}}}}})
		if err != nil {
			return // an invalid request is an error
		}
		body := slices.Concat(b...)
		if !json.Valid(body) {
			t.Fatalf("not JSON: %s", body)
		}
		for _, part := range []string{"I add", `{\"a\":1}`, `"c1"`} {
			if !bytes.Contains(body, []byte(part)) {
				t.Fatalf("%s is missing: %s", part, body)
			}
		}
	})
}
