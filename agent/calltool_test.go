package agent

import (
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
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

// TestHiddenToolIsDenied has the model call tools that it does not see. If a rule denies every call of the tool, the
// outcome is that of any other denial, so that whoever counts denials sees this one.
func TestHiddenToolIsDenied(t *testing.T) {
	for _, row := range []struct {
		name, call, pattern, tool string
		outcome                   message.Outcome
	}{
		{"in a closed group", `c1 note {"path":"a"}`, "", "note", message.OutcomeDenied},
		{"not in the toolkit", `c1 gone {"path":"a"}`, "", "gone", message.OutcomeDenied},
		{"not in the toolkit, with call_tool", `c1 call_tool {"name":"gone","arguments":{}}`, "", "gone", message.OutcomeDenied},
		{"a rule for other calls", `c1 note {"path":"a"}`, "b", "note", message.OutcomeError},
		{"no rule", `c1 other {"path":"a"}`, "", "other", message.OutcomeError},
	} {
		t.Run(row.name, func(t *testing.T) {
			tk, err := toolkit.New(toolkit.Config{Control: toolkit.Discover(),
				Groups: []toolkit.Group{{Name: "notes", Description: "Keeps notes.", Tools: []tool.Tool{newPrinting(new(journal), new(string))}}}})
			if err != nil {
				t.Fatal(err)
			}
			deny := func(tool string) permission.Rule {
				return permission.Rule{Tool: tool, Pattern: row.pattern, Behavior: permission.Deny}
			}
			ag, _ := newAgent(t, Config{Toolkit: tk, Policy: permission.Policy{Rules: []permission.Rule{deny("note"), deny("gone")}}},
				calls(row.call), says("done"))
			evs, err := play(t, ag, new(State), Say("Go."))
			ended := of[*event.ToolResult](evs)
			if err != nil || len(ended) != 1 {
				t.Fatalf("%d results, %v", len(ended), err)
			}
			equal(t, "tool", ended[0].Name, row.tool)
			equal(t, "outcome", ended[0].Outcome, row.outcome)
		})
	}
}

// TestRemovedToolIsDenied removes a tool, and denies it, while a call of it waits for approval.
func TestRemovedToolIsDenied(t *testing.T) {
	asks, _ := newAgent(t, Config{Toolkit: toolkit.Of(noting(new(journal), "note", tool.Options{}))}, calls(`c1 note {"path":"a"}`))
	st := new(State)
	evs, err := play(t, asks, st, Say("Go."))
	if err != nil {
		t.Fatal(err)
	}
	denies, _ := newAgent(t, Config{Policy: permission.Policy{Rules: []permission.Rule{{Tool: "note", Behavior: permission.Deny}}}}, says("done"))
	evs, err = play(t, denies, reload(t, st), of[*event.Approval](evs)[0].Allow())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "outcome", of[*event.ToolResult](evs)[0].Outcome, message.OutcomeDenied)
}
