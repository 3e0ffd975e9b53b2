// Command kitbag is this toolkit in the comparison, with all features on: arguments are validated, each call is
// judged by a policy, every event is emitted.
package main

import (
	"context"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/bench/work"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

func newModel(s work.Setup) (*openai.Model, error) {
	api := openai.APIChat
	if s.Responses {
		api = openai.APIResponses
	}
	return openai.New(openai.Config{API: api, Model: s.Model, BaseURL: s.URL, Key: work.Key, HTTPClient: s.Client, NoStream: s.Whole})
}

func newAgent(m *openai.Model, s work.Setup) (*agent.Agent, error) {
	var tools []tool.Tool
	for _, name := range s.Names() {
		t, err := tool.New(name, work.Description, add, tool.Options{Parallel: s.Parallel})
		if err != nil {
			return nil, err
		}
		tools = append(tools, t)
	}
	cfg := agent.Config{
		Model: m, Toolkit: toolkit.Of(tools...), Instructions: work.System,
		Policy: permission.Policy{Rules: []permission.Rule{{Tool: "add", Behavior: permission.Allow}}},
		Limits: agent.Limits{Steps: s.Steps},
	}
	if s.Traced {
		cfg.Middleware = []agent.Middleware{idleHooks}
	}
	return agent.New(cfg)
}

func add(_ context.Context, in work.In) (work.Out, error) { return work.Do(in), nil }

func start(_ context.Context, s work.Setup) (work.Run, error) {
	m, err := newModel(s)
	if err != nil {
		return nil, err
	}
	a, err := newAgent(m, s)
	return func(ctx context.Context, onText func(string)) (text string, err error) {
		var st agent.State
		for ev, err := range a.Run(ctx, &st, agent.Say(work.Prompt)) {
			if err != nil {
				return "", err
			}
			switch ev := ev.(type) {
			case *event.TextDelta:
				onText(ev.Text)
			case *event.End:
				text = ev.Text
			}
		}
		return text, nil
	}, err
}

// idle is a conversation between two runs.
type idle struct {
	agent *agent.Agent
	state agent.State
}

func session(_ context.Context, s work.Setup, own bool) (func([]string) (any, error), error) {
	m, err := newModel(s)
	if err != nil {
		return nil, err
	}
	shared, err := newAgent(m, s)
	return func(texts []string) (any, error) {
		c := &idle{agent: shared}
		if own {
			if c.agent, err = newAgent(m, s); err != nil {
				return nil, err
			}
		}
		for i, text := range texts {
			m := message.User(text)
			if i%2 == 1 {
				m = message.Assistant(&message.Text{Text: text})
			}
			c.state.Messages = append(c.state.Messages, m)
		}
		return c, nil
	}, err
}

func main() {
	work.Main(work.Peer{Name: "kitbag", Module: "github.com/kitbag-go/kitbag", Agent: start, Session: session, Alone: alone})
}
