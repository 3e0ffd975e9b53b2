package anthropic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/internal/anthropictest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

var late = true

// prefixOf returns what a provider's cache sees of a request: its blocks in order, each with its
// role.
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

// TestLateMoves moves conversations of 50 steps at random between a model with late tools and one
// without. Tools are added, removed and called. The strict server accepts every request, and each
// request to the model with late tools repeats the one before unless there was a compaction.
func TestLateMoves(t *testing.T) {
	names := strings.Fields("a b.b c d")
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 0))
		n := 0
		turn := func(*anthropictest.Request) anthropictest.Turn {
			n++
			name := []string{"a", "b_b", "c", "d"}[random.IntN(4)]
			call := anthropictest.Call{Name: name, Args: "{}"}
			switch n % 4 {
			case 0:
				return anthropictest.Thinking("I call.").Calls(call)
			case 1:
				return anthropictest.Text("Yes.")
			case 2:
				return anthropictest.Thinking("Hm.")
			}
			return anthropictest.Thinking("Hm.").Text("Yes.").Calls(call)
		}
		s := anthropictest.New(t, anthropictest.Always(anthropictest.Func(turn)))
		shows := newModel(t, s, anthropic.Config{LateTools: &late})
		plain := newModel(t, s, anthropic.Config{})
		talk := &providertest.Conversation{Messages: hi.Messages[:1:1], Open: []string{"a"}}
		last, changes := "", 0
		for range 50 {
			m := shows
			if random.IntN(8) == 0 {
				m = plain
			}
			msg, _, err := ask(t, m, talk.Request())
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
				if len(msg.Text())+len(msg.ToolCalls()) == 0 {
					last = "" // thinking alone is not sent back, so the changes before it move
				}
				changes = max(changes, bytes.Count(body, []byte(`"tool_addition"`)))
			}
			talk.Messages = append(talk.Messages, providertest.Stored(t, msg))
			if len(msg.ToolCalls()) > 0 {
				talk.Messages = append(talk.Messages, providertest.Results(msg))
			} else {
				talk.Messages = append(talk.Messages, message.User("more"))
			}
			switch name := names[1+random.IntN(3)]; random.IntN(3) {
			case 0:
				if i := slices.Index(talk.Open, name); i >= 0 {
					talk.Open = slices.Delete(slices.Clone(talk.Open), i, i+1)
				} else {
					talk.Open = append(slices.Clip(talk.Open), name)
				}
			case 1:
				if random.IntN(10) == 0 { // compaction
					talk.Messages = providertest.Edit(talk.Messages, providertest.Compact)
					talk.Head, last = nil, ""
				}
			}
		}
		if changes < 2 {
			t.Errorf("at most %d changes in a request", changes)
		}
	}
}

// saying returns a tool with a fixed result.
func saying(text, name, description string) tool.Tool {
	say := func(context.Context, addIn) (string, error) { return text, nil }
	return tool.Must(tool.New(name, description, say, tool.Options{ReadOnly: true}))
}

// TestLateAgent has an agent open a group and close it again at 100,000 tokens. Each request
// repeats at least 99 % of the one before, and the thinking stays.
func TestLateAgent(t *testing.T) {
	long := strings.Repeat("word ", 80_000)
	var group toolkit.Group
	group.Name, group.Description = "sums", "Adds numbers."
	for i := range 10 {
		group.Tools = append(group.Tools, saying("5", fmt.Sprintf("add%d", i), "Adds."))
	}
	tk, err := toolkit.New(toolkit.Config{
		Basic:  toolkit.Group{Tools: []tool.Tool{saying("noon", "now", "Tells the time.")}},
		Groups: []toolkit.Group{group},
	})
	if err != nil {
		t.Fatal(err)
	}
	set := func(open bool) anthropictest.Turn {
		args := fmt.Sprintf(`{"sums":%v}`, open)
		return anthropictest.Thinking("I need sums.").
			Calls(anthropictest.Call{Name: "reset_tools", Args: args})
	}
	s := anthropictest.New(t,
		anthropictest.Thinking("The time?").Calls(anthropictest.Call{Name: "now", Args: `{"a":1,"b":2}`}),
		set(true),
		anthropictest.Thinking("I add.").
			Calls(anthropictest.Call{Name: "add7", Args: `{"a":2,"b":3}`}),
		set(false),
		anthropictest.Text("It is 5.").Expect(thoughts(4)))
	a, err := agent.New(agent.Config{
		Model:   newModel(t, s, anthropic.Config{LateTools: &late, ContextWindow: 1_000_000}),
		Toolkit: tk, Policy: permission.Policy{Mode: permission.ModeBypass},
	})
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

// TestLateNames: tools whose names are the same for the API are accepted if they are never open
// together.
func TestLateNames(t *testing.T) {
	talk := &providertest.Conversation{Messages: hi.Messages, Open: []string{"a", "b.b"}}
	talk.Request()
	talk.Open = []string{"a", "b_b"}
	s := anthropictest.New(t, anthropictest.Calls(anthropictest.Call{Name: "b_b", Args: "{}"}))
	msg, _, err := ask(t, newModel(t, s, anthropic.Config{LateTools: &late}), talk.Request())
	if err != nil || msg.ToolCalls()[0].Name != "b_b" {
		t.Error(providertest.JSON(t, msg), err)
	}
}

// fault is an error in the API's form.
func fault(kind, text string) string {
	return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q},"request_id":"req_1"}`,
		kind, text)
}

// What servers refuse.
const (
	noSystem   = "role 'system' is not supported on this model"
	noBeta     = "Unexpected value(s) `inline-tools-2026-09-15` for the `anthropic-beta` header"
	noForced   = "tool_choice: type 'any' is not supported by this model"
	noDisabled = "thinking: 'disabled' is not supported by this model"
)

// forced is a request for a call of a tool.
var forced = &model.Request{Messages: hi.Messages, Tools: addTool,
	Choice: model.ToolChoice{Mode: model.ChoiceRequired}}

// TestRefusals: what a server refuses is left out of the repeated request and of later ones.
func TestRefusals(t *testing.T) {
	talk := &providertest.Conversation{Messages: hi.Messages, Open: []string{"a"}}
	talk.Request()
	talk.Open = []string{"a", "b"}
	added := talk.Request()
	plain, withLate := anthropic.Config{}, anthropic.Config{LateTools: &late}
	thinking := anthropic.Config{Thinking: adaptive}
	off := anthropic.Config{Thinking: anthropic.Thinking{Mode: anthropic.ThinkingOff}}
	for _, row := range []struct {
		why      string
		cfg      anthropic.Config
		req      *model.Request
		refusals []string
		absent   string // in all requests but the first
		fails    bool   // otherwise the server answers after the refusals
	}{
		{"late tools", withLate, added, []string{noSystem}, "tool_addition", false},
		{"the beta of late tools", withLate, added, []string{noBeta}, "tool_addition", false},
		{"the beta without a change", withLate, hi, []string{noBeta}, "tool_addition", false},
		{"a forced choice", plain, forced, []string{noForced}, `"any"`, false},
		{"a forced choice and thinking", thinking, forced, []string{noForced}, `"disabled"`, false},
		{"thinking that is off", thinking, forced, []string{noDisabled}, `"disabled"`, false},
		{"both", thinking, forced, []string{noDisabled, "tool_choice: 'any' forces tool use"},
			`"disabled"`, false},
		{"thinking that is configured to be off", off, forced, []string{noDisabled}, "", true},
		{"a choice that is not forced", plain, hi, []string{noForced}, "", true},
		{"again", plain, forced, []string{noForced, noForced}, `"any"`, true},
	} {
		var turns []anthropictest.Turn
		for _, text := range row.refusals {
			turns = append(turns, anthropictest.Status(400, fault("invalid_request_error", text)))
		}
		if !row.fails {
			turns = append(turns, anthropictest.Text("ok"), anthropictest.Text("ok"))
		}
		s := anthropictest.New(t, turns...)
		m := newModel(t, s, row.cfg)
		_, _, err := ask(t, m, row.req)
		if (err != nil) != row.fails {
			t.Errorf("%s: %v", row.why, err)
		}
		if !row.fails {
			if _, _, err := ask(t, m, row.req); err != nil {
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

// refusesBoth is a transport whose server refuses each request that contains text, after two such
// requests have arrived.
type refusesBoth struct {
	text, refusal string
	arrived       sync.WaitGroup
	refused       atomic.Int32
}

func (c *refusesBoth) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(body, []byte(c.text)) {
		r.Body = io.NopCloser(bytes.NewReader(body))
		return http.DefaultTransport.RoundTrip(r)
	}
	c.refused.Add(1)
	c.arrived.Done()
	c.arrived.Wait()
	text := fault("invalid_request_error", c.refusal)
	return &http.Response{StatusCode: 400, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

// TestSimultaneousRefusals sends two requests before the server refuses the first: both are sent
// again.
func TestSimultaneousRefusals(t *testing.T) {
	thinks := []anthropictest.Turn{anthropictest.Thinking("Hm.").Text("Yes.")}
	oks := slices.Repeat([]anthropictest.Turn{anthropictest.Text("ok")}, 8)
	s := anthropictest.New(t, slices.Concat(thinks, oks)...)
	answer, _, err := ask(t, newModel(t, s, anthropic.Config{}), hi)
	if err != nil {
		t.Fatal(err)
	}
	talk := &providertest.Conversation{Messages: hi.Messages, Open: []string{"a"}}
	talk.Request()
	talk.Open = []string{"a", "b"}
	sure := append(hi.Messages[:1:1], answer, message.User("Sure?"))
	for _, row := range []struct {
		cfg           anthropic.Config
		req           *model.Request
		text, refusal string
	}{
		{anthropic.Config{LateTools: &late}, talk.Request(), "tool_addition", noSystem},
		{anthropic.Config{}, forced, `"any"`, noForced},
		{anthropic.Config{Thinking: adaptive}, forced, `"disabled"`, noDisabled},
		{anthropic.Config{}, &model.Request{Messages: sure, System: hi.System}, `"signature"`,
			"Invalid `signature` in `thinking` block"},
	} {
		server := &refusesBoth{text: row.text, refusal: row.refusal}
		server.arrived.Add(2)
		row.cfg.HTTPClient = &http.Client{Transport: server}
		m := newModel(t, s, row.cfg)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if _, _, err := ask(t, m, row.req); err != nil {
					t.Errorf("%s: %v", row.text, err)
				}
			})
		}
		both.Wait()
		if n := server.refused.Load(); n != 2 {
			t.Errorf("%s: %d requests were refused", row.text, n)
		}
	}
}

// TestLostThinking: thinking that the server no longer accepts is left out, also of later requests.
func TestLostThinking(t *testing.T) {
	s := anthropictest.New(t, anthropictest.Thinking("Hm.").Text("Yes."),
		anthropictest.Status(400, fault("invalid_request_error",
			"messages.1.content.0: Invalid `signature` in `thinking` block")).Expect(thoughts(1)),
		anthropictest.Thinking("Oh.").Text("Yes.").Expect(thoughts(0)),
		anthropictest.Text("Yes.").Expect(thoughts(1)))
	m := newModel(t, s, anthropic.Config{})
	said := slices.Clone(hi.Messages)
	for range 3 {
		msg, _, err := ask(t, m, &model.Request{Messages: said})
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
		{anthropic.Config{Model: "other", BaseURL: "https://gateway.example.org", LateTools: &late},
			true},
	} {
		row.cfg.Key = "k"
		m, err := anthropic.New(row.cfg)
		if err != nil || m.Reveals() != row.want {
			t.Errorf("%+v: %v", row.cfg, err)
		}
	}
}
