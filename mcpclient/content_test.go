package mcpclient

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/mcpcontent"
)

// TestContentForGateways checks that content which a block cannot represent is kept in the metadata, that a
// server cannot set that key, and that a result that was cut is not kept completely.
func TestContentForGateways(t *testing.T) {
	const link = `{"type":"resource_link","uri":"a:1","name":"a"}`
	long := `{"type":"text","text":"` + strings.Repeat("x", 1000) + `","_meta":{}}`
	for _, row := range []struct {
		why, result, want string
	}{
		{"nothing to keep", `{"content":[{"type":"text","text":"hi"}],"_meta":{"a":1}}`, `{"a":1}`},
		{"a link", `{"content":[{"type":"text","text":"hi"},` + link + `],"_meta":{"a":1}}`, `{"a":1,"kitbag/content":[null,` + link + `]}`},
		{"without metadata", `{"content":[` + link + `]}`, `{"kitbag/content":[` + link + `]}`},
		{"a server that claims", `{"content":[{"type":"text","text":"hi"}],"_meta":{"kitbag/content":[` + link + `]}}`, `null`},
		{"a server that overrides", `{"content":[` + link + `],"_meta":{"kitbag/content":[7]}}`, `{"kitbag/content":[` + link + `]}`},
		{"cut", `{"content":[` + long + `,` + link + `],"_meta":{"a":1}}`, `{"a":1}`},
	} {
		c := memoryClient(t, Server{Options: Options{PingInterval: -1, Limits: Limits{Result: 100}}}, func(msg request, reply func(string)) {
			if !handleStandard(msg, reply, `[{"name":"a"}]`) && msg.Method == "tools/call" {
				reply(msg.result(row.result))
			}
		})
		res := mustRun(t, find(t, c, "a"), `{}`)
		got, err := json.Marshal(res.Meta)
		if err != nil || string(got) != row.want {
			t.Errorf("%s: %s, want %s (%v)", row.why, got, row.want, err)
		}
		if len(mcpcontent.Of(res)) != len(res.Blocks) {
			t.Errorf("%s: want one entry for each block", row.why)
		}
	}
}

// TestUnexpectedMember checks that a member of an unexpected type hides no other member.
func TestUnexpectedMember(t *testing.T) {
	for _, row := range []struct{ why, result, want string }{
		{"no content", `{"structuredContent":{"a":1},"_meta":5}`, `{"a":1}`},
		{"content that is not a list", `{"content":{"type":"text","text":"hi"},"_meta":5}`, `hi`},
		{"a question", `{"resultType":"input_required","requestState":"s","inputRequests":{"q":{"method":"ping"}},"_meta":5}`, `answered`},
	} {
		c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, func(msg request, reply func(string)) {
			switch {
			case handleStandard(msg, reply, `[{"name":"a"}]`) || msg.Method != "tools/call":
			case strings.Contains(string(msg.Params), `"requestState":"s"`):
				reply(msg.result(`{"content":[{"type":"text","text":"answered"}]}`))
			default:
				reply(msg.result(row.result))
			}
		})
		if got := mustRun(t, find(t, c, "a"), `{}`).Text(); got != row.want {
			t.Errorf("%s: %q, want %q", row.why, got, row.want)
		}
	}
}
