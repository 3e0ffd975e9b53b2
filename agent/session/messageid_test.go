package session_test

import (
	"context"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestMessageID checks that a client that sends messages with ids of its own finds them in the State.
func TestMessageID(t *testing.T) {
	ctx := context.Background()
	store := session.Memory()
	a := must(agent.New(agent.Config{Model: scripted.Test(t, scripted.Say("Hello.")), Toolkit: toolkit.Of(), Save: session.Save}))
	if _, err := session.Send(ctx, store, "chat", "from-the-client", agent.Say("Hi")); err != nil {
		t.Fatal(err)
	}
	s := must(session.Open(ctx, store, "chat"))
	defer s.Close()
	for _, err := range s.Run(ctx, a) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := s.State.Messages[0].ID; got != "from-the-client" {
		t.Errorf("the message has the id %q, not that of the input", got)
	}
}
