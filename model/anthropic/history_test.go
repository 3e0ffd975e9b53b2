package anthropic_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/internal/anthropictest"
	"github.com/kitbag-go/kitbag/internal/openaitest"
	_ "github.com/kitbag-go/kitbag/internal/seed"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/tool"
)

// errSent is the error of a recorder.
var errSent = errors.New("recorded")

// A recorder is a transport that keeps the last request and sends none.
type recorder struct{ body []byte }

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	var err error
	if r.body, err = io.ReadAll(req.Body); err != nil {
		return nil, err
	}
	return nil, errSent
}

// sentBody returns what a model sends for a request.
func sentBody(t rapid.TB, cfg anthropic.Config, req *model.Request) []byte {
	t.Helper()
	var r recorder
	cfg.Model, cfg.Key, cfg.HTTPClient = "test", "k", &http.Client{Transport: &r}
	m, err := anthropic.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := model.Collect(m.Generate(context.Background(), req)); !errors.Is(err, errSent) {
		t.Fatalf("the request was not sent: %v", err)
	}
	return r.body
}

// What drawn messages consist of.
var (
	someText = rapid.SampledFrom([]string{"", " ", "hi", "é\"\\\n\u0000<", "\xff"})
	someFile = rapid.SampledFrom([]*message.Data{
		{},
		{MediaType: "image/png"},
		{MediaType: "image/png", Bytes: []byte{1}},
		{MediaType: "image/png", URL: "https://x.org/a.png"},
		{MediaType: "image/png", URL: "file:///a.png"},
		{MediaType: "image/svg+xml", Bytes: []byte("<svg/>")},
		{MediaType: "application/pdf", Bytes: []byte("%PDF")},
		{MediaType: "application/pdf", Name: "a.pdf", URL: "http://x.org/a.pdf"},
		{MediaType: "text/plain", Name: "a", Bytes: []byte("a")},
		{MediaType: "text/plain", Bytes: []byte(" ")},
		{MediaType: "text/plain", Bytes: []byte{0xff}},
		{MediaType: "audio/mpeg", Bytes: []byte{1}},
	})
	someExtra = rapid.SampledFrom([]string{
		"",
		`[1]`,
		`{"blocks":7}`,
		`{"endpoint":"api.openai.com gpt","items":[{"item":{"type":"reasoning"}}]}`,
		`{"endpoint":"api.anthropic.com other","blocks":[]}`,
		fromTest + `"blocks":[{"block":{"type":"thinking","signature":"s"},"size":2}]}`,
		fromTest + `"prefix":"x","thoughts":"y","blocks":[{"block":{"type":"text"},"size":900}]}`,
		fromTest + `"blocks":[{"block":{"type":"tool_use","name":"c"}},{"size":-1}]}`,
	})
	someInput   = rapid.SampledFrom([]string{`{}`, `{"a":1}`, `[]`, ``, `{`, `null`})
	someOutcome = rapid.SampledFrom([]message.Outcome{
		"", message.OutcomeError, message.OutcomeDenied, message.OutcomeInterrupted,
	})
	someID   = rapid.SampledFrom([]string{"c", "functions.a:", "é"})
	someName = rapid.SampledFrom([]string{"a.b", "c", "", strings.Repeat("long", 50)})
	someRole = rapid.SampledFrom([]message.Role{
		message.RoleUser, message.RoleSystem, message.RoleAssistant, message.RoleAssistant,
		message.RoleTool, message.RoleTool,
	})
)

// fromTest begins an extra of the model that sentBody calls.
const fromTest = `{"endpoint":"api.anthropic.com test",`

// drawMessages draws a conversation with every irregularity that the model accepts. Only duplicate
// ids are excluded.
func drawMessages(t *rapid.T) (msgs []*message.Message) {
	var calls []*message.ToolCall
	ids := 0
	for range rapid.IntRange(1, 12).Draw(t, "messages") {
		m := &message.Message{Role: someRole.Draw(t, "role")}
		switch m.Role {
		case message.RoleAssistant:
			m.Blocks = drawAnswer(t)
			for range rapid.IntRange(0, 3).Draw(t, "calls") {
				ids++
				c := &message.ToolCall{ID: fmt.Sprint(someID.Draw(t, "id"), ids),
					Name: someName.Draw(t, "name"), Input: json.RawMessage(someInput.Draw(t, "input"))}
				calls = append(calls, c)
				m.Blocks = append(m.Blocks, c)
			}
		case message.RoleTool:
			for _, c := range calls {
				if rapid.IntRange(0, 3).Draw(t, "answered") > 0 {
					m.Blocks = append(m.Blocks, drawResult(t, c))
				}
			}
			if rapid.Bool().Draw(t, "last") {
				calls = nil
			}
		default:
			m.Blocks = message.Blocks{&message.Text{Text: someText.Draw(t, "text")}}
			if rapid.Bool().Draw(t, "more") {
				hint := &message.Hint{Source: "summary", Text: someText.Draw(t, "hint")}
				m.Blocks = append(m.Blocks, someFile.Draw(t, "file"), hint)
			}
		}
		msgs = append(msgs, m)
	}
	return append(msgs, message.User("end"))[:len(msgs)+rapid.IntRange(0, 1).Draw(t, "end")]
}

// drawAnswer draws the blocks of an answer without its calls.
func drawAnswer(t *rapid.T) message.Blocks {
	blocks := message.Blocks{
		&message.Thinking{Text: "hm", Extra: json.RawMessage(someExtra.Draw(t, "extra"))},
		&message.Text{Text: someText.Draw(t, "text")},
	}
	if rapid.Bool().Draw(t, "picture") {
		unknown := &message.Unknown{Type: "x", Raw: json.RawMessage(`{"type":"x"}`)}
		hint := &message.Hint{Text: someText.Draw(t, "hint")}
		blocks = append(blocks, someFile.Draw(t, "file"), hint, unknown)
	}
	return blocks
}

func drawResult(t *rapid.T, c *message.ToolCall) *message.ToolResult {
	blocks := message.Blocks{
		&message.Text{Text: someText.Draw(t, "result")},
		someFile.Draw(t, "file"),
	}
	return &message.ToolResult{ID: c.ID, Name: c.Name, Outcome: someOutcome.Draw(t, "outcome"),
		Blocks: blocks[:rapid.IntRange(0, 2).Draw(t, "blocks")]}
}

// The settings of drawn requests.
var (
	someCache = rapid.SampledFrom([]anthropic.Cache{
		anthropic.CacheShort, anthropic.CacheHour, anthropic.CacheOff,
	})
	someThinking = rapid.SampledFrom([]anthropic.Thinking{{}, adaptive, budgeted,
		{Mode: anthropic.ThinkingOff}})
	someSystem      = rapid.SampledFrom([]string{"s", "", " "})
	someTemperature = rapid.SampledFrom([]*float64{nil, new(1.0)})
	someChoice      = rapid.SampledFrom([]model.ToolChoice{{}, {Mode: model.ChoiceNone},
		{Mode: model.ChoiceRequired}, {Mode: model.ChoiceNamed, Name: "a.b"}})
)

// adaptive and budgeted are configurations with thinking.
var (
	adaptive = anthropic.Thinking{Mode: anthropic.ThinkingAdaptive}
	budgeted = anthropic.Thinking{Mode: anthropic.ThinkingBudget, Budget: 2000}
)

// TestEveryRequestIsValid: the API accepts the request for any conversation and configuration.
// Encoding it again gives the same bytes.
func TestEveryRequestIsValid(t *testing.T) {
	const alternatives = `{"anyOf":[{"properties":{"a":{}},"required":["a"]},true]}`
	tools := []tool.Info{
		{Name: "a.b"},
		{Name: "c", Description: "C.", Input: json.RawMessage(alternatives)},
	}
	rapid.Check(t, func(t *rapid.T) {
		cfg := anthropic.Config{
			Cache:    someCache.Draw(t, "cache"),
			Thinking: someThinking.Draw(t, "thinking"),
		}
		req := &model.Request{
			System:      someSystem.Draw(t, "system"),
			Messages:    append([]*message.Message{message.User("first")}, drawMessages(t)...),
			MaxTokens:   rapid.SampledFrom([]int{0, 500, 2000, 2001}).Draw(t, "max"),
			Temperature: someTemperature.Draw(t, "temperature"),
		}
		if rapid.Bool().Draw(t, "tools") {
			req.Tools, req.Choice = tools, someChoice.Draw(t, "choice")
		}
		body := sentBody(t, cfg, req)
		if err := anthropictest.Validate(body); err != nil {
			t.Fatalf("%v\n%s", err, body)
		}
		if again := sentBody(t, cfg, req); string(again) != string(body) {
			t.Fatalf("sent %s\nthen %s", body, again)
		}
	})
}

// TestAcceptsChatRequests sends the requests that model/openai tests for chat completions.
func TestAcceptsChatRequests(t *testing.T) {
	files, err := filepath.Glob("../openai/testdata/requests/*.txtar")
	if err != nil || len(files) < 35 {
		t.Fatal(len(files), err)
	}
	sent := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		if strings.HasPrefix(name, "extra") {
			continue // has members that only chat completions know
		}
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == "request" })
		var req model.Request
		if err := json.Unmarshal(ar.Files[i].Data, &req); err != nil {
			t.Fatal(name, err)
		}
		if req.Extra != nil {
			continue
		}
		s := anthropictest.New(t, anthropictest.Always(anthropictest.Text("ok")))
		if _, _, err := ask(t, newModel(t, s, anthropic.Config{}), &req); err == nil {
			sent++
		} else {
			t.Log(name, err)
		}
	}
	if sent < 25 {
		t.Errorf("%d requests were sent", sent)
	}
}

// openaiTurn and anthropicTurn return turns for a number, with everything that must be sent back.
func openaiTurn(n int) openaitest.Turn {
	call := func(i int) openaitest.Call {
		return openaitest.Call{ID: fmt.Sprintf("call_%d_%d", n, i), Name: "add", Args: `{"a":1}`}
	}
	switch n % 4 {
	case 0:
		return openaitest.Calls(call(0)).Reasoning("I add.")
	case 1:
		return openaitest.Text("Let me see.").Calls(call(0), call(1)).Interleave().Reasoning("Two of them.")
	case 2:
		return openaitest.Text("It is 2.").Reasoning("That was easy.")
	}
	return openaitest.Text("Done.")
}

// Parts of answers; the blocks of a server tool have a number.
const (
	citation = `{"type":"char_location","cited_text":"2","document_index":0,` +
		`"document_title":null,"start_char_index":0,"end_char_index":1}`
	searchBlock = `{"type":"server_tool_use","id":"srvtoolu_%d","name":"web_search",` +
		`"input":{"query":"sky"}}`
	foundBlock = `{"type":"web_search_tool_result","tool_use_id":"srvtoolu_%d","content":[]}`
)

func anthropicTurn(n int) anthropictest.Turn {
	call := func(i int) anthropictest.Call {
		return anthropictest.Call{ID: fmt.Sprintf("toolu_%d_%d", n, i), Name: "add", Args: `{"a":1}`}
	}
	switch n % 7 {
	case 0:
		return anthropictest.Thinking("I add.").Calls(call(0))
	case 1:
		return anthropictest.Thinking("Two of them.").Redacted().Text("Let me see.").
			Calls(call(0)).Thinking("And another one.").Calls(call(1))
	case 2:
		return anthropictest.Thinking("").Cited("It is 2.", citation)
	case 3:
		return anthropictest.Text("I search.").Block(fmt.Sprintf(searchBlock, n)).
			Block(fmt.Sprintf(foundBlock, n)).Text("Found.")
	case 4:
		return anthropictest.Calls(call(0), call(1))
	case 5:
		return anthropictest.Text("Done.").Thinking("Was it right?").Redacted()
	}
	return anthropictest.Text("Done.")
}

// TestMoves moves a conversation of 50 steps at random between chat completions, the Responses API
// and three models of the Messages API, and edits it in between. The strict servers accept every
// request.
func TestMoves(t *testing.T) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 0))
		n := 0
		claude := anthropictest.New(t, anthropictest.Always(anthropictest.Func(
			func(*anthropictest.Request) anthropictest.Turn { n++; return anthropicTurn(n) })))
		gpt := openaitest.New(t, openaitest.Always(openaitest.Func(
			func(*openaitest.Request) openaitest.Turn { n++; return openaiTurn(n) })))
		gpt.Allow("reasoning_content")
		models := []model.Model{
			newModel(t, claude, anthropic.Config{Thinking: adaptive}),
			newModel(t, claude, anthropic.Config{Model: "other", Thinking: budgeted, Cache: anthropic.CacheHour}),
			newModel(t, claude, anthropic.Config{Model: "third"}),
		}
		for _, api := range []openai.API{openai.APIChat, openai.APIResponses} {
			m, err := openai.New(openai.Config{Model: "test", BaseURL: gpt.URL, API: api})
			if err != nil {
				t.Fatal(err)
			}
			models = append(models, m)
		}
		said := []*message.Message{message.User("hi")}
		signatures := 0 // in the requests that the API accepted
		for step := range 50 {
			m := models[random.IntN(len(models))]
			if random.IntN(2) == 0 { // most often the first
				m = models[0]
			}
			if seed == 0 { // another model at every step
				m = models[step*2%len(models)]
			}
			req := &model.Request{System: "Add.", Messages: said, Tools: addTool, Digest: "d"}
			msg, _, err := ask(t, m, req)
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, providertest.Stored(t, msg))
			if len(msg.ToolCalls()) > 0 {
				said = append(said, providertest.Results(msg))
			} else {
				said = append(said, message.User("more"))
			}
			said = providertest.Edit(said, random.IntN(20))
		}
		for _, r := range gpt.Requests() { // the strict server rejects unknown members
			if strings.Contains(string(r.Body), "sig-") {
				t.Errorf("a signature went to another provider: %s", r.Body)
			}
		}
		for _, r := range claude.Requests() {
			signatures += strings.Count(string(r.Body), `"signature"`)
		}
		if signatures < 20 {
			t.Errorf("only %d blocks of thinking were sent back", signatures)
		}
	}
}

// TestThinkingAfterAChange: thinking is sent back while everything before it is unchanged.
func TestThinkingAfterAChange(t *testing.T) {
	s := anthropictest.New(t, anthropictest.Always(anthropictest.Thinking("Hm.").Text("Yes.")))
	m := newModel(t, s, anthropic.Config{})
	base := model.Request{System: "s", Messages: hi.Messages, Tools: addTool, Digest: "d"}
	ask := func(req model.Request) *message.Message {
		t.Helper()
		msg, _, err := ask(t, m, &req)
		if err != nil {
			t.Fatal(err)
		}
		return msg
	}
	first := ask(base)
	base.Messages = append(base.Messages[:1:1], first, message.User("more"))
	second := ask(base)
	base.Messages = append(base.Messages[:3:3], second, message.User("more"))
	more := append(slices.Clone(addTool), tool.Info{Name: "sub"})
	for why, row := range map[string]struct {
		change func(*model.Request)
		want   int // blocks of thinking
	}{
		"nothing":          {func(*model.Request) {}, 2},
		"the choice":       {func(r *model.Request) { r.Choice.Mode = model.ChoiceNone }, 2},
		"the system":       {func(r *model.Request) { r.System = "other" }, 0},
		"the tools":        {func(r *model.Request) { r.Tools, r.Digest = more, "e" }, 0},
		"the beginning":    {func(r *model.Request) { r.Messages[0] = message.User("ho") }, 0},
		"the middle":       {func(r *model.Request) { r.Messages[2] = message.User("less") }, 1},
		"the end":          {func(r *model.Request) { r.Messages[4] = message.User("less") }, 2},
		"all but the last": {func(r *model.Request) { r.Messages = r.Messages[2:] }, 0},
	} {
		req := base
		req.Messages = slices.Clone(base.Messages)
		row.change(&req)
		ask(req)
		sent := s.Requests()
		if got := strings.Count(string(sent[len(sent)-1].Body), `"signature"`); got != row.want {
			t.Errorf("%s: %d blocks of thinking were sent back, want %d", why, got, row.want)
		}
	}
}

// TestCut cuts a stream at every byte: the answer is whole, or there is an error.
func TestCut(t *testing.T) {
	turn := anthropictest.Thinking("Hm.").Text("Héllo.").Calls(addCall(`{"a":1}`))
	whole, _, err := ask(t, newModel(t, anthropictest.New(t, turn), anthropic.Config{}), hi)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		s := anthropictest.New(t, turn.CutAfter(n))
		msg, fin, err := ask(t, newModel(t, s, anthropic.Config{}), hi)
		s.Close()
		if err == nil {
			if msg.Text() != whole.Text() || len(msg.ToolCalls()) != 1 || fin.Reason != model.FinishToolCalls {
				t.Errorf("cut after %d bytes: %s, %v", n, msg.Text(), fin)
			}
			break
		}
		if e, ok := errors.AsType[*model.Error](err); !ok || !e.Retryable() {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
		if n > 20_000 {
			t.Fatal("the stream has no end")
		}
	}
}
