package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"strings"

	"github.com/sashabaranov/go-openai"
	"google.golang.org/adk/v2/model"
	"google.golang.org/genai"

	"github.com/kitbag-go/kitbag/bench/work"
)

// llm is a model for adk, which has none for OpenAI's API. It uses go-openai, as the hand-written loop (floor)
// does, so costs above the floor's are adk's own.
type llm struct {
	client *openai.Client
	name   string
}

func newModel(s work.Setup) *llm {
	cfg := openai.DefaultConfig(work.Key)
	cfg.BaseURL, cfg.HTTPClient = s.URL, s.Client
	return &llm{openai.NewClientWithConfig(cfg), s.Model}
}

func (m *llm) Name() string { return m.name }

// GenerateContent makes a model call.
func (m *llm) GenerateContent(ctx context.Context, req *model.LLMRequest, streamed bool) iter.Seq2[*model.LLMResponse, error] {
	return func(yield func(*model.LLMResponse, error) bool) {
		sent, err := m.request(req)
		if err != nil {
			yield(nil, err)
			return
		}
		if !streamed {
			sent.StreamOptions = nil
			resp, err := m.client.CreateChatCompletion(ctx, *sent)
			if err != nil {
				yield(nil, err)
				return
			}
			yield(finalResponse(resp.Choices[0].Message.Content, resp.Choices[0].Message.ToolCalls))
			return
		}
		stream, err := m.client.CreateChatCompletionStream(ctx, *sent)
		if err != nil {
			yield(nil, err)
			return
		}
		defer stream.Close()
		var text strings.Builder
		var calls []openai.ToolCall
		for {
			piece, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				yield(finalResponse(text.String(), calls))
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, choice := range piece.Choices {
				for _, d := range choice.Delta.ToolCalls {
					if *d.Index == len(calls) {
						calls = append(calls, d)
					} else {
						calls[*d.Index].Function.Arguments += d.Function.Arguments
					}
				}
				if choice.Delta.Content == "" {
					continue
				}
				text.WriteString(choice.Delta.Content)
				part := &model.LLMResponse{Content: genai.NewContentFromText(choice.Delta.Content, genai.RoleModel), Partial: true}
				if !yield(part, nil) {
					return
				}
			}
		}
	}
}

// finalResponse returns a complete answer, which is also the last response of a stream.
func finalResponse(text string, calls []openai.ToolCall) (*model.LLMResponse, error) {
	c := &genai.Content{Role: genai.RoleModel}
	if text != "" {
		c.Parts = append(c.Parts, genai.NewPartFromText(text))
	}
	for _, call := range calls {
		var args map[string]any
		if err := json.Unmarshal([]byte(call.Function.Arguments), &args); err != nil {
			return nil, err
		}
		c.Parts = append(c.Parts, &genai.Part{FunctionCall: &genai.FunctionCall{ID: call.ID, Name: call.Function.Name, Args: args}})
	}
	return &model.LLMResponse{Content: c, TurnComplete: true, FinishReason: genai.FinishReasonStop}, nil
}

func (m *llm) request(req *model.LLMRequest) (*openai.ChatCompletionRequest, error) {
	sent := &openai.ChatCompletionRequest{Model: m.name, StreamOptions: &openai.StreamOptions{IncludeUsage: true}}
	if s := req.Config.SystemInstruction; s != nil {
		for _, p := range s.Parts {
			sent.Messages = append(sent.Messages, openai.ChatCompletionMessage{Role: openai.ChatMessageRoleSystem, Content: p.Text})
		}
	}
	for _, c := range req.Contents {
		msgs, err := messages(c)
		if err != nil {
			return nil, err
		}
		sent.Messages = append(sent.Messages, msgs...)
	}
	for _, t := range req.Config.Tools {
		for _, f := range t.FunctionDeclarations {
			sent.Tools = append(sent.Tools, openai.Tool{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{
				Name: f.Name, Description: f.Description, Parameters: f.ParametersJsonSchema,
			}})
		}
	}
	return sent, nil
}

// messages returns a message for each tool result in c, then one for everything else.
func messages(c *genai.Content) (msgs []openai.ChatCompletionMessage, err error) {
	msg := openai.ChatCompletionMessage{Role: openai.ChatMessageRoleUser}
	if c.Role == genai.RoleModel {
		msg.Role = openai.ChatMessageRoleAssistant
	}
	for _, p := range c.Parts {
		switch {
		case p.FunctionResponse != nil:
			data, err := json.Marshal(p.FunctionResponse.Response)
			if err != nil {
				return nil, err
			}
			msgs = append(msgs, openai.ChatCompletionMessage{
				Role: openai.ChatMessageRoleTool, ToolCallID: p.FunctionResponse.ID, Content: string(data),
			})
		case p.FunctionCall != nil:
			data, err := json.Marshal(p.FunctionCall.Args)
			if err != nil {
				return nil, err
			}
			msg.ToolCalls = append(msg.ToolCalls, openai.ToolCall{
				ID: p.FunctionCall.ID, Type: openai.ToolTypeFunction,
				Function: openai.FunctionCall{Name: p.FunctionCall.Name, Arguments: string(data)},
			})
		default:
			msg.Content += p.Text
		}
	}
	if msg.Content != "" || len(msg.ToolCalls) > 0 {
		msgs = append(msgs, msg)
	}
	return msgs, nil
}
