package mcpserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
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

// TestResultsThatAreNoJSON checks that a client gets an answer with its id if a tool yields JSON that cannot be encoded.
func TestResultsThatAreNoJSON(t *testing.T) {
	broken := json.RawMessage(`{broken`)
	yields := tool.Must(tool.New("yields", "Yields.", func(context.Context, struct{}) (*tool.Result, error) {
		return &tool.Result{Blocks: []message.Block{&message.Text{Text: "done"}}, Meta: map[string]json.RawMessage{"a": broken, "b": json.RawMessage(`1`)}}, nil
	}))
	s := serve(t, mcpserver.Config{Toolkit: toolkit.Of(yields, annotated{named("x"), broken}), Policy: open})
	for _, row := range []struct{ msg, want string }{
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"yields"}}`, `{"jsonrpc":"2.0","id":7,"result":{"_meta":{"b":1},"content":[{"text":"done","type":"text"}]}}`},
		{`{"jsonrpc":"2.0","id":8,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":8,"result":{"tools":[{`},
	} {
		var out bytes.Buffer
		if err := s.ServeStdio(t.Context(), strings.NewReader(row.msg+"\n"), &out); err != nil || !strings.HasPrefix(out.String(), row.want) {
			t.Errorf("%s: %s %v, want %s", row.msg, out.String(), err, row.want)
		}
	}
}

// annotated is a tool with other annotations.
type annotated struct {
	tool.Tool
	annotations json.RawMessage
}

func (a annotated) Unwrap() tool.Tool { return a.Tool }

func (a annotated) Info() tool.Info {
	info := a.Tool.Info()
	info.Annotations = a.annotations
	return info
}

// TestCancelledAtOnce checks that a cancellation reaches a call although it follows so closely that the call has not begun:
// otherwise the calls end only because the input has ended.
func TestCancelledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := tool.Must(tool.New("waits", "Waits.", func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}))
		s := serve(t, mcpserver.Config{Toolkit: toolkit.Of(waits), Policy: open})
		var in strings.Builder
		for id := range 50 {
			fmt.Fprintf(&in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"waits"}}`+"\n", id)
			fmt.Fprintf(&in, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`+"\n", id)
		}
		var out bytes.Buffer
		start := time.Now()
		if err := s.ServeStdio(t.Context(), strings.NewReader(in.String()), &out); err != nil || out.Len() > 0 || time.Since(start) > 0 {
			t.Errorf("the calls were not cancelled: after %v: %s %v", time.Since(start), out.String(), err)
		}
	})
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
