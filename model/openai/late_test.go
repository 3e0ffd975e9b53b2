package openai_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/tool"
)

// wirePrefix returns the tools and the input of a request, without the end of the list.
func wirePrefix(t *testing.T, body []byte) string {
	t.Helper()
	var parts struct{ Tools, Input json.RawMessage }
	if err := json.Unmarshal(body, &parts); err != nil {
		t.Fatal(err)
	}
	return string(parts.Tools) + string(bytes.TrimSuffix(parts.Input, []byte("]")))
}

// TestLateMoves moves conversations of 50 steps at random between a model with late tools and others. Tools are added, removed
// and called, and messages are edited. The strict server accepts every request, and each request to the model with late
// tools repeats the one before, unless messages were edited or a tool that was called before is new.
func TestLateMoves(t *testing.T) {
	names := strings.Fields("a b.b c d")
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		calls, repeated := 0, 0
		s := openaitest.Serve(openaitest.Always(openaitest.Func(func(*openaitest.Request) openaitest.Turn {
			calls++
			call := openaitest.Call{ID: fmt.Sprint("call_", calls), Name: strings.ReplaceAll(names[random.IntN(4)], ".", "_"), Args: `{}`}
			turn := openaitest.Calls(call)
			if calls%3 == 0 {
				turn = turn.Reasoning("Hm.")
			}
			return turn
		}))).Allow("reasoning_content")
		var models []model.Model
		for _, cfg := range []openai.Config{{LateTools: new(true)}, {LateTools: new(true), NoStream: true}, {API: openai.APIChat}, {}} {
			if cfg.BaseURL, cfg.Model = s.URL, "test"; cfg.API == "" {
				cfg.API = openai.APIResponses
			}
			m, err := openai.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			models = append(models, m)
		}
		conv := &providertest.Conversation{Messages: []*message.Message{message.User("hi")}, Open: []string{"a"}}
		last, called := "", map[string]bool{}
		for range 50 {
			name := names[random.IntN(4)]
			if i := slices.Index(conv.Open, name); i >= 0 && len(conv.Open) > 1 {
				conv.Open = slices.Delete(slices.Clone(conv.Open), i, i+1)
			} else if i < 0 {
				conv.Open = append(slices.Clip(conv.Open), name)
			}
			known := len(conv.Changes)
			req := conv.Request()
			if known < len(conv.Changes) && slices.ContainsFunc(conv.Changes[known].Add, func(t tool.Info) bool { return called[strings.ReplaceAll(t.Name, ".", "_")] }) {
				last = "" // the earlier calls are in a namespace now
			}
			m := models[min(random.IntN(8), 7)%4*random.IntN(2)] // most often the first
			msg, _, err := model.Collect(m.Generate(t.Context(), req))
			if err != nil {
				t.Fatal(err)
			}
			if sent := s.Requests(); m == models[0] {
				now := wirePrefix(t, sent[len(sent)-1].Body)
				if !strings.HasPrefix(now, last) {
					t.Errorf("%s\ndoes not repeat\n%s", now, last)
				}
				if last != "" {
					repeated++
				}
				last = now
			}
			called[strings.ReplaceAll(msg.ToolCalls()[0].Name, ".", "_")] = true
			conv.Messages = append(slices.Clip(conv.Messages), providertest.Stored(t, msg), providertest.Results(msg))
			switch random.IntN(12) {
			case 0, 1, 2:
				conv.Messages, last = providertest.Edit(conv.Messages, random.IntN(4)), ""
			case 3: // compaction
				conv.Messages, conv.Head, last = providertest.Edit(conv.Messages, providertest.Compact), nil, ""
				called = map[string]bool{strings.ReplaceAll(msg.ToolCalls()[0].Name, ".", "_"): true}
			}
		}
		for _, fault := range s.Faults() {
			t.Error(fault)
		}
		if repeated < 3 {
			t.Errorf("seed %d: %d requests repeated one", seed, repeated)
		}
		s.Close()
	}
}
