package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
)

// A longTool is a tool whose calls become tasks.
type longTool struct {
	tool.Tool
	after time.Duration // a call that takes longer becomes a task
}

func (t longTool) Unwrap() tool.Tool { return t.Tool }

// Background implements [tool.Backgrounder].
func (t longTool) Background(json.RawMessage) time.Duration { return t.after }

// taskTools are the tools of the suite's scenarios for tasks.
func taskTools() []tool.Tool {
	type greeting struct {
		Name string `json:"name"`
	}
	type work struct {
		Seconds float64 `json:"seconds"`
		Label   string  `json:"label,omitempty"`
	}
	type deletion struct {
		Filename string `json:"filename"`
	}
	ask := func(ctx context.Context, field string) (string, error) {
		a, err := elicit(ctx, "", "Please answer.", form(`{"`+field+`":{"type":"string"}}`))
		return fmt.Sprint(a.Content[field]), err
	}
	return []tool.Tool{
		tool.Must(tool.New("greet", "Greets.", func(_ context.Context, in greeting) (string, error) { return "Hello, " + in.Name + "!", nil })),
		longTool{tool.Must(tool.New("slow_compute", "Takes a while.", func(ctx context.Context, in work) (string, error) {
			select {
			case <-time.After(time.Duration(in.Seconds * float64(time.Second))):
				return "computed " + in.Label, nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		})), 0},
		longTool{tool.Must(tool.New("failing_job", "Fails.", func(context.Context, none) (string, error) {
			time.Sleep(time.Second)
			return "", errors.New("the job has failed")
		})), 0},
		longTool{tool.Must(tool.New("protocol_error_job", "Needs a capability that the suite does not declare.", func(ctx context.Context, _ none) (string, error) {
			time.Sleep(100 * time.Millisecond)
			_, err := mcpserver.Roots(ctx)
			return "", err
		})), 0},
		longTool{tool.Must(tool.New("confirm_delete", "Asks.", func(ctx context.Context, in deletion) (string, error) {
			_, err := ask(ctx, "answer")
			return "deleted " + in.Filename, err
		})), 0},
		longTool{tool.Must(tool.New("multi_input", "Asks two questions.", func(ctx context.Context, _ none) (string, error) {
			one := func(ctx context.Context) error { _, err := ask(ctx, "answer"); return err }
			return "answered", mcpserver.Together(ctx, one, one)
		})), 0},
		longTool{tool.Must(tool.New("test_tool_with_task", "Asks, and then works.", func(ctx context.Context, _ none) (string, error) {
			name, err := ask(ctx, "name")
			time.Sleep(time.Second)
			return "worked for " + name, err
		})), 200 * time.Millisecond},
	}
}
