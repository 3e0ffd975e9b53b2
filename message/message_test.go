package message

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func TestRoundTrip(t *testing.T) {
	in := &Message{
		ID: "msg_1", Role: RoleAssistant, Name: "bot", Model: "m", Usage: &Usage{Input: 3, Output: 4, Cached: 1},
		Created: time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC),
		Blocks: Blocks{
			&Thinking{ID: "b1", Text: "hm", Extra: json.RawMessage(`{"sig":"x"}`)},
			&Text{ID: "b2", Text: "héllo <&>\n"},
			&Data{ID: "b3", MediaType: "image/png", Bytes: []byte{0, 255}, Name: "a.png"},
			&Data{URL: "https://example.org/a.png"},
			&Hint{Source: "clock", Text: "it is noon"},
			&ToolCall{ID: "c1", Name: "add", Input: json.RawMessage(`{"a":12345678901234567890}`)},
			&ToolResult{ID: "c1", Name: "add", Outcome: OutcomeSuccess, Blocks: Blocks{&Text{Text: "5"}},
				ForUser: Blocks{&Text{Text: "shown"}}, Structured: json.RawMessage(`{"sum":5}`),
				Meta: map[string]json.RawMessage{"k": json.RawMessage(`1`)}},
			&Unknown{Type: "hologram", Raw: json.RawMessage(`{"type":"hologram","depth":3}`)},
		},
	}
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out Message
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, &out) {
		t.Errorf("round trip changed the message:\n got %#v\nwant %#v\njson %s", out, in, data)
	}
}

func TestDecodeErrors(t *testing.T) {
	for _, in := range []string{`[{}]`, `[1]`, `[null]`, `{}`, `[{"type":5}]`, `[{"type":"text","text":5}]`} {
		var bs Blocks
		if err := json.Unmarshal([]byte(in), &bs); err == nil {
			t.Errorf("%s: no error, got %v", in, bs)
		}
	}
}

func TestNilBlockIsAnError(t *testing.T) {
	if _, err := json.Marshal(Blocks{nil}); err == nil {
		t.Error("a nil block was encoded")
	}
}

// FuzzBlocks checks that decoded blocks have a stable encoding, so that
// loading and saving a session does not change it.
func FuzzBlocks(f *testing.F) {
	f.Add([]byte(`[{"type":"text","text":"a"},{"type":"new","x":[1,{"y":2}]}]`))
	f.Add([]byte(`[{"type":"tool_call","id":"1","name":"n","input":{"a":1e400}}]`))
	f.Add([]byte(`[{"type":"tool_result","id":"1","name":"n","outcome":"x","blocks":[{"type":"data","bytes":"AA=="}]}]`))
	f.Add([]byte(`[{"TYPE":"text","type":"zz"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var first Blocks
		if json.Unmarshal(data, &first) != nil {
			return
		}
		once, err := json.Marshal(first)
		if err != nil {
			t.Fatalf("decoded but does not encode: %v", err)
		}
		var second Blocks
		if err := json.Unmarshal(once, &second); err != nil {
			t.Fatalf("own output does not decode: %v\n%s", err, once)
		}
		twice, err := json.Marshal(second)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(once, twice) {
			t.Fatalf("no fixed point:\n%s\n%s", once, twice)
		}
	})
}

// TestNilMessage: the methods of a nil message return nothing.
func TestNilMessage(t *testing.T) {
	var m *Message
	if m.Text() != "" || m.ToolCalls() != nil || m.ToolResults() != nil {
		t.Errorf("%q %v %v", m.Text(), m.ToolCalls(), m.ToolResults())
	}
}
