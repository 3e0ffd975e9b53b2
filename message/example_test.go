package message_test

import (
	"encoding/json"
	"fmt"

	"github.com/kitbag-go/kitbag/message"
)

func Example() {
	m := message.Assistant(
		&message.Text{Text: "I will add them."},
		&message.ToolCall{ID: "call_1", Name: "add", Input: json.RawMessage(`{"a":2,"b":3}`)},
	)
	for _, call := range m.ToolCalls() {
		fmt.Println(call.Name, string(call.Input))
	}
	data, _ := json.Marshal(m.Blocks)
	fmt.Println(string(data))
	// Output:
	// add {"a":2,"b":3}
	// [{"type":"text","text":"I will add them."},{"type":"tool_call","id":"call_1","name":"add","input":{"a":2,"b":3}}]
}
