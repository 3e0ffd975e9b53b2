package anthropic_test

import (
	"context"
	"fmt"

	"github.com/anthropics/anthropic-sdk-go/bedrock"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/anthropic/anthropictest"
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

// A model on Amazon Bedrock, with the credentials and the region of the environment. For Google Vertex AI
// the option is vertex.WithGoogleAuth(ctx, "global", "my-project").
func ExampleConfig_bedrock() {
	m, err := anthropic.New(anthropic.Config{
		Model:   "anthropic.claude-opus-5-5",
		Options: []option.RequestOption{bedrock.WithLoadDefaultConfig(context.Background())},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = m
}
