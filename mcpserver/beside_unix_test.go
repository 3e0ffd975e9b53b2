//go:build unix

package mcpserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpgo "github.com/mark3labs/mcp-go/server"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// recordedTools returns the tools of a recorded server.
func recordedTools(tb testing.TB) (infos []tool.Info) {
	data, err := os.ReadFile(filepath.Join("..", "testdata", "mcp_tools", "server-github.json"))
	if err != nil {
		tb.Fatal(err)
	}
	var list struct {
		Tools []struct {
			Name, Description string
			InputSchema       json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &list); err != nil {
		tb.Fatal(err)
	}
	for _, t := range list.Tools {
		infos = append(infos, tool.Info{Name: t.Name, Description: t.Description, Input: t.InputSchema})
	}
	return infos
}

type described struct {
	tool.Tool
	info tool.Info
}

func (d described) Info() tool.Info { return d.info }

// BenchmarkBeside compares the CPU time of a call, and of a list of the tools of a recorded server, with that of mcp-go's
// server, over pipes and with the same client. The two alternate, so that other load affects both.
func BenchmarkBeside(b *testing.B) {
	type in struct {
		Message string `json:"message"`
	}
	tools := []tool.Tool{tool.Must(tool.New("echo", "Echoes.", func(_ context.Context, in in) (string, error) { return in.Message, nil }))}
	other := mcpgo.NewMCPServer("n", "1", mcpgo.WithToolCapabilities(true))
	other.AddTool(mcp.Tool{Name: "echo", Description: "Echoes.", RawInputSchema: tools[0].Info().Input}, func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(req.GetString("message", "")), nil
	})
	for _, info := range recordedTools(b) {
		tools = append(tools, described{tools[0], info})
		other.AddTool(mcp.Tool{Name: info.Name, Description: info.Description, RawInputSchema: info.Input}, nil)
	}
	own, err := mcpserver.New(mcpserver.Config{Toolkit: toolkit.Of(tools...), Name: "n", Version: "1", Policy: open})
	if err != nil {
		b.Fatal(err)
	}
	defer own.Close()
	asks := map[string]func(string){}
	for name, listen := range map[string]func(context.Context, io.Reader, io.Writer) error{"kitbag": own.ServeStdio, "mcp-go": mcpgo.NewStdioServer(other).Listen} {
		requests, to := io.Pipe()
		from, answers := io.Pipe()
		go func() { _ = listen(b.Context(), requests, answers) }()
		defer to.Close()
		defer from.Close()
		lines := bufio.NewReaderSize(from, 1<<20)
		asks[name] = func(line string) {
			fmt.Fprintln(to, line)
			if got, err := lines.ReadSlice('\n'); err != nil || !bytes.Contains(got[:min(60, len(got))], []byte(`"result"`)) {
				b.Fatalf("%s: %.300s %v", name, got, err)
			}
		}
		asks[name](`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	}
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for what, line := range map[string]string{
		"call": `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"` + strings.Repeat("x", 500) + `"}}}`,
		"list": `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
	} {
		b.Run(what, func(b *testing.B) {
			used := map[string]time.Duration{}
			for b.Loop() {
				for name, ask := range asks {
					before := cpu()
					for range 200 {
						ask(line)
					}
					used[name] += cpu() - before
				}
			}
			for name, d := range used {
				b.ReportMetric(float64(d.Microseconds())/float64(200*b.N), name+"-µs")
			}
			b.ReportMetric(float64(used["kitbag"])/float64(used["mcp-go"]), "kitbag/mcp-go")
			b.ReportMetric(0, "ns/op")
		})
	}
}
