// Hello wraps a Go function as a tool and lets a model call it.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/examples/internal/pick"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type numbers struct{ A, B int }

func add(_ context.Context, in numbers) (int, error) { return in.A + in.B, nil }

func main() {
	m := pick.Model(scripted.Call("add", numbers{2, 3}), scripted.Say("2+3 is 5."))
	kit := toolkit.Of(tool.Must(tool.New("add", "Adds two numbers.", add)))
	allow := permission.Policy{Rules: []permission.Rule{{Tool: "add", Behavior: permission.Allow}}}
	a, err := agent.New(agent.Config{Model: m, Toolkit: kit, Policy: allow})
	if err != nil {
		log.Fatal(err)
	}
	reply, err := a.Reply(context.Background(), &agent.State{}, agent.Say("What is 2+3?"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Text())
}
