package mcpserver_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestCeilingTellsNothing checks that no request reveals to a client a name above its ceiling, of a tool, a
// group, a prompt or a resource, in lists, labels, results or errors, in either era.
func TestCeilingTellsNothing(t *testing.T) {
	shared := named("common")
	get := func(context.Context, map[string]string) ([]*message.Message, error) { return nil, nil }
	read := func(context.Context, string, map[string]string) ([]byte, error) { return []byte("x"), nil }
	complete := []mcpserver.Argument{{Name: "a", Complete: func(context.Context, string, map[string]string) ([]string, error) { return []string{"v"}, nil }}}
	for _, control := range []*toolkit.Control{toolkit.ResetTools(nil), toolkit.EnableDisable(), toolkit.PerGroup(), toolkit.Discover(), new(toolkit.Control)} {
		cfg := toolkit.Config{Control: control, Groups: []toolkit.Group{
			{Name: "public", Description: "For all.", Tools: []tool.Tool{shared, named("lookup")}},
			{Name: "public_below", Description: "For all.", Parents: []string{"secret_group"}, Tools: []tool.Tool{named("below")}},
			{Name: "secret_group", Description: "secret words", Tools: []tool.Tool{shared, named("secret_lookup")}},
		}}
		if control.Tools == nil {
			cfg.LabelsOnly = true
		}
		tk, err := toolkit.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s := serve(t, mcpserver.Config{Toolkit: tk, Policy: open,
			Prompts: []mcpserver.Prompt{
				{Name: "both", Groups: []string{"public", "secret_group"}, Get: get, Arguments: complete},
				{Name: "secret_prompt", Groups: []string{"secret_group"}, Get: get, Arguments: complete}},
			Resources: []mcpserver.Resource{
				{URI: "x://both", Groups: []string{"secret_group", "public"}, Read: read},
				{URI: "x://secret_file", Groups: []string{"secret_group"}, Read: read},
				{URI: "x://{a}/secret_template", Groups: []string{"secret_group"}, Read: read, Arguments: complete}},
			Credentials: []mcpserver.Credential{{Name: "low", Token: tokenA, Ceiling: toolkit.Only("public", "public_below")}}})
		for _, modern := range []bool{false, true} {
			w := newWire(t, listen(t, s))
			w.token = tokenA
			if !modern {
				w.initialize(`{}`)
			}
			for _, q := range [][2]string{
				{"tools/call", `"name":"reset_tools","arguments":{"public":true,"public_below":true}`},
				{"tools/call", `"name":"enable_tools","arguments":{"groups":["public"]}`},
				{"tools/call", `"name":"public_activate","arguments":{}`},
				{"tools/list", ``}, {"groups/list", ``}, {"prompts/list", ``}, {"resources/list", ``}, {"resources/templates/list", ``},
				{"tools/call", `"name":"secre_lookup"`}, {"tools/call", `"name":"lookups"`},
				{"tools/call", `"name":"reset_tools","arguments":{"secre_group":true}`},
				{"tools/call", `"name":"enable_tools","arguments":{"groups":["secret"]}`},
				{"tools/call", `"name":"search_tools","arguments":{"query":"secret lookup words"}`},
				{"tools/call", `"name":"search_tools","arguments":{"query":"","group":"secret"}`},
				{"tools/call", `"name":"describe_tools","arguments":{"names":["common","secre_lookup"]}`},
				{"tools/call", `"name":"call_tool","arguments":{"name":"secre_lookup","arguments":{}}`},
				{"prompts/get", `"name":"secre_prompt"`}, {"resources/read", `"uri":"x://secre_file"`},
				{"completion/complete", `"ref":{"type":"ref/prompt","name":"secre"},"argument":{"name":"a","value":""}`},
				{"server/discover", ``},
			} {
				params := q[1]
				if modern {
					w.header = map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": q[0]}
					var named struct{ Name, URI string }
					_ = json.Unmarshal([]byte("{"+params+"}"), &named)
					if to := named.Name + named.URI; to != "" && q[0] != "completion/complete" {
						w.header["Mcp-Name"] = to
					}
					params = strings.TrimPrefix(params+`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`, ",")
				}
				_, got := w.post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"`+q[0]+`","params":{`+params+`}}`)
				for _, answer := range got {
					rest := answer
					for _, own := range []string{"secret lookup words", `"secret"`, `\"secret\"`, `\\\"secret\\\"`} { // the answer may repeat the client's own words
						rest = strings.ReplaceAll(rest, own, "")
					}
					if strings.Contains(rest, "secret") {
						t.Errorf("%T, modern %v, %s {%s}: %s", control, modern, q[0], q[1], answer)
					}
				}
			}
		}
	}
}

// TestExactNumbers checks that numbers from a form reach the tool, and a server behind it, exactly as the user
// wrote them.
func TestExactNumbers(t *testing.T) {
	const account = "12345678901234567"
	got := make(chan string, 1)
	pay := tool.Must(tool.New("pay", "Pays.", func(ctx context.Context, _ none) (string, error) {
		a, err := host.From(ctx).Elicit(ctx, host.Elicitation{ID: "who", Message: "Account?",
			Schema: json.RawMessage(`{"type":"object","properties":{"account":{"type":"integer"},"code":{"type":"integer","default":` + account + `},"n":{"type":"number"}}}`)})
		data, _ := json.Marshal(a.Content)
		_, float := a.Content["n"].(float64)
		if !float {
			t.Errorf("a small number is a %T", a.Content["n"])
		}
		got <- string(data)
		return "ok", err
	}))
	w := newWire(t, listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(pay), Policy: open})))
	w.initialize(`{"elicitation":{}}`)
	next := w.stream(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay"}}`)
	_, ask := next()
	if ask == "" { // an event with only an id
		_, ask = next()
	}
	if !strings.Contains(ask, `"ask-1"`) {
		t.Fatal(ask)
	}
	w.post(t.Context(), `{"jsonrpc":"2.0","id":"ask-1","result":{"action":"accept","content":{"account":`+account+`,"n":0.5}}}`)
	if content := <-got; content != `{"account":`+account+`,"code":`+account+`,"n":0.5}` {
		t.Errorf("the tool got %s", content)
	}
}
