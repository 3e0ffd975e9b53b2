package agentotel_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/agentotel"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/toolkit"
)

// Without a Tracer and a Meter, the global ones are used.
func Example() {
	spans := tracetest.NewSpanRecorder()
	mw, err := agentotel.New(agentotel.Config{Agent: "helpdesk",
		Tracer: trace.NewTracerProvider(trace.WithSpanProcessor(spans))})
	if err != nil {
		panic(err)
	}
	a, err := agent.New(agent.Config{Model: scripted.New(scripted.Say("Good day.")), Toolkit: toolkit.Of(),
		Middleware: []agent.Middleware{mw}})
	if err != nil {
		panic(err)
	}
	if _, err := a.Reply(context.Background(), &agent.State{}, agent.Say("Hello")); err != nil {
		panic(err)
	}
	for _, s := range spans.Ended() {
		fmt.Println(s.Name())
	}
	// Output:
	// chat scripted
	// invoke_agent helpdesk
}
