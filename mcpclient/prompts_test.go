package mcpclient

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kitbag-go/kitbag/message"
)

// TestPrompts checks how prompts are decoded, and that Raw has everything.
func TestPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, func(msg request, reply func(string)) {
			switch msg.Method {
			case "initialize":
				reply(msg.result(`{"protocolVersion":"2025-11-25","capabilities":{"prompts":{}},"serverInfo":{"name":"s","version":"1"}}`))
			case "prompts/list":
				reply(msg.result(`{"prompts":[{"name":"greet","title":"Greet","description":"Says hello.","arguments":[{"name":"who","description":"Whom.","required":true},{"name":"lang"}],"odd":1},` +
					`{"description":"without a name"},7,{"name":"bare","arguments":"none"}]}`))
			case "prompts/get":
				if msg.name() == "broken" {
					reply(msg.result(`{"messages":"none"}`))
					return
				}
				reply(msg.result(`{"description":"D","messages":[{"role":"user","content":{"type":"text","text":"Hi"}},` +
					`{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"AAE="}]}],"odd":1}`))
			default:
				handleStandard(msg, reply, `[]`)
			}
		})
		prompts, err := c.Prompts(t.Context())
		if err != nil || len(prompts) != 2 || prompts[1].Name != "bare" || prompts[1].Arguments != nil {
			t.Fatalf("%+v %v", prompts, err)
		}
		p := prompts[0]
		want := []PromptArgument{{Name: "who", Description: "Whom.", Required: true}, {Name: "lang"}}
		if p.Name != "greet" || p.Title != "Greet" || p.Description != "Says hello." || !slices.Equal(p.Arguments, want) || !strings.Contains(string(p.Raw), `"odd":1`) {
			t.Errorf("%+v", p)
		}
		got, err := c.GetPrompt(t.Context(), "greet", nil)
		if err != nil || got.Description != "D" || len(got.Messages) != 2 || !strings.Contains(string(got.Raw), `"odd":1`) {
			t.Fatalf("%+v %v", got, err)
		}
		if m := got.Messages; m[0].Role != message.RoleUser || m[0].Text() != "Hi" || m[1].Role != message.RoleAssistant || len(m[1].Blocks) != 2 {
			t.Errorf("%+v", m)
		}
		if _, err := c.GetPrompt(t.Context(), "broken", nil); !errors.Is(err, errMalformed) {
			t.Errorf("%v", err)
		}
	})
}

// TestComplete checks how completions are requested, and decoded.
func TestComplete(t *testing.T) {
	const greet = `{"argument":{"name":"who","value":"A"},"context":{"arguments":{"lang":"de"}},"ref":{"name":"greet","type":"ref/prompt"}}`
	const book = `{"argument":{"name":"id","value":""},"ref":{"type":"ref/resource","uri":"book://{id}"}}`
	whose := CompleteRequest{Prompt: "greet", Argument: "who", Value: "A", Arguments: map[string]string{"lang": "de"}}
	for _, row := range []struct {
		name, capabilities, version string
		request                     CompleteRequest
		asked, answer, want         string
	}{
		{"a prompt", `{"completions":{}}`, "2025-11-25", whose, greet, `{"completion":{"values":["Anna","Ada"]}}`, "[Anna Ada] 2 <nil>"},
		{"a template", `{"completions":{}}`, "2025-11-25", CompleteRequest{ResourceTemplate: "book://{id}", Argument: "id"}, book, `{"completion":{"values":["1"],"total":7}}`, "[1] 7 <nil>"},
		{"more values than returned", `{"completions":{}}`, "2025-11-25", whose, greet, `{"completion":{"values":["Anna"],"hasMore":true}}`, "[Anna] 2 <nil>"},
		{"hidden characters", `{"completions":{}}`, "2025-11-25", whose, greet, `{"completion":{"values":["An\u200bna","Ada"]}}`, "[Ada] 2 <nil>"},
		{"none", `{"completions":{}}`, "2025-11-25", whose, greet, `{"completion":{"values":[]}}`, "[] 0 <nil>"},
		{"not a completion", `{"completions":{}}`, "2025-11-25", whose, greet, `{"values":[]}`, errMalformed.Error()},
		{"not declared", `{}`, "2025-11-25", whose, "", "", "[] 0 <nil>"},
		{"an old server without completions", `{"prompts":{}}`, "2024-11-05", whose, greet, "", "[] 0 <nil>"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := ""
				c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, func(msg request, reply func(string)) {
					switch {
					case msg.Method == "initialize":
						reply(msg.result(fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"serverInfo":{"name":"s","version":"1"}}`, row.version, row.capabilities)))
					case msg.Method == "completion/complete":
						if asked = string(msg.Params); row.answer != "" {
							reply(msg.result(row.answer))
							return
						}
						reply(msg.fail(codeMethodNotFound, "unknown method"))
					default:
						handleStandard(msg, reply, `[]`)
					}
				})
				values, total, err := c.Complete(t.Context(), row.request)
				if got := fmt.Sprint(values, total, err); got != row.want && (err == nil || !strings.Contains(err.Error(), row.want)) {
					t.Errorf("%s, want %s", got, row.want)
				}
				if asked != row.asked {
					t.Errorf("asked %s, want %s", asked, row.asked)
				}
			})
		})
	}
}
