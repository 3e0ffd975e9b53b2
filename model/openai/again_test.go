package openai_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/tool"
)

// TestOtherProtocol asks servers without saying which protocol they have.
func TestOtherProtocol(t *testing.T) {
	const chat, responses = "/v1/chat/completions", "/v1/responses"
	for _, row := range []struct {
		why    string
		refuse map[string]string // path to status and text
		cfg    openai.Config
		asks   int
		paths  string // of the requests
		want   string // the error of the last; "" for none
	}{
		{"has chat completions", nil, openai.Config{}, 2, "c c", ""},
		{"has the Responses API only", map[string]string{chat: "404 Not Found"}, openai.Config{}, 3, "c r r r", ""},
		{"does not allow the method", map[string]string{chat: "405 Method Not Allowed"}, openai.Config{}, 1, "c r", ""},
		{"the model is missing", map[string]string{chat: `404 model "test" not found, try pulling it first`}, openai.Config{}, 2, "c c", "try pulling it first"},
		{"refuses and names the other", map[string]string{chat: "400 Function tools with reasoning_effort are not supported in /v1/chat/completions. Please use /v1/responses instead."},
			openai.Config{}, 2, "c r r", ""},
		{"has neither", map[string]string{chat: "404 Not Found", responses: "404 404 page not found"}, openai.Config{}, 2, "c r c r",
			"has neither /chat/completions nor /responses (404 page not found); check Config.BaseURL (OPENAI_BASE_URL), which usually ends in /v1"},
		{"has the Responses API only, and it refuses the request", map[string]string{chat: "404 Not Found", responses: "400 temperature is wrong"}, openai.Config{}, 2, "c r r", "temperature is wrong"},
		{"has the Responses API only, and the key is wrong", map[string]string{chat: "404 Not Found", responses: "401 wrong key"}, openai.Config{}, 2, "c r c r", "wrong key"},
		{"the configuration says chat", map[string]string{chat: "404 Not Found"}, openai.Config{API: openai.APIChat}, 1, "c", "Not Found"},
		{"the configuration says responses", map[string]string{responses: "404 Not Found"}, openai.Config{API: openai.APIResponses}, 1, "r",
			"set Config.API (KITBAG_API) to chat"},
	} {
		s := openaitest.Serve(openaitest.Always(openaitest.Text("yes")))
		var paths []string
		s.Refuse(func(path string, _ []byte) (status int, text string) {
			paths = append(paths, map[string]string{chat: "c", responses: "r"}[path])
			if refusal := row.refuse[path]; refusal != "" {
				fmt.Sscan(refusal, &status)
				return status, refusal[4:]
			}
			return 0, ""
		})
		m := newModel(t, s, row.cfg)
		var err error
		for range row.asks {
			_, _, err = model.Collect(m.Generate(t.Context(), hi))
		}
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.why, err, row.want)
		}
		if got := strings.Join(paths, " "); got != row.paths {
			t.Errorf("%s: asked %s, want %s", row.why, got, row.paths)
		}
		s.Close()
	}
}

// TestExpiredReasoning: reasoning that the server can no longer read is left out of this and all later requests, and the
// retry is reported.
func TestExpiredReasoning(t *testing.T) {
	for _, words := range []string{
		"The encrypted content for item rs_r1 could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
		"Item with id 'rs_r1' not found. Items are not persisted when `store` is set to false.",
	} {
		think := openaitest.Calls(openaitest.Call{ID: "c1", Name: "add", Args: `{}`}).Reasoning("Hm.")
		s := openaitest.New(t, think, openaitest.Text("It is 2.").Reasoning("So."), openaitest.Text("It is 3."), openaitest.Text("It is 4."))
		var retries []string
		m := middleware.Retry(newModel(t, s, openai.Config{API: openai.APIResponses}), middleware.RetryConfig{
			OnRetry: func(try int, wait time.Duration, err error) { retries = append(retries, fmt.Sprint(try, wait, err)) }})
		said := []*message.Message{message.User("hi")}
		ask := func() {
			t.Helper()
			msg, _, err := model.Collect(m.Generate(t.Context(), &model.Request{Messages: said, Tools: []tool.Info{providertest.Tool("add")}, Digest: "d"}))
			if err != nil {
				t.Fatal(err)
			}
			said = append(slices.Clip(said), msg)
			if calls := msg.ToolCalls(); len(calls) > 0 {
				said = append(said, &message.Message{Role: message.RoleTool, Blocks: message.Blocks{&message.ToolResult{ID: calls[0].ID, Name: "add"}}})
			} else {
				said = append(said, message.User("And?"))
			}
		}
		ask()
		ask()
		s.Refuse(func(_ string, body []byte) (int, string) { // the reasoning of the first answer has expired
			if strings.Contains(string(body), "encrypted-rs_r1") {
				return 400, words
			}
			return 0, ""
		})
		ask()
		ask()
		if len(retries) != 1 || !strings.Contains(retries[0], words[:20]) {
			t.Errorf("retries %q", retries)
		}
		sent := s.Requests()
		if len(sent) != 5 {
			t.Errorf("%d requests", len(sent))
		}
		if last := string(sent[len(sent)-1].Body); strings.Contains(last, "encrypted-rs_r1") || !strings.Contains(last, "It is 3.") {
			t.Errorf("the last request is %s", last)
		}
	}
}

// TestExpiredForGood: if leaving out the reasoning does not help, the error has the remedy.
func TestExpiredForGood(t *testing.T) {
	s := openaitest.New(t, openaitest.Text("yes").Reasoning("Hm."))
	m := newModel(t, s, openai.Config{API: openai.APIResponses})
	msg, _, err := model.Collect(m.Generate(t.Context(), hi))
	if err != nil {
		t.Fatal(err)
	}
	s.Refuse(func(string, []byte) (int, string) { return 400, "The encrypted content could not be verified." })
	_, _, err = model.Collect(m.Generate(context.Background(), &model.Request{Messages: append(hi.Messages[:1:1], msg, message.User("And?"))}))
	if err == nil || !strings.HasSuffix(err.Error(), "could not be verified; the reasoning in the conversation is too old, or from another organization or model; start a new conversation") {
		t.Error(err)
	}
	if n := len(s.Requests()); n != 3 {
		t.Errorf("%d requests", n)
	}
}

// TestLateToolsRefused: a server that rejects tools in the course of a conversation gets all tools at the head from then on.
func TestLateToolsRefused(t *testing.T) {
	s := openaitest.New(t, openaitest.Text("yes"), openaitest.Text("yes"))
	s.Refuse(func(_ string, body []byte) (int, string) {
		if strings.Contains(string(body), "additional_tools") {
			return 400, "Invalid value: 'additional_tools'. Supported values are: 'message', …"
		}
		return 0, ""
	})
	m := newModel(t, s, openai.Config{API: openai.APIResponses, LateTools: new(true)})
	for range 2 {
		l := &providertest.Conversation{Messages: hi.Messages, Open: []string{"a", "b"}, Head: []tool.Info{providertest.Tool("a")}}
		if _, _, err := model.Collect(m.Generate(t.Context(), l.Request())); err != nil {
			t.Fatal(err)
		}
	}
	sent := s.Requests()
	if len(sent) != 3 || !strings.Contains(string(sent[2].Body), `"name":"b"`) || !m.Reveals() {
		t.Errorf("%d requests, the last %s", len(sent), sent[len(sent)-1].Body)
	}
}

// refusesTwice is a transport whose server refuses requests whose path or body contains text: the first after the second
// has arrived too, and the second after done is closed.
type refusesTwice struct {
	status        int
	text, refusal string
	refused       atomic.Int32
	arrived, done chan struct{}
}

func (c *refusesTwice) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(r.URL.Path+string(body), c.text) {
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		return http.DefaultTransport.RoundTrip(r)
	}
	switch c.refused.Add(1) {
	case 1:
		<-c.arrived
	case 2:
		close(c.arrived)
		<-c.done
	}
	text := fmt.Sprintf(`{"error":{"message":%q}}`, c.refusal)
	return &http.Response{StatusCode: c.status, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

// TestSimultaneousRefusals sends two requests before the server refuses the first: each is sent again.
func TestSimultaneousRefusals(t *testing.T) {
	s := openaitest.Serve(openaitest.Always(openaitest.Text("yes").Reasoning("Hm.")))
	defer s.Close()
	answer, _, err := model.Collect(newModel(t, s, openai.Config{API: openai.APIResponses}).Generate(t.Context(), hi))
	if err != nil {
		t.Fatal(err)
	}
	talk := &providertest.Conversation{Messages: hi.Messages, Open: []string{"a", "b"}, Head: []tool.Info{providertest.Tool("a")}}
	for _, row := range []struct {
		cfg           openai.Config
		req           *model.Request
		status        int
		text, refusal string
	}{
		{openai.Config{}, hi, 404, "/chat/completions", "Not Found"},
		{openai.Config{API: openai.APIResponses, LateTools: new(true)}, talk.Request(), 400, "additional_tools", "Invalid value: 'additional_tools'."},
		{openai.Config{API: openai.APIResponses}, &model.Request{Messages: append(hi.Messages[:1:1], answer, message.User("And?"))}, 400, "encrypted-rs_r1",
			"The encrypted content could not be verified."},
	} {
		server := &refusesTwice{status: row.status, text: row.text, refusal: row.refusal, arrived: make(chan struct{}), done: make(chan struct{})}
		row.cfg.HTTPClient = &http.Client{Transport: server}
		m := newModel(t, s, row.cfg)
		done := sync.OnceFunc(func() { close(server.done) })
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				defer done()
				if _, _, err := model.Collect(m.Generate(t.Context(), row.req)); err != nil {
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
