package scripted_test

import (
	"context"
	"fmt"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
)

func Example() {
	m := scripted.New(
		scripted.Say("Let me add them.").And(scripted.Call("add", map[string]int{"a": 2, "b": 3})),
		scripted.Say("It is 5."),
	)
	ask := func(messages ...*message.Message) *message.Message {
		msg, _, err := model.Collect(m.Generate(context.Background(), &model.Request{Messages: messages}))
		if err != nil {
			panic(err)
		}
		return msg
	}
	question := message.User("What is 2+3?")
	answer := ask(question)
	call := answer.ToolCalls()[0]
	fmt.Println(answer.Text(), call.ID, call.Name, string(call.Input))

	result := &message.ToolResult{ID: call.ID, Name: call.Name, Outcome: message.OutcomeSuccess,
		Blocks: message.Blocks{&message.Text{Text: "5"}}}
	fmt.Println(ask(question, answer, &message.Message{Role: message.RoleTool, Blocks: message.Blocks{result}}).Text())
	// Output:
	// Let me add them. call_1 add {"a":2,"b":3}
	// It is 5.
}
