package agent_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type addIn struct {
	A int `json:"a"`
	B int `json:"b"`
}

var add = tool.Must(tool.New("add", "Adds two numbers.", func(_ context.Context, in addIn) (int, error) {
	return in.A + in.B, nil
}))

func Example() {
	m := scripted.New(scripted.Call("add", addIn{2, 3}), scripted.Say("It is 5."))
	a, err := agent.New(agent.Config{
		Model:   m,
		Toolkit: toolkit.Of(add),
		Policy:  permission.Policy{Rules: []permission.Rule{{Tool: "add", Behavior: permission.Allow}}},
	})
	if err != nil {
		panic(err)
	}
	var st agent.State
	reply, err := a.Reply(context.Background(), &st, agent.Say("What is 2+3?"))
	fmt.Println(reply.Text(), err)
	// Output: It is 5. <nil>
}

// A call that no rule allows waits for approval. The State may be saved and
// the question answered in another process.
func Example_approval() {
	m := scripted.New(scripted.Call("add", addIn{2, 3}), scripted.Say("It is 5."))
	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(add)})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	var st agent.State
	if _, err := a.Reply(ctx, &st, agent.Say("What is 2+3?")); !errors.Is(err, agent.ErrWaiting) {
		panic(err)
	}
	for _, p := range st.Pending() {
		q := p.(*event.Approval)
		fmt.Printf("%s %s? ", q.Name, q.Input)
		reply, err := a.Reply(ctx, &st, q.Allow())
		fmt.Println(reply.Text(), err)
	}
	// Output: add {"a":2,"b":3}? It is 5. <nil>
}

// StreamText is for a program that only shows the model's text.
func ExampleAgent_StreamText() {
	m := scripted.New(scripted.Say("It is 5."))
	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of()})
	if err != nil {
		panic(err)
	}
	for text, err := range a.StreamText(context.Background(), new(agent.State), agent.Say("What is 2+3?")) {
		if err != nil {
			panic(err)
		}
		fmt.Print(text)
	}
	// Output: It is 5.
}

// Run yields events as they happen.
func ExampleAgent_Run() {
	m := scripted.New(scripted.Say("Hello!"))
	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of()})
	if err != nil {
		panic(err)
	}
	var st agent.State
	for ev, err := range a.Run(context.Background(), &st, agent.Say("Hi")) {
		if err != nil {
			panic(err)
		}
		switch ev := ev.(type) {
		case *event.TextDelta:
			fmt.Print(ev.Text)
		case *event.End:
			fmt.Println("", ev.Reason)
		}
	}
	// Output: Hello! completed
}

type report struct {
	Title string   `json:"title"`
	Facts []string `json:"facts"`
}

// StreamAs shows a typed answer while it is being written.
func ExampleStreamAs() {
	m := scripted.New(scripted.Call("final_answer", report{"Snails", []string{"They are slow.", "They eat lettuce."}}))
	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of()})
	if err != nil {
		panic(err)
	}
	var last report
	for r, err := range agent.StreamAs[report](context.Background(), a, new(agent.State), agent.Say("What about snails?")) {
		if err != nil {
			panic(err)
		}
		fmt.Printf("%q %q\n", r.Title, r.Facts)
		last = r
	}
	fmt.Println(len(last.Facts), "facts")
	// Output:
	// "Sn" []
	// "Snails" []
	// "Snails" ["They are"]
	// "Snails" ["They are slow." "The"]
	// "Snails" ["They are slow." "They eat lettuc"]
	// "Snails" ["They are slow." "They eat lettuce."]
	// "Snails" ["They are slow." "They eat lettuce."]
	// 2 facts
}

// A sub-agent is a tool of another agent. Its cost counts for that agent, and
// both stop at the limit.
func ExampleAsTool() {
	allow := permission.Policy{Rules: []permission.Rule{{Tool: "*", Behavior: permission.Allow}}}
	clerk, err := agent.New(agent.Config{
		Model:   scripted.New(scripted.Call("add", addIn{2, 3}), scripted.Say("The sum is 5.")),
		Toolkit: toolkit.Of(add), Policy: allow,
	})
	if err != nil {
		panic(err)
	}
	delegate := tool.Must(agent.AsTool[string, string](clerk, "clerk", "Does sums.", nil))
	var cents float64
	a, err := agent.New(agent.Config{
		Model:   scripted.New(scripted.Call("clerk", map[string]string{"task": "Add 2 and 3."}), scripted.Say("It is 5.")),
		Toolkit: toolkit.Of(delegate), Policy: allow,
		Limits: agent.Limits{Cost: 100, Price: func(_ string, u message.Usage) float64 {
			price := 0.25*float64(u.Input) + float64(u.Output)
			cents += price
			return price
		}},
	})
	if err != nil {
		panic(err)
	}
	for ev, err := range a.Run(context.Background(), &agent.State{}, agent.Say("What is 2+3?")) {
		if err != nil {
			panic(err)
		}
		switch ev := ev.(type) {
		case *event.Sub:
			if result, ok := ev.Event.(*event.ToolResult); ok {
				fmt.Println("clerk:", result.Name, result.Text)
			}
		case *event.End:
			fmt.Println(ev.Reason, ev.Text, cents > 0)
		}
	}
	// Output:
	// clerk: add 5
	// completed It is 5. true
}

// The clerk answers with a struct: its model calls the tool final_answer. The policy of the agent that
// calls it allows the clerk, and also the clerk's tools.
func ExampleAsTool_struct() {
	allow := func(tools ...string) (p permission.Policy) {
		for _, name := range tools {
			p.Rules = append(p.Rules, permission.Rule{Tool: name, Behavior: permission.Allow})
		}
		return p
	}
	type sum struct {
		Value int `json:"value"`
	}
	for _, policy := range []permission.Policy{allow("clerk", "add"), allow("clerk")} {
		clerk, err := agent.New(agent.Config{
			Model:   scripted.New(scripted.Call("add", addIn{2, 3}), scripted.Call("final_answer", sum{5})),
			Toolkit: toolkit.Of(add), Policy: allow("add"),
		})
		if err != nil {
			panic(err)
		}
		a, err := agent.New(agent.Config{
			Model:   scripted.New(scripted.Call("clerk", map[string]string{"task": "Add 2 and 3."}), scripted.Say("It is 5.")),
			Toolkit: toolkit.Of(tool.Must(agent.AsTool[string, sum](clerk, "clerk", "Does sums.", nil))), Policy: policy,
		})
		if err != nil {
			panic(err)
		}
		for ev, err := range a.Run(context.Background(), &agent.State{}, agent.Say("What is 2+3?")) {
			if err != nil {
				panic(err)
			}
			switch ev := ev.(type) {
			case *event.Approval:
				fmt.Println(ev.Name, "-", ev.Reason)
			case *event.ToolResult:
				fmt.Println(ev.Name, ev.Text)
			}
		}
	}
	// Output:
	// clerk {"value":5}
	// add - the calling agent's policy: no rule covers the call
}

// The first agent hands the conversation over; the other agent answers from then on.
func ExampleHandoff() {
	clerk, err := agent.New(agent.Config{
		Model:   scripted.New(scripted.Say("Here is the clerk. What is it?"), scripted.Say("You are welcome.")),
		Toolkit: toolkit.Of(),
	})
	if err != nil {
		panic(err)
	}
	toClerk := tool.Must(agent.Handoff("to_clerk", "Hands over to the clerk, who knows about refunds.", clerk))
	front, err := agent.New(agent.Config{
		Model:   scripted.New(scripted.Call("to_clerk", struct{}{})),
		Toolkit: toolkit.Of(toClerk),
		Policy:  permission.Policy{Rules: []permission.Rule{{Tool: "to_clerk", Behavior: permission.Allow}}},
	})
	if err != nil {
		panic(err)
	}
	var st agent.State
	for _, words := range []string{"I want my money back.", "Thank you."} {
		reply, err := front.Reply(context.Background(), &st, agent.Say(words))
		fmt.Println(reply.Text(), err)
	}
	// Output:
	// Here is the clerk. What is it? <nil>
	// You are welcome. <nil>
}
