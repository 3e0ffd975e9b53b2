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
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/tool"
)

func lateInfo(name string) tool.Info {
	return tool.Info{Name: name, Description: "Does " + name + ".", Input: json.RawMessage(`{"type":"object"}`)}
}

// A lateTalk is a conversation in which tools come and go, told as the doc of model.Reveal says.
type lateTalk struct {
	said    []*message.Message
	open    []string
	head    []tool.Info
	changes []*model.ToolChange
}

func (l *lateTalk) request() *model.Request {
	req := &model.Request{System: "Be exact.", Messages: l.said}
	for _, name := range l.open {
		req.Tools = append(req.Tools, lateInfo(name))
	}
	if l.head == nil {
		l.head, l.changes = req.Tools, nil
	}
	told := l.head
	for _, c := range l.changes {
		told = slices.DeleteFunc(slices.Clone(told), func(t tool.Info) bool { return slices.Contains(c.Remove, t.Name) })
		told = append(told, c.Add...)
	}
	now := &model.ToolChange{At: len(l.said)}
	has := func(list []tool.Info, name string) bool {
		return slices.ContainsFunc(list, func(t tool.Info) bool { return t.Name == name })
	}
	for _, t := range req.Tools {
		if !has(told, t.Name) {
			now.Add = append(now.Add, t)
		}
	}
	for _, t := range told {
		if !has(req.Tools, t.Name) {
			now.Remove = append(now.Remove, t.Name)
		}
	}
	if now.Add != nil || now.Remove != nil {
		l.changes = append(slices.Clip(l.changes), now)
	}
	req.Reveal = &model.Reveal{Head: l.head, Digest: fmt.Sprint(l.head), Changes: l.changes}
	return req
}

// wirePrefix returns the tools and the input of a request, without the end of the list.
func wirePrefix(t *testing.T, body []byte) string {
	t.Helper()
	var parts struct{ Tools, Input json.RawMessage }
	if err := json.Unmarshal(body, &parts); err != nil {
		t.Fatal(err)
	}
	return string(parts.Tools) + string(bytes.TrimSuffix(parts.Input, []byte("]")))
}

// TestLateMoves has conversations of 50 steps, in which tools come and go and are called whether or not they are there, move
// between a model that is told of them late and others, and edits them in between. The strict server takes every request, and
// one repeats the former one of the same model, if nothing was edited and no tool is new that was called before.
func TestLateMoves(t *testing.T) {
	names := strings.Fields("a b.b c d")
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		n, repeated := 0, 0
		s := openaitest.Serve(openaitest.Always(openaitest.Func(func(*openaitest.Request) openaitest.Turn {
			n++
			call := openaitest.Call{ID: fmt.Sprint("call_", n), Name: strings.ReplaceAll(names[random.IntN(4)], ".", "_"), Args: `{}`}
			turn := openaitest.Calls(call)
			if n%3 == 0 {
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
		l := &lateTalk{said: []*message.Message{message.User("hi")}, open: []string{"a"}}
		last, called := "", map[string]bool{}
		for range 50 {
			name := names[random.IntN(4)]
			if i := slices.Index(l.open, name); i >= 0 && len(l.open) > 1 {
				l.open = slices.Delete(slices.Clone(l.open), i, i+1)
			} else if i < 0 {
				l.open = append(slices.Clip(l.open), name)
			}
			known := len(l.changes)
			req := l.request()
			if known < len(l.changes) && slices.ContainsFunc(l.changes[known].Add, func(t tool.Info) bool { return called[strings.ReplaceAll(t.Name, ".", "_")] }) {
				last = "" // the calls of before are in a namespace now
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
			results := &message.Message{Role: message.RoleTool}
			for _, c := range msg.ToolCalls() {
				results.Blocks = append(results.Blocks, &message.ToolResult{ID: c.ID, Name: c.Name, Blocks: message.Blocks{&message.Text{Text: "2"}}})
			}
			l.said = append(slices.Clip(l.said), stored(t, msg), results)
			switch random.IntN(12) {
			case 0, 1, 2:
				l.said, last = edited(l.said, random.IntN(4)), ""
			case 3: // compaction
				l.said, l.head, last = edited(l.said, 4), nil, ""
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
