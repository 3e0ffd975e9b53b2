package openai_test

import (
	"testing"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/openai"
)

// TestServer: Server returns the host and port of the base URL.
func TestServer(t *testing.T) {
	for _, row := range []struct {
		url, host string
		port      int
	}{
		{"", "api.openai.com", 443},
		{"http://localhost:11434/v1", "localhost", 11434},
		{"http://models.local/v1/", "models.local", 80},
		{"https://[::1]:8443", "::1", 8443},
	} {
		m, err := openai.New(openai.Config{Model: "m", BaseURL: row.url, Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		s, ok := model.As[model.Served](m)
		if !ok {
			t.Fatal("the model does not implement model.Served")
		}
		if host, port := s.Server(); host != row.host || port != row.port {
			t.Errorf("%q: %s %d", row.url, host, port)
		}
	}
}
