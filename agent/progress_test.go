package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestProgressOfTool has a tool report progress, with and without text, and checks the events, and that a chunk
// with nothing to show is not an event.
func TestProgressOfTool(t *testing.T) {
	steps := tool.Must(tool.NewStream("steps", "Takes steps.", func(context.Context, struct{}) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			_ = yield(tool.Chunk{Progress: &tool.Progress{Done: 1, Total: 3}}, nil) &&
				yield(tool.Chunk{Structured: json.RawMessage(`{}`)}, nil) &&
				yield(tool.Chunk{Progress: &tool.Progress{Done: 2, Total: 3, Message: "with " + secret}}, nil) &&
				yield(tool.Chunk{Block: &message.Text{Text: "almost\n"}, Progress: &tool.Progress{Done: 3, Total: 3}}, nil)
		}
	}, tool.Options{}))
	for _, redacted := range []bool{false, true} {
		t.Run(fmt.Sprint("redacted ", redacted), func(t *testing.T) {
			cfg := Config{Toolkit: toolkit.Of(steps), Policy: bypass}
			shown := secret
			if redacted {
				cfg.Redact, shown = builtinRules(t), "[redacted: "
			}
			a, _ := newAgent(t, cfg, calls(`c1 steps {}`), says("done"))
			events, err := play(t, a, new(State), Say("go"))
			if err != nil {
				t.Fatal(err)
			}
			var done []float64
			var text, messages string
			for _, ev := range events {
				if d, ok := ev.(*event.ToolDelta); ok {
					if d.Progress == nil && d.Text == "" {
						t.Errorf("an empty event: %+v", d)
					}
					text += d.Text
					if d.Progress != nil {
						done, messages = append(done, d.Progress.Done), messages+d.Progress.Message
					}
				}
			}
			equal(t, "done", fmt.Sprint(done), "[1 2 3]")
			equal(t, "text", text, "almost\n")
			if leaks(messages) != (shown == secret) || messages == "" {
				t.Errorf("progress messages %q", messages)
			}
		})
	}
}
