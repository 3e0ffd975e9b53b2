package mcpgateway_test

import (
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestReload: a session keeps its open groups, servers that have not changed keep running, and a configuration that is not
// valid changes nothing.
func TestReload(t *testing.T) {
	a, b, c := process(t, "a"), behind(t, "b", echo()).Server, behind(t, "c", echo()).Server
	config := func(servers ...mcpclient.Server) mcpgateway.Config {
		return mcpgateway.Config{Servers: servers, Serve: mcpgateway.ServeOptions{Version: "1", Policy: open}}
	}
	first := config(a, b)
	g := newGateway(t, first)
	w := newWire(t, g)
	if text, failed := w.tool("reset_tools", map[string]bool{"a": true, "b": true}); failed {
		t.Fatal(text)
	}
	pid, _ := w.tool("a__pid", none{})
	before := g.Revision()
	groups := func() string { return string(w.ask(`{"jsonrpc":"2.0","id":1,"method":"groups/list"}`)) }
	if got := groups(); !strings.Contains(got, before.String()) {
		t.Errorf("groups/list without revision %s: %s", before, got)
	}

	bad := config(a, c)
	bad.Groups = []mcpgateway.Group{{Name: "x", Description: "x", Tools: []string{"ghost__*"}}, {Name: "y", Description: "y", Parents: []string{"no"}, Tools: []string{"c__*"}}}
	restart := config(a, c)
	restart.Serve.Credentials = []mcpserver.Credential{{Name: "ci", Token: strings.Repeat("x", 20)}}
	moved := config(a, c)
	moved.ReplicaStore = "postgres://other.example.com/mcp"
	wrong := config(a, c)
	wrong.Serve.Policy = &permission.Policy{Rules: []permission.Rule{{Tool: "ghoost__x", Behavior: permission.Deny}, {Tool: "b__echo", Pattern: "x", Behavior: permission.Deny}}}
	for _, cfg := range []mcpgateway.Config{bad, restart, moved, wrong, {}} {
		if err := g.Reload(t.Context(), cfg); err == nil {
			t.Errorf("reloaded %+v", cfg)
		}
		if got, failed := w.tool("b__echo", said{"hi"}); g.Revision() != before || failed {
			t.Errorf("a refused reload changed something: %s", got)
		}
	}

	second := config(a, c)
	second.Serve.Policy = &permission.Policy{Rules: []permission.Rule{{Tool: "a__pid", Behavior: permission.Allow}}}
	if err := g.Reload(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if got := groups(); g.Revision().Number != 2 || !strings.Contains(got, g.Revision().String()) || !strings.Contains(got, `"c"`) || strings.Contains(got, `"b"`) {
		t.Errorf("after the reload to %s: %s", g.Revision(), got)
	}
	if got, failed := w.tool("a__pid", none{}); failed || got != pid {
		t.Errorf("process %s of a, want %s", got, pid)
	}
	if got, failed := w.tool("b__echo", said{"hi"}); !failed {
		t.Errorf("b was removed: %s", got)
	}
	if text, failed := w.tool("reset_tools", map[string]bool{"a": true, "c": true}); failed {
		t.Fatal(text)
	}
	if got, failed := w.tool("c__echo", said{"hi"}); !failed {
		t.Errorf("the new policy does not allow c: %s", got)
	}
}

// TestReloadRestartsChangedServer: a server whose entry has changed is started again.
func TestReloadRestartsChangedServer(t *testing.T) {
	cfg := mcpgateway.Config{Servers: []mcpclient.Server{process(t, "a")}, Initial: []string{"a"}, Serve: mcpgateway.ServeOptions{Version: "1", Policy: open}}
	g := newGateway(t, cfg)
	w := newWire(t, g)
	w.ask(listBody)
	before, _ := w.tool("a__pid", none{})
	cfg.Servers = slices.Clone(cfg.Servers)
	cfg.Servers[0].Options.Limits.Result = 1 << 20
	if err := g.Reload(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if after, failed := w.tool("a__pid", none{}); failed || after == before {
		t.Errorf("process %s, before %s", after, before)
	}
}

// TestReloadPinning: which tools are pinned when they are listed is decided by the latest configuration, also for a server
// that keeps running.
func TestReloadPinning(t *testing.T) {
	tk := toolkit.Of(named("first"))
	behind := newServer(tk)
	web := httptest.NewServer(behind.Handler())
	t.Cleanup(func() { _ = behind.Close(); web.Close() })
	server := mcpclient.Server{Name: "a", Transport: mcpclient.HTTP{URL: web.URL}, Options: mcpclient.Options{Pins: pins{}}}
	var mu sync.Mutex
	var asked []string
	config := func(name string) mcpgateway.Config {
		server.Options.PinListed = func(string) bool {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, name)
			return false
		}
		return mcpgateway.Config{Servers: []mcpclient.Server{server}, Initial: []string{"a"}, Serve: mcpgateway.ServeOptions{Version: "1", Policy: open}}
	}
	g := newGateway(t, config("old"))
	c := newHost(t, g)
	list(t, c, "a__first reset_tools")
	if err := g.Reload(t.Context(), config("new")); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	before := asked
	asked = nil
	mu.Unlock()
	if err := tk.Add("", named("second")); err != nil {
		t.Fatal(err)
	}
	list(t, c, "a__first a__second reset_tools")
	mu.Lock()
	defer mu.Unlock()
	if !slices.Contains(before, "old") || !slices.Contains(asked, "new") || slices.Contains(asked, "old") {
		t.Errorf("before %v, after %v", before, asked)
	}
}

// pins are always empty.
type pins struct{}

func (pins) Load(string) (map[string]mcpclient.Pin, error)            { return map[string]mcpclient.Pin{}, nil }
func (pins) Update(string, func(pins map[string]mcpclient.Pin)) error { return nil }
