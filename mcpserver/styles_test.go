package mcpserver_test

import (
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestStyles plays the rules of other systems over the wire: what is listed, how
// often the client is told of a change, what a hidden tool says. The rules are
// those of toolkit.Wags and toolkit.Tmcp.
func TestStyles(t *testing.T) {
	groups := []toolkit.Group{
		{Name: "zoo", Description: "Animals.", Tools: []tool.Tool{dotted{named("lion"), "zoo.lion"}}},
		{Name: "zoo.birds", Description: "Birds.", Parents: []string{"zoo"}, Tools: []tool.Tool{dotted{named("owl"), "zoo.birds.owl"}}},
	}
	type step struct {
		tool, input, want string
		failed            bool
		changes           int
		list              string // afterwards
	}
	for name, row := range map[string]struct {
		cfg   toolkit.Config
		steps []step
	}{
		"wags": {toolkit.Config{Policy: toolkit.Wags(), Groups: groups}, []step{
			{"zoo.lion", `{}`, "enable_tools", true, 0, "enable_tools disable_tools"},
			{"enable_tools", `{"groups":["zoo"]}`, "", false, 1, "enable_tools disable_tools zoo.lion"},
			{"enable_tools", `{"groups":["zoo"]}`, "", false, 0, "enable_tools disable_tools zoo.lion"},
			{"enable_tools", `{"groups":["zoo.birds"]}`, "", false, 1, "enable_tools disable_tools zoo.lion zoo.birds.owl"},
			{"zoo.birds.owl", `{}`, `"text":"owl"`, false, 0, "enable_tools disable_tools zoo.lion zoo.birds.owl"},
			{"disable_tools", `{"groups":["zoo"]}`, "", false, 1, "enable_tools disable_tools"},
		}},
		"tmcp": {toolkit.Config{Policy: toolkit.Tmcp(), Groups: groups}, []step{
			{"zoo.lion", `{}`, `there is no tool \"zoo.lion\"`, true, 0, "zoo.activate zoo.birds.activate zoo.birds.deactivate zoo.deactivate"},
			{"zoo.birds.activate", `{}`, "", true, 0, "zoo.activate zoo.birds.activate zoo.birds.deactivate zoo.deactivate"},
			{"zoo.activate", `{}`, "", false, 1, "zoo.activate zoo.birds.activate zoo.birds.deactivate zoo.deactivate zoo.lion"},
			{"zoo.lion", `{}`, `"text":"lion"`, false, 0, "zoo.activate zoo.birds.activate zoo.birds.deactivate zoo.deactivate zoo.lion"},
			{"zoo.deactivate", `{}`, "", false, 1, "zoo.activate zoo.birds.activate zoo.birds.deactivate zoo.deactivate"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tk, err := toolkit.New(row.cfg)
			if err != nil {
				t.Fatal(err)
			}
			w := newWire(t, listen(t, serve(t, mcpserver.Config{Toolkit: tk, Policy: open})))
			w.initialize(`{}`)
			w.post(t.Context(), listBody)
			for i, s := range row.steps {
				_, got := w.post(t.Context(), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"`+s.tool+`","arguments":`+s.input+`}}`)
				last := got[len(got)-1]
				if len(got)-1 != s.changes || strings.Contains(last, `"isError":true`) != s.failed || !strings.Contains(last, s.want) {
					t.Errorf("step %d, %s: %q", i, s.tool, got)
				}
				_, got = w.post(t.Context(), listBody)
				if list := listed(t, got[0]); list != s.list {
					t.Errorf("step %d, %s: list %s, want %s", i, s.tool, list, s.list)
				}
			}
		})
	}
}
