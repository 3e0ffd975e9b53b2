package agenttest_test

import (
	"fmt"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/agenttest"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/toolkit"
)

// In a test, t is the *testing.T.
func Example() {
	var t agenttest.T = new(recorder)
	c := agenttest.New(t, agent.Config{Toolkit: toolkit.Of(remove)},
		scripted.Call("remove", pathIn{"a.txt"}),
		scripted.Say("It is gone."))

	end := c.Run(agent.Say("Remove a.txt."))
	fmt.Println(end.Reason)
	c.Asked("remove")

	end = c.Run(event.Confirm{Call: "call_1", Allow: true})
	fmt.Println(end.Reason, end.Text)
	c.Called("remove")
	// Output:
	// waiting
	// completed It is gone.
}
