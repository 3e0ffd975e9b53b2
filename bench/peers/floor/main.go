// Command floor is the baseline of the comparison: an agent loop written by hand with go-openai, without a
// framework. It neither validates arguments nor stores anything.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/bench/work"
	"github.com/sashabaranov/go-openai"
	"github.com/sashabaranov/go-openai/jsonschema"
)

type agent struct {
	client  *openai.Client
	setup   work.Setup
	tools   []openai.Tool
	funcs   map[string]func(args string) (string, error)
	history []openai.ChatCompletionMessage // of an idle conversation
}

func newAgent(s work.Setup) *agent {
	cfg := openai.DefaultConfig(work.Key)
	cfg.BaseURL, cfg.HTTPClient = s.URL, s.Client
	a := &agent{client: openai.NewClientWithConfig(cfg), setup: s, funcs: map[string]func(string) (string, error){}}
	for _, name := range s.Names() {
		a.funcs[name] = add
		a.tools = append(a.tools, openai.Tool{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{
			Name: name, Description: work.Description,
			Parameters: jsonschema.Definition{
				Type: jsonschema.Object,
				Properties: map[string]jsonschema.Definition{
					"a": {Type: jsonschema.Integer, Description: "the first number"},
					"b": {Type: jsonschema.Integer, Description: "the second number"},
				},
				Required: []string{"a", "b"},
			},
		}})
	}
	return a
}

func add(args string) (string, error) {
	var in work.In
	if err := json.Unmarshal([]byte(args), &in); err != nil {
		return "", err
	}
	out, err := json.Marshal(work.Do(in))
	return string(out), err
}

func (a *agent) run(ctx context.Context, onText func(string)) (string, error) {
	messages := []openai.ChatCompletionMessage{
		{Role: openai.ChatMessageRoleSystem, Content: work.System},
		{Role: openai.ChatMessageRoleUser, Content: work.Prompt},
	}
	for range a.setup.Steps {
		answer, err := a.ask(ctx, messages, onText)
		if err != nil {
			return "", err
		}
		if len(answer.ToolCalls) == 0 {
			return answer.Content, nil
		}
		messages = append(append(messages, answer), a.call(answer.ToolCalls)...)
	}
	return "", errors.New("too many steps")
}

func (a *agent) ask(ctx context.Context, messages []openai.ChatCompletionMessage, onText func(string)) (openai.ChatCompletionMessage, error) {
	answer := openai.ChatCompletionMessage{Role: openai.ChatMessageRoleAssistant}
	if a.setup.Whole {
		resp, err := a.client.CreateChatCompletion(ctx, openai.ChatCompletionRequest{Model: a.setup.Model, Messages: messages, Tools: a.tools})
		if err != nil {
			return answer, err
		}
		return resp.Choices[0].Message, nil
	}
	stream, err := a.client.CreateChatCompletionStream(ctx, openai.ChatCompletionRequest{
		Model: a.setup.Model, Messages: messages, Tools: a.tools, StreamOptions: &openai.StreamOptions{IncludeUsage: true},
	})
	if err != nil {
		return answer, err
	}
	defer stream.Close()
	var text strings.Builder
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			answer.Content = text.String()
			return answer, nil
		}
		if err != nil {
			return answer, err
		}
		for _, choice := range piece.Choices {
			if choice.Delta.Content != "" {
				text.WriteString(choice.Delta.Content)
				onText(choice.Delta.Content)
			}
			for _, d := range choice.Delta.ToolCalls {
				if *d.Index == len(answer.ToolCalls) {
					answer.ToolCalls = append(answer.ToolCalls, d)
					continue
				}
				answer.ToolCalls[*d.Index].Function.Arguments += d.Function.Arguments
			}
		}
	}
}

func (a *agent) call(calls []openai.ToolCall) []openai.ChatCompletionMessage {
	results := make([]openai.ChatCompletionMessage, len(calls))
	var wg sync.WaitGroup
	for i, c := range calls {
		wg.Go(func() {
			text, err := a.funcs[c.Function.Name](c.Function.Arguments)
			if err != nil {
				text = "error: " + err.Error()
			}
			results[i] = openai.ChatCompletionMessage{Role: openai.ChatMessageRoleTool, ToolCallID: c.ID, Content: text}
		})
	}
	wg.Wait()
	return results
}

// session returns a function that makes idle conversations, which share a client or each have their own.
func session(_ context.Context, s work.Setup, own bool) (func([]string) (any, error), error) {
	shared := newAgent(s)
	return func(texts []string) (any, error) {
		a := &agent{client: shared.client, setup: s, tools: shared.tools, funcs: shared.funcs}
		if own {
			a = newAgent(s)
		}
		for i, text := range texts {
			role := []string{openai.ChatMessageRoleUser, openai.ChatMessageRoleAssistant}[i%2]
			a.history = append(a.history, openai.ChatCompletionMessage{Role: role, Content: text})
		}
		return a, nil
	}, nil
}

func main() {
	work.Main(work.Peer{
		Name: "floor", Module: "github.com/sashabaranov/go-openai", Session: session,
		Agent: func(_ context.Context, s work.Setup) (work.Run, error) {
			if s.Responses {
				return newAgent(s).runResponses, nil
			}
			return newAgent(s).run, nil
		},
	})
}
