package session_test

import (
	"context"
	"fmt"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/toolkit"
)

// newGreeter returns an agent that counts how often it was greeted.
func newGreeter(save func(context.Context, *agent.State) error) *agent.Agent {
	count := func(req *model.Request) (scripted.Turn, error) {
		n := 0
		for _, m := range req.Messages {
			if m.Role == message.RoleUser {
				n++
			}
		}
		return scripted.Say(fmt.Sprintf("Hello number %d.", n)), nil
	}
	a, err := agent.New(agent.Config{Model: scripted.New(scripted.Repeat(scripted.Func(count))), Toolkit: toolkit.Of(), Save: save})
	if err != nil {
		panic(err)
	}
	return a
}

func Example() {
	ctx := context.Background()
	store := session.Memory() // or session.Dir("sessions"), to outlive the process
	for range 2 {
		s, err := session.Open(ctx, store, "customer-7")
		if err != nil {
			panic(err)
		}
		a := newGreeter(s.Save)
		reply, err := a.Reply(ctx, s.State, agent.Say("Hello"))
		fmt.Println(reply.Text(), err)
		if err := s.Close(); err != nil {
			panic(err)
		}
	}
	// Output:
	// Hello number 1. <nil>
	// Hello number 2. <nil>
}

// One agent may serve many sessions.
func ExampleSave() {
	ctx := context.Background()
	store := session.Memory()
	a := newGreeter(session.Save)
	for _, id := range []string{"anna", "ben", "anna"} {
		s, err := session.Open(ctx, store, id)
		if err != nil {
			panic(err)
		}
		reply, err := a.Reply(s.Context(ctx), s.State, agent.Say("Hello"))
		fmt.Println(id, reply.Text(), err)
		if err := s.Close(); err != nil {
			panic(err)
		}
	}
	// Output:
	// anna Hello number 1. <nil>
	// ben Hello number 1. <nil>
	// anna Hello number 2. <nil>
}
