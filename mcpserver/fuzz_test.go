package mcpserver_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/toolkit"
)

// FuzzStdio sends anything. Whatever comes, every line that goes out is a JSON-RPC
// message, and the server ends when the input does.
func FuzzStdio(f *testing.F) {
	for _, seed := range []string{
		listBody, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`, `[]`, `{}`, "\xff", "null",
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `{"jsonrpc":"2.0","id":1e999,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":"ask-1","result":{}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2999-01-01"}}}`,
		strings.Repeat("[", 3000), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":[]}`, listBody + "\n" + listBody,
	} {
		f.Add(seed)
	}
	s, err := mcpserver.New(mcpserver.Config{Toolkit: toolkit.Of(named("x")), Name: "n", Version: "1", Policy: open, Limits: mcpserver.Limits{Request: 2000}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	f.Fuzz(func(t *testing.T, in string) {
		if strings.Contains(in, "subscriptions/listen") {
			return // it lasts until a second after the input has ended
		}
		var out bytes.Buffer
		if err := s.ServeStdio(t.Context(), strings.NewReader(in), &out); err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(out.String()) {
			var m struct{ JSONRPC string }
			if err := json.Unmarshal([]byte(l), &m); err != nil || m.JSONRPC != "2.0" {
				t.Fatalf("%q: %q: %v", in, l, err)
			}
		}
	})
}
