package openai

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	openai "github.com/sashabaranov/go-openai"
)

// canned is a transport that reads each request and answers it with the same bytes.
type canned struct{ answer []byte }

func (c canned) RoundTrip(req *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body: io.NopCloser(bytes.NewReader(c.answer)), Request: req}, nil
}

func cannedModel(b testing.TB, answer []byte) (*Model, *openai.Client) {
	client := &http.Client{Transport: canned{answer}}
	m, err := New(Config{Model: "m", BaseURL: "http://localhost/v1", HTTPClient: client})
	if err != nil {
		b.Fatal(err)
	}
	cfg := openai.DefaultConfig("")
	cfg.BaseURL, cfg.HTTPClient = "http://localhost/v1", client
	return m, openai.NewClientWithConfig(cfg)
}

// compare runs ours and theirs in turn and reports the ratios of their times
// and allocations.
func compare(b *testing.B, ours, theirs func()) {
	var t1, t2 time.Duration
	for b.Loop() {
		start := time.Now()
		ours()
		middle := time.Now()
		theirs()
		t1, t2 = t1+middle.Sub(start), t2+time.Since(middle)
	}
	b.ReportMetric(float64(t1.Nanoseconds())/float64(b.N), "ours-ns")
	b.ReportMetric(float64(t2.Nanoseconds())/float64(b.N), "theirs-ns")
	b.ReportMetric(float64(t1)/float64(t2), "time-ratio")
	b.ReportMetric(testing.AllocsPerRun(20, ours)/testing.AllocsPerRun(20, theirs), "allocs-ratio")
	b.ReportMetric(0, "ns/op")
}

func drain(b testing.TB, m *Model, req *model.Request) {
	for _, err := range m.Generate(context.Background(), req) {
		if err != nil {
			b.Fatal(err)
		}
	}
}

func drainSDK(b *testing.B, client *openai.Client, req openai.ChatCompletionRequest) {
	s, err := client.CreateChatCompletionStream(context.Background(), req)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for err == nil {
		_, err = s.Recv()
	}
	if err != io.EOF {
		b.Fatal(err)
	}
}

// BenchmarkStream compares reading a streamed answer of 1000 deltas, without a network, with
// go-openai's reader.
func BenchmarkStream(b *testing.B) {
	for _, row := range countedStreams {
		b.Run(row.name, func(b *testing.B) {
			m, sdk := cannedModel(b, textStream(1000, row.event))
			compare(b,
				func() { drain(b, m, &model.Request{Messages: []*message.Message{globalMessage}}) },
				func() {
					drainSDK(b, sdk, openai.ChatCompletionRequest{Model: "m", Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "hi"}}})
				})
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

// BenchmarkStep compares one step of a conversation: a request that adds two
// messages to the earlier ones, and an answer of ten deltas.
func BenchmarkStep(b *testing.B) {
	for _, size := range []struct{ messages, tools int }{{20, 1}, {200, 1}, {20, 100}, {20, 1000}} {
		b.Run(fmt.Sprintf("messages=%d/tools=%d", size.messages, size.tools), func(b *testing.B) {
			m, sdk := cannedModel(b, textStream(10, plainEvent))
			tools, sdkTools := benchTools(size.tools)
			start := chat(size.messages)
			var sdkStart []openai.ChatCompletionMessage
			for _, m := range start {
				sdkStart = append(sdkStart, openai.ChatCompletionMessage{Role: "user", Content: m.Text()})
			}
			msgs, sdkMsgs := start, sdkStart
			compare(b,
				func() {
					if msgs = append(msgs, message.User("and"), message.Assistant(&message.Text{Text: "so on"})); len(msgs) > size.messages+20 {
						msgs = slices.Clip(start)
					}
					drain(b, m, &model.Request{Messages: msgs, Tools: tools, Digest: "d"})
				},
				func() {
					if sdkMsgs = append(sdkMsgs, openai.ChatCompletionMessage{Role: "user", Content: "and"},
						openai.ChatCompletionMessage{Role: "assistant", Content: "so on"}); len(sdkMsgs) > size.messages+20 {
						sdkMsgs = slices.Clip(sdkStart)
					}
					drainSDK(b, sdk, openai.ChatCompletionRequest{Model: "m", Messages: sdkMsgs, Tools: sdkTools})
				})
		})
	}
}
