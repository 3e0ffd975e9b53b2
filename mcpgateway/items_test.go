package mcpgateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// library is an upstream server with a prompt, two resources and a template, and a tool.
func library(t testing.TB, name string, change ...func(*mcpserver.Config)) upstream {
	t.Helper()
	says := func(text string) func(context.Context, string, map[string]string) ([]byte, error) {
		return func(_ context.Context, uri string, vars map[string]string) ([]byte, error) {
			if vars["id"] == "0" {
				return nil, fmt.Errorf("book 0: %w", fs.ErrNotExist)
			}
			return []byte(text + " " + uri + vars["id"]), nil
		}
	}
	cfg := mcpserver.Config{Name: name, Version: "1", Policy: open, Toolkit: toolkit.Of(named("get")),
		Prompts: []mcpserver.Prompt{{Name: "greet", Title: "Gr\u202eeet", Description: "Greets.\x1b[2J", Arguments: []mcpserver.Argument{{Name: "who", Required: true}},
			Get: func(ctx context.Context, args map[string]string) ([]*message.Message, error) {
				if h := host.From(ctx); args["who"] == "ask" && h != nil {
					a, err := h.Elicit(ctx, host.Elicitation{Message: "Who?", Schema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
					return []*message.Message{message.User(fmt.Sprint("Greet ", a.Content["name"]))}, err
				}
				return []*message.Message{message.User("Greet " + args["who"])}, nil
			}}},
		Resources: []mcpserver.Resource{{URI: "book://" + name, Name: "the book", Read: says("only")}, {URI: "book://both", Read: says(name)},
			{URI: "book://shelf/{id}", Name: "shelf", Read: says("shelf")}},
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := mcpserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	u := upstream{mcpclient.Server{Name: name, Options: mcpclient.Options{PingInterval: -1, Protocol: "2025-11-25"}}, new(atomic.Int32), s}
	u.Transport = mcpclient.Dial(func(ctx context.Context) (io.ReadWriteCloser, error) {
		u.starts.Add(1)
		return dial(s)(ctx)
	})
	return u
}

// rpc sends a request and returns its result or its error.
func (w *wire) rpc(method, params string) string {
	w.t.Helper()
	var m struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal(w.ask(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`), &m); err != nil {
		w.t.Fatal(err)
	}
	return string(m.Result) + string(m.Error)
}

// offered returns the names and URIs of all items that are listed for a client.
func (w *wire) offered() string {
	w.t.Helper()
	var all []string
	for _, method := range []string{"prompts/list", "resources/list", "resources/templates/list"} {
		var list map[string]json.RawMessage
		if err := json.Unmarshal([]byte(w.rpc(method, `{}`)), &list); err != nil {
			w.t.Fatal(err)
		}
		for _, items := range list {
			var entries []struct{ URI, URITemplate, Name string }
			if err := json.Unmarshal(items, &entries); err != nil {
				w.t.Fatal(err)
			}
			for _, e := range entries {
				if e.URI+e.URITemplate != "" {
					e.Name = ""
				}
				all = append(all, e.Name+e.URI+e.URITemplate)
			}
		}
	}
	return strings.Join(all, " ")
}

const (
	itemsOfA = "a__greet mcp://a/book://a mcp://a/book://both mcp://a/book://shelf/{id}"
	itemsOfB = "b__greet mcp://b/book://b mcp://b/book://both mcp://b/book://shelf/{id}"
)

// TestItems checks that the prompts and resources of servers whose groups are open are listed, that their names
// can be used in requests, and that no other server is started.
func TestItems(t *testing.T) {
	a, b := library(t, "a"), library(t, "b")
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{a.Server, b.Server, {Name: "dead", Transport: mcpclient.Command{Path: "/does/not/exist"}}}})
	w := newWire(t, g)
	if got := w.offered(); got != "" || a.starts.Load() != 0 {
		t.Errorf("before any group is open: %s, %d starts", got, a.starts.Load())
	}
	for _, uri := range []string{"mcp://a/book://a", "book://a", "mcp://nobody/x", "mcp://a"} {
		if got := w.rpc("resources/read", `{"uri":"`+uri+`"}`); !strings.Contains(got, `"code":-32002`) || a.starts.Load() != 0 {
			t.Errorf("%s is read while its group is closed: %s", uri, got)
		}
	}
	w.rpc("tools/list", `{}`)
	if text, bad := w.tool("reset_tools", map[string]bool{"a": true, "dead": true}); bad {
		t.Fatal(text)
	}
	var notified []string
	for _, m := range w.notices {
		_, m, _ = strings.Cut(m, `"method":"notifications/`)
		m, _, _ = strings.Cut(m, `"`)
		notified = append(notified, m)
	}
	slices.Sort(notified)
	if got := strings.Join(notified, " "); got != "prompts/list_changed resources/list_changed tools/list_changed" {
		t.Errorf("notified of %s", got)
	}
	if got := w.offered(); got != itemsOfA || b.starts.Load() != 0 {
		t.Errorf("offered %s, b started %d times", got, b.starts.Load())
	}
	for _, row := range []struct{ method, params, want string }{
		{"resources/read", `{"uri":"mcp://a/book://a"}`, `{"contents":[{"mimeType":"text/plain","text":"only book://a","uri":"mcp://a/book://a"}]}`},
		{"resources/read", `{"uri":"mcp://a/book://shelf/7"}`, `{"contents":[{"mimeType":"text/plain","text":"shelf book://shelf/77","uri":"mcp://a/book://shelf/7"}]}`},
		{"resources/read", `{"uri":"book://a"}`, `{"contents":[{"mimeType":"text/plain","text":"only book://a","uri":"mcp://a/book://a"}]}`}, // the URI in a result of a tool
		{"resources/read", `{"uri":"mcp://a/book://shelf/0"}`, `"code":-32002`},
		{"resources/read", `{"uri":"mcp://a/book://none"}`, `"code":-32002`},
		{"resources/read", `{"uri":"mcp://b/book://b"}`, `"code":-32002`},
		{"resources/read", `{"uri":"mcp://dead/x"}`, `MCP server \"dead\"`},
		{"prompts/get", `{"name":"a__greet","arguments":{"who":"Bo"}}`, `{"description":"Greets.[2J","messages":[{"content":{"text":"Greet Bo","type":"text"},"role":"user"}]}`},
		{"prompts/get", `{"name":"a__greet"}`, `needs the argument \"who\"`},
		{"prompts/get", `{"name":"greet","arguments":{"who":"Bo"}}`, `"code":-32602`},
		{"prompts/get", `{"name":"a__none"}`, `"code":-32602`},
		{"prompts/get", `{"name":"b__greet","arguments":{"who":"Bo"}}`, `"code":-32602`},
		{"resources/subscribe", `{"uri":"mcp://a/book://a"}`, `{}`},
		{"resources/subscribe", `{"uri":"mcp://b/book://b"}`, `"code":-32002`},
		{"prompts/list", `{}`, `{"prompts":[{"_meta":{"io.modelcontextprotocol/groups":["a"]},"arguments":[{"description":"","name":"who","required":true}],"description":"Greets.[2J","name":"a__greet","title":"Greet"}]}`},
	} {
		if got := w.rpc(row.method, row.params); !strings.Contains(got, row.want) {
			t.Errorf("%s %s: %s, want %s", row.method, row.params, got, row.want)
		}
	}
	w.tool("reset_tools", map[string]bool{"a": true, "b": true})
	if got := w.offered(); got != itemsOfA[:8]+" "+itemsOfB[:8]+" mcp://a/book://a mcp://a/book://both mcp://b/book://b mcp://b/book://both mcp://a/book://shelf/{id} mcp://b/book://shelf/{id}" {
		t.Errorf("with both groups open: %s", got)
	}
	if got := w.rpc("resources/read", `{"uri":"book://both"}`); !strings.Contains(got, `mcp://a/book://both`) || !strings.Contains(got, "-32602") {
		t.Errorf("a URI of both: %s", got)
	}
	if got := newWire(t, g).offered(); got != "" {
		t.Errorf("another session: %s", got)
	}
}

// TestItemsWithoutStarting checks that if tools are only searched, as without sessions, the lists contain the
// items of running servers, and that reading a resource starts its server.
func TestItemsWithoutStarting(t *testing.T) {
	a, b := library(t, "a"), library(t, "b")
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{a.Server, b.Server}, Style: mcpgateway.StyleDiscover})
	w := newWire(t, g)
	if got := w.offered(); got != "" || a.starts.Load()+b.starts.Load() != 0 {
		t.Errorf("at first: %s", got)
	}
	if got := w.rpc("resources/read", `{"uri":"mcp://a/book://a"}`); !strings.Contains(got, "only book://a") {
		t.Errorf("read: %s", got)
	}
	if got := w.offered(); got != itemsOfA || b.starts.Load() != 0 {
		t.Errorf("then: %s", got)
	}
	full := newWire(t, newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{library(t, "a").Server}, Style: mcpgateway.StyleFull}))
	if got := full.offered(); got != itemsOfA {
		t.Errorf("in full: %s", got)
	}
}

// TestItemsFoundBySearching checks that a client without sessions that searches tools sees the prompts and
// resources of the servers that the search has started, and is notified of them. The search reports servers
// that it could not start.
func TestItemsFoundBySearching(t *testing.T) {
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{library(t, "a").Server, {Name: "dead", Transport: mcpclient.Command{Path: "/does/not/exist"}}}})
	var notified atomic.Int32
	c := newHost(t, g, func(cfg *mcpclient.Server) { cfg.Options.Protocol = "2026-07-28" })
	c.OnPromptsChange(func() { notified.Add(1) })
	c.OnResourcesChange(func() { notified.Add(1) })
	count := func() int {
		prompts, err1 := c.Prompts(t.Context())
		resources, err2 := c.Resources(t.Context())
		templates, err3 := c.ResourceTemplates(t.Context())
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		return len(prompts) + len(resources) + len(templates)
	}
	for range 2 { // again when the subscription is established, because then everything is listed again
		if n := count(); n != 0 {
			t.Errorf("%d before the first search", n)
		}
		for end := time.Now().Add(10 * time.Second); notified.Load() == 0 && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
	}
	for _, query := range []string{`{"query":"get"}`, `{"query":"xyzzy"}`, `{"query":"","group":"dead"}`} {
		res := call(t, c, "search_tools", query)
		if text := res.Text(); strings.Contains(text, "a__get") != strings.Contains(query, "get") || !strings.Contains(text, "Not searched") || !strings.Contains(text, `MCP server "dead"`) {
			t.Errorf("%s found %s", query, text)
		}
	}
	if text := call(t, c, "search_tools", `{"query":"","group":"a"}`).Text(); strings.Contains(text, "dead") {
		t.Errorf("in another group the search found %s", text)
	}
	for end := time.Now().Add(10 * time.Second); count() != 4; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d afterwards, notified %d times", count(), notified.Load())
		}
	}
}

// TestItemsBelowCeilings checks that a client that may not see a server's tools, by its ceiling or by a rule,
// does not see, read or start anything of it, in revisions with and without sessions.
func TestItemsBelowCeilings(t *testing.T) {
	const token = "0123456789abcdef-"
	a, b := library(t, "a"), library(t, "b")
	deny := &permission.Policy{Mode: permission.ModeBypass, Rules: []permission.Rule{{Tool: "a__*", Behavior: permission.Deny}}}
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{a.Server, b.Server}, Initial: []string{"b"},
		Groups: []mcpgateway.Group{{Name: "some", Description: "S.", Tools: []string{"a__g*", "b__nothing*"}}},
		Serve: mcpgateway.ServeOptions{Credentials: []mcpserver.Credential{
			{Name: "all", Token: token + "all"}, {Name: "some", Token: token + "some", Ceiling: toolkit.Only("some")}, {Name: "none", Token: token + "none", Ceiling: toolkit.Only()},
			{Name: "b", Token: token + "b", Ceiling: toolkit.Only("b")}, {Name: "denied", Token: token + "denied", Policy: deny},
		}}})
	web := httptest.NewServer(g.Server.Handler())
	t.Cleanup(web.Close)
	t.Cleanup(func() { _ = g.Close() })
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		for who, want := range map[string]string{
			"none":   "- - - - -",
			"b":      "b__greet 2 - only Greet",
			"some":   "a__greet - - - -",
			"denied": "b__greet 2 - only Greet",
			"all":    "a__greet,b__greet 4 only only Greet",
		} {
			starts := a.starts.Load()
			c := newHost(t, g, func(cfg *mcpclient.Server) {
				cfg.Transport, cfg.Options.Protocol = mcpclient.HTTP{URL: web.URL, Headers: map[string]string{"Authorization": "Bearer " + token + who}}, version
			})
			if version == "2025-11-25" && who != "none" && who != "b" {
				call(t, c, "reset_tools", map[string]string{"some": `{"some":true}`}[who]+map[string]string{"all": `{"a":true,"b":true,"some":true}`, "denied": `{"a":true,"b":true,"some":true}`}[who])
			}
			if version == "2026-07-28" && who != "none" {
				call(t, c, "search_tools", `{"query":"get"}`)
			}
			got := []string{}
			prompts, err := c.Prompts(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, p := range prompts {
				names = append(names, p.Name)
			}
			resources, err := c.Resources(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, strings.Join(names, ","), strings.Trim(fmt.Sprint(len(resources)), "0"))
			for _, uri := range []string{"mcp://a/book://a", "mcp://b/book://b"} {
				read, err := c.ReadResource(t.Context(), uri)
				if ce, refused := errors.AsType[*mcpclient.CallError](err); err != nil && (!refused || !strings.Contains(ce.Message, "unknown resource")) {
					t.Errorf("%s %s: %v", who, uri, err)
				}
				got = append(got, map[bool]string{true: "only"}[err == nil && strings.Contains(string(read.Raw), "only")])
			}
			prompt, err := c.GetPrompt(t.Context(), "b__greet", map[string]string{"who": "x"})
			got = append(got, map[bool]string{true: "Greet"}[err == nil && strings.Contains(string(prompt.Raw), "Greet")])
			for i := range got {
				if got[i] == "" {
					got[i] = "-"
				}
			}
			if g := strings.Join(got, " "); g != want {
				t.Errorf("%s, %s: %s\nwant %s", version, who, g, want)
			}
			if who == "none" && a.starts.Load() != starts {
				t.Errorf("a server was started for %s", who)
			}
			_ = c.Close()
		}
	}
}

// TestItemsAreOnRecord checks that requests for items are audited, and that questions of prompts reach the host.
func TestItemsAreOnRecord(t *testing.T) {
	records := make(chan mcpserver.Record, 10)
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{library(t, "a").Server}, Initial: []string{"a"},
		Serve: mcpgateway.ServeOptions{Policy: open, Audit: func(r mcpserver.Record) { records <- r }}})
	c := newHost(t, g, func(cfg *mcpclient.Server) {
		cfg.Options.Elicitation = func(_ context.Context, q host.Elicitation) (host.Answer, error) {
			return host.Answer{Action: host.ActionAccept, Content: map[string]any{"name": q.Message}}, nil
		}
	})
	got, err := c.GetPrompt(t.Context(), "a__greet", map[string]string{"who": "ask"})
	if err != nil || !strings.Contains(string(got.Raw), "Greet [a] Who?") {
		t.Errorf("%+v, %v", got, err)
	}
	_, _ = c.ReadResource(t.Context(), "mcp://a/book://a")
	_, _ = c.ReadResource(t.Context(), "mcp://a/book://shelf/0")
	for _, want := range []string{`prompts/get success {"arguments":{"who":"ask"},"name":"a__greet"}`, `resources/read success {"uri":"mcp://a/book://a"}`, `resources/read invalid {"uri":"mcp://a/book://shelf/0"}`} {
		if r := <-records; fmt.Sprintf("%s %s %s", r.Tool, r.Outcome, r.Input) != want || r.Session == "" {
			t.Errorf("%+v, want %s", r, want)
		}
	}
}

// TestItemsOfEvil checks that invalid entries of a server's list are left out, and others are cleaned.
func TestItemsOfEvil(t *testing.T) {
	long := strings.Repeat("x", 70<<10)
	up := lister("a", map[string]string{
		"prompts/list":   `{"prompts":[7,{"name":""},{"name":"good"},{"name":"good","title":"again"},{"name":"hid\u202eden"},{"name":"long","description":"` + long + `"},{"name":["bad"]}]}`,
		"resources/list": `{"resources":[{"uri":"x://a\u0007"},{"uri":"x://ok","name":"n\u200bame","description":"d\u202e","_meta":{"io.modelcontextprotocol/groups":["b"],"k":12345678901234567890}},{"uri":"` + long + `"}]}`,
		"resources/read": `{"contents":"` + "none" + `"}`,
	})
	w := newWire(t, newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{up, library(t, "b").Server}, Initial: []string{"a"}}))
	if got := w.rpc("prompts/list", `{}`); got != `{"prompts":[{"_meta":{"io.modelcontextprotocol/groups":["a"]},"name":"a__good"}]}` {
		t.Errorf("%s", got)
	}
	if got := w.rpc("resources/list", `{}`); got != `{"resources":[{"_meta":{"io.modelcontextprotocol/groups":["a"],"k":12345678901234567890},"description":"d","name":"name","uri":"mcp://a/x://ok"}]}` {
		t.Errorf("%s", got)
	}
	if got := w.rpc("resources/read", `{"uri":"mcp://a/x://ok"}`); got != `{"contents":"none"}` {
		t.Errorf("%s", got)
	}
	if got := w.rpc("prompts/get", `{"name":"a__good"}`); !strings.Contains(got, "the result is not an object") && !strings.Contains(got, "{}") {
		t.Errorf("%s", got)
	}
}

// lister is scripted with results for other methods than those of tools.
func lister(name string, results map[string]string) mcpclient.Server {
	cfg := scripted(name, `[{"name":"t","inputSchema":{"type":"object"}}]`, says("done"))
	cfg.Transport = mcpclient.Dial((&tap{dial: cfg.Transport.(mcpclient.Dial), capabilities: `"prompts":{},"resources":{},`, results: results}).connect)
	return cfg
}

// TestItemsRefused checks that if a server answers one of its lists with an error, its other lists are still used.
func TestItemsRefused(t *testing.T) {
	some := lister("some", map[string]string{"prompts/list": "refusal", "resources/list": `{"resources":[{"uri":"x://a","name":"a"}]}`, "resources/templates/list": "refusal"})
	w := newWire(t, newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{some}, Initial: []string{"some"}}))
	for range 2 {
		if got := w.offered(); got != "mcp://some/x://a" {
			t.Errorf("offered: %s", got)
		}
	}
}

// TestItemsOfTheSilent checks that a server that does not answer delays lists by its timeout only once, and
// does not affect the others.
func TestItemsOfTheSilent(t *testing.T) {
	var requests atomic.Int32
	hung := lister("hung", map[string]string{"prompts/list": "silence", "resources/list": "silence", "resources/templates/list": "silence"})
	dial := hung.Transport.(mcpclient.Dial)
	hung.Transport = mcpclient.Dial(func(ctx context.Context) (io.ReadWriteCloser, error) {
		conn, err := dial(ctx)
		conn.(*tap).sent = func(method, _ string) {
			if strings.HasSuffix(method, "/list") && method != "tools/list" {
				requests.Add(1)
			}
		}
		return conn, err
	})
	w := newWire(t, newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{hung, library(t, "a").Server}, Style: mcpgateway.StyleFull}))
	for range 3 {
		if text, bad := w.tool("hung__t", map[string]any{}); bad || text == "" { // the first call waits until the server has started
			t.Errorf("its tool, which works: %q", text)
		}
		if got := w.offered(); got != itemsOfA {
			t.Errorf("%s", got)
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("the server that does not answer got %d requests", n)
	}
}

// A tap is a connection to a scripted server. It replaces results in the server's answers, and reports the
// requests that it passes on.
type tap struct {
	io.ReadWriteCloser
	dial         func(context.Context) (io.ReadWriteCloser, error)
	capabilities string
	results      map[string]string // by method; "silence" is no answer, "refusal" an error
	sent         func(method, line string)

	method atomic.Value // of the last request
	rest   []byte
}

func (p *tap) connect(ctx context.Context) (io.ReadWriteCloser, error) {
	conn, err := p.dial(ctx)
	return &tap{ReadWriteCloser: conn, capabilities: p.capabilities, results: p.results, sent: p.sent}, err
}

func (p *tap) Write(line []byte) (int, error) {
	var r request
	if json.Unmarshal(line, &r) == nil && r.ID != nil {
		p.method.Store(r.Method)
		if p.sent != nil {
			p.sent(r.Method, string(line))
		}
	}
	return p.ReadWriteCloser.Write(line)
}

func (p *tap) Read(to []byte) (int, error) {
	for len(p.rest) == 0 {
		buf := make([]byte, 1<<20)
		n, err := p.ReadWriteCloser.Read(buf)
		if err != nil {
			return 0, err
		}
		p.rest = buf[:n]
		method, _ := p.method.Load().(string)
		var r request
		switch {
		case p.results[method] == "silence":
			p.rest = nil
		case p.results[method] == "refusal" && json.Unmarshal(p.rest, &r) == nil:
			p.rest = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32099,"message":"no"}}`+"\n", r.ID)
		case method == "initialize":
			p.rest = []byte(strings.Replace(string(p.rest), `"capabilities":{`, `"capabilities":{`+p.capabilities, 1))
		case p.results[method] != "" && json.Unmarshal(p.rest, &r) == nil:
			p.rest = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, p.results[method])
		}
	}
	n := copy(to, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// TestItemsChange checks that when a server announces that its lists have changed, the sessions that see its
// items are notified and list the new items.
func TestItemsChange(t *testing.T) {
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{named("get")}}, Groups: []toolkit.Group{{Name: "more", Description: "More."}}})
	if err != nil {
		t.Fatal(err)
	}
	a := library(t, "a", func(cfg *mcpserver.Config) {
		cfg.Toolkit = tk
		cfg.Resources[0].Groups = []string{"more"}
	})
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{a.Server}, Groups: nil, Initial: []string{"a"}})
	var notified atomic.Int32
	c := newHost(t, g)
	c.OnResourcesChange(func() { notified.Add(1) })
	count := func(want int) {
		t.Helper()
		n := -1
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && n != want; time.Sleep(5 * time.Millisecond) {
			list, err := c.Resources(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			n = len(list)
		}
		if n != want {
			t.Errorf("%d resources, want %d", n, want)
		}
	}
	if _, err := c.Tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	count(1)
	call(t, c, "a__reset_tools", `{"more":true}`)
	count(2)
	if notified.Load() == 0 {
		t.Error("the host was not notified")
	}
}
