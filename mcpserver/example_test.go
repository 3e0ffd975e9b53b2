package mcpserver_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// This example serves a toolkit with one tool over standard input and output.
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

// This example serves a resource for every order, and a prompt that begins with one, in addition to tools.
func ExampleConfig() {
	orders := mcpserver.Resource{
		URI: "orders://{id}", Name: "order", MediaType: "application/json",
		Read: func(_ context.Context, _ string, vars map[string]string) ([]byte, error) {
			if vars["id"] != "7" {
				return nil, fmt.Errorf("order %s: %w", vars["id"], fs.ErrNotExist)
			}
			return []byte(`{"item":"shirt"}`), nil
		},
	}
	complain := mcpserver.Prompt{
		Name: "complain", Description: "Write to the shop about an order.",
		Arguments: []mcpserver.Argument{{Name: "order", Required: true}},
		Get: func(_ context.Context, args map[string]string) ([]*message.Message, error) {
			return []*message.Message{message.User("Write a friendly complaint about order " + args["order"] + ".")}, nil
		},
	}
	server, err := mcpserver.New(mcpserver.Config{
		Toolkit: toolkit.Of(), Name: "shop", Version: "1.0.0",
		Prompts: []mcpserver.Prompt{complain}, Resources: []mcpserver.Resource{orders},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	for _, request := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"orders://7"}}`,
		`{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"orders://8"}}`,
		`{"jsonrpc":"2.0","id":3,"method":"prompts/get","params":{"name":"complain","arguments":{"order":"7"}}}`,
	} {
		if err := server.ServeStdio(context.Background(), strings.NewReader(request), os.Stdout); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"contents":[{"mimeType":"application/json","text":"{\"item\":\"shirt\"}","uri":"orders://7"}]}}
	// {"jsonrpc":"2.0","id":2,"error":{"code":-32002,"message":"unknown resource \"orders://8\"","data":{"uri":"orders://8"}}}
	// {"jsonrpc":"2.0","id":3,"result":{"description":"Write to the shop about an order.","messages":[{"content":{"text":"Write a friendly complaint about order 7.","type":"text"},"role":"user"}]}}
}
