// Hello wraps a Go function as a tool and lets a model call it.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

var sum = tool.Must(tool.New("add", "Adds two numbers.", add, tool.Options{ReadOnly: true}))

func add(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil }

func main() {
	m, err := openai.FromEnv() // OPENAI_API_KEY, KITBAG_MODEL
	if err != nil {
		log.Fatal(err)
	}
	policy := permission.Policy{TrustReadOnly: true} // without a question only calls that change nothing
	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(sum), Policy: policy})
	if err != nil {
		log.Fatal(err)
	}
	reply, err := a.Reply(context.Background(), &agent.State{}, agent.Say("What is 2+3?"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Text())
}
