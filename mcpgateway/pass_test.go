package mcpgateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestResults checks that the results of an upstream server reach the host unchanged, member by member.
func TestResults(t *testing.T) {
	results := map[string]string{
		"text":       `{"content":[{"type":"text","text":"a\nb <&>"}]}`,
		"several":    `{"content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}`,
		"error":      `{"content":[{"type":"text","text":"no"}],"isError":true}`,
		"image":      `{"content":[{"type":"image","data":"AQID","mimeType":"image/png","annotations":{"audience":["user"],"priority":0.5}}]}`,
		"audio":      `{"content":[{"type":"audio","data":"AQID","mimeType":"audio/wav"}]}`,
		"link":       `{"content":[{"type":"resource_link","uri":"file:///a.txt","name":"a.txt","mimeType":"text/plain","size":7}]}`,
		"embedded":   `{"content":[{"type":"resource","resource":{"uri":"file:///a.txt","mimeType":"text/plain","text":"hello"}}]}`,
		"blob":       `{"content":[{"type":"resource","resource":{"uri":"file:///a.bin","mimeType":"application/zip","blob":"AQID"}}]}`,
		"structured": `{"content":[{"type":"text","text":"{}"}],"structuredContent":{"big":12345678901234567890,"list":[1,{"a":null}]}}`,
		"meta":       `{"content":[{"type":"text","text":"x"}],"_meta":{"example.com/a":{"b":1}}}`,
	}
	var tools []string
	for name := range results {
		tools = append(tools, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name))
	}
	up := scripted("a", "["+strings.Join(tools, ",")+"]", func(r request) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, results[r.Params.Name])
	})
	w := newWire(t, newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{up}, Style: mcpgateway.StyleFull}))
	for name, want := range results {
		var m struct{ Result json.RawMessage }
		if err := json.Unmarshal(w.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__`+name+`"}}`), &m); err != nil {
			t.Fatal(err)
		}
		if got := sorted(t, m.Result); got != sorted(t, []byte(want)) {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
}

// sorted encodes JSON with its members sorted and numbers unchanged.
func sorted(t *testing.T, data []byte) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestListed checks that the definition of an upstream server's tool is listed unchanged.
func TestListed(t *testing.T) {
	const rest = `"inputSchema":{"type":"object","properties":{"b":{"$ref":"#/$defs/x"},"a":{}},"$defs":{"x":{"type":["string","null"]}},"allOf":[{}]},` +
		`"outputSchema":{"type":"object","additionalProperties":{"type":"integer"}},"title":"F","description":"Does f.",` +
		`"annotations":{"readOnlyHint":false,"destructiveHint":true,"openWorldHint":false,"x":[1]}`
	up := scripted("a", `[{"name":"f",`+rest+`}]`, says("ok"))
	w := newWire(t, newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{up}, Style: mcpgateway.StyleFull}))
	var m struct {
		Result struct{ Tools []map[string]json.RawMessage }
	}
	if err := json.Unmarshal(w.ask(listBody), &m); err != nil || len(m.Result.Tools) != 1 {
		t.Fatalf("%v, %v", err, m.Result.Tools)
	}
	delete(m.Result.Tools[0], "_meta") // the gateway adds the group there
	got, err := json.Marshal(m.Result.Tools[0])
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"name":"a__f",` + rest + `}`; sorted(t, got) != sorted(t, []byte(want)) {
		t.Errorf("listed %s\nwant   %s", got, want)
	}
}

// TestArguments checks that arguments reach the upstream server exactly as the host wrote them.
func TestArguments(t *testing.T) {
	seen := make(chan json.RawMessage, 1)
	up := scripted("a", `[{"name":"f","inputSchema":{"type":"object"}}]`, func(r request) string {
		seen <- r.Params.Arguments
		return says("ok")(r)
	})
	w := newWire(t, newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{up}, Style: mcpgateway.StyleFull}))
	for _, args := range []string{`{}`, `{"z":1,"a":12345678901234567890,"e":1e2,"s":"\u00e9\u2028<"}`, `{"deep":{"list":[[],[null,true,{"x":"y"}]]}}`} {
		w.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__f","arguments":` + args + `}}`)
		if got := <-seen; sorted(t, got) != sorted(t, []byte(args)) {
			t.Errorf("%s became %s", args, got)
		}
	}
}

// TestProgress checks that progress of an upstream server reaches the host unchanged, before the result.
func TestProgress(t *testing.T) {
	up := scripted("a", `[{"name":"f","inputSchema":{"type":"object"}}]`, func(r request) string {
		var notices string
		for _, p := range []string{`"progress":0.5,"total":2.5,"message":"half"`, `"progress":0.25,"message":"back"`, `"progress":2.5,"total":2.5`} {
			notices += `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(r.Params.Meta.Token) + `,` + p + "}}\n"
		}
		return notices + says("ok")(r)
	})
	w := newWire(t, newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{up}, Style: mcpgateway.StyleFull}))
	w.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__f","_meta":{"progressToken":"mine"}}}`)
	want := []string{
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"message":"half","progress":0.5,"progressToken":"mine","total":2.5}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":2.5,"progressToken":"mine","total":2.5}}`,
	}
	if !slices.Equal(w.notices, want) {
		t.Errorf("notified %q\nwant %q", w.notices, want)
	}
}

// TestCredentials checks that clients over HTTP see and use exactly what the configuration grants their
// credentials, and that records contain the credential.
func TestCredentials(t *testing.T) {
	const annas, ottos = "anna-0123456789abcdef", "otto-0123456789abcdef"
	records := make(chan mcpserver.Record, 100)
	g := newGateway(t, mcpgateway.Config{
		Servers: []mcpclient.Server{behind(t, "a", named("get"), named("put")).Server, behind(t, "b", named("get")).Server},
		Groups:  []mcpgateway.Group{{Name: "reading", Description: "To look.", Tools: []string{"*__get"}}},
		Serve: mcpgateway.ServeOptions{
			Policy: &permission.Policy{Mode: permission.ModeDontAsk, Rules: []permission.Rule{{Tool: "a__*", Behavior: permission.Allow}}},
			Credentials: []mcpserver.Credential{
				{Name: "anna", Token: annas},
				{Name: "otto", Token: ottos, Ceiling: toolkit.Only("reading"),
					Policy: &permission.Policy{Mode: permission.ModeDontAsk, Rules: []permission.Rule{{Tool: "*__get", Behavior: permission.Allow}}}},
			},
			Audit: func(r mcpserver.Record) { records <- r },
		},
	})
	h := httptest.NewServer(g.Server.Handler())
	defer h.Close()
	defer g.Server.Close() // which ends streams
	as := func(token string) *mcpclient.Client {
		return newHost(t, g, func(c *mcpclient.Server) {
			c.Transport = mcpclient.HTTP{URL: h.URL, Headers: map[string]string{"Authorization": "Bearer " + token}}
		})
	}
	anna, otto := as(annas), as(ottos)
	call(t, anna, "reset_tools", `{"reading":true,"a":true}`)
	list(t, anna, "a__get a__put b__get reset_tools")
	if res := call(t, otto, "reset_tools", `{"reading":true,"a":true}`); res.Outcome != message.OutcomeError || strings.Contains(res.Text(), "put") {
		t.Errorf("a group above the ceiling: %s %s", res.Outcome, res.Text())
	}
	call(t, otto, "reset_tools", `{"reading":true}`)
	list(t, otto, "a__get b__get reset_tools")
	for len(records) > 0 {
		<-records
	}
	for _, row := range []struct {
		c          *mcpclient.Client
		tool, want string // of the record
	}{
		{anna, "a__put", "anna a__put allow a__* success"},
		{anna, "b__get", "anna b__get deny  refused"},
		{otto, "b__get", "otto b__get allow *__get success"},
	} {
		call(t, row.c, row.tool, `{}`)
		r := <-records
		if got := fmt.Sprintf("%s %s %s %s %s", r.Credential, r.Tool, r.Decision, r.Rule, r.Outcome); got != row.want {
			t.Errorf("%s, want %s", got, row.want)
		}
	}
	res, err := http.Post(h.URL, "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %d", res.StatusCode)
	}
}

// TestWhoAnswers checks that results without sessions name the gateway as the server, whatever era its upstream
// server is of and whatever name that has.
func TestWhoAnswers(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		up := library(t, "a")
		up.Options.Protocol = version
		w := newWire(t, newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{up.Server}, Style: mcpgateway.StyleFull}))
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		for _, row := range []struct{ method, params, want string }{
			{"tools/call", `{"name":"a__get",` + meta + `}`, `"text":"get"`},
			{"prompts/get", `{"name":"a__greet","arguments":{"who":"Bo"},` + meta + `}`, "Greet Bo"},
			{"resources/read", `{"uri":"mcp://a/book://a",` + meta + `}`, "only book://a"},
			{"resources/list", `{` + meta + `}`, `"mcp://a/book://a"`},
		} {
			got := w.rpc(row.method, row.params)
			if !strings.Contains(got, row.want) || strings.Count(got, `"io.modelcontextprotocol/serverInfo":{"name":"kitbag"`) != 1 ||
				strings.Count(got, "serverInfo") != 1 || strings.Count(got, `"resultType":"complete"`) != 1 {
				t.Errorf("%s of a server of %s: %s", row.method, version, got)
			}
		}
	}
}
