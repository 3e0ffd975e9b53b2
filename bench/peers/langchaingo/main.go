// Command langchaingo is tmc/langchaingo in the comparison: its agent with OpenAI functions behind an Executor.
// Its tools have one string argument instead of a schema, so they parse the argument themselves, and calls
// never run in parallel.
package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/tmc/langchaingo/agents"
	"github.com/tmc/langchaingo/chains"
	"github.com/tmc/langchaingo/llms/openai"
	"github.com/tmc/langchaingo/prompts"
	"github.com/tmc/langchaingo/tools"

	"github.com/kitbag-go/kitbag/bench/work"
)

type addTool struct{ name string }

func (t *addTool) Name() string        { return t.name }
func (t *addTool) Description() string { return work.Description }

func (t *addTool) Call(_ context.Context, input string) (string, error) {
	var in work.In
	if err := json.Unmarshal([]byte(input), &in); err != nil {
		return "", err
	}
	out, err := json.Marshal(work.Do(in))
	return string(out), err
}

func newModel(s work.Setup) (*openai.LLM, error) {
	return openai.New(openai.WithToken(work.Key), openai.WithBaseURL(s.URL), openai.WithModel(s.Model), openai.WithHTTPClient(s.Client))
}

func newAgent(m *openai.LLM, s work.Setup, history ...prompts.MessageFormatter) *agents.Executor {
	var list []tools.Tool
	for _, name := range s.Names() {
		list = append(list, &addTool{name})
	}
	option := agents.NewOpenAIOption()
	a := agents.NewOpenAIFunctionsAgent(m, list, option.WithSystemMessage(work.System), option.WithExtraMessages(history))
	return agents.NewExecutor(a, agents.WithMaxIterations(s.Steps))
}

func start(_ context.Context, s work.Setup) (work.Run, error) {
	m, err := newModel(s)
	if err != nil {
		return nil, err
	}
	a := newAgent(m, s)
	return func(ctx context.Context, onText func(string)) (string, error) {
		if s.Whole {
			text, err := chains.Run(ctx, a, work.Prompt)
			return strings.TrimSuffix(text, "\n"), err
		}
		// A handler of the agent would not receive the stream, because the chain's options replace it. Tool calls are
		// also passed to this function, as a JSON array.
		pass := chains.WithStreamingFunc(func(_ context.Context, piece []byte) error {
			if len(piece) > 0 && piece[0] != '[' {
				onText(string(piece))
			}
			return nil
		})
		text, err := chains.Run(ctx, a, work.Prompt, pass)
		return strings.TrimSuffix(text, "\n"), err
	}, nil
}

func session(_ context.Context, s work.Setup, own bool) (func([]string) (any, error), error) {
	m, err := newModel(s)
	if err != nil {
		return nil, err
	}
	// The messages belong to the agent, so conversations could only share its list of tools, which is a list of names.
	return func(texts []string) (any, error) {
		var history []prompts.MessageFormatter
		for i, text := range texts {
			if i%2 == 0 {
				history = append(history, prompts.NewHumanMessagePromptTemplate(text, nil))
			} else {
				history = append(history, prompts.NewAIMessagePromptTemplate(text, nil))
			}
		}
		return newAgent(m, s, history...), nil
	}, nil
}

func main() {
	work.Main(work.Peer{Name: "langchaingo", Module: "github.com/tmc/langchaingo", Agent: start, Session: session})
}
