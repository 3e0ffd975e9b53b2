package toolkit_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type queryIn struct {
	SQL string `json:"sql"`
}

func Example() {
	query := tool.Must(tool.New("query", "Runs a query. It only reads.",
		func(context.Context, queryIn) (string, error) { return "1 row", nil }))
	tk, err := toolkit.New(toolkit.Config{
		Groups: []toolkit.Group{{Name: "database", Description: "Questions about orders.",
			Instructions: "Amounts are in cents.", Tools: []tool.Tool{query}}},
	})
	if err != nil {
		panic(err)
	}

	ctx, scope := context.Background(), new(toolkit.Scope)
	view, err := tk.View(ctx, scope)
	if err != nil {
		panic(err)
	}
	_, _, err = view.Resolve(ctx, "query", nil)
	fmt.Println(err)

	// The model opens the group, and sees the tool at its next step.
	reset, args, err := view.Resolve(ctx, "reset_tools", json.RawMessage(`{"database": true}`))
	if err != nil {
		panic(err)
	}
	for c := range tool.Run(ctx, reset, tool.Call{Name: "reset_tools", Input: args}) {
		fmt.Println(c.Block.(*message.Text).Text)
	}
	if view, err = tk.View(ctx, scope); err != nil {
		panic(err)
	}
	for _, info := range view.Tools() {
		fmt.Println(info.Name)
	}
	// Output:
	// tool "query" is in the group "database", which is closed: call reset_tools with {"database":true} first
	// Open now: database.
	//
	// <group name="database">
	// - query: Runs a query.
	// Amounts are in cents.
	// </group>
	// reset_tools
	// query
}
