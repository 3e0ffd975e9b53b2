package mcpclient_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/tool"
)

func Example() {
	// Usually a command such as npx; here the test binary, which can be a
	// server too.
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	c, err := mcpclient.New("demo", mcpclient.Command{Path: exe, Env: map[string]string{"KITBAG_MCPCLIENT_TEST_ROLE": "demo"}},
		&mcpclient.Options{IncludeTools: []string{"add"}})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	tools, err := c.Tools(ctx)
	if err != nil {
		panic(err)
	}
	add := tools[0]
	fmt.Println(add.Info().Name)
	call := tool.Call{ID: "1", Name: add.Info().Name, Input: json.RawMessage(`{"a":2,"b":3}`)}
	result := tool.NewCollector(call)
	for chunk, err := range tool.Run(ctx, add, call) {
		if err != nil {
			panic(err)
		}
		result.Add(chunk)
	}
	fmt.Println(result.Result().Text())
	// Output:
	// mcp__demo__add
	// 5
}

// A program calls one tool by its name.
func ExampleClient_Call() {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	c, err := mcpclient.New("demo", mcpclient.Command{Path: exe, Env: map[string]string{"KITBAG_MCPCLIENT_TEST_ROLE": "demo"}}, nil)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	result, err := c.Call(context.Background(), "add", map[string]int{"a": 2, "b": 3})
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Outcome, result.Text())
	// Output: success 5
}

func ExampleLoad() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, ".mcp.json")
	err = os.WriteFile(file, []byte(`{"mcpServers": {
		"files":  {"command": "npx", "args": ["-y", "server-filesystem", "${NOT_SET:-/srv}"]},
		"remote": {"type": "http", "url": "https://example.com/mcp"},
		"broken": {"type": "pigeon", "url": "https://example.com/mcp"},
	}}`), 0o600)
	if err != nil {
		panic(err)
	}
	servers, err := mcpclient.Load(file)
	for _, s := range servers {
		switch t := s.Transport.(type) {
		case mcpclient.Command:
			fmt.Println(s.Name, t.Path, t.Args)
		case mcpclient.HTTP:
			fmt.Println(s.Name, t.URL)
		}
	}
	fmt.Println("broken:", err != nil)
	// Output:
	// files npx [-y server-filesystem /srv]
	// remote https://example.com/mcp
	// broken: true
}
