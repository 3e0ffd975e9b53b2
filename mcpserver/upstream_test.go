package mcpserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A store has five books, one of them in the group "zoo" and one in no group. Its version depends on the groups
// of the client.
type store struct {
	version atomic.Int64
	changed func()
}

func (s *store) OnChange(changed func()) (stop func()) {
	s.changed = changed
	return func() {}
}

func (s *store) Version(kind mcpupstream.Kind, groups []string) string {
	return fmt.Sprint(kind, s.version.Load(), slices.Contains(groups, "zoo"))
}

func (s *store) List(_ context.Context, kind mcpupstream.Kind, _ mcpupstream.View) (all []mcpupstream.Item) {
	key := map[mcpupstream.Kind]string{mcpupstream.KindPrompt: "name", mcpupstream.KindResource: "uri", mcpupstream.KindTemplate: "uriTemplate"}[kind]
	for i, groups := range [][]string{{"", "zoo"}, {""}, {""}, nil, {"zoo"}} {
		name := fmt.Sprintf("book://%d", i)
		all = append(all, mcpupstream.Item{Name: name, Groups: groups, Entry: map[string]json.RawMessage{
			key: json.RawMessage(`"` + name + `"`), "_meta": json.RawMessage(`{"io.modelcontextprotocol/groups":["secret"],"n":12345678901234567890}`)}})
	}
	return all
}

func (s *store) Get(_ context.Context, kind mcpupstream.Kind, v mcpupstream.View, name string, args map[string]string) (json.RawMessage, error) {
	switch name {
	case "book://refused":
		return nil, &mcpupstream.RequestError{Code: -32099, Message: "closed", Data: json.RawMessage(`{"until":9}`)}
	case "book://broken":
		return nil, errors.New("a page is missing")
	case "book://array":
		return json.RawMessage(`[]`), nil
	case "book://none":
		return nil, fmt.Errorf("the store: %w", mcpupstream.ErrNotFound)
	}
	data, err := json.Marshal(map[string]any{"kind": kind, "groups": v.Groups, "listed": v.Listed, "args": args, "resultType": "other", "ttlMs": 9})
	return data, err
}

// TestUpstream checks that the items of upstream servers are listed in pages to the clients that may see them,
// and requested by name, after the configured ones.
func TestUpstream(t *testing.T) {
	cfg := library()
	cfg.PageSize = 4
	mcpupstream.Attach(&cfg, new(store))
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{named("get")}}, Groups: []toolkit.Group{{Name: "zoo", Description: "Z.", Tools: []tool.Tool{named("lion")}}, {Name: "docs", Description: "D."}}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Toolkit = tk
	w := newWire(t, listen(t, serve(t, cfg)))
	w.initialize(`{}`)
	all := func(method, key, member string) string {
		var out []string
		for cursor := ""; ; {
			values, next := w.list(method, key, member, cursor)
			out = append(out, values...)
			if cursor = next; next == "" {
				return strings.Join(out, " ")
			}
			if len(values) > 4 {
				t.Errorf("a page of %d", len(values))
			}
		}
	}
	check := func(prompts, resources, templates string) {
		t.Helper()
		if got := all("prompts/list", "prompts", "name"); got != prompts {
			t.Errorf("prompts: %s", got)
		}
		if got := all("resources/list", "resources", "uri"); got != resources {
			t.Errorf("resources: %s", got)
		}
		if got := all("resources/templates/list", "resourceTemplates", "uriTemplate"); got != templates {
			t.Errorf("templates: %s", got)
		}
	}
	check("hello book://0 book://1 book://2", "db://rows/first book://0 book://1 book://2", "db://rows/{id} book://0 book://1 book://2")
	w.rpc("tools/call", `{"name":"reset_tools","arguments":{"zoo":true}}`)
	check("hello book://0 book://1 book://2 book://4", "db://rows/first book://0 book://1 book://2 book://4", "db://rows/{id} book://0 book://1 book://2 book://4")
	if got := w.rpc("prompts/list", `{}`)[0]; !strings.Contains(got, `{"_meta":{"io.modelcontextprotocol/groups":["zoo"],"n":12345678901234567890},"name":"book://0"}`) ||
		!strings.Contains(got, `{"_meta":{"n":12345678901234567890},"name":"book://1"}`) {
		t.Errorf("%s", got)
	}
	for _, row := range []struct{ method, params, want string }{
		{"resources/read", `{"uri":"db://rows/first"}`, "the first"},
		{"resources/read", `{"uri":"book://1"}`, `"result":{"args":null,"groups":["","zoo"],"kind":"resources","listed":["zoo"]}`},
		{"prompts/get", `{"name":"book://1","arguments":{"a":"b"}}`, `"result":{"args":{"a":"b"},"groups":["","zoo"],"kind":"prompts","listed":["zoo"]}`},
		{"resources/read", `{"uri":"book://refused"}`, `"error":{"code":-32099,"message":"closed","data":{"until":9}}`},
		{"resources/read", `{"uri":"book://broken"}`, `"error":{"code":-32603,"message":"a page is missing"}`},
		{"resources/read", `{"uri":"book://array"}`, `not an object`},
		{"resources/read", `{"uri":"book://none"}`, `"code":-32002`},
		{"prompts/get", `{"name":"book://none"}`, `"code":-32602`},
	} {
		if got := strings.Join(w.rpc(row.method, row.params), ""); !strings.Contains(got, row.want) {
			t.Errorf("%s %s: %s, want %s", row.method, row.params, got, row.want)
		}
	}
}

// TestUpstreamChanges checks that clients with and without sessions are notified only if the version of the
// items that they see has changed.
func TestUpstreamChanges(t *testing.T) {
	cfg := gated()
	from := new(store)
	mcpupstream.Attach(&cfg, from)
	s := serve(t, cfg)
	url := listen(t, s)
	old, _ := dialOld(t, url, "", nil)
	old.send(oldInitialize)
	m := newModern(t, url, "", `{}`)
	m.header = map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
	next := m.stream(t.Context(), `{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{"promptsListChanged":true,"resourceSubscriptions":["of://x"]},
		"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
	next()
	from.changed() // no version has changed
	s.ResourceUpdated("of://x")
	if _, got := next(); !strings.Contains(got, "resources/updated") {
		t.Errorf("a listener received %s", got)
	}
	from.version.Add(1)
	from.changed()
	if _, got := next(); changedList(got) != "prompts" {
		t.Errorf("a listener received %s", got)
	}
	for _, want := range []string{"prompts", "resources"} {
		if _, got := old.next(); changedList(got) != want {
			t.Errorf("a session received %s, want %s", got, want)
		}
	}
}

// TestUpstreamTwice checks that an item of an upstream server is not listed if a configured item has the same
// name, because requests get the configured item. A cursor would return to the first of the two, and the pages
// would never end.
func TestUpstreamTwice(t *testing.T) {
	cfg := library()
	cfg.PageSize = 1
	mcpupstream.Attach(&cfg, new(store))
	cfg.Prompts = []mcpserver.Prompt{{Name: "book://1", Get: cfg.Prompts[0].Get}}
	w := newWire(t, listen(t, serve(t, cfg)))
	w.initialize(`{}`)
	var all []string
	for cursor, pages := "", 0; pages < 10; pages++ {
		values, next := w.list("prompts/list", "prompts", "name", cursor)
		all = append(all, values...)
		if cursor = next; next == "" {
			break
		}
	}
	if got := strings.Join(all, " "); strings.Count(got, "book://1") != 1 || !strings.Contains(got, "book://2") {
		t.Errorf("listed: %s", got)
	}
}

// A nosy store looks at its client's log level whenever its version is requested.
type nosy struct {
	store
	client atomic.Pointer[mcpserver.Logger]
}

func (n *nosy) Version(kind mcpupstream.Kind, groups []string) string {
	if l := n.client.Load(); l != nil {
		return n.store.Version(kind, groups) + l.Level()
	}
	return n.store.Version(kind, groups)
}

func (n *nosy) Get(ctx context.Context, kind mcpupstream.Kind, v mcpupstream.View, name string, args map[string]string) (json.RawMessage, error) {
	n.client.Store(mcpserver.LoggerFrom(ctx))
	return n.store.Get(ctx, kind, v, name, args)
}

// TestVersionIsFree checks that a provider may use the client of the request when its version is requested.
func TestVersionIsFree(t *testing.T) {
	cfg := library()
	mcpupstream.Attach(&cfg, new(nosy))
	h := serve(t, cfg).Handler()
	session := local(h, "", initializeBody).Header().Get("Mcp-Session-Id")
	local(h, session, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"book://0"}}`)
	called := make(chan string, 1)
	go func() {
		called <- local(h, session, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"reset_tools","arguments":{"docs":true}}}`).Body.String()
	}()
	select {
	case got := <-called:
		if !strings.Contains(got, "Open now: docs") {
			t.Errorf("the answer is %s", got)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the call waits for itself")
	}
}
