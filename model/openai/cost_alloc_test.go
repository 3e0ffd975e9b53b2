package openai

import (
	"net/http"
	"testing"

	"github.com/kitbag-go/kitbag/internal/budget"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// TestCostOfEncoding limits the cost of a request that adds one message to a conversation.
func TestCostOfEncoding(t *testing.T) {
	const steps = 100
	m := testModel(t)
	tools, _ := benchTools(100)
	all := chat(100 + steps)
	budget.Hold(t, budget.Cost{Allocs: 12, Bytes: 2300}, steps, func() {
		msgs := make([]*message.Message, len(all)) // copies, so that the history does not know them
		for i, m := range all {
			again := *m
			msgs[i] = &again
		}
		for i := range steps {
			if _, _, err := m.encode(m.protocol.Load(), &model.Request{System: "s", Messages: msgs[:100+i], Tools: tools, Digest: "d"}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestCostOfCall limits the cost of a model call with a tool call, without the network.
func TestCostOfCall(t *testing.T) {
	m, _ := cannedModel(t, textStream(3, argsEvent))
	tools, _ := benchTools(10)
	req := &model.Request{Messages: []*message.Message{globalMessage}, Tools: tools, Digest: "d"}
	budget.Hold(t, budget.Cost{Allocs: 42, Bytes: 4730}, 1, func() { drain(t, m, req) })
}

// TestCostOfToken limits the cost of one token of a streamed answer.
func TestCostOfToken(t *testing.T) {
	const tokens = 1000
	want := map[string]budget.Cost{
		"text": {Allocs: 2.1, Bytes: 30}, "padded text": {Allocs: 2.1, Bytes: 30}, "escapes": {Allocs: 2.1, Bytes: 36},
		"reasoning": {Allocs: 3.1, Bytes: 70}, "arguments": {Allocs: 2.1, Bytes: 140},
	}
	for _, row := range countedStreams {
		t.Run(row.name, func(t *testing.T) {
			m, _ := cannedModel(t, textStream(tokens, row.event))
			budget.Hold(t, want[row.name], tokens, func() { drain(t, m, &model.Request{Messages: []*message.Message{globalMessage}}) })
		})
	}
}

// TestCostOfUnstreamed limits the cost of an answer that is not streamed.
func TestCostOfUnstreamed(t *testing.T) {
	m, _ := cannedModel(t, []byte(`{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,`+
		`"tool_calls":[{"id":"call_1","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}],"refusal":null},"logprobs":null,"finish_reason":"tool_calls"}],`+
		`"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`))
	tools, _ := benchTools(10)
	req := &model.Request{Messages: []*message.Message{globalMessage}, Tools: tools, Digest: "d"}
	budget.Hold(t, budget.Cost{Allocs: 44, Bytes: 5120}, 1, func() { drain(t, m, req) })
}

// TestCostOfResponse limits the cost of a call by the Responses API, with reasoning and a tool call in the answer.
func TestCostOfResponse(t *testing.T) {
	const reasoning = `{"id":"rs_0","type":"reasoning","summary":[],"encrypted_content":"gAAAAAB"}`
	const called = `{"id":"fc_0","type":"function_call","status":"completed","arguments":"{\"a\":1}","call_id":"call_0","name":"add"}`
	var stream []byte
	for _, event := range []string{
		`{"type":"response.created","response":{"id":"r","object":"response","status":"in_progress","model":"m","output":[],"usage":null}}`,
		`{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_0","type":"reasoning","summary":[],"encrypted_content":""}}`,
		`{"type":"response.output_item.done","output_index":0,"item":` + reasoning + `}`,
		`{"type":"response.output_item.added","output_index":1,"item":{"id":"fc_0","type":"function_call","status":"in_progress","arguments":"","call_id":"call_0","name":"add"}}`,
		`{"type":"response.function_call_arguments.delta","output_index":1,"item_id":"fc_0","delta":"{\"a\":1}"}`,
		`{"type":"response.output_item.done","output_index":1,"item":` + called + `}`,
		`{"type":"response.completed","response":{"id":"r","object":"response","status":"completed","model":"m","output":[` + reasoning + `,` + called + `],"usage":{"input_tokens":1,"output_tokens":2}}}`,
	} {
		stream = append(stream, "data: "+event+"\n\n"...)
	}
	m, err := New(Config{Model: "m", API: APIResponses, BaseURL: "http://localhost/v1", HTTPClient: &http.Client{Transport: canned{stream}}})
	if err != nil {
		t.Fatal(err)
	}
	tools, _ := benchTools(10)
	req := &model.Request{Messages: []*message.Message{globalMessage}, Tools: tools, Digest: "d"}
	budget.Hold(t, budget.Cost{Allocs: 173, Bytes: 12140}, 1, func() { drain(t, m, req) })
}
