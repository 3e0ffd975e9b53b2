package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/tool"
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

// onBothAPIs runs a test with chat completions and with the Responses API.
func onBothAPIs(t *testing.T, test func(*testing.T, openai.Config)) {
	for _, api := range []openai.API{openai.APIChat, openai.APIResponses} {
		t.Run(string(api), func(t *testing.T) { test(t, openai.Config{API: api}) })
	}
}

// TestStreamedAndWhole gets the same answer streamed, interleaved and unstreamed.
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

// TestToolNames: a name that the API rejects is mapped to a valid one and back; a name
// that the model made up is unchanged.
func TestToolNames(t *testing.T) { onBothAPIs(t, testToolNames) }

func testToolNames(t *testing.T, cfg openai.Config) {
	s := openaitest.New(t, openaitest.Calls(
		openaitest.Call{Name: "fs_read", Args: "{}"}, openaitest.Call{Name: "add", Args: "{}"}, openaitest.Call{Name: "made_up", Args: "{}"}))
	req := &model.Request{Messages: []*message.Message{message.User("hi")}, Tools: []tool.Info{{Name: "fs.read"}, {Name: "add"}}, Digest: "d"}
	msg, _, err := model.Collect(newModel(t, s, cfg).Generate(t.Context(), req))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range msg.ToolCalls() {
		names = append(names, c.Name)
	}
	if !slices.Equal(names, []string{"fs.read", "add", "made_up"}) {
		t.Error(names)
	}
}

// TestConcurrent runs concurrent conversations that share their first messages on one model.
func TestConcurrent(t *testing.T) { onBothAPIs(t, testConcurrent) }

func testConcurrent(t *testing.T, cfg openai.Config) {
	s := openaitest.New(t, openaitest.Always(openaitest.Func(func(r *openaitest.Request) openaitest.Turn {
		return openaitest.Text("echo " + r.Messages[len(r.Messages)-1].Text())
	})))
	m := newModel(t, s, cfg)
	shared := []*message.Message{message.User("a"), message.Assistant(&message.Text{Text: "b"})}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			msgs := slices.Clip(shared)
			for step := range 10 {
				text := fmt.Sprintf("run %d step %d", i, step)
				msgs = append(msgs, message.User(text))
				msg, _, err := model.Collect(m.Generate(t.Context(), &model.Request{Messages: msgs}))
				if err != nil || msg.Text() != "echo "+text {
					t.Errorf("%q: %q, %v", text, msg.Text(), err)
					return
				}
				msgs = append(msgs, msg)
			}
		})
	}
	wg.Wait()
	for _, r := range s.Requests() {
		if len(r.Messages) < 3 || r.Messages[0].Text() != "a" || r.Messages[1].Text() != "b" {
			t.Fatalf("%s", r.Body)
		}
		text := r.Messages[2].Text()[:len("run 0")]
		for i := 2; i < len(r.Messages); i += 2 {
			if want := fmt.Sprintf("%s step %d", text, i/2-1); r.Messages[i].Text() != want {
				t.Fatalf("message %d is %q, want %q", i, r.Messages[i].Text(), want)
			}
		}
	}
}
