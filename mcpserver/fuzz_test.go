package mcpserver_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/mcpserver"
)

// FuzzStdio sends arbitrary input. It checks that every line of output is a JSON-RPC message, and that the
// server ends when the input ends.
func FuzzStdio(f *testing.F) {
	for _, seed := range []string{
		listBody, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`, `[]`, `{}`, "\xff", "null",
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `{"jsonrpc":"2.0","id":1e999,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":"ask-1","result":{}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2999-01-01"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"hello","arguments":{"name":"x"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"skill://start/references/a%20b%3F.md"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"db://rows/%2e%2e%2f{id}"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"db://rows/1"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"hello"},"argument":{"name":"name","value":"A"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"hello","inputResponses":{"a":1},"requestState":"AAAA","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"prompts/list","params":{"cursor":"aGVsbG8"}}`,
		strings.Repeat("[", 3000), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":[]}`, listBody + "\n" + listBody,
	} {
		f.Add(seed)
	}
	cfg := library()
	cfg.Name, cfg.Version, cfg.Limits.Request = "n", "1", 2000
	s, err := mcpserver.New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	f.Fuzz(func(t *testing.T, in string) {
		if strings.Contains(in, "subscriptions/listen") {
			return // it would end only a second after the input
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
