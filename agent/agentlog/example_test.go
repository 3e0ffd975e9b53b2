package agentlog_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/agentlog"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/toolkit"
)

func Example() {
	some := []string{slog.LevelKey, slog.MessageKey, "gen_ai.agent.name", "gen_ai.response.finish_reasons", "kitbag.steps"}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if !slices.Contains(some, a.Key) {
				return slog.Attr{}
			}
			return a
		}}))
	a, err := agent.New(agent.Config{Model: scripted.New(scripted.Say("Hello!")), Toolkit: toolkit.Of(),
		Middleware: []agent.Middleware{agentlog.New(agentlog.Config{Agent: "helpdesk", Logger: logger})}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := a.Reply(context.Background(), new(agent.State), agent.Say("Hi")); err != nil {
		fmt.Println(err)
	}
	// Output:
	// level=INFO msg=chat gen_ai.response.finish_reasons=stop
	// level=INFO msg=invoke_agent gen_ai.agent.name=helpdesk gen_ai.response.finish_reasons=completed kitbag.steps=1
}
