package mcpclient

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// TestNothingHidden checks that no text of a server contains invisible characters when it reaches the model, or
// a program that passes it on.
func TestNothingHidden(t *testing.T) {
	const hidden = `\udb40\udc41\u202e\u200b\udb40\udd00`
	raw := strings.NewReplacer("HID", hidden)
	blob := base64.StdEncoding.EncodeToString([]byte("B\U000E0041\u202e\u200b\U000E0100"))
	c := memoryClient(t, Server{Options: Options{PingInterval: -1, Protocol: "2025-06-18"}}, func(msg request, reply func(string)) {
		switch msg.Method {
		case "initialize":
			reply(msg.result(raw.Replace(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"prompts":{},"resources":{},"groups":{}},` +
				`"serverInfo":{"name":"nHID","version":"1HID"},"instructions":"doHID this"}`)))
		case "tools/list":
			reply(msg.result(raw.Replace(`{"tools":[{"name":"t","title":"THID","description":"DHID","inputSchema":{"type":"object","properties":{"a":{"description":"AHID"}}},` +
				`"outputSchema":{"type":"object","title":"OHID"},"annotations":{"title":"NHID"},"_meta":{"io.modelcontextprotocol/groups":["g","HID"]}},` +
				`{"name":"fails"},{"name":"name","inputSchema":{"properties":{"HID":{}}}},{"name":"value","inputSchema":{"properties":{"a":{"enum":["HID"]}}}}]}`)))
		case "groups/list":
			reply(msg.result(raw.Replace(`{"groups":[{"name":"g","title":"GHID","description":"HHID"},{"name":"kHID"}]}`)))
		case "prompts/list":
			reply(msg.result(raw.Replace(`{"prompts":[{"name":"p","description":"PHID"}]}`)))
		case "prompts/get":
			reply(msg.result(raw.Replace(`{"description":"QHID","messages":[{"role":"user","content":{"type":"text","text":"RHID"}}]}`)))
		case "resources/list":
			reply(msg.result(raw.Replace(`{"resources":[{"uri":"x:y","name":"r","title":"SHID"}]}`)))
		case "resources/read":
			reply(msg.result(raw.Replace(`{"contents":[{"uri":"x:y","text":"UHID"},{"uri":"x:b","mimeType":"text/plainHID","blob":"` + blob + `"}]}`)))
		case "tools/call":
			if msg.name() == "fails" {
				reply(raw.Replace(`{"jsonrpc":"2.0","id":` + string(msg.ID) + `,"error":{"code":1,"message":"EHID"}}`))
				return
			}
			token := strings.Split(strings.SplitAfter(string(msg.Params), `"progressToken":"`)[1], `"`)[0]
			reply(raw.Replace(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%q,"progress":1,"message":"VHID"}}`, token)))
			reply(msg.result(raw.Replace(`{"content":[{"type":"text","text":"WHID"},{"type":"resource","resource":{"uri":"x:z","text":"XHID"}},` +
				`{"type":"resource_link","uri":"x:a","name":"YHID"},{"type":"audio","mimeType":"audio/wav","data":"AAE=","name":"ZHID"},` +
				`{"type":"resource","resource":{"uri":"x:b","mimeType":"text/plain","blob":"` + blob + `"}},{"type":"image","mimeType":"text/xHID","data":"` + blob + `"}]}`)))
		default:
			handleStandard(msg, reply, `[]`)
		}
	})
	var texts []string
	var note func(values ...any)
	note = func(values ...any) {
		for _, v := range values {
			if d, ok := v.(*message.Data); ok {
				texts = append(texts, string(d.Bytes))
			}
			if r, ok := v.(*ResourceResult); ok {
				note(r.Blocks[0], r.Blocks[1])
				v = r.Blocks[0] // Raw has the bytes as base64
			}
			data, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			var all any
			_ = json.Unmarshal(data, &all) // to undo escapes
			texts = append(texts, fmt.Sprint(all))
		}
	}
	ctx := t.Context()
	tools, err := c.Tools(ctx)
	if err != nil || len(tools) != 2 || len(c.Skipped()) != 2 {
		t.Fatalf("%d tools, skipped %v: %v", len(tools), c.Skipped(), err)
	}
	info := find(t, c, "t").Info()
	for _, s := range []json.RawMessage{info.Input, info.Output, info.Annotations} {
		note(s)
	}
	note(info.Title, info.Description, c.Skipped())
	groups, _ := c.Groups(ctx)
	for _, g := range groups {
		note(g.Name, g.Title, g.Description)
	}
	st := c.Status()
	note(st.ServerName, st.ServerVersion, st.Instructions)
	for _, list := range []func() (any, error){
		func() (any, error) { return c.Prompts(ctx) }, func() (any, error) { return c.Resources(ctx) },
		func() (any, error) { return c.GetPrompt(ctx, "p", nil) }, func() (any, error) { return c.ReadResource(ctx, "x:y") },
	} {
		v, err := list()
		if err != nil {
			t.Fatal(err)
		}
		note(v)
	}
	for chunk, err := range find(t, c, "t").Call(ctx, tool.Call{Name: "t"}) {
		if err != nil {
			t.Fatal(err)
		}
		note(chunk.Block)
	}
	note(callError(t, find(t, c, "fails")).Error())
	all := strings.Join(texts, "\n")
	for _, letter := range "TDAONGHPQRSUVWXYZEB" { // each must occur
		if !strings.ContainsRune(all, letter) {
			t.Errorf("%c does not occur", letter)
		}
	}
	for _, r := range all {
		if unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
			t.Errorf("%U in %q", r, all)
			break
		}
	}
}
