// Streaming shows the model's text and a tool's output while they are produced.
package main

import (
	"context"
	"fmt"
	"iter"
	"log"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type countIn struct {
	To int `json:"to" jsonschema:"minimum=1,maximum=100"`
}

// count yields one chunk per number; chunks with the same block id become one text.
func count(ctx context.Context, in countIn) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		for i := 1; i <= in.To; i++ {
			if ctx.Err() != nil {
				yield(tool.Chunk{}, ctx.Err())
				return
			}
			if !yield(tool.Chunk{Block: &message.Text{ID: "count", Text: fmt.Sprintf("%d ", i)}}, nil) {
				return
			}
		}
	}
}

func main() {
	m := scripted.New(
		scripted.Think("I could count myself, but there is a tool.").And(scripted.Call("count", countIn{5})),
		scripted.Say("I have counted to five, and every number was where it should be."),
	)
	kit := toolkit.Of(tool.Must(tool.NewStream("count", "Counts.", count)))
	policy := permission.Policy{Rules: []permission.Rule{{Tool: "count", Behavior: permission.Allow}}}
	a, err := agent.New(agent.Config{Model: m, Toolkit: kit, Policy: policy})
	if err != nil {
		log.Fatal(err)
	}
	var st agent.State
	for ev, err := range a.Run(context.Background(), &st, agent.Say("Count to five.")) {
		if err != nil {
			log.Fatal(err)
		}
		switch ev := ev.(type) {
		case *event.ThinkingDelta:
			fmt.Print(ev.Text)
		case *event.TextDelta:
			fmt.Print(ev.Text)
		case *event.ToolStart:
			fmt.Printf("\n[%s] ", ev.Name)
		case *event.ToolDelta:
			fmt.Print(ev.Text)
		case *event.ToolResult:
			fmt.Println(ev.Outcome)
		case *event.End:
			fmt.Printf("\n%d tokens in, %d out\n", ev.Usage.Input, ev.Usage.Output)
		}
	}
}
