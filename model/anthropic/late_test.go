package anthropic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/anthropic/anthropictest"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

func lateInfo(name string) tool.Info {
	return tool.Info{Name: name, Description: "Does " + name + ".", Input: json.RawMessage(`{"type":"object"}`)}
}

// A lateTalk is a conversation in which tools come and go, as the doc of model.Reveal says.
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
	shown := l.head
	for _, c := range l.changes {
		shown = slices.DeleteFunc(slices.Clone(shown), func(t tool.Info) bool { return slices.Contains(c.Remove, t.Name) })
		shown = append(shown, c.Add...)
	}
	now := &model.ToolChange{At: len(l.said)}
	has := func(list []tool.Info, name string) bool {
		return slices.ContainsFunc(list, func(t tool.Info) bool { return t.Name == name })
	}
	for _, t := range req.Tools {
		if !has(shown, t.Name) {
			now.Add = append(now.Add, t)
		}
	}
	for _, t := range shown {
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

var late = true

// prefixOf returns what a provider's cache sees of a request: its blocks in order, each with its role.
func prefixOf(t *testing.T, body []byte) string {
	t.Helper()
	var r struct {
		Tools, System []map[string]any
		Messages      []struct {
			Role    string
			Content []map[string]any
		}
	}
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	add := func(role string, blocks []map[string]any) {
		for _, block := range blocks {
			delete(block, "cache_control")
			data, err := json.Marshal(block)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%s %s\n", role, data)
		}
	}
	add("tools", r.Tools)
	add("system", r.System)
	for _, m := range r.Messages {
		add(m.Role, m.Content)
	}
	return b.String()
}

// TestLateMoves has conversations of 50 steps, in which tools come and go and are called whether or not they are open, move
// between a model with late tools and one without. The strict server accepts every
// request, and one repeats the former one of the same model unless there was a compaction.
func TestLateMoves(t *testing.T) {
	names := strings.Fields("a b.b c d")
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 0))
		n := 0
		s := anthropictest.New(t, anthropictest.Always(anthropictest.Func(func(*anthropictest.Request) anthropictest.Turn {
			n++
			call := anthropictest.Call{Name: []string{"a", "b_b", "c", "d"}[random.IntN(4)], Args: "{}"}
			switch n % 4 {
			case 0:
				return anthropictest.Thinking("I call.").Calls(call)
			case 1:
				return anthropictest.Text("Yes.")
			case 2:
				return anthropictest.Thinking("Hm.")
			}
			return anthropictest.Thinking("Hm.").Text("Yes.").Calls(call)
		})))
		shows := newModel(t, s, anthropic.Config{LateTools: &late})
		plain := newModel(t, s, anthropic.Config{})
		talk := &lateTalk{said: []*message.Message{message.User("hi")}, open: []string{"a"}}
		last, changes := "", 0
		for range 50 {
			m := shows
			if random.IntN(8) == 0 {
				m = plain
			}
			msg, _, err := model.Collect(m.Generate(t.Context(), talk.request()))
			if err != nil {
				t.Fatal(err)
			}
			sent := s.Requests()
			body := sent[len(sent)-1].Body
			if m == shows {
				prefix := prefixOf(t, body)
				if !strings.HasPrefix(prefix, last) {
					t.Fatalf("sent %s\nafter %s", prefix, last)
				}
				last = prefix
				if len(msg.Text())+len(msg.ToolCalls()) == 0 { // thinking alone does not go back: the changes before it move
					last = ""
				}
				changes = max(changes, bytes.Count(body, []byte(`"tool_addition"`)))
			}
			talk.said = append(talk.said, stored(t, msg))
			if len(msg.ToolCalls()) > 0 {
				talk.said = append(talk.said, results(msg))
			} else {
				talk.said = append(talk.said, message.User("more"))
			}
			switch name := names[1+random.IntN(3)]; random.IntN(3) {
			case 0:
				if i := slices.Index(talk.open, name); i >= 0 {
					talk.open = slices.Delete(slices.Clone(talk.open), i, i+1)
				} else {
					talk.open = append(slices.Clip(talk.open), name)
				}
			case 1:
				if random.IntN(10) == 0 { // compaction: everything starts again
					talk.said, talk.head, last = append([]*message.Message{message.User("What was said: much.")}, talk.said[len(talk.said)-2:]...), nil, ""
				}
			}
		}
		if changes < 2 {
			t.Errorf("at most %d changes in a request", changes)
		}
	}
}

// TestLateAgent has an agent open a group and close it again at 100,000 tokens. Each request repeats at least 99 % of the
// one before, and the thinking stays.
func TestLateAgent(t *testing.T) {
	long := strings.Repeat("word ", 80_000)
	var group toolkit.Group
	group.Name, group.Description = "sums", "Adds numbers."
	for i := range 10 {
		group.Tools = append(group.Tools, tool.Must(tool.New(fmt.Sprintf("add%d", i), "Adds.", func(context.Context, addIn) (string, error) { return "5", nil }, tool.Options{ReadOnly: true})))
	}
	now := tool.Must(tool.New("now", "Tells the time.", func(context.Context, struct{}) (string, error) { return "noon", nil }, tool.Options{ReadOnly: true}))
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{now}}, Groups: []toolkit.Group{group}})
	if err != nil {
		t.Fatal(err)
	}
	set := func(open bool) anthropictest.Turn {
		return anthropictest.Thinking("I need sums.").Calls(anthropictest.Call{Name: "reset_tools", Args: fmt.Sprintf(`{"sums":%v}`, open)})
	}
	s := anthropictest.New(t,
		anthropictest.Thinking("The time?").Calls(anthropictest.Call{Name: "now", Args: "{}"}),
		set(true),
		anthropictest.Thinking("I add.").Calls(anthropictest.Call{Name: "add7", Args: `{"a":2,"b":3}`}),
		set(false),
		anthropictest.Text("It is 5.").Expect(thoughts(4)))
	a, err := agent.New(agent.Config{Model: newModel(t, s, anthropic.Config{LateTools: &late, ContextWindow: 1_000_000}), Toolkit: tk,
		Policy: permission.Policy{Mode: permission.ModeBypass}})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := a.Reply(t.Context(), new(agent.State), agent.Say("What is 2+3? "+long))
	if err != nil || reply.Text() != "It is 5." {
		t.Fatal(reply.Text(), err)
	}
	sent := s.Requests()
	for i := 2; i < len(sent); i++ {
		before, now := prefixOf(t, sent[i-1].Body), prefixOf(t, sent[i].Body)
		if !strings.HasPrefix(now, before) || len(before)*100 < len(now)*99 {
			t.Errorf("request %d repeats %d of %d bytes", i+1, len(before), len(now))
		}
	}
	for i, want := range []string{"tool_addition", "tool_addition", "tool_removal"} {
		if !bytes.Contains(sent[i+2].Body, []byte(want)) {
			t.Errorf("request %d has no %s", i+3, want)
		}
	}
}

// TestLateNames: names that become one are not a mistake if the tools are never open together.
func TestLateNames(t *testing.T) {
	talk := &lateTalk{said: hi.Messages, open: []string{"a", "b.b"}}
	talk.request()
	talk.open = []string{"a", "b_b"}
	s := anthropictest.New(t, anthropictest.Calls(anthropictest.Call{Name: "b_b", Args: "{}"}))
	msg, _, err := model.Collect(newModel(t, s, anthropic.Config{LateTools: &late}).Generate(t.Context(), talk.request()))
	if err != nil || msg.ToolCalls()[0].Name != "b_b" {
		t.Error(shown(t, msg), err)
	}
}

// TestRefusals: what a server refuses is left out, in the request and in those that follow.
func TestRefusals(t *testing.T) {
	refuse := func(text string) anthropictest.Turn {
		return anthropictest.Status(400, `{"type":"error","error":{"type":"invalid_request_error","message":`+fmt.Sprintf("%q", text)+`}}`)
	}
	ok := anthropictest.Text("ok")
	adaptive := anthropic.Thinking{Mode: anthropic.ThinkingAdaptive}
	forced := &model.Request{Messages: hi.Messages, Tools: addTool, Choice: model.ToolChoice{Mode: model.ChoiceRequired}}
	talk := &lateTalk{said: hi.Messages, open: []string{"a"}}
	talk.request()
	talk.open = []string{"a", "b"}
	added := talk.request()
	for _, row := range []struct {
		why    string
		cfg    anthropic.Config
		req    *model.Request
		turns  []anthropictest.Turn
		absent string // in all requests but the first
		fails  bool
	}{
		{"late tools", anthropic.Config{LateTools: &late}, added, []anthropictest.Turn{refuse("role 'system' is not supported on this model"), ok, ok}, "tool_addition", false},
		{"the beta of late tools", anthropic.Config{LateTools: &late}, added, []anthropictest.Turn{refuse("Unexpected value(s) `inline-tools-2026-09-15` for the `anthropic-beta` header"), ok, ok}, "tool_addition", false},
		{"the beta without a change", anthropic.Config{LateTools: &late}, hi, []anthropictest.Turn{refuse("Unexpected value(s) `inline-tools-2026-09-15` for the `anthropic-beta` header"), ok, ok}, "tool_addition", false},
		{"a forced choice", anthropic.Config{}, forced, []anthropictest.Turn{refuse("tool_choice: type 'any' is not supported by this model"), ok, ok}, `"any"`, false},
		{"a forced choice and thinking", anthropic.Config{Thinking: adaptive}, forced, []anthropictest.Turn{refuse("tool_choice: type 'any' is not supported by this model"), ok, ok}, `"disabled"`, false},
		{"thinking that is off", anthropic.Config{Thinking: adaptive}, forced, []anthropictest.Turn{refuse("thinking: 'disabled' is not supported by this model"), ok, ok}, `"disabled"`, false},
		{"both", anthropic.Config{Thinking: adaptive}, forced, []anthropictest.Turn{refuse("thinking: 'disabled' is not supported by this model"), refuse("tool_choice: 'any' forces tool use"), ok, ok}, `"disabled"`, false},
		{"thinking that is configured to be off", anthropic.Config{Thinking: anthropic.Thinking{Mode: anthropic.ThinkingOff}}, forced, []anthropictest.Turn{refuse("thinking: 'disabled' is not supported by this model")}, "", true},
		{"a choice that is not forced", anthropic.Config{}, hi, []anthropictest.Turn{refuse("tool_choice: nope")}, "", true},
		{"again", anthropic.Config{}, forced, []anthropictest.Turn{refuse("tool_choice: nope"), refuse("tool_choice: nope")}, `"any"`, true},
	} {
		s := anthropictest.New(t, row.turns...)
		m := newModel(t, s, row.cfg)
		_, _, err := model.Collect(m.Generate(t.Context(), row.req))
		if (err != nil) != row.fails {
			t.Errorf("%s: %v", row.why, err)
		}
		if !row.fails {
			if _, _, err := model.Collect(m.Generate(t.Context(), row.req)); err != nil {
				t.Errorf("%s, later: %v", row.why, err)
			}
		}
		for i, r := range s.Requests() {
			if i > 0 && row.absent != "" && strings.Contains(string(r.Body), row.absent) {
				t.Errorf("%s: request %d is %s", row.why, i+1, r.Body)
			}
		}
	}
}

// TestLostThinking: thinking that the server does not accept any more is left out, also later.
func TestLostThinking(t *testing.T) {
	s := anthropictest.New(t, anthropictest.Thinking("Hm.").Text("Yes."),
		anthropictest.Status(400, `{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `+"`signature` in `thinking`"+` block"}}`).Expect(thoughts(1)),
		anthropictest.Thinking("Oh.").Text("Yes.").Expect(thoughts(0)), anthropictest.Text("Yes.").Expect(thoughts(1)))
	m := newModel(t, s, anthropic.Config{})
	said := slices.Clone(hi.Messages)
	for range 3 {
		msg, _, err := model.Collect(m.Generate(t.Context(), &model.Request{Messages: said}))
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, msg, message.User("Sure?"))
	}
}

// TestReveals checks which models have late tools.
func TestReveals(t *testing.T) {
	no := false
	for _, row := range []struct {
		cfg  anthropic.Config
		want bool
	}{
		{anthropic.Config{Model: "claude-opus-5-5"}, true},
		{anthropic.Config{Model: "claude-sonnet-5-5-20260922"}, true},
		{anthropic.Config{Model: "claude-sonnet-5"}, false},
		{anthropic.Config{Model: "claude-opus-4-5"}, false},
		{anthropic.Config{Model: "claude-opus-5-5", LateTools: &no}, false},
		{anthropic.Config{Model: "claude-opus-5-5", BaseURL: "https://gateway.example.org"}, false},
		{anthropic.Config{Model: "other", BaseURL: "https://gateway.example.org", LateTools: &late}, true},
	} {
		row.cfg.Key = "k"
		m, err := anthropic.New(row.cfg)
		if err != nil || m.Reveals() != row.want {
			t.Errorf("%+v: %v", row.cfg, err)
		}
	}
}
