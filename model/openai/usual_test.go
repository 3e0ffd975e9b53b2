package openai

import (
	"reflect"
	"testing"
)

// usualChunks are what OpenAI, vLLM and DeepSeek stream in the middle of an
// answer, at its edges, and beside a call.
var usualChunks = []string{
	`{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"aB"}`,
	`{"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"content": "tok"}, "finish_reason": null}]}`,
	`{"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":null,"reasoning_content":"so \"on\"\n"}}]}`,
	`{"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":3,"id":"call_1","type":"function","function":{"name":"add","arguments":""}}]},"finish_reason":null}]}`,
	`{"id":"c1","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":1"}}]}}]}`,
	`{"id":"c1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
	`{"id":"c1","model":"m","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":2,"accepted_prediction_tokens":0}}}`,
	`{"id":"c1","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"one\nline","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}]}`,
	`{"id":"c1","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"add","arguments":"{}"}},{"id":"call_2","type":"function","function":{"name":"sub","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}]}`,
}

// TestUsual: what servers mostly send is read without encoding/json.
func TestUsual(t *testing.T) {
	var u usual
	for _, payload := range usualChunks {
		if u.decode([]byte(payload)) == nil {
			t.Errorf("left to encoding/json: %s", payload)
		}
		checkUsual(t, &u, []byte(payload))
	}
	n := testing.AllocsPerRun(100, func() {
		for _, payload := range usualChunks {
			u.decode([]byte(payload))
		}
	})
	if limit := 30.0; n > limit { // most of them strings
		t.Errorf("%v allocations for %d chunks, want at most %v", n, len(usualChunks), limit)
	}
}

// checkUsual fails if a payload that is read as usual means something else to
// encoding/json.
func checkUsual(t *testing.T, u *usual, payload []byte) {
	t.Helper()
	got := u.decode(payload)
	if got == nil {
		return
	}
	var want chunk
	if err := want.decode(payload); err != nil {
		t.Fatalf("%q was read, which encoding/json refuses: %v", payload, err)
	}
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("%q\n got %+v\nwant %+v", payload, *got, want)
	}
}

// FuzzUsual compares with encoding/json whatever is read as usual.
func FuzzUsual(f *testing.F) {
	for _, payload := range usualChunks {
		f.Add([]byte(payload))
	}
	for _, payload := range []string{
		`{"choices":[{"delta":{"content":"a"},"message":{"content":"b"}}]}`, `{"choices":[{"message":{"content":"a"},"message":null}]}`,
		`{"choices":[{"message":{"content":"\x","annotations":[1]}}]}`, `{"choices":[{"message":{"tool_calls":[{"id":"a"},{"index":1},null]}}]}`,
		`{"choices":[{"delta":{"content":"a"}},{"index":1}]}`, `{"ID":"x","choices":[]}`, `{"id":"a","id":null,"choices":[{"index":01}]}`,
		`{"choices":[{"delta":null}],"usage":{}} x`, `{"model":"\ud800","choices":[{"delta":{"content":"\x"}}]}`, "{\"id\":\"\xff\"}",
	} {
		f.Add([]byte(payload))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		checkUsual(t, &usual{id: "c1", model: "m"}, payload)
		checkUsual(t, &usual{id: "c1", model: "m", slabs: new(slabs)}, payload)
	})
}
