package main

import (
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/agenttest"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

func TestAdd(t *testing.T) {
	c := agenttest.New(t, agent.Config{Toolkit: toolkit.Of(sum), Policy: permission.Policy{TrustReadOnly: true}},
		scripted.Call("add", map[string]int{"A": 2, "B": 3}),
		scripted.Say("It is 5.").Expect(scripted.LastContains("5")))
	c.Run(agent.Say("What is 2+3?"))
	c.Called("add")
}
