package anthropic_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/anthropic/internal/anthropictest"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type addIn struct {
	A int `json:"a"`
	B int `json:"b"`
}

var add = tool.Must(tool.New("add", "Adds two numbers.", func(_ context.Context, in addIn) (int, error) {
	if in.B == 13 {
		return 0, errors.New("13 brings bad luck")
	}
	return in.A + in.B, nil
}, tool.Options{ReadOnly: true, Parallel: true}))

// thoughts returns a check that a request has so many blocks of thinking.
func thoughts(n int) func(*anthropictest.Request) error {
	return func(r *anthropictest.Request) error {
		if got := strings.Count(string(r.Body), `"signature"`); got != n {
			return fmt.Errorf("%d blocks of thinking, want %d: %s", got, n, r.Body)
		}
		return nil
	}
}

// TestAgent has an agent work over several steps, with overload, parallel calls and a failed one, in two
// turns. Thinking goes back in each step.
func TestAgent(t *testing.T) {
	call := func(b string) anthropictest.Call {
		return anthropictest.Call{Name: "add", Args: `{"a":2,"b":` + b + `}`}
	}
	for _, thinking := range []anthropic.Thinking{{Mode: anthropic.ThinkingAdaptive}, {Mode: anthropic.ThinkingBudget, Budget: 4000}} {
		s := anthropictest.New(t,
			anthropictest.Overloaded(),
			anthropictest.Thinking("Two sums.").Text("I add.").Calls(call("3"), call("13")).Expect(thoughts(0)),
			anthropictest.Thinking("One failed.").Calls(call("4")).Expect(thoughts(1), func(r *anthropictest.Request) error {
				last := r.Messages[len(r.Messages)-1].Content
				if len(last) != 2 || last[0].Content.Text() != "5" || last[0].IsError || !last[1].IsError || !strings.Contains(last[1].Content.Text(), "bad luck") {
					return fmt.Errorf("results %+v", last)
				}
				return nil
			}),
			anthropictest.Text("It is 6.").Expect(thoughts(2)),
			anthropictest.Thinking("Again.").Text("Still 6.").Expect(thoughts(2)))
		m := middleware.Retry(newModel(t, s, anthropic.Config{Thinking: thinking}), middleware.RetryConfig{})
		a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(add), Instructions: "Add.", Policy: permission.Policy{TrustReadOnly: true}})
		if err != nil {
			t.Fatal(err)
		}
		var st agent.State
		for _, row := range [][2]string{{"What is 2+4?", "It is 6."}, {"Sure?", "Still 6."}} {
			reply, err := a.Reply(t.Context(), &st, agent.Say(row[0]))
			if err != nil || reply.Text() != row[1] {
				t.Errorf("%s: %s, %v", row[0], reply.Text(), err)
			}
		}
	}
}

// TestReplyAs has a model answer with a typed value.
func TestReplyAs(t *testing.T) {
	type answer struct {
		Sum int `json:"sum" jsonschema:"minimum=0"`
	}
	s := anthropictest.New(t, anthropictest.Always(anthropictest.Func(func(r *anthropictest.Request) anthropictest.Turn {
		if len(r.Tools) == 0 {
			return anthropictest.Text(`{"sum":5}`)
		}
		return anthropictest.Calls(anthropictest.Call{Name: r.Tools[0].Name, Args: `{"sum":5}`})
	})))
	a, err := agent.New(agent.Config{Toolkit: toolkit.Of(), Model: newModel(t, s, anthropic.Config{Thinking: anthropic.Thinking{Mode: anthropic.ThinkingAdaptive}})})
	if err != nil {
		t.Fatal(err)
	}
	got, err := agent.ReplyAs[answer](t.Context(), a, new(agent.State), agent.Say("What is 2+3?"))
	if err != nil || got.Sum != 5 {
		t.Error(got, err)
	}
}
