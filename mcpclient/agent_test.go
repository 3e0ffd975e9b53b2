package mcpclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

func init() {
	shown := 0 // tools listed so far by this process
	scripts["growing"] = func(msg request, reply func(string)) {
		list := []string{`{"name":"unlock"}`}
		for n := range shown {
			list = append(list, fmt.Sprintf(`{"name":"book_%d"}`, n+1))
		}
		if handleStandard(msg, reply, "["+strings.Join(list, ",")+"]") || msg.Method != "tools/call" {
			return
		}
		shown++
		reply(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		reply(msg.result(fmt.Sprintf(`{"content":[{"type":"text","text":"%d"}]}`, shown)))
	}
}

// TestNextRequestShowsTheNewList makes calls that change their server's list: each following request of the
// model shows the changed list.
func TestNextRequestShowsTheNewList(t *testing.T) {
	c := connect(t, child(t, "growing"))
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Sources: []tool.Source{c}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.OnChange(tk.Refresh)()
	turns, want := []scripted.Turn{scripted.Call("mcp__srv__unlock", nil)}, []string{"mcp__srv__unlock"}
	for n := range 5 {
		want = slices.Insert(want, n, fmt.Sprintf("mcp__srv__book_%d", n+1)) // by name
		turns = append(turns, scripted.Call("mcp__srv__unlock", nil).Expect(scripted.HasTools(slices.Clone(want)...)))
	}
	turns = append(turns, scripted.Say("Booked."))
	a, err := agent.New(agent.Config{Model: scripted.Test(t, turns...), Toolkit: tk, Policy: permission.Policy{Mode: permission.ModeBypass}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Reply(t.Context(), new(agent.State), agent.Say("Book.")); err != nil {
		t.Fatal(err)
	}
}
