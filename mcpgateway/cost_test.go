package mcpgateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
)

// A wire sends JSON-RPC to the gateway by hand, one message per line.
type wire struct {
	t       testing.TB
	conn    io.ReadWriteCloser
	in      *bufio.Reader
	notices []string // notifications received before the last answer
}

func newWire(t testing.TB, g *mcpgateway.Gateway) *wire {
	t.Helper()
	conn, err := dial(g.Server)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	w := &wire{t: t, conn: conn, in: bufio.NewReaderSize(conn, 1<<16)}
	w.ask(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"wire","version":"1"}}}`)
	return w
}

// ask sends a request and returns the answer.
func (w *wire) ask(body string) []byte {
	w.t.Helper()
	if _, err := io.WriteString(w.conn, body+"\n"); err != nil {
		w.t.Fatal(err)
	}
	w.notices = nil
	for {
		line, err := w.in.ReadBytes('\n')
		if err != nil {
			w.t.Fatal(err)
		}
		if strings.Contains(string(line[:min(len(line), 40)]), `"id":`) {
			return line
		}
		w.notices = append(w.notices, strings.TrimSpace(string(line)))
	}
}

// tool calls a tool and returns the text of the result, and whether it is an
// error.
func (w *wire) tool(name string, arguments any) (string, bool) {
	w.t.Helper()
	params, err := json.Marshal(map[string]any{"name": name, "arguments": arguments})
	if err != nil {
		w.t.Fatal(err)
	}
	var m struct {
		Result struct {
			Content []struct{ Text string }
			IsError bool
		}
	}
	if err := json.Unmarshal(w.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+string(params)+`}`), &m); err != nil {
		w.t.Fatal(err)
	}
	text := ""
	for _, c := range m.Result.Content {
		text += c.Text
	}
	return text, m.Result.IsError
}

const listBody = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`

// recorded returns the lists of eight real servers: 360 tools, 1.2 MB.
func recorded(t testing.TB) (servers []mcpclient.Server, names []string) {
	t.Helper()
	files, err := filepath.Glob("../testdata/mcp_tools/*.json")
	if err != nil || len(files) < 8 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Tools []json.RawMessage }
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		tools, err := json.Marshal(list.Tools) // on one line
		if err != nil {
			t.Fatal(err)
		}
		c := scripted(name, string(tools), func(r request) string { return says("ran " + r.Params.Name)(r) })
		c.Options.Timeouts.Idle = 0
		servers = append(servers, c)
		for _, raw := range list.Tools {
			var tl struct{ Name string }
			if err := json.Unmarshal(raw, &tl); err != nil {
				t.Fatal(err)
			}
			names = append(names, name+"__"+tl.Name)
		}
	}
	return servers, names
}

// TestCost checks that the first list of many servers is at most a fiftieth of the full one, with and without
// groups of the configuration, in every style that hides tools.
func TestCost(t *testing.T) {
	servers, _ := recorded(t)
	groups := []mcpgateway.Group{
		{Name: "issues", Description: "Bugs and wishes.", Tools: []string{"server-github__*issue*"}},
		{Name: "mail", Description: "Mail and its folders.", Tools: []string{"ms365__*mail*"}},
		{Name: "calendar", Description: "Events.", Tools: []string{"ms365__*calendar*", "ms365__*event*"}},
		{Name: "browser", Description: "A browser.", Tools: []string{"playwright__*"}},
	}
	full := len(newWire(t, newGateway(t, mcpgateway.Config{Servers: servers, Style: mcpgateway.StyleFull})).ask(listBody))
	if full < 1<<20 {
		t.Fatalf("the full list has only %d bytes", full)
	}
	for _, style := range mcpgateway.Styles() {
		for _, groups := range [][]mcpgateway.Group{nil, groups} {
			g := newGateway(t, mcpgateway.Config{Servers: servers, Groups: groups, Style: style})
			n := len(newWire(t, g).ask(listBody))
			t.Logf("%-9s %d groups: %7d bytes, %.2f %%", style, len(g.Toolkit.Groups(nil)), n, 100*float64(n)/float64(full))
			if style != mcpgateway.StyleFull && n > full/50 {
				t.Errorf("%s: the first list has %d bytes of %d", style, n, full)
			}
		}
	}
}

// listCosts returns the lists of eight real servers: with nothing open, with the group of one, and with all. The tools
// are known from an earlier run.
func listCosts(t *testing.T) (closed, one, full []byte) {
	t.Helper()
	servers, _ := recorded(t)
	cache := t.TempDir()
	full = newWire(t, newGateway(t, mcpgateway.Config{Servers: servers, Style: mcpgateway.StyleFull, CacheDir: cache})).ask(listBody)
	g := newWire(t, newGateway(t, mcpgateway.Config{Servers: servers, CacheDir: cache}))
	closed = g.ask(listBody)
	if _, failed := g.tool("reset_tools", map[string]bool{"server-memory": true}); failed {
		t.Fatal("the group of server-memory does not open")
	}
	return closed, g.ask(listBody), full
}

// TestCostClosed checks how large the list of eight real servers is. When the tools are known from an earlier run the
// groups are described by them.
func TestCostClosed(t *testing.T) {
	closed, one, full := listCosts(t)
	if strings.Contains(string(full), `"$schema"`) {
		t.Error("a definition has $schema, which no model needs")
	}
	for _, want := range []string{`"9 tools: `, `add_observations`, `, …`} {
		if !strings.Contains(string(closed), want) {
			t.Errorf("the groups are not described by their tools, such as %s: %s", want, closed)
		}
	}
	for _, row := range []struct {
		name        string
		bytes, most int
	}{{"nothing open", len(closed), 1_850}, {"one group", len(one), 12_100}, {"all groups", len(full), 1_255_000}} {
		t.Logf("%-13s %8d bytes, %.2f %%", row.name, row.bytes, 100*float64(row.bytes)/float64(len(full)))
		if row.bytes > row.most {
			t.Errorf("%s: %d bytes, more than %d", row.name, row.bytes, row.most)
		}
	}
	if 10_000*len(closed) > 15*len(full) {
		t.Errorf("nothing open: %d bytes are more than 0.15 %% of %d", len(closed), len(full))
	}
}

// TestPictureOfGroups compares the picture of these costs in README with them; `make pictures` draws it again.
func TestPictureOfGroups(t *testing.T) {
	closed, one, full := listCosts(t)
	_, names := recorded(t)
	const left, wide, high, top = 130, 460, 34, 58
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="920" height="%d" font-family="ui-sans-serif, system-ui, sans-serif" font-size="14" role="img" aria-label="Bytes of the list of tools with nothing open, one group, and all groups">
<rect width="100%%" height="100%%" rx="8" fill="#1e1e1e"/>
<text x="14" y="30" fill="#d4d4d4">The list of tools in every request: 8 MCP servers, %d tools</text>
`, top+3*high+8, len(names))
	for i, row := range []struct {
		name, fill string
		bytes      int
	}{{"nothing open", "#6bc46d", len(closed)}, {"one group open", "#6cb6ff", len(one)}, {"all groups open", "#e0b050", len(full)}} {
		y, length := top+i*high, wide*float64(row.bytes)/float64(len(full))
		fmt.Fprintf(&b, "<text x=\"14\" y=\"%d\" fill=\"#d4d4d4\">%s</text>\n", y+15, row.name)
		fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"20\" fill=\"%s\"/>\n", left, y, length, row.fill)
		fmt.Fprintf(&b, "<text x=\"%.0f\" y=\"%d\" fill=\"#d4d4d4\">%.1f kB, %.2f %%, about %d tokens</text>\n",
			left+length+8, y+15, float64(row.bytes)/1000, 100*float64(row.bytes)/float64(len(full)), (row.bytes+3)/4)
	}
	b.WriteString("</svg>\n")
	const file = "../docs/pictures/groups.svg"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want, err := os.ReadFile(file); err != nil || b.String() != string(want) {
		t.Errorf("%v: the costs are not those of %s; draw it again with: make pictures\n%s", err, file, b.String())
	}
}

// TestReach checks that every tool of eight servers can be called in three calls, starting with the first list:
// by searching it, reading its description and calling it, or by opening its group and calling it.
func TestReach(t *testing.T) {
	servers, names := recorded(t)
	discover := newWire(t, newGateway(t, mcpgateway.Config{Servers: servers, Style: mcpgateway.StyleDiscover}))
	reset := newWire(t, newGateway(t, mcpgateway.Config{Servers: servers}))
	direct := newWire(t, newGateway(t, mcpgateway.Config{Servers: servers, Style: mcpgateway.StyleDiscover}))
	// Before any search, the last server's tool is called by its name.
	if got, _ := direct.tool("call_tool", map[string]any{"name": "server-memory__read_graph", "arguments": map[string]any{}}); got != "ran read_graph" {
		t.Errorf("without a search: %s", got)
	}
	opened := ""
	for i, name := range names {
		server, short, _ := strings.Cut(name, "__")
		words := strings.NewReplacer("_", " ", "-", " ").Replace(short)
		if got, _ := discover.tool("search_tools", map[string]any{"query": words, "group": server}); !strings.Contains(got, "- "+name+" (") {
			t.Errorf("%s: a search for its name does not find it: %s", name, got)
		}
		// Required arguments are missing. If the error is about them, the tool was found; the few tools without
		// required arguments run.
		if got, isError := discover.tool("call_tool", map[string]any{"name": name, "arguments": map[string]any{}}); isError && strings.Contains(got, "there is no tool") {
			t.Errorf("%s is not called: %s", name, got)
		}
		if i%8 != 0 { // a sample is enough, because the rest is the same for all tools of a server
			continue
		}
		if got, isError := discover.tool("describe_tools", map[string]any{"names": []string{name}}); isError || !strings.Contains(got, "Arguments: {") {
			t.Errorf("%s is not described: %.200s", name, got)
		}
		if server != opened {
			if got, isError := reset.tool("reset_tools", map[string]bool{server: true}); isError {
				t.Fatalf("%s: %s", server, got)
			}
			opened = server
		}
		if got, isError := reset.tool(name, map[string]any{}); isError && (strings.Contains(got, "there is no tool") || strings.Contains(got, "is closed")) {
			t.Errorf("%s after its group was opened: %s", name, got)
		}
	}
}
