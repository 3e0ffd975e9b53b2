package inspect_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestSession has the conversation of session continued again: the model and the tools say what they said. Put your
// own tools, policy and instructions into the agent, and checks where it went wrong.
func TestSession(t *testing.T) {
	type result struct {
		text   string
		failed bool
	}
	results := map[string][]result{
		"look": {
			{"Nothing.", false},
		},
	}
	var tools []tool.Tool
	for _, name := range slices.Sorted(maps.Keys(results)) {
		f, err := tool.New(name, "Says what it said.", func(context.Context, map[string]any) (string, error) {
			if len(results[name]) == 0 {
				return "", errors.New("the session has no result of this call")
			}
			next := results[name][0]
			if results[name] = results[name][1:]; next.failed {
				return "", errors.New(next.text)
			}
			return next.text, nil
		}, tool.Options{})
		if err != nil {
			continue // the model called a tool that cannot exist
		}
		tools = append(tools, f)
	}
	m := scripted.Test(t,
		scripted.Call("look", json.RawMessage("{}")),
		scripted.Say("There is nothing."),
		scripted.Say("Still nothing."),
	)
	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(tools...), Policy: permission.Policy{Mode: permission.ModeBypass},
		Limits: agent.Limits{Steps: 4}})
	if err != nil {
		t.Fatal(err)
	}
	var st agent.State
	var reply *agent.Reply
	for _, said := range []string{
		"Look.",
		"Look.",
	} {
		if reply, err = a.Reply(t.Context(), &st, agent.Say(said)); err != nil {
			t.Fatal(err)
		}
	}
	if want := "Still nothing."; reply == nil || reply.Text() != want {
		t.Errorf("the last answer is %+v, want %q", reply, want)
	}
	_ = json.RawMessage(nil) // the arguments of calls
}
