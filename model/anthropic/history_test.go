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

// drawMessages draws a conversation with every irregularity that the model accepts. Only duplicate
// ids are excluded.
func drawMessages(t *rapid.T) (msgs []*message.Message) {
	text := rapid.SampledFrom([]string{"", " ", "hi", "é\"\\\n\u0000<", "\xff"})
	file := rapid.SampledFrom([]*message.Data{
		{MediaType: "image/png", Bytes: []byte{1}}, {MediaType: "image/png"}, {MediaType: "image/svg+xml", Bytes: []byte("<svg/>")},
		{MediaType: "image/png", URL: "https://x.org/a.png"}, {MediaType: "image/png", URL: "file:///a.png"}, {MediaType: "application/pdf", Bytes: []byte("%PDF")},
		{MediaType: "application/pdf", Name: "a.pdf", URL: "http://x.org/a.pdf"}, {MediaType: "text/plain", Name: "a", Bytes: []byte("a")},
		{MediaType: "text/plain", Bytes: []byte(" ")}, {MediaType: "text/plain", Bytes: []byte{0xff}}, {MediaType: "audio/mpeg", Bytes: []byte{1}}, {}})
	extra := rapid.SampledFrom([]string{"", `{"endpoint":"api.openai.com gpt","items":[{"item":{"type":"reasoning"}}]}`, `{"endpoint":"api.anthropic.com other","blocks":[]}`,
		`{"endpoint":"api.anthropic.com test","blocks":[{"block":{"type":"thinking","signature":"s"},"size":2}]}`,
		`{"endpoint":"api.anthropic.com test","prefix":"x","thoughts":"y","blocks":[{"block":{"type":"text"},"size":900}]}`,
		`{"endpoint":"api.anthropic.com test","blocks":[{"block":{"type":"tool_use","name":"c"}},{"size":-1}]}`, `[1]`, `{"blocks":7}`})
	input := rapid.SampledFrom([]string{`{}`, `{"a":1}`, `[]`, ``, `{`, `null`})
	outcome := rapid.SampledFrom([]message.Outcome{"", message.OutcomeError, message.OutcomeDenied, message.OutcomeInterrupted})
	var calls []*message.ToolCall
	ids := 0
	for range rapid.IntRange(1, 12).Draw(t, "messages") {
		m := &message.Message{Role: rapid.SampledFrom([]message.Role{message.RoleUser, message.RoleSystem, message.RoleAssistant, message.RoleAssistant, message.RoleTool, message.RoleTool}).Draw(t, "role")}
		switch m.Role {
		case message.RoleAssistant:
			m.Blocks = message.Blocks{&message.Thinking{Text: "hm", Extra: json.RawMessage(extra.Draw(t, "extra"))}, &message.Text{Text: text.Draw(t, "text")}}
			if rapid.Bool().Draw(t, "picture") {
				m.Blocks = append(m.Blocks, file.Draw(t, "file"), &message.Hint{Text: text.Draw(t, "hint")}, &message.Unknown{Type: "x", Raw: json.RawMessage(`{"type":"x"}`)})
			}
			for range rapid.IntRange(0, 3).Draw(t, "calls") {
				ids++
				c := &message.ToolCall{ID: fmt.Sprint(rapid.SampledFrom([]string{"c", "functions.a:", "é"}).Draw(t, "id"), ids),
					Name: rapid.SampledFrom([]string{"a.b", "c", "", strings.Repeat("long", 50)}).Draw(t, "name"), Input: json.RawMessage(input.Draw(t, "input"))}
				calls = append(calls, c)
				m.Blocks = append(m.Blocks, c)
			}
		case message.RoleTool:
			for _, c := range calls {
				if rapid.IntRange(0, 3).Draw(t, "answered") > 0 {
					m.Blocks = append(m.Blocks, &message.ToolResult{ID: c.ID, Name: c.Name, Outcome: outcome.Draw(t, "outcome"),
						Blocks: message.Blocks{&message.Text{Text: text.Draw(t, "result")}, file.Draw(t, "file")}[:rapid.IntRange(0, 2).Draw(t, "blocks")]})
				}
			}
			if rapid.Bool().Draw(t, "last") {
				calls = nil
			}
		default:
			m.Blocks = message.Blocks{&message.Text{Text: text.Draw(t, "text")}}
			if rapid.Bool().Draw(t, "more") {
				m.Blocks = append(m.Blocks, file.Draw(t, "file"), &message.Hint{Source: "summary", Text: text.Draw(t, "hint")})
			}
		}
		msgs = append(msgs, m)
	}
	return append(msgs, message.User("end"))[:len(msgs)+rapid.IntRange(0, 1).Draw(t, "end")]
}

// TestEveryRequestIsValid: the API accepts the request for any conversation and configuration.
// Encoding it again gives the same bytes.
func TestEveryRequestIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := anthropic.Config{Cache: rapid.SampledFrom([]anthropic.Cache{anthropic.CacheShort, anthropic.CacheHour, anthropic.CacheOff}).Draw(t, "cache"),
			Thinking: rapid.SampledFrom([]anthropic.Thinking{{}, {Mode: anthropic.ThinkingAdaptive}, {Mode: anthropic.ThinkingBudget, Budget: 2000}, {Mode: anthropic.ThinkingOff}}).Draw(t, "thinking")}
		one := 1.0
		req := &model.Request{System: rapid.SampledFrom([]string{"s", "", " "}).Draw(t, "system"), Messages: append([]*message.Message{message.User("first")}, drawMessages(t)...),
			MaxTokens: rapid.SampledFrom([]int{0, 500, 2000, 2001}).Draw(t, "max"), Temperature: rapid.SampledFrom([]*float64{nil, &one}).Draw(t, "temperature")}
		if rapid.Bool().Draw(t, "tools") {
			req.Tools = []tool.Info{{Name: "a.b"}, {Name: "c", Description: "C.", Input: json.RawMessage(`{"anyOf":[{"properties":{"a":{}},"required":["a"]},true]}`)}}
			req.Choice = rapid.SampledFrom([]model.ToolChoice{{}, {Mode: model.ChoiceNone}, {Mode: model.ChoiceRequired}, {Mode: model.ChoiceNamed, Name: "a.b"}}).Draw(t, "choice")
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
		if _, _, err := model.Collect(newModel(t, s, anthropic.Config{}).Generate(t.Context(), &req)); err == nil {
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

func anthropicTurn(n int) anthropictest.Turn {
	call := func(i int) anthropictest.Call {
		return anthropictest.Call{ID: fmt.Sprintf("toolu_%d_%d", n, i), Name: "add", Args: `{"a":1}`}
	}
	switch n % 7 {
	case 0:
		return anthropictest.Thinking("I add.").Calls(call(0))
	case 1:
		return anthropictest.Thinking("Two of them.").Redacted().Text("Let me see.").Calls(call(0)).Thinking("And another one.").Calls(call(1))
	case 2:
		return anthropictest.Thinking("").Cited("It is 2.", `{"type":"char_location","cited_text":"2","document_index":0,"document_title":null,"start_char_index":0,"end_char_index":1}`)
	case 3:
		return anthropictest.Text("I search.").Block(fmt.Sprintf(`{"type":"server_tool_use","id":"srvtoolu_%d","name":"web_search","input":{"query":"2"}}`, n)).
			Block(fmt.Sprintf(`{"type":"web_search_tool_result","tool_use_id":"srvtoolu_%d","content":[]}`, n)).Text("Found.")
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
		claude := anthropictest.New(t, anthropictest.Always(anthropictest.Func(func(*anthropictest.Request) anthropictest.Turn { n++; return anthropicTurn(n) })))
		gpt := openaitest.New(t, openaitest.Always(openaitest.Func(func(*openaitest.Request) openaitest.Turn { n++; return openaiTurn(n) }))).Allow("reasoning_content")
		models := []model.Model{
			newModel(t, claude, anthropic.Config{Thinking: anthropic.Thinking{Mode: anthropic.ThinkingAdaptive}}),
			newModel(t, claude, anthropic.Config{Model: "other", Thinking: anthropic.Thinking{Mode: anthropic.ThinkingBudget, Budget: 2000}, Cache: anthropic.CacheHour}),
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
			msg, _, err := model.Collect(m.Generate(t.Context(), &model.Request{System: "Add.", Messages: said, Tools: addTool, Digest: "d"}))
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
		msg, _, err := model.Collect(m.Generate(t.Context(), &req))
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
	turn := anthropictest.Thinking("Hm.").Text("Héllo.").Calls(anthropictest.Call{Name: "add", Args: `{"a":1}`})
	whole, _, err := model.Collect(newModel(t, anthropictest.New(t, turn), anthropic.Config{}).Generate(t.Context(), hi))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		s := anthropictest.New(t, turn.CutAfter(n))
		msg, fin, err := model.Collect(newModel(t, s, anthropic.Config{}).Generate(t.Context(), hi))
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
