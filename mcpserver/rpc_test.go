package mcpserver_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestNotUTF8 checks that a message that is not UTF-8 is rejected, wherever the invalid bytes are, and that
// none of them is sent back: "JSON-RPC messages MUST be UTF-8 encoded" (specification 2025-11-25,
// basic/transports).
func TestNotUTF8(t *testing.T) {
	echo := tool.Must(tool.New("echo", "Returns the message.", func(_ context.Context, in struct {
		Message string `json:"message"`
	}) (string, error) {
		return in.Message, nil
	}))
	s := serve(t, mcpserver.Config{Toolkit: toolkit.Of(echo), Policy: open})
	w := newWire(t, listen(t, s))
	w.initialize(`{}`)
	for _, row := range []struct {
		msg  string
		want string
	}{
		{`{"jsonrpc":"2.0","id":"é","method":"ping"}`, `"id":"é"`},
		{`{"jsonrpc":"2.0","id":"` + "\xff" + `","method":"ping"}`, "UTF-8"},
		{`{"jsonrpc":"2.0","id":"` + "\xed\xa0\x80" + `","method":"ping"}`, "UTF-8"},
		{`{"jsonrpc":"2.0","id":1,"method":"` + "\xff" + `"}`, "UTF-8"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"` + "\xff" + `"}}}`, "UTF-8"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"x"},"_meta":{"progressToken":"` + "\xff" + `"}}}`, "UTF-8"},
	} {
		_, lines := w.post(t.Context(), row.msg)
		var out bytes.Buffer
		err := s.ServeStdio(t.Context(), strings.NewReader(row.msg+"\n"), &out)
		for way, got := range map[string]string{"HTTP": strings.Join(lines, "\n"), "stdio": out.String()} {
			if err != nil || !strings.Contains(got, row.want) || !utf8.ValidString(got) {
				t.Errorf("%s: %q: %q %v, want %s", way, row.msg, got, err, row.want)
			}
		}
	}
}

// TestRefusedRequests checks that a request that cannot be read is answered with its id, so that its client
// does not wait for it, unless the id is not certain (JSON-RPC 2.0, 5, Response object).
func TestRefusedRequests(t *testing.T) {
	s := serve(t, mcpserver.Config{Toolkit: toolkit.Of(named("x")), Policy: open, Limits: mcpserver.Limits{Request: 6000}})
	w := newWire(t, listen(t, s))
	w.initialize(`{}`)
	long := strings.Repeat("x", 6000)
	for _, row := range []struct {
		msg, id string
		stdio   bool // only over stdio
	}{
		{`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"a":1,"a":2}}`, "7", false},
		{`{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"_meta":{"progressToken":1,"progressToken":2}}}`, `"a"`, false},
		{`{"id":7,"method":"tools/list"}`, "7", false},
		{`{"jsonrpc":"1.0","method":"tools/list","id":7}`, "7", false},
		{`{"jsonrpc":"2.0","id":7,"method":["tools/list"]}`, "7", false},
		{`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{`, "null", false},
		{`{"jsonrpc":"2.0","id":7,"id":8,"method":"tools/list"}`, "null", false},
		{`{"jsonrpc":"2.0","id":7,"ID":8,"method":"tools/list"}`, "null", false},
		{`{"jsonrpc":"2.0","id":[7],"method":"tools/list"}`, "null", false},
		{`{"jsonrpc":"2.0","id":null,"method":"tools/list"}`, "null", false},
		{`{"jsonrpc":"2.0","id":7,"result":{"a":1,"a":2}}`, "null", false}, // an answer to a question of the server
		{`[{"jsonrpc":"2.0","id":7,"method":"tools/list"}]`, "null", false},
		{`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"a":"` + long + `"}}`, "7", true},
		{`{"method":"tools/list","params":{"a":"` + long + `"},"jsonrpc":"2.0","id":7}`, "7", true},
		{`{"method":"tools/list","params":{"a":"` + long + `"}, "id" : "a" } `, `"a"`, true},
		{`{"method":"tools/list","params":{"a":"` + long + `","id":7}}`, "null", true},
		{`{"method":"tools/list","params":{"a":"` + long + `,\"id\":7}"}`, "null", true},
		{`{"result":{"a":"` + long + `"},"id":7}`, "null", true},
	} {
		var out bytes.Buffer
		err := s.ServeStdio(t.Context(), strings.NewReader(row.msg+"\n"), &out)
		got := map[string]string{"stdio": out.String()}
		if !row.stdio {
			_, lines := w.post(t.Context(), row.msg)
			got["HTTP"] = strings.Join(lines, "\n")
		}
		for way, got := range got {
			if err != nil || !strings.Contains(got, `"id":`+row.id+`,"error"`) {
				t.Errorf("%s: %.100s: %s %v, want the id %s", way, row.msg, got, err, row.id)
			}
		}
	}
}
