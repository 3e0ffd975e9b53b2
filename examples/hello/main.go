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

type numbers struct{ A, B int }

func add(_ context.Context, in numbers) (int, error) { return in.A + in.B, nil }

func config() agent.Config {
	return agent.Config{
		Toolkit: toolkit.Of(tool.Must(tool.New("add", "Adds two numbers.", add))),
		Policy:  permission.Policy{Rules: []permission.Rule{{Tool: "add", Behavior: permission.Allow}}},
	}
}

func main() {
	cfg := config()
	cfg.Model = scripted.New(scripted.Call("add", numbers{2, 3}), scripted.Say("2+3 is 5."))
	a, err := agent.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	reply, err := a.Reply(context.Background(), &agent.State{}, agent.Say("What is 2+3?"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Text())
}
