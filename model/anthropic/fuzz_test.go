package anthropic_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kitbag-go/kitbag/internal/anthropictest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
)

// A bodyTransport is a transport that answers the first request with a body, and others with an
// error.
type bodyTransport struct {
	body string
	sent []byte // the second request
	n    int    // the number of requests
}

func (c *bodyTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.n++; c.n > 1 {
		c.sent, _ = io.ReadAll(req.Body)
		return nil, errSent
	}
	return &http.Response{StatusCode: 200, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(c.body)), Request: req}, nil
}

// checkSent fails for a request that the API refuses. Signatures, and the blocks of the server's
// tools, are sent back unchanged, even if they are invalid.
func checkSent(t *testing.T, body []byte) {
	t.Helper()
	err := anthropictest.Validate(body)
	if err == nil {
		return
	}
	for _, text := range []string{"signature", "_thinking", "Input tag", "Extra inputs"} {
		if strings.Contains(err.Error(), text) {
			return
		}
	}
	t.Fatalf("%v\n%s", err, body)
}

// FuzzAnswer: whatever a server sends, the answer ends with a Finish or an error, and the API
// accepts the request that continues it.
func FuzzAnswer(f *testing.F) {
	files, err := filepath.Glob("testdata/answers/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		i := slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == "answer" })
		f.Add(string(ar.Files[i].Data))
	}
	f.Fuzz(func(t *testing.T, body string) {
		c := &bodyTransport{body: body}
		m, err := anthropic.New(anthropic.Config{Model: "test", Key: "k",
			HTTPClient: &http.Client{Transport: c}})
		if err != nil {
			t.Fatal(err)
		}
		msg, _, err := model.Collect(m.Generate(context.Background(), hi))
		if c.sent != nil { // a pause is continued
			return
		}
		if _, ok := errors.AsType[*model.Error](err); err != nil && !ok {
			t.Fatal(err)
		}
		for _, call := range msg.ToolCalls() {
			if call.ID == "" {
				t.Fatal("a call has no id")
			}
		}
		req := &model.Request{System: hi.System,
			Messages: []*message.Message{hi.Messages[0], msg, providertest.Results(msg),
				message.User("more")}}
		if _, _, err := model.Collect(m.Generate(context.Background(), req)); c.sent == nil {
			t.Fatal(err)
		}
		checkSent(t, c.sent)
	})
}

// FuzzExtra: for any extra of an answer in a session file, the request is valid, except for blocks
// that only the server can check, and the texts and calls of the message are in it.
func FuzzExtra(f *testing.F) {
	const kept = `{"endpoint":"api.anthropic.com test","prefix":"","thoughts":"","blocks":`
	for _, extra := range []string{
		``, `null`, `[]`, `{}`, kept + `[]}`, kept + `[null]}`, kept + `[{}]}`,
		kept + `[{"block":{"type":"text"},"size":5},{"block":{"type":"tool_use","name":"add"}}]}`,
		kept + `[{"size":5},{"block":{"type":"text","text":1,"citations":null},"size":5},{"block":{"type":"tool_use","name":"add"}}]}`,
		kept + `[{"size":5},{"block":{"type":"tool_use","name":"add"}}]}`,
		kept + `[{"block":{"type":"text"},"size":-1},{"block":{"type":"tool_use","name":"add"}}]}`,
		kept + `[{"block":{}},{"block":{"type":"text"},"size":5},{"block":{"type":"tool_use","name":"add","caller":1}},{"block":null,"size":0}]}`,
		kept + `[{"block":{"type":"thinking","signature":1},"size":3},{"block":{"type":"text"},"size":5},{"block":{"type":"tool_use","name":"add"}},{"block":{"type":"tool_use","name":"add"}}]}`,
	} {
		f.Add([]byte(extra))
	}
	f.Fuzz(func(t *testing.T, extra []byte) {
		c := &bodyTransport{n: 1}
		m, err := anthropic.New(anthropic.Config{Model: "test", Key: "k",
			HTTPClient: &http.Client{Transport: c}})
		if err != nil {
			t.Fatal(err)
		}
		said := message.Assistant(&message.Thinking{Text: "Hm.", Extra: extra},
			&message.Text{Text: "I add"},
			&message.ToolCall{ID: "c1", Name: "add", Input: json.RawMessage(`{"a":1}`)})
		req := &model.Request{System: hi.System,
			Messages: []*message.Message{hi.Messages[0], said, providertest.Results(said)}}
		if _, _, err := model.Collect(m.Generate(context.Background(), req)); c.sent == nil {
			t.Fatal(err)
		}
		for _, part := range []string{"I add", `{"a":1}`, `"c1"`} {
			if !strings.Contains(string(c.sent), part) {
				t.Fatalf("%s is missing: %s", part, c.sent)
			}
		}
		checkSent(t, c.sent)
	})
}
