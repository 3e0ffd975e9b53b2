package tool_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/tooltest"
)

// TestToolsKeepTheContract runs the public test on each kind of tool made here.
func TestToolsKeepTheContract(t *testing.T) {
	type in struct {
		Name  string               `json:"name"`
		Tree  *node                `json:"tree"`
		Wait  time.Duration        `json:"wait,omitempty"`
		When  time.Time            `json:"when,omitzero"`
		Level level                `json:"level"`
		Sizes map[string][]float64 `json:"sizes,omitempty"`
		Small int8                 `json:"small"`
		Bytes []byte               `json:"bytes,omitempty"`
		Any   any                  `json:"any"`
		Raw   json.RawMessage      `json:"raw"`
		List  []*inner             `json:"list"`
	}
	opts := tooltest.Options{Calls: 200}
	typed := tool.Must(tool.New("typed", "Typed.", func(_ context.Context, in in) (in, error) { return in, nil }))
	tooltest.Run(t, typed, opts)
	tooltest.Run(t, tool.With(typed), opts)
	tooltest.Run(t, orderTool(), opts)
	tooltest.Run(t, stream(func(_ context.Context, yield func(tool.Chunk, error) bool) { yield(tool.Text("x"), nil) }), opts)
	tooltest.Run(t, guarded{bare{`{"type":"object"}`}}, opts)
	tooltest.Run(t, tool.Must(tool.External[in]("external", "Elsewhere.")), opts)
	tools, err := tool.Methods(&shelter{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tl := range tools {
		if tl.Info().Description != "" {
			t.Error("a description that nobody registered")
		}
	}
}
