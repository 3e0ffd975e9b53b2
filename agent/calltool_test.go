package agent

import (
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestCallTool checks that a tool that the model calls with call_tool is asked about and run as itself, also after
// a restart.
func TestCallTool(t *testing.T) {
	var j journal
	tk, err := toolkit.New(toolkit.Config{Control: toolkit.Discover(),
		Groups: []toolkit.Group{{Name: "notes", Description: "Keeps notes.", Tools: []tool.Tool{noting(&j, "note", tool.Options{})}}}})
	if err != nil {
		t.Fatal(err)
	}
	ag, _ := newAgent(t, Config{Toolkit: tk}, calls(`c1 call_tool {"name":"note","arguments":{"path":"a"}}`), says("done"))
	st := new(State)
	evs, err := play(t, ag, st, Say("Go."))
	asked := of[*event.Approval](evs)
	if err != nil || len(asked) != 1 || asked[0].Name != "note" || string(asked[0].Input) != `{"path":"a"}` {
		t.Fatalf("asked %+v, %v", asked, err)
	}
	st = reload(t, st)
	evs, err = play(t, ag, st, asked[0].Allow())
	if err != nil || endOf(t, evs).Reason != event.EndCompleted || j.String() != "note:a" {
		t.Errorf("ran %q, %v: %q", j.String(), err, results(st))
	}
}
