package openai_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/tool"
)

// A request is a model.Request and the relevant part of a Config
// in a test file. SERVER is replaced with the server's host.
type request struct {
	Allow       []string // members that the server accepts in addition to OpenAI's
	NoStream    bool
	ConfigExtra map[string]json.RawMessage

	System      string
	Messages    []*message.Message
	Tools       []tool.Info
	Choice      model.ToolChoice
	MaxTokens   int
	Temperature *float64
	Output      *model.OutputSchema
	Extra       map[string]json.RawMessage
}

// TestRequests sends the requests in testdata/requests to a strict server and
// compares the bytes it receives. If no request may be sent, "want" is
// the error.
func TestRequests(t *testing.T) {
	providertest.Archives(t, "testdata/requests", 35, func(t *testing.T, part func(string) string) string {
		s := openaitest.Serve(openaitest.Always(openaitest.Text("ok")))
		defer s.Close()
		r := decodeRequest(t, strings.ReplaceAll(part("request"), "SERVER", host(s)))
		m := newModel(t, s.Allow(r.Allow...), openai.Config{NoStream: r.NoStream, Extra: r.ConfigExtra})
		_, _, err := model.Collect(m.Generate(t.Context(), &model.Request{System: r.System, Messages: r.Messages, Tools: r.Tools,
			Choice: r.Choice, MaxTokens: r.MaxTokens, Temperature: r.Temperature, Output: r.Output, Extra: r.Extra}))
		for _, fault := range s.Faults() {
			t.Error(fault)
		}
		sent := s.Requests()
		if len(sent) == 0 {
			return fmt.Sprintf("none sent: %v\n", err)
		}
		var b bytes.Buffer
		if err := json.Indent(&b, sent[0].Body, "", " "); err != nil {
			t.Fatal(err)
		}
		return b.String() + "\n"
	})
}

func decodeRequest(t *testing.T, data string) *request {
	r := new(request)
	dec := json.NewDecoder(strings.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(r); err != nil {
		t.Fatal(err)
	}
	return r
}
