package host_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
)

// person is a host that gives the same answer to every form.
type person struct{ size string }

func (p *person) Elicit(_ context.Context, q host.Elicitation) (host.Answer, error) {
	fmt.Printf("%s asks: %s\n", q.Server, q.Message)
	return q.Accept(map[string]any{"size": p.size})
}

func (p *person) Sample(context.Context, host.SampleRequest) (host.Sample, error) {
	return host.Sample{}, fmt.Errorf("%w: there is no model here", host.ErrRefused)
}

// A tool that asks the user for a missing argument.
func Example() {
	schema := json.RawMessage(`{"type":"object","properties":{"size":{"type":"string","enum":["S","M","L"]}},"required":["size"]}`)
	order := tool.Must(tool.New("order", "Orders a shirt.", func(ctx context.Context, _ struct{}) (string, error) {
		h := host.From(ctx)
		if h == nil {
			return "", fmt.Errorf("the size is not known, and there is no host to ask")
		}
		answer, err := h.Elicit(ctx, host.Elicitation{Server: "shop", Message: "Which size?", Schema: schema})
		if err != nil {
			return "", err
		}
		if answer.Action != host.ActionAccept {
			return "nothing was ordered", nil
		}
		return fmt.Sprintf("ordered size %v", answer.Content["size"]), nil
	}))

	for _, size := range []string{"M", "huge"} {
		ctx := host.With(context.Background(), &person{size})
		call := tool.Call{ID: "1", Name: "order", Input: json.RawMessage(`{}`)}
		result := tool.NewCollector(call)
		for ch := range tool.Run(ctx, order, call) {
			result.Add(ch)
		}
		fmt.Println(result.Result().Text())
	}
	// Output:
	// shop asks: Which size?
	// ordered size M
	// shop asks: Which size?
	// The arguments of the form do not fit its schema:
	// - size: got a string "huge", want one of "S", "M", "L"
	// A valid example: {"size": "S"}
}
