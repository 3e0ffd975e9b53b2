package anthropic_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/internal/anthropictest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
	"github.com/kitbag-go/kitbag/tool"
)

var hi = &model.Request{System: "Be good.", Messages: []*message.Message{message.User("hi")}}

func newModel(t testing.TB, s *anthropictest.Server, cfg anthropic.Config) *anthropic.Model {
	t.Helper()
	cfg.BaseURL = s.URL
	if cfg.Model == "" {
		cfg.Model = "test"
	}
	m, err := anthropic.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// ask sends a request and returns the answer.
func ask(t testing.TB, m model.Model, req *model.Request) (*message.Message, *model.Finish, error) {
	return model.Collect(m.Generate(t.Context(), req))
}

// addCall is a call of addTool.
func addCall(args string) anthropictest.Call { return anthropictest.Call{Name: "add", Args: args} }

// addTool is a tool that a model may call.
var addTool = []tool.Info{{Name: "add", Description: "Add.",
	Input: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"}}}`)}}

// TestAnswer streams an answer with all kinds of blocks, and sends it back unchanged.
func TestAnswer(t *testing.T) {
	const found = `{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[` +
		`{"type":"web_search_result","url":"https://x.org","title":"X","encrypted_content":"e"}]}`
	const cited = `{"type":"web_search_result_location","url":"https://x.org","cited_text":"<b>",` +
		`"encrypted_index":"i","title":"X"}`
	usage := anthropictest.Usage{Input: 10, Output: 9, CacheRead: 5, CacheWrite: 3, Thinking: 4}
	s := anthropictest.New(t,
		anthropictest.Thinking("I look it up.").Redacted().Text("Let me see.").
			Block(fmt.Sprintf(searchBlock, 1)).Block(found).Cited("The sky", cited).Text(" is blue.").
			Thinking("Now add.").Calls(addCall(`{"a":1}`), addCall(`{"a":2}`)).Usage(usage).Ping(),
		anthropictest.Text("Done."))
	m := newModel(t, s, anthropic.Config{Thinking: adaptive})
	req := &model.Request{System: hi.System, Messages: hi.Messages, Tools: addTool}
	msg, fin, err := ask(t, m, req)
	if err != nil {
		t.Fatal(err)
	}
	total := message.Usage{Input: 18, Output: 9, Cached: 5, CacheWrite: 3, Reasoning: 4}
	if want := (model.Finish{ID: "msg_1", Model: "test", Reason: model.FinishToolCalls, Usage: total}); *fin != want {
		t.Errorf("finish %+v", fin)
	}
	calls := msg.ToolCalls()
	if msg.Text() != "Let me see.\n\nThe sky is blue." || len(calls) != 2 || string(calls[1].Input) != `{"a":2}` {
		t.Errorf("message %s", providertest.JSON(t, msg))
	}
	req.Messages = append(req.Messages[:1:1], providertest.Stored(t, msg), providertest.Results(msg))
	if _, _, err := ask(t, m, req); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	sent := s.Requests()[1]
	for _, b := range sent.Messages[1].Content {
		kinds = append(kinds, b.Type)
	}
	const want = "thinking redacted_thinking text server_tool_use web_search_tool_result text text " +
		"thinking tool_use tool_use"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("sent back: %s", got)
	}
	for _, part := range []string{`"query":"sky"`, `"encrypted_content":"e"`,
		`"encrypted_index":"i"`} {
		if !strings.Contains(string(sent.Body), part) {
			t.Errorf("%s is missing in %s", part, sent.Body)
		}
	}
}

// TestChunksComeAtOnce reads each chunk before the server sends the next one.
func TestChunksComeAtOnce(t *testing.T) {
	s := anthropictest.New(t, anthropictest.Text("one two three").Slow(20*time.Millisecond))
	m := newModel(t, s, anthropic.Config{})
	var at []time.Time
	for chunk, err := range m.Generate(t.Context(), hi) {
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := chunk.(*model.TextDelta); ok {
			at = append(at, time.Now())
		}
	}
	if len(at) != 3 || at[2].Sub(at[0]) < 20*time.Millisecond {
		t.Errorf("chunks at %v", at)
	}
}

// TestErrors: each error has its kind, and none is retried here.
func TestErrors(t *testing.T) {
	const invalid = "invalid_request_error"
	for _, row := range []struct {
		status int
		body   string
		kind   model.ErrorKind
	}{
		{400, fault(invalid, "text content blocks must be non-empty"), model.KindInvalidRequest},
		{400, fault(invalid, "prompt is too long: 208310 tokens > 200000 maximum"),
			model.KindContextTooLong},
		{400, fault(invalid, "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000"),
			model.KindContextTooLong},
		{400, fault(invalid, "messages.0.content.0.image.source.base64.data: Could not process image"),
			model.KindInvalidRequest}, // the request has none
		{401, fault("authentication_error", "invalid x-api-key"), model.KindAuthentication},
		{402, fault("billing_error", "Your credit balance is too low"), model.KindRateLimit},
		{403, fault("permission_error", "Your API key does not have permission"), model.KindPermission},
		{404, fault("not_found_error", "model: claude-none"), model.KindInvalidRequest},
		{413, fault("request_too_large", "Request exceeds the maximum size"), model.KindContextTooLong},
		{429, fault("rate_limit_error", "Number of request tokens has exceeded your per-minute "+
			"rate limit"), model.KindRateLimit},
		{500, fault("api_error", "Internal server error"), model.KindUpstream},
		{504, fault("timeout_error", "Request timed out"), model.KindUpstream},
		{529, fault("overloaded_error", "Overloaded"), model.KindUpstream},
		{502, "<html><body>Bad gateway</body></html>", model.KindUpstream},
		{400, `{"message":"The provided model is invalid."}`, model.KindInvalidRequest}, // Bedrock's
		{503, "", model.KindUpstream},
	} {
		s := anthropictest.New(t, anthropictest.Status(row.status, row.body, "Retry-After", "7"))
		_, _, err := ask(t, newModel(t, s, anthropic.Config{Key: "sk-secret"}), hi)
		e, ok := errors.AsType[*model.Error](err)
		if !ok || e.Kind != row.kind || e.Status != row.status {
			t.Errorf("%d %s: %v, want %s", row.status, row.body, err, row.kind)
			continue
		}
		if n := len(s.Requests()); n != 1 || e.RetryAfter != 7*time.Second {
			t.Errorf("%d %s: %d requests, retry after %v", row.status, row.body, n, e.RetryAfter)
		}
	}
}

// TestKey: the key is in the header that the API expects, and not in an error.
func TestKey(t *testing.T) {
	refusal := anthropictest.Status(400, fault("invalid_request_error", "bad header sk-secret"))
	s := anthropictest.New(t, refusal, anthropictest.Text("ok")).RequireKey("sk-secret")
	m := newModel(t, s, anthropic.Config{Key: "sk-secret", Header: http.Header{"x-gateway": {"a"}},
		Betas: []string{"b1", "b2"}})
	if _, _, err := ask(t, m, hi); err == nil || strings.Contains(err.Error(), "sk-secret") {
		t.Error(err)
	}
	if _, _, err := ask(t, m, hi); err != nil {
		t.Error(err)
	}
	h := s.Requests()[1].Header
	if h.Get("X-Gateway") != "a" || !slices.Equal(h.Values("Anthropic-Beta"), []string{"b1", "b2"}) {
		t.Errorf("header %v", h)
	}
	_, _, err := ask(t, newModel(t, s, anthropic.Config{Key: "other"}), hi)
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindAuthentication {
		t.Error(err)
	}
}

// TestNew has configurations that New rejects.
func TestNew(t *testing.T) {
	thinking := func(th anthropic.Thinking) anthropic.Config {
		return anthropic.Config{Model: "m", Key: "k", Thinking: th}
	}
	serverTool := func(tool string) anthropic.Config {
		return anthropic.Config{Model: "m", Key: "k", ServerTools: []json.RawMessage{json.RawMessage(tool)}}
	}
	for want, cfg := range map[string]anthropic.Config{
		"no model":                    {Key: "k"},
		"no key":                      {Model: "m"},
		"is not an http or https URL": {Model: "m", Key: "k", BaseURL: "ftp://x"},
		`"x.org/v1" is not an http`:   {Model: "m", Key: "k", BaseURL: "u:secret@x.org/v1?key=secret"},
		"at least 1024":               thinking(anthropic.Thinking{Mode: anthropic.ThinkingBudget, Budget: 100}),
		"below MaxTokens":             {Model: "m", Key: "k", MaxTokens: 2000, Thinking: budgeted},
		"needs the mode":              thinking(anthropic.Thinking{Budget: 2000}),
		"Display is set":              thinking(anthropic.Thinking{Display: "summarized"}),
		`Mode "on" is unknown`:        thinking(anthropic.Thinking{Mode: "on"}),
		`Cache "2h" is unknown`:       {Model: "m", Key: "k", Cache: "2h"},
		"ServerTools[0] is not":       serverTool(`{"name":"a"}`),
		"must not be negative":        {Model: "m", Key: "k", MaxTokens: -1},
		"HeaderTimeout is -1s":        {Model: "m", Key: "k", HeaderTimeout: -time.Second},
		"ServerTools[0] has cache_control": serverTool(
			`{"type":"t","cache_control":{"type":"ephemeral"}}`),
	} {
		if _, err := anthropic.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	local := anthropic.Config{Model: "m", BaseURL: "http://localhost:8080/v1/", ContextWindow: 7}
	m, err := anthropic.New(local)
	if err != nil {
		t.Fatal(err)
	}
	if host, port := m.Server(); host != "localhost" || port != 8080 {
		t.Error(host, port)
	}
	if m.Name() != "m" || m.ContextWindow() != 7 {
		t.Error(m.Name(), m.ContextWindow())
	}
	t.Setenv("ANTHROPIC_API_KEY", "k")
	t.Setenv("ANTHROPIC_BASE_URL", "")
	t.Setenv("KITBAG_MODEL", "claude-x")
	if m, err = anthropic.FromEnv(); err != nil || m.Name() != "claude-x" {
		t.Error(err)
	}
}

// TestPause: an answer that the server pauses is continued, and is sent back as one message.
func TestPause(t *testing.T) {
	search := func(n int) string { return fmt.Sprintf(searchBlock, n) }
	found := func(n int) string { return fmt.Sprintf(foundBlock, n) }
	usage := anthropictest.Usage{Input: 10, Output: 2}
	s := anthropictest.New(t,
		anthropictest.Thinking("One.").Text("I search.").Block(search(1)).
			Stop("pause_turn").Usage(usage),
		anthropictest.Thinking("Two.").Text("Again.").Block(found(1)).Block(search(2)).
			Stop("pause_turn").Usage(usage),
		anthropictest.Thinking("Three.").Block(found(2)).Text("Blue.").Usage(usage),
		anthropictest.Text("Bye."))
	m := newModel(t, s, anthropic.Config{})
	msg, fin, err := ask(t, m, hi)
	if err != nil {
		t.Fatal(err)
	}
	if fin.Reason != model.FinishStop || fin.Usage != (message.Usage{Input: 30, Output: 6}) {
		t.Errorf("finish %+v", fin)
	}
	said := append(hi.Messages[:1:1], providertest.Stored(t, msg), message.User("bye"))
	req := &model.Request{System: hi.System, Messages: said}
	if _, _, err := ask(t, m, req); err != nil {
		t.Fatal(err)
	}
	if got := len(s.Requests()[3].Messages[1].Content); got != 10 {
		t.Errorf("%d blocks went back: %s", got, s.Requests()[3].Body)
	}
}

// TestServerTools: white space in the JSON of the caller does not matter.
func TestServerTools(t *testing.T) {
	s := anthropictest.New(t, anthropictest.Text("ok"))
	search := json.RawMessage("{ \"type\": \"web_search_20250305\", \"name\": \"web_search\" }\n")
	m := newModel(t, s, anthropic.Config{ServerTools: []json.RawMessage{search}})
	if _, _, err := ask(t, m, hi); err != nil {
		t.Error(err)
	}
}

// TestPauseEnds: a paused answer is not continued if the consumer has stopped or if it has no block
// that can be sent back.
func TestPauseEnds(t *testing.T) {
	for _, block := range []string{
		`{"type":"text","text":"I search."}`,
		`{"type":"text","text":"I search."},5`,
		`{"type":"thinking","thinking":"Hm."}`,
	} {
		s := anthropictest.New(t, anthropictest.Status(200,
			`{"id":"msg_1","model":"test","content":[`+block+`],"stop_reason":"pause_turn"}`))
		m := newModel(t, s, anthropic.Config{})
		for chunk, err := range m.Generate(t.Context(), hi) {
			if err != nil {
				t.Error(block, err)
			}
			if _, ok := chunk.(*model.TextDelta); ok {
				break
			}
		}
		if n := len(s.Requests()); n != 1 {
			t.Errorf("%s: %d requests", block, n)
		}
	}
}

// TestKeyStays: a key is not sent to another host, to which a server redirects, and an error in an
// answer with status 200 does not contain it.
func TestKeyStays(t *testing.T) {
	const key = "sk-secret-1"
	other := anthropictest.New(t)
	elsewhere := strings.Replace(other.URL, "127.0.0.1", "localhost", 1) + "/v1/messages"
	s := anthropictest.New(t,
		anthropictest.Status(http.StatusPermanentRedirect, "", "Location", elsewhere),
		anthropictest.Status(200, fault("authentication_error", "bad key "+key)),
		anthropictest.Status(200, `{"odd":"`+key+`"}`),
		anthropictest.Raw("data: "+fault("api_error", "bad key "+key)+"\n\n"),
		anthropictest.Raw("data: "+key+"\n\n"))
	m := newModel(t, s, anthropic.Config{Key: key})
	for range 5 {
		_, _, err := ask(t, m, hi)
		if err == nil || strings.Contains(err.Error(), key) {
			t.Error(err)
		}
	}
	for _, r := range other.Requests() {
		t.Errorf("the other host got the key %s", r.Header.Get("X-Api-Key"))
	}
}

// TestExtraWithSpaces: white space around the JSON of an extra does not matter.
func TestExtraWithSpaces(t *testing.T) {
	s := anthropictest.New(t, anthropictest.Text("ok"))
	m := newModel(t, s, anthropic.Config{Effort: "low", Extra: map[string]json.RawMessage{
		"temperature": json.RawMessage(" null"), "tools": json.RawMessage("null\n"),
		"output_config": json.RawMessage(" null"), "reasoning_effort": json.RawMessage(`"high"`)}})
	req := &model.Request{Messages: hi.Messages, Tools: addTool, Temperature: new(0.5)}
	if _, _, err := ask(t, m, req); err != nil {
		t.Fatal(err)
	}
	body := string(s.Requests()[0].Body)
	if strings.Contains(body, "null") || strings.Contains(body, "tools") || !strings.Contains(body, `"high"`) {
		t.Error(body)
	}
}
