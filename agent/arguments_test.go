package agent

import (
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestArgumentsAfterReload has a conversation continue in another process: the model must get the same bytes of its
// arguments as in this one, or the provider's cache of the prompt is lost, and a question must be readable.
func TestArgumentsAfterReload(t *testing.T) {
	for _, raw := range []string{
		`{"path": "a && b > c"}`, `{ "path" : "a" }`, `{"path":"\u003ca\u003e \u0026"}`, "{\"path\":\"\u2028\"}", `{"path":"\\u003c"}`, "{\n\"path\":\"x\"\n}",
		`{"path": 1, "<b>": "&"}`, `{"path": 7}`, `{"path":"cut`, `{path: 'a & b',}`, `[ "a" ]`,
	} {
		a, w := newAgent(t, Config{Toolkit: toolkit.Of(plainTool("look"), plainTool("pay")),
			Policy: permission.Policy{Rules: []permission.Rule{{Tool: "look", Behavior: permission.Allow}}}},
			calls(`c1 look `+raw), calls(`c2 pay {"path": "a & b"}`))
		var st State
		_, _ = a.Reply(t.Context(), &st, Say("go"))
		if len(w.reqs) != 2 {
			t.Fatalf("%s: %d requests", raw, len(w.reqs))
		}
		back := reload(t, &st)
		for i, m := range st.Messages {
			for j, c := range m.ToolCalls() {
				equal(t, raw, string(back.Messages[i].ToolCalls()[j].Input), string(c.Input))
			}
		}
		const want = `{"path":"a & b"}`
		for _, st := range []*State{&st, back} {
			equal(t, "question", string(st.Pending()[0].(*event.Approval).Input), want)
		}
	}
}
