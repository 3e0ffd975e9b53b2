package openai_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/openai"
)

func newModel(t *testing.T, s *openaitest.Server, cfg openai.Config) *openai.Model {
	t.Helper()
	cfg.BaseURL, cfg.Model = s.URL, "test"
	m, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestStreamedAndWhole gets the same answer both ways.
func TestStreamedAndWhole(t *testing.T) {
	turn := openaitest.Text("Héllo, world. Ça va?").Reasoning("hm, let me think").Calls(
		openaitest.Call{Name: "add", Args: `{"a":1,"b":"x\"y\nz"}`}, openaitest.Call{Name: "sub", Args: `{"a":1,"b":2}`}).
		Usage(openaitest.Usage{Prompt: 20, Completion: 9, Cached: 8, Reasoning: 4})
	s := openaitest.New(t, turn, turn.Interleave(), turn)
	var first string
	for i, cfg := range []openai.Config{{}, {}, {NoStream: true}} {
		msg, fin, err := model.Collect(newModel(t, s, cfg).Generate(context.Background(),
			&model.Request{System: "be good", Messages: []*message.Message{message.User("hi")}}))
		if err != nil {
			t.Fatal(err)
		}
		if fin.Reason != model.FinishToolCalls || fin.Usage != (message.Usage{Input: 20, Output: 9, Cached: 8, Reasoning: 4}) {
			t.Errorf("%d: finish %+v", i, fin)
		}
		data, err := json.Marshal(msg.Blocks)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(data)
			t.Log(first)
		}
		if string(data) != first {
			t.Errorf("%d: got %s, the first was %s", i, data, first)
		}
	}
}
