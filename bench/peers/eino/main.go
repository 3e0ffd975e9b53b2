// Command eino is cloudwego/eino in the comparison: the ReAct agent of
// flow/agent/react on the OpenAI model of eino-ext.
package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/cloudwego/eino-ext/components/model/openai"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/components/tool/utils"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"

	"github.com/kitbag-go/kitbag/bench/work"
)

func newModel(ctx context.Context, s work.Setup) (*openai.ChatModel, error) {
	return openai.NewChatModel(ctx, &openai.ChatModelConfig{APIKey: work.Key, BaseURL: s.URL, Model: s.Model, HTTPClient: s.Client})
}

func newAgent(ctx context.Context, m *openai.ChatModel, s work.Setup) (*react.Agent, error) {
	var tools []tool.BaseTool
	for _, name := range s.Names() {
		t, err := utils.InferTool(name, work.Description, func(_ context.Context, in work.In) (work.Out, error) { return work.Do(in), nil })
		if err != nil {
			return nil, err
		}
		tools = append(tools, t)
	}
	return react.NewAgent(ctx, &react.AgentConfig{
		ToolCallingModel: m, ToolsConfig: compose.ToolsNodeConfig{Tools: tools},
		MaxStep: 2 * s.Steps, // it counts nodes of its graph
	})
}

func start(ctx context.Context, s work.Setup) (work.Run, error) {
	m, err := newModel(ctx, s)
	if err != nil {
		return nil, err
	}
	a, err := newAgent(ctx, m, s)
	return func(ctx context.Context, onText func(string)) (string, error) {
		messages := []*schema.Message{schema.SystemMessage(work.System), schema.UserMessage(work.Prompt)}
		if s.Whole {
			answer, err := a.Generate(ctx, messages)
			if err != nil {
				return "", err
			}
			return answer.Content, nil
		}
		stream, err := a.Stream(ctx, messages)
		if err != nil {
			return "", err
		}
		defer stream.Close()
		var text strings.Builder
		for {
			piece, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return text.String(), nil
			}
			if err != nil {
				return "", err
			}
			onText(piece.Content)
			text.WriteString(piece.Content)
		}
	}, err
}

type idle struct {
	agent   *react.Agent
	history []*schema.Message
}

func session(ctx context.Context, s work.Setup, own bool) (func([]string) (any, error), error) {
	m, err := newModel(ctx, s)
	if err != nil {
		return nil, err
	}
	shared, err := newAgent(ctx, m, s)
	return func(texts []string) (any, error) {
		c := &idle{agent: shared}
		if own {
			if c.agent, err = newAgent(ctx, m, s); err != nil {
				return nil, err
			}
		}
		for i, text := range texts {
			m := schema.UserMessage(text)
			if i%2 == 1 {
				m = schema.AssistantMessage(text, nil)
			}
			c.history = append(c.history, m)
		}
		return c, nil
	}, err
}

func main() {
	work.Main(work.Peer{Name: "eino", Module: "github.com/cloudwego/eino", Agent: start, Session: session})
}
