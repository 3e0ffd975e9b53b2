package anthropic_test

import (
	"context"
	"fmt"

	"github.com/kitbag-go/kitbag/internal/anthropictest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
)

func Example() {
	// A test server, so that the example runs offline.
	server := anthropictest.Serve(anthropictest.Text("It is 5."))
	defer server.Close()

	m, err := anthropic.New(anthropic.Config{Model: "claude-opus-5-5", BaseURL: server.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer := m.Generate(context.Background(), &model.Request{
		System:   "Answer briefly.",
		Messages: []*message.Message{message.User("What is 2+3?")},
	})
	for chunk, err := range answer {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch chunk := chunk.(type) {
		case *model.TextDelta:
			fmt.Print(chunk.Text)
		case *model.Finish:
			fmt.Printf(" [%s, %d tokens]\n", chunk.Reason, chunk.Usage.Input+chunk.Usage.Output)
		}
	}
	// Output: It is 5. [stop, 15 tokens]
}
