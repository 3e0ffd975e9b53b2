package main

import (
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/agenttest"
	"github.com/kitbag-go/kitbag/model/scripted"
)

func TestAdd(t *testing.T) {
	c := agenttest.New(t, config(),
		scripted.Call("add", numbers{2, 3}),
		scripted.Say("It is 5.").Expect(scripted.LastContains("5")))
	c.Run(agent.Say("What is 2+3?"))
	c.Called("add")
}
