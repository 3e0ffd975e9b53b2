package openai_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/rogpeppe/go-internal/txtar"
)

var responses = openai.Config{API: openai.APIResponses}

// TestResponses replays the answers in testdata/responses as TestAnswers does. The expected result ends with
// the items that send the answer back in the next request.
func TestResponses(t *testing.T) {
	providertest.Archives(t, "testdata/responses", 60, func(t *testing.T, part func(string) string) string {
		s := openaitest.Serve(rawTurn(t, part("options"), part("answer")), openaitest.Text("ok"))
		defer s.Close()
		m := newModel(t, s, responses)
		msg, fin, err := model.Collect(m.Generate(t.Context(), hi))
		got := providertest.Render(t, msg, fin, err)
		if err == nil {
			got += sentBack(t, s, m, msg)
		}
		return strings.ReplaceAll(got, host(s), "SERVER")
	})
}

// sentBack returns the items in which the next request sends an answer back.
func sentBack(t *testing.T, s *openaitest.Server, m *openai.Model, msg *message.Message) string {
	t.Helper()
	results := providertest.Results(msg)
	req := &model.Request{Messages: append(hi.Messages[:1:1], msg, results, message.User("continue"))}
	_, _, err := model.Collect(m.Generate(t.Context(), req))
	sent := s.Requests()
	var body struct{ Input []json.RawMessage }
	if json.Unmarshal(sent[len(sent)-1].Body, &body) != nil || len(body.Input) < 2 {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, item := range body.Input[1 : len(body.Input)-1-len(results.Blocks)] {
		fmt.Fprintf(&b, "back %s\n", item)
	}
	if err != nil {
		fmt.Fprintf(&b, "refused: %v\n", err)
	}
	return b.String()
}

// TestResponsesRequests sends the requests in testdata/responses_requests to a strict server and compares
// the bytes it receives, as TestRequests does.
func TestResponsesRequests(t *testing.T) {
	providertest.Archives(t, "testdata/responses_requests", 8, func(t *testing.T, part func(string) string) string {
		body, err := sendResponses(t, part("request"))
		if body == nil {
			return fmt.Sprintf("none sent: %v\n", err)
		}
		var b bytes.Buffer
		if err := json.Indent(&b, body, "", " "); err != nil {
			t.Fatal(err)
		}
		return b.String() + "\n"
	})
}

// TestResponsesAcceptChatRequests sends the requests in testdata/requests, which are for chat completions, by
// the Responses API to a strict server.
func TestResponsesAcceptChatRequests(t *testing.T) {
	files, err := filepath.Glob("testdata/requests/*.txtar")
	if err != nil || len(files) < 35 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		if filepath.Base(file) == "extra.txtar" {
			continue // has members that only chat completions know
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == "request" })
			body, err := sendResponses(t, string(ar.Files[i].Data))
			if body == nil {
				t.Log(err)
			}
		})
	}
}

func sendResponses(t *testing.T, data string) (body []byte, err error) {
	t.Helper()
	s := openaitest.Serve(openaitest.Always(openaitest.Text("ok")))
	defer s.Close()
	r := decodeRequest(t, strings.ReplaceAll(data, "SERVER", host(s)))
	m := newModel(t, s.Allow(r.Allow...), openai.Config{API: openai.APIResponses, NoStream: r.NoStream, Extra: r.ConfigExtra})
	_, _, err = model.Collect(m.Generate(t.Context(), &model.Request{System: r.System, Messages: r.Messages, Tools: r.Tools,
		Choice: r.Choice, MaxTokens: r.MaxTokens, Temperature: r.Temperature, Output: r.Output, Extra: r.Extra}))
	for _, fault := range s.Faults() {
		t.Error(fault)
	}
	if sent := s.Requests(); len(sent) > 0 {
		body = sent[0].Body
	}
	return body, err
}

// turnOf returns the n-th answer.
func turnOf(n int) openaitest.Turn {
	call := func(i int) openaitest.Call {
		return openaitest.Call{ID: fmt.Sprintf("call_%d_%d", n, i), Name: "add", Args: `{"a":1}`}
	}
	switch n % 5 {
	case 0:
		return openaitest.Calls(call(0)).Reasoning("I add.")
	case 1:
		return openaitest.Text("Let me see.").Calls(call(0), call(1)).Interleave().Reasoning("Two of them.")
	case 2:
		return openaitest.Text("It is 2.").Reasoning("That was easy.")
	case 3:
		return openaitest.Text("Done.")
	}
	return openaitest.Calls(call(0), call(1))
}

// TestMoves moves a conversation of 50 steps at random between chat completions, the Responses API and another
// model, and edits it in between: the strict server accepts every request.
func TestMoves(t *testing.T) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 0))
		n := 0
		s := openaitest.Serve(openaitest.Always(openaitest.Func(func(*openaitest.Request) openaitest.Turn { n++; return turnOf(n) }))).
			Allow("reasoning_content")
		var models []model.Model
		for _, cfg := range []openai.Config{{}, {API: openai.APIResponses}, {API: openai.APIResponses, Model: "other"}, {API: openai.APIResponses, NoStream: true}} {
			if cfg.Model == "" {
				cfg.Model = "test"
			}
			cfg.BaseURL = s.URL
			m, err := openai.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			models = append(models, m)
		}
		msgs := []*message.Message{message.User("hi")}
		for range 50 {
			m := models[random.IntN(len(models))]
			msg, _, err := model.Collect(m.Generate(t.Context(), &model.Request{System: "Add.", Messages: msgs,
				Tools: []tool.Info{{Name: "add", Input: json.RawMessage(`{"type":"object"}`)}}, Digest: "d"}))
			if err != nil {
				t.Fatal(err)
			}
			msgs = append(msgs, providertest.Stored(t, msg))
			if len(msg.ToolCalls()) > 0 {
				msgs = append(msgs, providertest.Results(msg))
			} else {
				msgs = append(msgs, message.User("more"))
			}
			msgs = providertest.Edit(msgs, random.IntN(10))
		}
		for _, fault := range s.Faults() {
			t.Error(fault)
		}
		s.Close()
	}
}

// TestResponsesCut cuts a stream off at many points: the result is the whole answer or an error.
func TestResponsesCut(t *testing.T) {
	turn := openaitest.Text("Héllo.").Reasoning("Hm.").Calls(openaitest.Call{Name: "add", Args: `{"a":1}`})
	s := openaitest.New(t, turn)
	whole, _, err := model.Collect(newModel(t, s, responses).Generate(t.Context(), hi))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n += 7 {
		s := openaitest.New(t, turn.CutAfter(n))
		msg, fin, err := model.Collect(newModel(t, s, responses).Generate(t.Context(), hi))
		if err == nil {
			if msg.Text() != whole.Text() || len(msg.ToolCalls()) != 1 || fin.Reason != model.FinishToolCalls {
				t.Errorf("cut after %d bytes: %s, %v", n, msg.Text(), fin)
			}
			break
		}
		if n > 20_000 {
			t.Fatal("the answer never became complete")
		}
	}
}

// TestResponsesStreamedAndWhole gets the same answer streamed, interleaved and unstreamed.
func TestResponsesStreamedAndWhole(t *testing.T) {
	turn := openaitest.Text("Héllo, world. Ça va?").Reasoning("hm, let me think").Calls(
		openaitest.Call{Name: "add", Args: `{"a":1,"b":"x\"y\nz"}`}, openaitest.Call{Name: "sub", Args: `{"a":1,"b":2}`}).
		Usage(openaitest.Usage{Prompt: 20, Completion: 9, Cached: 8, Reasoning: 4})
	var first string
	for i, row := range []struct {
		turn openaitest.Turn
		cfg  openai.Config
	}{{turn, responses}, {turn.Interleave(), responses}, {turn, openai.Config{API: openai.APIResponses, NoStream: true}}} {
		msg, fin, err := model.Collect(newModel(t, openaitest.New(t, row.turn), row.cfg).Generate(t.Context(), hi))
		if err != nil {
			t.Fatal(err)
		}
		if fin.Reason != model.FinishToolCalls || fin.Usage != (message.Usage{Input: 20, Output: 9, Cached: 8, Reasoning: 4}) {
			t.Errorf("%d: finish %+v", i, fin)
		}
		for _, b := range msg.Blocks {
			if b, ok := b.(*message.Thinking); ok {
				b.Extra = nil // it names the server
			}
		}
		data, err := json.Marshal(msg.Blocks)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(data)
		}
		if string(data) != first {
			t.Errorf("%d: got %s, the first was %s", i, data, first)
		}
	}
}

// TestChatOfAResponsesModel: the error for a model without chat completions says what to set.
func TestChatOfAResponsesModel(t *testing.T) {
	s := openaitest.New(t, openaitest.Status(404, `{"error":{"message":"This model is only supported in v1/responses and not in v1/chat/completions.","type":"invalid_request_error"}}`))
	_, _, err := model.Collect(newModel(t, s, openai.Config{API: openai.APIChat}).Generate(t.Context(), hi))
	if err == nil || !strings.HasSuffix(err.Error(), "v1/chat/completions; set Config.API (KITBAG_API) to responses") {
		t.Error(err)
	}
}
