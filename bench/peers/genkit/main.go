// Command genkit is firebase/genkit in the comparison: Generate with tools, on its
// plugin for OpenAI-compatible servers.
package main

import (
	"context"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"
	"github.com/firebase/genkit/go/plugins/compat_oai"
	"github.com/openai/openai-go/option"

	"github.com/kitbag-go/kitbag/bench/work"
)

func newModel(ctx context.Context, s work.Setup) (*genkit.Genkit, ai.Model) {
	plugin := &compat_oai.OpenAICompatible{
		Provider: "mock", APIKey: work.Key, BaseURL: s.URL, Opts: []option.RequestOption{option.WithHTTPClient(s.Client)},
	}
	g := genkit.Init(ctx, genkit.WithPlugins(plugin))
	m := plugin.DefineModel("mock", s.Model, ai.ModelOptions{Label: s.Model, Supports: &compat_oai.BasicText})
	genkit.RegisterAction(g, m)
	return g, m
}

func add(_ *ai.ToolContext, in work.In) (work.Out, error) { return work.Do(in), nil }

func start(ctx context.Context, s work.Setup) (work.Run, error) {
	g, m := newModel(ctx, s)
	var tools []ai.ToolRef
	for _, name := range s.Names() {
		tools = append(tools, genkit.DefineTool(g, name, work.Description, add))
	}
	return func(ctx context.Context, onText func(string)) (string, error) {
		opts := []ai.GenerateOption{ai.WithModel(m), ai.WithSystem(work.System), ai.WithPrompt(work.Prompt), ai.WithTools(tools...), ai.WithMaxTurns(s.Steps)}
		if !s.Whole {
			opts = append(opts, ai.WithStreaming(func(_ context.Context, piece *ai.ModelResponseChunk) error {
				for _, part := range piece.Content {
					if part.IsText() {
						onText(part.Text)
					}
				}
				return nil
			}))
		}
		answer, err := genkit.Generate(ctx, g, opts...)
		if err != nil {
			return "", err
		}
		return answer.Text(), nil
	}, nil
}

// idle is a conversation. Because genkit has no agent, it consists of tools and messages.
type idle struct {
	tools   []ai.ToolRef
	history []*ai.Message
}

func session(ctx context.Context, s work.Setup, own bool) (func([]string) (any, error), error) {
	newModel(ctx, s)
	newTools := func() (tools []ai.ToolRef) {
		for _, name := range s.Names() {
			tools = append(tools, ai.NewTool(name, work.Description, add)) // not registered: names are unique there
		}
		return tools
	}
	shared := newTools()
	return func(texts []string) (any, error) {
		c := &idle{tools: shared}
		if own {
			c.tools = newTools()
		}
		for i, text := range texts {
			if i%2 == 0 {
				c.history = append(c.history, ai.NewUserTextMessage(text))
			} else {
				c.history = append(c.history, ai.NewModelTextMessage(text))
			}
		}
		return c, nil
	}, nil
}

func main() {
	work.Main(work.Peer{Name: "genkit", Module: "github.com/firebase/genkit/go", Agent: start, Session: session})
}
