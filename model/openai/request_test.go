package openai

import (
	"bytes"
	"testing"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// TestMaxTokens: the member's name depends on the server.
func TestMaxTokens(t *testing.T) {
	for base, name := range map[string]string{
		"":                                     "max_completion_tokens",
		"https://x.openai.azure.com/openai/v1": "max_completion_tokens",
		"https://api.mistral.ai/v1":            "max_tokens",
		"http://localhost:8000/v1":             "max_tokens",
	} {
		m, err := New(Config{Model: "m", Key: "k", BaseURL: base, ContextWindow: 1000})
		if err != nil {
			t.Fatal(err)
		}
		got := bodyOf(t, m, &model.Request{MaxTokens: 7, Messages: []*message.Message{global}})
		if !bytes.Contains(got, []byte(`"`+name+`":7`)) {
			t.Errorf("%q: %s", base, got)
		}
		if m.ContextWindow() != 1000 {
			t.Errorf("window %d", m.ContextWindow())
		}
	}
}

// TestNilMessage: a mistake of the caller's is an error, not a panic.
func TestNilMessage(t *testing.T) {
	if _, _, err := testModel(t).encode(&model.Request{Messages: []*message.Message{global, nil}}); err == nil {
		t.Error("no error")
	}
}
