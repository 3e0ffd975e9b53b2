package openai

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/message"
	"pgregory.net/rapid"
)

// someChunks are chunks as OpenAI, vLLM and DeepSeek send them, and edge cases.
var someChunks = []string{
	`{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"aB"}`,
	`{"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"content": "tok"}, "finish_reason": null}]}`,
	`{"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":null,"reasoning_content":"so \"on\"\n"}}]}`,
	`{"id":"c1","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":3,"id":"call_1","type":"function","function":{"name":"add","arguments":""}}]},"finish_reason":null}]}`,
	`{"id":"c1","model":"m","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":2}}}`,
	`null`, `{"choices":[{"message":{"content":"\x","annotations":[1]}}]}`, `{"choices":[{"index":01}]}`, `{"choices":[{"index":-0}]}`, `[1,]`, `{"a":1,}`, `{"a"}`,
	`{"choices":[{"delta":null}],"usage":{}} x`, `{"model":"\ud800","choices":null}`, "{\"id\":\"\xff\"}", `{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"text":"hm"}]}]}}]}`,
}

// FuzzChunk checks that decode accepts the same texts as encoding/json.
func FuzzChunk(f *testing.F) {
	for _, payload := range someChunks {
		f.Add([]byte(payload))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		var c chunk
		if valid, _ := c.decode(payload); valid != json.Valid(payload) {
			t.Errorf("%q: valid is %v", payload, valid)
		}
	})
}

// someEvents are events of the Responses API, and edge cases.
var someEvents = []string{
	`{"type":"response.created","response":{"id":"r","model":"m","status":"in_progress","error":null,"incomplete_details":null,"output":[],"usage":null,"metadata":{}}}`,
	`{"type":"response.output_item.added","output_index":1,"item":{"id":"fc_0","type":"function_call","arguments":"","call_id":"c","name":"add"}}`,
	`{"type":"response.content_part.done","item_id":"m_0","content_index":0,"part":{"type":"output_text","text":"so \"on\"","annotations":[]}}`,
	`{"type":"response.completed","response":{"id":"r","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[{"type":"reasoning"}],"usage":{"input_tokens":1,"input_tokens_details":{"cached_tokens":1}}}}`,
	`null`, `1`, `[]`, `{"output_index":"0"}`, `{"output_index":1e1}`, `{"item_id":3}`, `{"part":[]}`, `{"part":{"text":1}}`, `{"response":""}`, `{"response":{"output":{}}}`,
	`{"response":{"usage":[]}}`, `{"response":{"incomplete_details":{"reason":0}}}`, `{"delta":`, `{"text":"\x"}`, `{"output_index":}`, `{"type":"a"} x`, "{\"text\":\"\xff\"}", `{"choices":null,"delta":null}`,
}

// FuzzEvent checks that decode accepts the same texts as encoding/json, and that it finds the same in those with the right types.
func FuzzEvent(f *testing.F) {
	for _, payload := range someEvents {
		f.Add([]byte(payload))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		var got responseEvent
		valid, matches := got.decode(payload)
		if valid != json.Valid(payload) {
			t.Fatalf("%q: valid is %v", payload, valid)
		}
		var members map[string]any
		if json.Unmarshal(payload, &members) != nil || !matches {
			return
		}
		text := func(name string) string { s, _ := members[name].(string); return s }
		if got.Type != text("type") || got.ItemID != text("item_id") || got.Text != text("text") || jsonString(got.Delta) != text("delta") {
			t.Errorf("%q was read as %+v", payload, got)
		}
		if n, ok := members["output_index"].(float64); ok != (got.OutputIndex != nil) || ok && n < 1<<53 && n > -1<<53 && float64(*got.OutputIndex) != n {
			t.Errorf("%q: output_index is %v", payload, got.OutputIndex)
		}
		if item, ok := members["item"].(map[string]any); ok && len(item) != len(membersOf(got.Item)) {
			t.Errorf("%q: the item is %s", payload, got.Item)
		}
		if body, ok := members["response"].(map[string]any); ok != (got.Response != nil) || ok && body["id"] != nil && body["id"] != got.Response.ID {
			t.Errorf("%q: the response is %+v", payload, got.Response)
		}
	})
}

// FuzzFrame checks that reading a payload with a frame has the same result as decoding it.
func FuzzFrame(f *testing.F) {
	for _, payload := range someChunks {
		for _, text := range []string{"x", "", `\n`, `"`, `\`, "é", "\xff"} {
			f.Add([]byte(payload), []byte(strings.Replace(payload, "tok", text, 1)))
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var c, want chunk
		if valid, object := c.decode(first); !valid || !object {
			return
		}
		var fr frame
		fr.keep(&c, first)
		text, ok := fr.content(second)
		if !ok {
			return
		}
		if valid, object := want.decode(second); !valid || !object {
			t.Fatalf("%q was read after %q", second, first)
		}
		d := &c.Choices[0].Delta
		d.Content, d.to = text, d.from+len(text)
		if !reflect.DeepEqual(c, want) {
			t.Errorf("%q after %q\n got %+v\nwant %+v", second, first, c, want)
		}
	})
}

// TestChunks decodes chunks with random content and indentation.
func TestChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "a", "é京🚀", "\"\\/\b\f\n\r\t\x00\x1f\u2028", "{[,:]}", strings.Repeat("x", 300)})
		count := rapid.IntRange(-1, 1<<40)
		junk := rapid.SampledFrom([]any{nil, 1.5e9, true, "x\"", []any{}, map[string]any{"id": "y", "choices": []any{1, nil, "]"}}})
		draw := func(name string) string { return text.Draw(t, name) }
		var want chunk
		want.ID, want.Model = draw("id"), draw("model")
		choices := []any{}
		for i := range rapid.IntRange(0, 2).Draw(t, "choices") {
			c := choice{Index: i, FinishReason: draw("finish")}
			c.Delta = delta{Content: draw("content"), Refusal: draw("refusal"), Reasoning: draw("reasoning")}
			calls := []any{}
			for range rapid.IntRange(0, 2).Draw(t, "calls") {
				d := callDelta{Index: count.Draw(t, "index"), ID: draw("call"), Name: draw("name"), Args: draw("args")}
				c.Delta.ToolCalls = append(c.Delta.ToolCalls, d)
				calls = append(calls, map[string]any{"index": d.Index, "id": d.ID, "type": "function", "function": map[string]any{"name": d.Name, "arguments": d.Args, "x": junk.Draw(t, "junk")}})
			}
			want.Choices = append(want.Choices, c)
			choices = append(choices, map[string]any{"index": i, "finish_reason": c.FinishReason, "logprobs": junk.Draw(t, "junk"),
				"delta": map[string]any{"content": c.Delta.Content, "refusal": c.Delta.Refusal, "reasoning": c.Delta.Reasoning, "tool_calls": calls, "role": junk.Draw(t, "junk")}})
		}
		want.Usage = message.Usage{Input: count.Draw(t, "input"), Output: count.Draw(t, "output"), Cached: max(0, count.Draw(t, "cached"))}
		data, err := json.MarshalIndent(map[string]any{"id": want.ID, "model": want.Model, "choices": choices, "created": junk.Draw(t, "junk"),
			"usage": map[string]any{"prompt_tokens": want.Usage.Input, "completion_tokens": want.Usage.Output, "prompt_tokens_details": map[string]any{"cached_tokens": want.Usage.Cached}},
		}, "", rapid.SampledFrom([]string{"", " ", "\t"}).Draw(t, "indent"))
		if err != nil {
			t.Fatal(err)
		}
		var got chunk
		if valid, object := got.decode(data); !valid || !object {
			t.Fatalf("%v, %v: %s", valid, object, data)
		}
		for i := range got.Choices {
			got.Choices[i].Delta.from, got.Choices[i].Delta.to = 0, 0
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\n got %+v\nwant %+v", data, got, want)
		}
	})
}
