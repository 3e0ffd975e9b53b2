package mcpserver_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver"
)

// TestManySessions checks that sessions that open different groups in parallel do not see each other's groups,
// and that an idle session needs little memory.
func TestManySessions(t *testing.T) {
	const sessions = 1000
	s := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open})
	url := listen(t, s)
	wires := make([]*wire, sessions)
	each := func(do func(i int, w *wire)) {
		var wg sync.WaitGroup
		slots := make(chan struct{}, 16)
		for i := range wires {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				do(i, wires[i])
			})
		}
		wg.Wait()
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	// The sessions share a few connections: they are distinguished by their ids, and opening a connection for each
	// request would take most of the time of the test.
	shared := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer shared.CloseIdleConnections()
	for i := range wires {
		wires[i] = newWire(t, url)
		wires[i].client = shared
	}
	wires[0].initialize(`{}`)
	before := heap()
	each(func(i int, w *wire) {
		if i > 0 {
			w.initialize(`{}`)
		}
		open := `{}`
		if i%2 == 0 {
			open = `{"zoo":true}`
		}
		w.post(t.Context(), listBody)
		w.post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"reset_tools","arguments":`+open+`}}`)
	})
	each(func(i int, w *wire) {
		_, got := w.post(t.Context(), listBody)
		if has := len(got) == 1 && strings.Contains(got[0], `"lion"`); has != (i%2 == 0) {
			t.Errorf("session %d: lion listed: %v", i, has)
		}
		_, got = w.post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ape"}}`)
		if ran := len(got) == 1 && !strings.Contains(got[0], `"isError"`); ran != (i%2 == 0) {
			t.Errorf("session %d: ape ran: %v", i, ran)
		}
	})
	shared.CloseIdleConnections()
	if per := (int64(heap()) - int64(before)) / sessions; per > 32<<10 {
		t.Errorf("%d bytes for a session, more than 32 KiB", per)
	} else {
		t.Logf("%d bytes for a session", per)
	}
}

// TestMCPGo connects with mcp-go's client.
func TestMCPGo(t *testing.T) {
	url := listen(t, serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open, MaxListBytes: -1}))
	c, err := client.NewStreamableHttpClient(url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	init := mcp.InitializeRequest{}
	init.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	init.Params.ClientInfo = mcp.Implementation{Name: "mcp-go", Version: "1"}
	res, err := c.Initialize(ctx, init)
	if err != nil {
		t.Fatal(err)
	}
	list := func() (out []string) {
		l, err := c.ListTools(ctx, mcp.ListToolsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, tl := range l.Tools {
			out = append(out, tl.Name)
		}
		return out
	}
	call := func(name string, args map[string]any) string {
		r := mcp.CallToolRequest{}
		r.Params.Name, r.Params.Arguments = name, args
		res, err := c.CallTool(context.WithoutCancel(ctx), r)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(res.IsError, res.Content)
	}
	if got := strings.Join(list(), " "); got != "search_tools describe_tools call_tool slow stream picture fails weather" {
		t.Errorf("%s: %s", res.ProtocolVersion, got)
	}
	if got := call("call_tool", map[string]any{"name": "owl", "arguments": map[string]any{}}); !strings.Contains(got, "owl") {
		t.Errorf("owl: %s", got)
	}
	if got := call("fails", nil); !strings.HasPrefix(got, "true") {
		t.Errorf("fails: %s", got)
	}
}
