package main

import (
	"context"
	"errors"
	"io"

	"github.com/kitbag-go/kitbag/bench/work"
	"github.com/sashabaranov/go-openai"
)

// runResponses is run by the Responses API. The items of each answer are sent back unchanged.
func (a *agent) runResponses(ctx context.Context, onText func(string)) (string, error) {
	var tools []openai.ResponseTool
	for _, t := range a.tools {
		tools = append(tools, openai.NewResponseFunctionTool(*t.Function))
	}
	store := false
	req := openai.CreateResponseRequest{
		Model: a.setup.Model, Instructions: work.System, Tools: tools, Store: &store,
		Include: []openai.ResponseInclude{openai.ResponseIncludeReasoningEncryptedContent},
	}
	input := []any{openai.ResponseInputMessage{Type: "message", Role: openai.ChatMessageRoleUser, Content: work.Prompt}}
	for range a.setup.Steps {
		req.Input = input
		answer, err := a.askResponses(ctx, req, onText)
		if err != nil {
			return "", err
		}
		var calls []openai.ToolCall
		for _, item := range answer.Output {
			if item, ok := item.(map[string]any); ok && item["type"] == "function_call" {
				call := openai.ToolCall{}
				call.ID, _ = item["call_id"].(string)
				call.Function.Name, _ = item["name"].(string)
				call.Function.Arguments, _ = item["arguments"].(string)
				calls = append(calls, call)
			}
		}
		if len(calls) == 0 {
			return answer.GetOutputText(), nil
		}
		input = append(input, answer.Output...)
		for _, result := range a.call(calls) {
			input = append(input, openai.ResponseFunctionCallOutput{Type: "function_call_output", CallID: result.ToolCallID, Output: result.Content})
		}
	}
	return "", errors.New("too many steps")
}

func (a *agent) askResponses(ctx context.Context, req openai.CreateResponseRequest, onText func(string)) (*openai.CreateResponseResponse, error) {
	stream, err := a.client.CreateResponseStream(ctx, req)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	for {
		ev, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		switch ev.Type {
		case openai.ResponseStreamEventOutputTextDelta:
			onText(ev.Delta)
		case openai.ResponseStreamEventCompleted:
			return ev.Response, nil
		}
	}
}
