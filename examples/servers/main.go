// Servers puts two MCP servers behind closed groups: each is started when the model opens its group. Both are
// this program again, started with a name as its argument; your own program can read servers from a file with
// mcpclient.Load.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type cityIn struct {
	City string `json:"city"`
}

var services = map[string]func(context.Context, cityIn) (string, error){
	"weather": func(_ context.Context, in cityIn) (string, error) { return "21 °C in " + in.City, nil },
	"trains":  func(_ context.Context, in cityIn) (string, error) { return "09:12 to " + in.City, nil },
}

func main() {
	log.SetFlags(0)
	run := ask
	if len(os.Args) > 1 {
		run = serve
	}
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// serve is an MCP server with one tool.
func serve(ctx context.Context) error {
	name := os.Args[1]
	now := tool.Must(tool.New("now", "What the "+name+" service knows of a city.", services[name], tool.Options{ReadOnly: true}))
	s, err := mcpserver.New(mcpserver.Config{Toolkit: toolkit.Of(now), Name: name, Version: "1.0.0",
		Policy: &permission.Policy{TrustReadOnly: true}})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.ServeStdio(ctx, os.Stdin, os.Stdout)
}

// ask runs the agent.
func ask(ctx context.Context) error {
	var groups []toolkit.Group
	for _, name := range []string{"weather", "trains"} {
		client, err := mcpclient.New(name, mcpclient.Command{Path: os.Args[0], Args: []string{name}}, nil)
		if err != nil {
			return err
		}
		defer client.Close()
		groups = append(groups, toolkit.Group{Name: name, Description: "Today's " + name + ".", Sources: []tool.Source{client}})
	}
	kit, err := toolkit.New(toolkit.Config{Groups: groups})
	if err != nil {
		return err
	}
	m := scripted.New(
		scripted.Call("reset_tools", map[string]bool{"weather": true}), // opens this group and closes all others
		scripted.Call("mcp__weather__now", cityIn{"Graz"}),
		scripted.Call("reset_tools", map[string]bool{"weather": true, "trains": true}),
		scripted.Call("mcp__trains__now", cityIn{"Graz"}),
		scripted.Say("It is 21 °C in Graz; take the train at 09:12."),
	)
	policy := permission.Policy{Rules: []permission.Rule{{Tool: "mcp__*__now", Behavior: permission.Allow}}}
	a, err := agent.New(agent.Config{Model: m, Toolkit: kit, Policy: policy})
	if err != nil {
		return err
	}
	for ev, err := range a.Run(ctx, &agent.State{}, agent.Say("Is it a day for a trip to Graz?")) {
		if err != nil {
			return err
		}
		switch ev := ev.(type) {
		case *event.ModelStart:
			fmt.Printf("step %d: the model sees %d tools\n", ev.Step, ev.Tools)
		case *event.ToolResult:
			fmt.Printf("%s: %s\n", ev.Name, ev.Text)
		case *event.End:
			fmt.Println(ev.Text)
		}
	}
	return nil
}
