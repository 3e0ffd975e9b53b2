package openai

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// TestMaxTokens: the name of the member depends on the server.
func TestMaxTokens(t *testing.T) {
	for base, name := range map[string]string{
		"":                                     "max_completion_tokens",
		"https://x.openai.azure.com/openai/v1": "max_completion_tokens",
		"https://api.mistral.ai/v1":            "max_tokens",
		"http://localhost:8000/v1":             "max_tokens",
	} {
		m, err := New(Config{Model: "m", Key: "k", BaseURL: base, ContextWindow: 1000, API: APIChat})
		if err != nil {
			t.Fatal(err)
		}
		got := bodyOf(t, m, &model.Request{MaxTokens: 7, Messages: []*message.Message{globalMessage}})
		if !bytes.Contains(got, []byte(`"`+name+`":7`)) {
			t.Errorf("%q: %s", base, got)
		}
		if m.ContextWindow() != 1000 {
			t.Errorf("window %d", m.ContextWindow())
		}
	}
}

// TestWhichAPI: the default is the Responses API for OpenAI's own server, except for older models.
func TestWhichAPI(t *testing.T) {
	for _, row := range []struct {
		base, model string
		api         API
		path        string
	}{
		{"", "gpt-5", "", "/v1/responses"},
		{"", "gpt-6-astra", "", "/v1/responses"},
		{"", "o4-mini", "", "/v1/responses"},
		{"", "gpt-4.1", "", "/v1/chat/completions"},
		{"", "ft:gpt-4o-2024-08-06:me::x", "", "/v1/chat/completions"},
		{"", "gpt-3.5-turbo", "", "/v1/chat/completions"},
		{"", "gpt-5", APIChat, "/v1/chat/completions"},
		{"", "gpt-4.1", APIResponses, "/v1/responses"},
		{"http://localhost:11434/v1", "gpt-5", "", "/v1/chat/completions"},
		{"http://localhost:11434/v1", "gpt-oss", APIResponses, "/v1/responses"},
	} {
		m, err := New(Config{Model: row.model, Key: "k", BaseURL: row.base, API: row.api})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.protocol.Load().request.URL.Path; got != row.path {
			t.Errorf("%q %s %q: %s, want %s", row.base, row.model, row.api, got, row.path)
		}
	}
	if _, err := New(Config{Model: "m", Key: "k", API: "grpc"}); err == nil || !strings.Contains(err.Error(), `API "grpc" is unknown; set Config.API (KITBAG_API) to chat or responses`) {
		t.Error(err)
	}
}

// TestNilMessage: a nil message is an error, not a panic.
func TestNilMessage(t *testing.T) {
	if _, _, err := testModel(t).encode(new(protocol), &model.Request{Messages: []*message.Message{globalMessage, nil}}); err == nil {
		t.Error("no error")
	}
}

// TestReveals checks which models have late tools.
func TestReveals(t *testing.T) {
	for _, row := range []struct {
		cfg  Config
		want bool
		err  string
	}{
		{cfg: Config{Model: "gpt-5.4-mini"}, want: true},
		{cfg: Config{Model: "ft:gpt-5.6-luna:us"}, want: true},
		{cfg: Config{Model: "gpt-6"}, want: true},
		{cfg: Config{Model: "gpt-6-astra"}, want: true},
		{cfg: Config{Model: "gpt-6.1-sol"}},
		{cfg: Config{Model: "gpt-5"}},
		{cfg: Config{Model: "gpt-4.1"}},
		{cfg: Config{Model: "gpt-6-astra", LateTools: new(false)}},
		{cfg: Config{Model: "gpt-6-astra", API: APIChat}},
		{cfg: Config{Model: "gpt-6-astra", BaseURL: "https://proxy.example.com/v1"}},
		{cfg: Config{Model: "x", BaseURL: "https://proxy.example.com/v1", API: APIResponses, LateTools: new(true)}, want: true},
		{cfg: Config{Model: "x", BaseURL: "https://proxy.example.com/v1", LateTools: new(true)}, err: "set Config.API (KITBAG_API) to responses"},
	} {
		row.cfg.Key = "k"
		m, err := New(row.cfg)
		if row.err != "" {
			if err == nil || !strings.HasSuffix(err.Error(), row.err) {
				t.Errorf("%+v: %v", row.cfg, err)
			}
			continue
		}
		if err != nil || m.Reveals() != row.want {
			t.Errorf("%+v: %v, %v", row.cfg, m.Reveals(), err)
		}
	}
}
