package mcpserver_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A toolkit of one tool, on standard input and output.
func Example() {
	type In struct {
		Name string `json:"name"`
	}
	greet := tool.Must(tool.New("greet", "Greets.", func(_ context.Context, in In) (string, error) {
		return "Hello, " + in.Name + "!", nil
	}))
	server, err := mcpserver.New(mcpserver.Config{
		Toolkit: toolkit.Of(greet), Name: "greeter", Version: "1.0.0",
		Policy: &permission.Policy{Rules: []permission.Rule{{Tool: "greet", Behavior: permission.Allow}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"}}}` + "\n")
	if err := server.ServeStdio(context.Background(), in, os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output: {"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"Hello, Ada!","type":"text"}]}}
}
