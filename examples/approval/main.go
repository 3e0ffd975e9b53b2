// Approval stops at a call that no rule allows, saves the conversation, and continues when the user has
// answered, possibly in another process.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type transfer struct {
	To    string `json:"to"`
	Euros int    `json:"euros" jsonschema:"minimum=1"`
}

func send(_ context.Context, in transfer) (string, error) {
	return fmt.Sprintf("sent %d € to %s", in.Euros, in.To), nil
}

func main() {
	m := scripted.New(scripted.Call("send_money", transfer{"the landlord", 700}), scripted.Say("The rent is paid."))
	kit := toolkit.Of(tool.Must(tool.New("send_money", "Transfers money.", send)))
	a, err := agent.New(agent.Config{Model: m, Toolkit: kit})
	if err != nil {
		log.Fatal(err)
	}

	var st agent.State
	ctx := context.Background()
	if _, err := a.Reply(ctx, &st, agent.Say("Pay 700 € of rent to the landlord.")); !errors.Is(err, agent.ErrWaiting) {
		log.Fatalf("expected a question, got %v", err)
	}
	saved, err := json.Marshal(&st) // to a file, a database, a message to the user's phone …
	if err != nil {
		log.Fatal(err)
	}

	var later agent.State
	if err := json.Unmarshal(saved, &later); err != nil {
		log.Fatal(err)
	}
	var answers []agent.Input
	for _, p := range later.Pending() {
		if q, ok := p.(*event.Approval); ok {
			fmt.Printf("%s wants to run with %s (%s): yes\n", q.Name, q.Input, q.Reason)
			answers = append(answers, q.Allow())
		}
	}
	reply, err := a.Reply(ctx, &later, answers...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Text())
}
