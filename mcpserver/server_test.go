package mcpserver_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/toolkit"
)

// eras are the ways in which our client connects to the server.
var eras = []struct {
	name   string
	way    func(*testing.T, *mcpserver.Server) mcpclient.Transport
	pin    string
	static bool // the list never changes
}{
	{"stdio, 2025-11-25", overStdio, "2025-11-25", false},
	{"stdio, 2026-07-28", overStdio, "2026-07-28", true},
	{"sse", overSSE, "", false},
	{"http, 2025-06-18", overHTTP, "2025-06-18", false},
	{"http, 2025-11-25", overHTTP, "2025-11-25", false},
	{"http, 2026-07-28", overHTTP, "2026-07-28", true},
}

func overStdio(_ *testing.T, s *mcpserver.Server) mcpclient.Transport {
	return mcpclient.Dial(dialStdio(s))
}

func overHTTP(t *testing.T, s *mcpserver.Server) mcpclient.Transport {
	return mcpclient.HTTP{URL: listen(t, s)}
}

func overSSE(t *testing.T, s *mcpserver.Server) mcpclient.Transport {
	return mcpclient.HTTP{URL: listen(t, s), SSE: true}
}

// sameSet compares without regard to order, because our client sorts. TestLists checks the order.
func sameSet(got, want []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
}

func TestEras(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			s := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open, MaxListBytes: -1})
			c := connect(t, mcpclient.Server{Transport: era.way(t, s), Options: mcpclient.Options{Protocol: era.pin}})
			got := names(t, c)
			basic := []string{"slow", "stream", "picture", "fails", "weather"}
			if era.static {
				want := append([]string{"search_tools", "describe_tools", "call_tool"}, basic...)
				if !sameSet(got, want) {
					t.Fatalf("list %q, want %q", got, want)
				}
				res := call(t, c, "call_tool", `{"name":"owl","arguments":{}}`)
				if res.Text() != "owl" || res.Outcome != message.OutcomeSuccess {
					t.Errorf("call_tool: %+v", res)
				}
			} else {
				if want := append([]string{"reset_tools"}, basic...); !sameSet(got, want) {
					t.Fatalf("list %q, want %q", got, want)
				}
				if res := call(t, c, "reset_tools", `{"zoo":true}`); !strings.Contains(res.Text(), "Do not feed them") {
					t.Errorf("reset_tools: %s", res.Text())
				}
				want := append([]string{"reset_tools"}, append(basic, "lion", "ape")...)
				for end := time.Now().Add(5 * time.Second); !sameSet(names(t, c), want); time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("list %q, want %q", names(t, c), want)
					}
				}
				if res := call(t, c, "ape", `{}`); res.Text() != "ape" {
					t.Errorf("ape: %+v", res)
				}
			}
			if res := call(t, c, "fails", `{}`); res.Outcome != message.OutcomeError || res.Text() != "the disk is full" {
				t.Errorf("fails: %+v", res)
			}
			if res := call(t, c, "weather", `{}`); string(res.Structured) != `{"c":7}` {
				t.Errorf("structured: %s", res.Structured)
			}
			res := call(t, c, "picture", `{}`)
			if len(res.Blocks) != 3 || res.Blocks[1].(*message.Data).MediaType != "image/png" || len(res.Blocks[1].(*message.Data).Bytes) != 3 ||
				res.Blocks[2].(*message.Data).MediaType != "application/zip" {
				t.Errorf("picture: %+v", res.Blocks)
			}
			res = call(t, c, "stream", `{}`)
			if len(res.Blocks) == 0 || !strings.Contains(res.ForUser.Text(), "1 one\n2 two") {
				t.Errorf("stream: %+v, progress %q", res.Blocks, res.ForUser.Text())
			}
		})
	}
}

// TestChangedOnce checks over the wire which sessions are notified, how often, and in which order.
func TestChangedOnce(t *testing.T) {
	s := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open})
	url := listen(t, s)
	a, b := newWire(t, url), newWire(t, url)
	for _, w := range []*wire{a, b} {
		w.initialize(`{}`)
		w.post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	}
	const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	for _, row := range []struct {
		w       *wire
		name    string
		input   string
		changes int
	}{
		{a, "reset_tools", `{"zoo":true}`, 1},
		{a, "reset_tools", `{"zoo":true}`, 0},
		{a, "reset_tools", `{"nosuch":true}`, 0},
		{b, "weather", `{}`, 0},
		{a, "ape", `{}`, 0},
		{a, "reset_tools", `{"zoo":true,"aviary":true}`, 1},
		{a, "reset_tools", `{}`, 1},
		{b, "reset_tools", `{"zoo":true}`, 1},
	} {
		_, got := row.w.post(t.Context(), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"`+row.name+`","arguments":`+row.input+`}}`)
		if len(got) != row.changes+1 || row.changes == 1 && got[0] != changed || !strings.Contains(got[len(got)-1], `"id":2`) {
			t.Errorf("%s %s: %q, want %d changes and then the result", row.name, row.input, got, row.changes)
		}
	}
}

// TestHostChanges checks that clients are notified without a request, on the stream for such messages, of the
// changes that they can see.
func TestHostChanges(t *testing.T) {
	w := newFixture(t)
	s := serve(t, mcpserver.Config{Toolkit: w.tk, Policy: open})
	c := connect(t, mcpclient.Server{Transport: mcpclient.Dial(dialStdio(s)), Options: mcpclient.Options{Protocol: "2025-11-25"}})
	m := connect(t, mcpclient.Server{Transport: mcpclient.HTTP{URL: listen(t, s)}, Options: mcpclient.Options{Protocol: "2026-07-28"}})
	names(t, c)
	names(t, m)
	for _, client := range []*mcpclient.Client{c, m} {
		notified := func() bool {
			return slices.ContainsFunc(names(t, client), func(n string) bool { return strings.HasPrefix(n, "extra") })
		}
		// A client without sessions subscribes while it requests its first list: it learns of a change before the
		// subscription with the next change.
		for i := 0; !notified(); i++ {
			if i == 50 {
				t.Fatalf("not notified: %q", names(t, client))
			}
			if err := w.tk.Add("", named(fmt.Sprintf("extra_%s_%d", client.Status().Protocol[:4], i))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func TestLists(t *testing.T) {
	w := newFixture(t, func(c *toolkit.Config) {
		c.Groups[0].Meta = map[string]json.RawMessage{"com.example/color": json.RawMessage(`"green"`)}
	})
	s := serve(t, mcpserver.Config{Toolkit: w.tk, Policy: open, PageSize: 4, Instructions: "Hello."})
	c := newWire(t, listen(t, s))
	c.initialize(`{}`)
	var list struct {
		Result struct {
			Tools, Groups []struct {
				Name string                     `json:"name"`
				Meta map[string]json.RawMessage `json:"_meta"`
			}
			Next         string `json:"nextCursor"`
			Instructions string
			Capabilities map[string]json.RawMessage
		}
		Error struct{ Code int }
	}
	ask := func(method, params string) {
		t.Helper()
		list.Result.Next, list.Result.Tools, list.Result.Groups, list.Error.Code = "", nil, nil, 0
		_, got := c.post(t.Context(), `{"jsonrpc":"2.0","id":"x","method":"`+method+`","params":`+params+`}`)
		if len(got) != 1 || json.Unmarshal([]byte(got[0]), &list) != nil {
			t.Fatalf("%s: %q", method, got)
		}
	}
	c.post(t.Context(), `{"jsonrpc":"2.0","id":"y","method":"tools/call","params":{"name":"reset_tools","arguments":{"zoo":true,"aviary":true}}}`)
	var all []string
	for cursor := ""; ; {
		ask("tools/list", `{"cursor":"`+cursor+`"}`)
		for _, tl := range list.Result.Tools {
			all = append(all, tl.Name)
			if tl.Name == "owl" && string(tl.Meta["io.modelcontextprotocol/groups"]) != `["aviary"]` {
				t.Errorf("labels of owl: %v", tl.Meta)
			}
		}
		if cursor = list.Result.Next; cursor == "" {
			break
		}
	}
	if got := strings.Join(all, " "); got != "reset_tools slow stream picture fails weather lion ape owl" {
		t.Errorf("pages: %s", got)
	}
	ask("groups/list", `{}`)
	g := list.Result.Groups
	if len(g) != 2 || g[0].Name != "zoo" || string(g[0].Meta["com.example/color"]) != `"green"` ||
		string(g[1].Meta["io.modelcontextprotocol/groups"]) != `["zoo"]` {
		t.Errorf("groups: %+v", g)
	}
	ask("tools/list", `{"cursor":"bm9uZQ"}`)
	if list.Error.Code != -32602 {
		t.Errorf("an invalid cursor: %+v", list)
	}
	ask("nothing/at/all", `{}`)
	if list.Error.Code != -32601 {
		t.Errorf("unknown method: %+v", list)
	}
	ask("server/discover", `{}`)
	if list.Result.Instructions != "Hello.\n\nBe kind." || list.Result.Capabilities["groups"] == nil {
		t.Errorf("discover: %+v", list)
	}
}

// TestCallErrors checks errors that are results for the model, not errors of the protocol.
func TestCallErrors(t *testing.T) {
	s := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open})
	w := newWire(t, listen(t, s))
	w.initialize(`{}`)
	for _, row := range []struct{ params, want string }{
		{`{"name":"lion"}`, `call reset_tools with {\"zoo\":true}`},
		{`{"name":"wether"}`, "did you mean weather"},
		{`{"name":"slow","arguments":{"ms":"soon"}}`, "ms"},
		{`{"name":"slow","arguments":{"ms":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}}`, "deep"},
		{`{"name":"slow","arguments":[1]}`, "do not fit its schema"},
	} {
		_, got := w.post(t.Context(), `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":`+row.params+`}`)
		if len(got) != 1 || !strings.Contains(got[0], `"isError":true`) || !strings.Contains(got[0], row.want) {
			t.Errorf("%.60s: %.300q, want %q", row.params, got, row.want)
		}
	}
}
