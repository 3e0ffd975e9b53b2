// Command adk is google/adk-go in the comparison: an LLM agent behind a Runner with
// sessions in memory, on the model of llm.go.
package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"

	"github.com/kitbag-go/kitbag/bench/work"
)

// input is work.In with descriptions in the tags that adk reads.
type input struct {
	A int `json:"a" jsonschema:"the first number"`
	B int `json:"b" jsonschema:"the second number"`
}

func add(_ agent.Context, in input) (work.Out, error) { return work.Do(work.In(in)), nil }

func newAgent(m *llm, s work.Setup) (agent.Agent, error) {
	var tools []tool.Tool
	for _, name := range s.Names() {
		t, err := functiontool.New(functiontool.Config{Name: name, Description: work.Description}, add)
		if err != nil {
			return nil, err
		}
		tools = append(tools, t)
	}
	return llmagent.New(llmagent.Config{
		Name: "adder", Description: "adds", Model: m, Instruction: work.System, Tools: tools,
	})
}

func start(_ context.Context, s work.Setup) (work.Run, error) {
	a, err := newAgent(newModel(s), s)
	if err != nil {
		return nil, err
	}
	r, err := runner.New(runner.Config{AppName: "bench", Agent: a, SessionService: session.InMemoryService(), AutoCreateSession: true})
	var count atomic.Int64
	return func(ctx context.Context, onText func(string)) (text string, err error) {
		prompt := genai.NewContentFromText(work.Prompt, genai.RoleUser)
		cfg := agent.RunConfig{StreamingMode: agent.StreamingModeSSE}
		if s.Whole {
			cfg.StreamingMode = agent.StreamingModeNone
		}
		for ev, err := range r.Run(ctx, "user", fmt.Sprint(count.Add(1)), prompt, cfg) {
			if err != nil {
				return "", err
			}
			if ev.Content == nil {
				continue
			}
			for _, part := range ev.Content.Parts {
				switch {
				case part.Text == "":
				case ev.Partial:
					onText(part.Text)
				default:
					text = part.Text
				}
			}
		}
		return text, nil
	}, err
}

type idle struct {
	agent   agent.Agent
	history []*genai.Content
}

func newSession(_ context.Context, s work.Setup, own bool) (func([]string) (any, error), error) {
	m := newModel(s)
	shared, err := newAgent(m, s)
	return func(texts []string) (any, error) {
		c := &idle{agent: shared}
		if own {
			if c.agent, err = newAgent(m, s); err != nil {
				return nil, err
			}
		}
		for i, text := range texts {
			c.history = append(c.history, genai.NewContentFromText(text, []genai.Role{genai.RoleUser, genai.RoleModel}[i%2]))
		}
		return c, nil
	}, err
}

func main() {
	work.Main(work.Peer{Name: "adk", Module: "google.golang.org/adk/v2", Agent: start, Session: newSession})
}
