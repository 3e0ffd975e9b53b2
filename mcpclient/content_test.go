package mcpclient

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/mcpcontent"
)

// TestContentForGateways holds that what a block cannot say of the content stays
// beside it, that no server can put anything there, and that a result that was
// cut is not whole somewhere else.
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
		c := memoryClient(t, Config{PingInterval: -1, MaxResult: 100}, func(msg request, reply func(string)) {
			if !polite(msg, reply, `[{"name":"a"}]`) && msg.Method == "tools/call" {
				reply(msg.result(row.result))
			}
		})
		res := mustRun(t, find(t, c, "a"), `{}`)
		got, err := json.Marshal(res.Meta)
		if err != nil || string(got) != row.want {
			t.Errorf("%s: %s, want %s (%v)", row.why, got, row.want, err)
		}
		if len(mcpcontent.Of(res)) != len(res.Blocks) {
			t.Errorf("%s: not one for each block", row.why)
		}
	}
}
