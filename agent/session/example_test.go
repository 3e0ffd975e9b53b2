package session_test

import (
	"context"
	"fmt"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/toolkit"
)

// newGreeter returns an agent that counts its greetings.
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
	store := session.Memory() // or session.Dir("sessions"), which outlives the process
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

// A process that receives requests and one that runs agents share a store. In this example they are the same.
func ExampleSession_Run() {
	ctx := context.Background()
	store := session.Memory()

	// The process that receives requests. An input that is sent twice is accepted once.
	for range 2 {
		accepted, err := session.Send(ctx, store, "customer-7", "request-1", agent.Say("Hello"))
		fmt.Println("accepted:", accepted, err)
	}

	// The process that runs agents.
	s, err := session.Open(ctx, store, "customer-7")
	if err != nil {
		panic(err)
	}
	defer s.Close()
	s.Labels = map[string]string{"tenant": "anna"}
	for _, err := range s.Run(ctx, newGreeter(session.Save)) {
		if err != nil {
			panic(err)
		}
	}

	// Any process can watch, from the first event on.
	for ev, err := range session.Watch(ctx, store, "customer-7", 0) {
		if err != nil {
			panic(err)
		}
		if end, ok := ev.(*event.End); ok {
			fmt.Println(end.Reason, end.Text)
			break
		}
	}
	page, err := store.List(ctx, session.Query{Labels: map[string]string{"tenant": "anna"}})
	fmt.Println(page.Infos[0].ID, page.Infos[0].Status, err)
	// Output:
	// accepted: true <nil>
	// accepted: false <nil>
	// completed Hello number 1.
	// customer-7 ended <nil>
}
