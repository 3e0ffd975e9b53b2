//go:build interop

package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/permission"
)

// recorded returns a server of mcp-go that lists the 188 tools of a real server and answers every call with the
// tool's name.
func recorded(t *testing.T) mcpclient.Server {
	t.Helper()
	data, err := os.ReadFile("../../../testdata/mcp_tools/ms365.json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Tools []struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Input       json.RawMessage `json:"inputSchema"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(data, &list); err != nil || len(list.Tools) != 188 {
		t.Fatalf("%v, %d tools", err, len(list.Tools))
	}
	s := server.NewMCPServer("ms365", "1", server.WithToolCapabilities(false))
	for _, tl := range list.Tools {
		s.AddTool(mcp.NewToolWithRawSchema(tl.Name, tl.Description, tl.Input), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("ran " + tl.Name), nil
		})
	}
	return mcpclient.Server{Name: "ms365", Transport: mcpclient.Dial(func(context.Context) (io.ReadWriteCloser, error) {
		conn, serverConn := net.Pipe()
		go func() {
			_ = server.NewStdioServer(s).Listen(context.Background(), serverConn, serverConn)
			_ = serverConn.Close()
		}()
		return conn, nil
	}),
		Options: mcpclient.Options{PingInterval: -1}}
}

// A lineClient sends JSON-RPC to the gateway directly, to measure exactly what a host receives.
type lineClient struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func lines(t *testing.T, g *mcpgateway.Gateway) *lineClient {
	t.Helper()
	conn, serverConn := net.Pipe()
	go func() {
		_ = g.Server.ServeStdio(context.Background(), serverConn, serverConn)
		_ = serverConn.Close()
	}()
	t.Cleanup(func() { _ = conn.Close() })
	c := &lineClient{t, conn, bufio.NewReader(conn)}
	c.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"lines","version":"1"}}`)
	return c
}

// ask returns the answer to a request; notifications in between are dropped.
func (c *lineClient) ask(method, params string) string {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.conn, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`+"\n", method, params); err != nil {
		c.t.Fatal(err)
	}
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			c.t.Fatal(err)
		}
		if strings.HasPrefix(line, `{"jsonrpc":"2.0","id":1,`) {
			return line
		}
	}
}

func (c *lineClient) tool(name, arguments string) string {
	c.t.Helper()
	return c.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, arguments))
}

// TestGateway runs one gateway for three servers from npm and the recorded list of a fourth. It checks the size
// of the first list in each style, and how many calls it takes to use a tool.
func TestGateway(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	gateway := func(style mcpgateway.Style) *mcpgateway.Gateway {
		g, err := mcpgateway.New(t.Context(), mcpgateway.Config{
			Servers: []mcpclient.Server{stdio(t, "everything", "stdio"), stdio(t, "filesystem", dir), stdio(t, "memory"), recorded(t)},
			Groups:  []mcpgateway.Group{{Name: "mail", Description: "Mail and its folders.", Tools: []string{"ms365__*mail*"}}},
			Style:   style,
			Serve:   mcpgateway.ServeOptions{Version: "1", Policy: &permission.Policy{Mode: permission.ModeBypass}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
		return g
	}
	full := len(lines(t, gateway(mcpgateway.StyleFull)).ask("tools/list", `{}`))
	if full < 1_000_000 {
		t.Fatalf("the full list has only %d bytes", full)
	}
	for _, style := range []mcpgateway.Style{mcpgateway.StyleReset, mcpgateway.StyleDiscover} {
		g := gateway(style)
		c := lines(t, g)
		first := len(c.ask("tools/list", `{}`))
		t.Logf("%s: %d bytes of %d, %.2f %%", style, first, full, 100*float64(first)/float64(full))
		if first > full/50 {
			t.Errorf("%s: the first list has %d bytes, more than 2 %% of %d", style, first, full)
		}
		for _, row := range []struct{ group, tool, words, arguments, want string }{
			{"everything", "everything__get-tiny-image", "tiny image", `{}`, `"type":"image"`},
			{"everything", "everything__get-structured-content", "structured content weather", `{"location":"Chicago"}`, `"structuredContent":{`},
			{"everything", "everything__get-resource-links", "resource links", `{"count":2}`, `"type":"resource_link"`},
			{"everything", "everything__get-annotated-message", "annotated message", `{"messageType":"error","includeImage":false}`, `"annotations":{`},
			{"filesystem", "filesystem__read_text_file", "read a file as text", fmt.Sprintf(`{"path":%q}`, filepath.Join(dir, "a.txt")), `"text":"hello"`},
			{"filesystem", "filesystem__read_text_file", "read a file as text", `{"path":"/etc/hostname"}`, `"isError":true`},
			{"memory", "memory__read_graph", "knowledge graph", `{}`, `"entities":[]`},
			{"mail", "ms365__list-mail-folders", "list mail folders", `{}`, "ran list-mail-folders"},
			{"ms365", "ms365__list-calendars", "list all calendars", `{}`, "ran list-calendars"},
		} {
			if style == mcpgateway.StyleDiscover {
				if got := c.tool("search_tools", fmt.Sprintf(`{"query":%q}`, row.words)); !strings.Contains(got, row.tool) {
					t.Errorf("a search for %q: %s", row.words, got)
				}
				if got := c.tool("describe_tools", fmt.Sprintf(`{"names":[%q]}`, row.tool)); !strings.Contains(got, "Arguments: {") {
					t.Errorf("%s: %s", row.tool, got)
				}
				if got := c.tool("call_tool", fmt.Sprintf(`{"name":%q,"arguments":%s}`, row.tool, row.arguments)); !strings.Contains(got, row.want) {
					t.Errorf("%s: %.300s, want %s", row.tool, got, row.want)
				}
				continue
			}
			c.tool("reset_tools", fmt.Sprintf(`{%q:true}`, row.group))
			if got := c.tool(row.tool, row.arguments); !strings.Contains(got, row.want) {
				t.Errorf("%s: %.300s, want %s", row.tool, got, row.want)
			}
		}
	}
}

// TestGatewayPassesItems checks that the Inspector can list and get prompts and resources of a server from npm
// through a gateway, in both eras.
func TestGatewayPassesItems(t *testing.T) {
	g, err := mcpgateway.New(t.Context(), mcpgateway.Config{
		Servers: []mcpclient.Server{stdio(t, "everything", "stdio"), stdio(t, "memory"), {Name: "dead", Transport: mcpclient.Command{Path: "/does/not/exist"}}},
		Style:   mcpgateway.StyleFull,
		Serve:   mcpgateway.ServeOptions{Version: "1", Policy: &permission.Policy{Mode: permission.ModeBypass}},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(g.Server.Handler())
	t.Cleanup(h.Close)
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	const document = "mcp://everything/demo://resource/static/document/features.md"
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"--method", "prompts/list"}, `"name":"everything__args-prompt"`},
		{[]string{"--method", "prompts/get", "--prompt-name", "everything__args-prompt", "--prompt-args", "city=Oslo"}, "weather in Oslo"},
		{[]string{"--method", "resources/list"}, `"uri":"` + document + `"`},
		{[]string{"--method", "resources/templates/list"}, `"uriTemplate":"mcp://everything/demo://resource/dynamic/text/{resourceId}"`},
		{[]string{"--method", "resources/read", "--uri", document}, `"uri":"` + document + `"`},
		{[]string{"--method", "resources/read", "--uri", "mcp://everything/demo://resource/dynamic/blob/3"}, `"blob":"`},
	} {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(row.args[1]+" "+era, func(t *testing.T) {
				out := inspect(t, h.URL, append([]string{"--transport", "http", "--protocol-era", era}, row.args...)...)
				if !strings.Contains(out, row.want) {
					t.Errorf("%s is not in %s", row.want, out)
				}
			})
		}
	}
}
