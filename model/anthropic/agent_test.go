package anthropic_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/internal/anthropictest"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type addIn struct {
	A int `json:"a"`
	B int `json:"b"`
}

var add = tool.Must(tool.New("add", "Adds two numbers.", runAdd,
	tool.Options{ReadOnly: true, Parallel: true}))

func runAdd(_ context.Context, in addIn) (int, error) {
	if in.B == 13 {
		return 0, errors.New("13 brings bad luck")
	}
	return in.A + in.B, nil
}

// thoughts returns a check that a request has n blocks of thinking.
func thoughts(n int) func(*anthropictest.Request) error {
	return func(r *anthropictest.Request) error {
		if got := strings.Count(string(r.Body), `"signature"`); got != n {
			return fmt.Errorf("%d blocks of thinking, want %d: %s", got, n, r.Body)
		}
		return nil
	}
}

// hasBadLuck checks that a request ends with the result 5 and the error of add.
func hasBadLuck(r *anthropictest.Request) error {
	last := r.Messages[len(r.Messages)-1].Content
	if len(last) != 2 || last[0].IsError || !last[1].IsError {
		return fmt.Errorf("results %+v", last)
	}
	if last[0].Content.Text() != "5" || !strings.Contains(last[1].Content.Text(), "bad luck") {
		return fmt.Errorf("results %+v", last)
	}
	return nil
}

// TestAgent has an agent work over several steps, with overload, parallel calls and a failed one,
// in two turns. Thinking goes back in each step.
func TestAgent(t *testing.T) {
	call := func(b string) anthropictest.Call { return addCall(`{"a":2,"b":` + b + `}`) }
	for _, thinking := range []anthropic.Thinking{adaptive, budgeted} {
		s := anthropictest.New(t,
			anthropictest.Overloaded(),
			anthropictest.Thinking("Two sums.").Text("I add.").Calls(call("3"), call("13")).
				Expect(thoughts(0)),
			anthropictest.Thinking("One failed.").Calls(call("4")).
				Expect(thoughts(1), hasBadLuck),
			anthropictest.Text("It is 6.").Expect(thoughts(2)),
			anthropictest.Thinking("Again.").Text("Still 6.").Expect(thoughts(2)))
		m := middleware.Retry(newModel(t, s, anthropic.Config{Thinking: thinking}),
			middleware.RetryConfig{Base: time.Millisecond})
		a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(add), Instructions: "Add.",
			Policy: permission.Policy{TrustReadOnly: true}})
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

// overloaded is an error event.
const overloaded = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`

// TestChaos has agents work with a server that fails at random in every way. Each run ends with the
// answer, and no request is refused.
func TestChaos(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 0))
		steps, failed := 0, 0
		turn := func(*anthropictest.Request) anthropictest.Turn {
			next := anthropictest.Text("Done.").Thinking("").Text("Really.")
			if steps < 6 {
				call := addCall(fmt.Sprintf(`{"a":%d,"b":3}`, random.Int32()))
				next = anthropictest.Thinking(strings.Repeat("Hm. ", random.IntN(9))).
					Text("I add.").Calls(call, addCall(`{"a":2,"b":13}`))
			}
			if random.IntN(3) == 0 {
				next = next.Ping()
			}
			failed++
			switch random.IntN(8) {
			case 0:
				return anthropictest.Overloaded()
			case 1:
				return anthropictest.Broken()
			case 2:
				return anthropictest.RateLimit("0")
			case 3:
				return next.CutAfter(random.IntN(900))
			case 4:
				return anthropictest.Raw("event: error\ndata: " + overloaded + "\n\n")
			}
			failed--
			steps++
			return next
		}
		s := anthropictest.New(t, anthropictest.Always(anthropictest.Func(turn)))
		m := middleware.Retry(newModel(t, s, anthropic.Config{Thinking: budgeted}),
			middleware.RetryConfig{Base: time.Microsecond, MaxWait: time.Microsecond})
		a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(add),
			Policy: permission.Policy{TrustReadOnly: true}})
		if err != nil {
			t.Fatal(err)
		}
		var st agent.State
		reply, err := a.Reply(t.Context(), &st, agent.Say("Add."))
		for try := 0; err != nil && try < 50; try++ { // a stream that broke after the first words
			reply, err = a.Reply(t.Context(), &st)
		}
		if err != nil || !strings.HasPrefix(reply.Text(), "Done.") {
			t.Errorf("seed %d, after %d failures: %s, %v", seed, failed, reply.Text(), err)
		}
	}
}

// TestReplyAs has a model answer with a typed value.
func TestReplyAs(t *testing.T) {
	type answer struct {
		Sum int `json:"sum" jsonschema:"minimum=0"`
	}
	turn := func(r *anthropictest.Request) anthropictest.Turn {
		if len(r.Tools) == 0 {
			return anthropictest.Text(`{"sum":5}`)
		}
		return anthropictest.Calls(anthropictest.Call{Name: r.Tools[0].Name, Args: `{"sum":5}`})
	}
	s := anthropictest.New(t, anthropictest.Always(anthropictest.Func(turn)))
	m := newModel(t, s, anthropic.Config{Thinking: adaptive})
	a, err := agent.New(agent.Config{Toolkit: toolkit.Of(), Model: m})
	if err != nil {
		t.Fatal(err)
	}
	got, err := agent.ReplyAs[answer](t.Context(), a, new(agent.State), agent.Say("What is 2+3?"))
	if err != nil || got.Sum != 5 {
		t.Error(got, err)
	}
}
