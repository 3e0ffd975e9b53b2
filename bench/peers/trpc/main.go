// Command trpc is trpc-agent-go in the comparison: an LLMAgent behind a Runner with sessions in memory.
// Parallel tool calls, which are off by default, are enabled.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/openai/openai-go/option"
	"trpc.group/trpc-go/trpc-agent-go/agent"
	"trpc.group/trpc-go/trpc-agent-go/agent/llmagent"
	"trpc.group/trpc-go/trpc-agent-go/model"
	"trpc.group/trpc-go/trpc-agent-go/model/openai"
	"trpc.group/trpc-go/trpc-agent-go/runner"
	"trpc.group/trpc-go/trpc-agent-go/session/inmemory"
	"trpc.group/trpc-go/trpc-agent-go/tool"
	"trpc.group/trpc-go/trpc-agent-go/tool/function"

	"github.com/kitbag-go/kitbag/bench/work"
)

func newModel(s work.Setup) *openai.Model {
	return openai.New(s.Model, openai.WithAPIKey(work.Key), openai.WithBaseURL(s.URL),
		openai.WithOpenAIOptions(option.WithHTTPClient(s.Client)))
}

func add(_ context.Context, in work.In) (work.Out, error) { return work.Do(in), nil }

func newAgent(m *openai.Model, s work.Setup) agent.Agent {
	var tools []tool.Tool
	for _, name := range s.Names() {
		tools = append(tools, function.NewFunctionTool(add, function.WithName(name), function.WithDescription(work.Description)))
	}
	return llmagent.New("adder", llmagent.WithModel(m), llmagent.WithInstruction(work.System), llmagent.WithTools(tools),
		llmagent.WithGenerationConfig(model.GenerationConfig{Stream: !s.Whole}),
		llmagent.WithEnableParallelTools(true), llmagent.WithMaxToolIterations(s.Steps))
}

func start(_ context.Context, s work.Setup) (work.Run, error) {
	sessions := inmemory.NewSessionService()
	r := runner.NewRunner("bench", newAgent(newModel(s), s), runner.WithSessionService(sessions))
	var count atomic.Int64
	return func(ctx context.Context, onText func(string)) (text string, err error) {
		events, err := r.Run(ctx, "user", fmt.Sprint(count.Add(1)), model.NewUserMessage(work.Prompt))
		if err != nil {
			return "", err
		}
		for ev := range events {
			if ev.Error != nil {
				err = errors.New(ev.Error.Message)
			}
			for _, c := range ev.Choices {
				switch {
				case ev.IsPartial:
					onText(c.Delta.Content)
				case c.Message.Role == model.RoleAssistant && !ev.IsRunnerCompletion():
					text = c.Message.Content
				}
			}
		}
		return text, err
	}, nil
}

type idle struct {
	agent   agent.Agent
	history []model.Message
}

func session(_ context.Context, s work.Setup, own bool) (func([]string) (any, error), error) {
	m := newModel(s)
	shared := newAgent(m, s)
	return func(texts []string) (any, error) {
		c := &idle{agent: shared}
		if own {
			c.agent = newAgent(m, s)
		}
		for i, text := range texts {
			if i%2 == 0 {
				c.history = append(c.history, model.NewUserMessage(text))
			} else {
				c.history = append(c.history, model.NewAssistantMessage(text))
			}
		}
		return c, nil
	}, nil
}

func main() {
	work.Main(work.Peer{Name: "trpc", Module: "trpc.group/trpc-go/trpc-agent-go", Agent: start, Session: session})
}
