package model_test

import (
	"context"
	"fmt"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/model/scripted"
)

func Example() {
	// The first server is down; the second answers.
	first := scripted.New(scripted.Fail(&model.Error{Kind: model.KindUpstream, Message: "out of order"}))
	second := scripted.New(scripted.Say("Hello!"))
	m := middleware.Fallback([]model.Model{middleware.Retry(first, middleware.RetryConfig{Retries: -1}), second}, middleware.FallbackConfig{})

	msg, fin, err := model.Collect(m.Generate(context.Background(), &model.Request{
		Messages: []*message.Message{message.User("Hi")},
	}))
	fmt.Println(msg.Text(), fin.Reason, err)
	// Output: Hello! stop <nil>
}
