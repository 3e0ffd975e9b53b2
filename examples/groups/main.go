// Groups keeps tools in two groups that the model opens when it needs them. Its first list has only one tool,
// reset_tools.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type cityIn struct {
	City string `json:"city" jsonschema_description:"the city, such as Vienna"`
}

func weather(_ context.Context, in cityIn) (string, error) {
	return "It is 21 °C in " + in.City + ".", nil
}

func trains(_ context.Context, in cityIn) ([]string, error) {
	return []string{"09:12 to " + in.City, "11:12 to " + in.City}, nil
}

func main() {
	readOnly := tool.Options{ReadOnly: true}
	kit, err := toolkit.New(toolkit.Config{
		Groups: []toolkit.Group{
			{Name: "weather", Description: "What the weather is like.",
				Tools: []tool.Tool{tool.Must(tool.New("weather_now", "The weather in a city.", weather, readOnly))}},
			{Name: "travel", Description: "Trains and how to take them.", Instructions: "All times are local.",
				Tools: []tool.Tool{tool.Must(tool.New("travel_trains", "Today's trains to a city.", trains, readOnly))}},
		},
		Control: toolkit.ResetTools(nil),
	})
	if err != nil {
		log.Fatal(err)
	}
	m := scripted.New(
		scripted.Call("reset_tools", map[string]bool{"weather": true, "travel": true}),
		scripted.Call("weather_now", cityIn{"Graz"}).And(scripted.Call("travel_trains", cityIn{"Graz"})),
		scripted.Call("reset_tools", nil),
		scripted.Say("It is 21 °C in Graz; take the train at 09:12."),
	)
	a, err := agent.New(agent.Config{Model: m, Toolkit: kit, Policy: permission.Policy{TrustReadOnly: true}})
	if err != nil {
		log.Fatal(err)
	}
	var st agent.State
	for ev, err := range a.Run(context.Background(), &st, agent.Say("Is it a day for a trip to Graz?")) {
		if err != nil {
			log.Fatal(err)
		}
		switch ev := ev.(type) {
		case *event.ModelStart:
			fmt.Printf("step %d: the model sees %d tools\n", ev.Step, ev.Tools)
		case *event.ToolResult:
			fmt.Printf("  %s %s\n", ev.Name, ev.Outcome)
		case *event.End:
			fmt.Println(ev.Text)
		}
	}
}
