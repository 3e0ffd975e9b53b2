// Hello wraps a Go function as a tool and lets a model call it.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

var sum = tool.Must(tool.New("add", "Adds two numbers.", add, tool.Options{ReadOnly: true}))

func add(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil }

func main() {
	m := scripted.New(scripted.Call("add", map[string]int{"A": 2, "B": 3}), scripted.Say("2+3 is 5."))
	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(sum), Policy: permission.Policy{TrustReadOnly: true}})
	if err != nil {
		log.Fatal(err)
	}
	reply, err := a.Reply(context.Background(), &agent.State{}, agent.Say("What is 2+3?"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Text())
}
