package openai

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	openai "github.com/sashabaranov/go-openai"
)

// canned answers every request with the same bytes, and reads the request.
type canned struct{ answer []byte }

func (c canned) RoundTrip(req *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body: io.NopCloser(bytes.NewReader(c.answer)), Request: req}, nil
}

func cannedModel(b *testing.B, answer []byte) (*Model, *openai.Client) {
	client := &http.Client{Transport: canned{answer}}
	m, err := New(Config{Model: "m", BaseURL: "http://localhost/v1", HTTPClient: client})
	if err != nil {
		b.Fatal(err)
	}
	cfg := openai.DefaultConfig("")
	cfg.BaseURL, cfg.HTTPClient = "http://localhost/v1", client
	return m, openai.NewClientWithConfig(cfg)
}

// BenchmarkStream compares a streamed answer of 1000 deltas with go-openai's
// own loop: what a token costs beside the network.
func BenchmarkStream(b *testing.B) {
	const n = 1000
	for _, row := range countedStreams {
		m, sdk := cannedModel(b, textStream(n, row.event))
		req := &model.Request{Messages: []*message.Message{message.User("hi")}}
		b.Run(row.name+"/kitbag", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range m.Generate(context.Background(), req) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/token")
		})
		b.Run(row.name+"/go-openai", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s, err := sdk.CreateChatCompletionStream(context.Background(), openai.ChatCompletionRequest{Model: "m",
					Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "hi"}}})
				if err != nil {
					b.Fatal(err)
				}
				for err == nil {
					_, err = s.Recv()
				}
				if err != io.EOF {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/token")
		})
	}
}

func benchTools(k int) ([]tool.Info, []openai.Tool) {
	schema := []byte(`{"type":"object","properties":{"a":{"type":"integer","description":"the first addend"},"b":{"type":"integer","description":"the second addend"}},"required":["a","b"]}`)
	var ours []tool.Info
	var theirs []openai.Tool
	for i := range k {
		t := tool.Info{Name: fmt.Sprint("tool_", i), Description: "Adds two numbers and returns their sum.", Input: schema}
		ours = append(ours, t)
		theirs = append(theirs, openai.Tool{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{
			Name: t.Name, Description: t.Description, Parameters: t.Input}})
	}
	return ours, theirs
}

// BenchmarkStep compares a step of a conversation: a request that adds two
// messages, and an answer of ten deltas.
func BenchmarkStep(b *testing.B) {
	for _, size := range []struct{ messages, tools int }{{20, 1}, {200, 1}, {20, 100}, {20, 1000}} {
		m, sdk := cannedModel(b, textStream(10, plainEvent))
		ours, theirs := benchTools(size.tools)
		name := fmt.Sprintf("messages=%d,tools=%d", size.messages, size.tools)
		b.Run(name+"/kitbag", func(b *testing.B) {
			b.ReportAllocs()
			var msgs []*message.Message
			for b.Loop() {
				if len(msgs) < size.messages || len(msgs) > size.messages+100 {
					msgs = chat(size.messages)
				}
				msgs = append(msgs, message.User("and"), message.Assistant(&message.Text{Text: "so on"}))
				for _, err := range m.Generate(context.Background(), &model.Request{Messages: msgs, Tools: ours, Digest: "d"}) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run(name+"/go-openai", func(b *testing.B) {
			b.ReportAllocs()
			var msgs []openai.ChatCompletionMessage
			for b.Loop() {
				if len(msgs) < size.messages || len(msgs) > size.messages+100 {
					msgs = nil
					for _, m := range chat(size.messages) {
						msgs = append(msgs, openai.ChatCompletionMessage{Role: "user", Content: m.Text()})
					}
				}
				msgs = append(msgs, openai.ChatCompletionMessage{Role: "user", Content: "and"}, openai.ChatCompletionMessage{Role: "assistant", Content: "so on"})
				s, err := sdk.CreateChatCompletionStream(context.Background(), openai.ChatCompletionRequest{Model: "m", Messages: msgs, Tools: theirs})
				if err != nil {
					b.Fatal(err)
				}
				for err == nil {
					_, err = s.Recv()
				}
				if err != io.EOF {
					b.Fatal(err)
				}
			}
		})
	}
}
