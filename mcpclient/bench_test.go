package mcpclient

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// instantServer answers calls at once.
func instantServer(msg request, reply func(string)) {
	if !handleStandard(msg, reply, `[{"name":"echo","inputSchema":{"type":"object"}}]`) && msg.Method == "tools/call" {
		reply(msg.result(`{"content":[{"type":"text","text":"` + strings.Repeat("x", 500) + `"}]}`))
	}
}

// BenchmarkCall compares a call with one by mcp-go's client, over the same pipe to the same server.
func BenchmarkCall(b *testing.B) {
	b.Run("kitbag", func(b *testing.B) {
		c, err := New("srv", Dial(inMemory(instantServer)), &Options{PingInterval: -1})
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		tl := find(b, c, "echo")
		b.ReportAllocs()
		for b.Loop() {
			for ch, err := range tl.Call(b.Context(), toolCall(tl, `{"message":"hello"}`)) {
				if err != nil || ch.Block == nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("mcp-go", func(b *testing.B) {
		pipe, err := inMemory(instantServer)(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		//lint:ignore SA1019 the comparison is with the older protocol
		c := client.NewClient(transport.NewIO(pipe, pipe, nil), client.WithLegacyProtocolOnly())
		if err := c.Start(context.Background()); err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Initialize(b.Context(), mcp.InitializeRequest{}); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			var req mcp.CallToolRequest
			req.Params.Name, req.Params.Arguments = "echo", json.RawMessage(`{"message":"hello"}`)
			res, err := c.CallTool(b.Context(), req)
			if err != nil || len(res.Content) != 1 {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkList compares making the tools of a list with decoding its JSON.
func BenchmarkList(b *testing.B) {
	var text strings.Builder
	text.WriteString(`{"tools":[`)
	for i := range 1000 {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, `{"name":"tool_%d","description":%q,"annotations":{"readOnlyHint":true},"inputSchema":{"type":"object","properties":`+
			`{"path":{"type":"string","description":"the path of the file"},"mode":{"enum":["a","b"]},"n":{"type":"integer","minimum":0}},"required":["path"]}}`,
			i, strings.Repeat("What it does. ", 20))
	}
	text.WriteString(`]}`)
	data := []byte(text.String())
	c := unconnected(b)
	b.Run("tools", func(b *testing.B) {
		for b.Loop() {
			var page struct {
				Tools []json.RawMessage `json:"tools"`
			}
			if err := json.Unmarshal(data, &page); err != nil {
				b.Fatal(err)
			}
			if s := newSnapshot(c.cat, page.Tools, nil, nil, false); len(s.tools) != 1000 {
				b.Fatal(len(s.tools), s.skipped)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			var page mcp.ListToolsResult
			if err := json.Unmarshal(data, &page); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode any", func(b *testing.B) {
		for b.Loop() {
			var page any
			if err := json.Unmarshal(data, &page); err != nil {
				b.Fatal(err)
			}
		}
	})
}
