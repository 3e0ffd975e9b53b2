package mcpserver_test

import (
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestProgressWithoutText checks that the client gets progress even if the tool reports only numbers.
func TestProgressWithoutText(t *testing.T) {
	steps := tool.Must(tool.NewStream("steps", "Takes steps.", func(context.Context, struct{}) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			_ = yield(tool.Chunk{Progress: &tool.Progress{Done: 1, Total: 4}}, nil) &&
				yield(tool.Chunk{Progress: &tool.Progress{Done: 3, Total: 4, Message: "nearly"}}, nil) &&
				yield(tool.Text("done"), nil)
		}
	}, tool.Options{}))
	var out strings.Builder
	s, err := mcpserver.New(mcpserver.Config{Toolkit: toolkit.Of(steps), Name: "n", Version: "1",
		Policy: &permission.Policy{Mode: permission.ModeBypass}})
	if err != nil {
		t.Fatal(err)
	}
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"steps","arguments":{},"_meta":{"progressToken":"p"}}}
`)
	if err := s.ServeStdio(t.Context(), in, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"progress":1,"progressToken":"p","total":4}`, `"message":"nearly","progress":3,"progressToken":"p","total":4}`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in\n%s", want, out.String())
		}
	}
}
