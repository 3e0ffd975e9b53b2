package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// flawedServer makes the test binary act as an MCP server that fails; see serveFlawed.
const flawedServer = "flawed"

type noArguments struct{}

// serveFlawed serves MCP on standard input and output, with the named tools, and does not return. The name "dead"
// ends the process at once, "mute" answers nothing, "once" starts only once, and "raw"
// is serveRaw.
func serveFlawed(names []string) {
	if slices.Contains(names, "dead") {
		fmt.Fprintln(os.Stderr, "cannot open notes.db: it is locked by another process")
		os.Exit(3)
	}
	if once := filepath.Join(os.Getenv("HOME"), "once"); slices.Contains(names, "once") {
		if _, err := os.Stat(once); err == nil {
			fmt.Fprintln(os.Stderr, "notes.db is damaged")
			os.Exit(3)
		}
		if err := os.WriteFile(once, nil, 0o600); err != nil {
			os.Exit(4)
		}
	}
	if slices.Contains(names, "raw") {
		serveRaw(names)
	}
	if slices.Contains(names, "mute") {
		time.Sleep(time.Minute)
		os.Exit(1)
	}
	var tools []tool.Tool
	for _, name := range names {
		tools = append(tools, flawedTool(name))
	}
	s, err := mcpserver.New(mcpserver.Config{Toolkit: toolkit.Of(tools...), Name: "flawed", Version: "1",
		Instructions: "Read a note before you change it.", Policy: &permission.Policy{Mode: permission.ModeBypass}})
	if err == nil {
		err = s.ServeStdio(context.Background(), os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// rawAnswers are what tools of the raw server answer: the members of a JSON-RPC message.
var rawAnswers = map[string]string{
	"null":     `"result":null`,
	"text":     `"result":"done"`,
	"neither":  `"other":1`,
	"refuses":  `"error":{"code":-32602,"message":"unknown tool"}`,
	"silent":   `"error":{"code":-32603,"message":" "}`,
	"twice":    `"result":{"content":[],"content":[{"type":"text","text":"other"}]}`,
	"changing": `"result":{"content":[]}`,
	"list":     `"result":"no list"`,
}

// serveRaw serves MCP on standard input and output with the named tools, whose answers are those of rawAnswers.
// The description of the tool changing is the content of the file mood. The name "list" breaks the list of tools.
func serveRaw(names []string) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var req struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name, ProtocolVersion string }
		}
		if json.Unmarshal(in.Bytes(), &req) != nil || req.ID == nil {
			continue
		}
		answer := `"result":{}`
		switch req.Method {
		case "initialize":
			answer = `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}`
		case "server/discover":
			answer = `"error":{"code":-32601,"message":"no such method"}`
		case "tools/list":
			mood, _ := os.ReadFile(filepath.Join(os.Getenv("HOME"), "mood"))
			var tools []any
			for _, name := range names[1:] {
				tools = append(tools, map[string]any{"name": name, "description": "A tool. " + string(mood), "inputSchema": map[string]string{"type": "object"}})
			}
			list, _ := json.Marshal(map[string]any{"tools": tools})
			if answer = `"result":` + string(list); slices.Contains(names, "list") {
				answer = rawAnswers["list"]
			}
		case "tools/call":
			if req.Params.Name == "exit" {
				os.Exit(3)
			}
			answer = rawAnswers[req.Params.Name]
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,%s}`+"\n", req.ID, answer)
	}
	os.Exit(0)
}

// flawedTool returns the tool of a name.
func flawedTool(name string) tool.Tool {
	description, readOnly := "Says its name.", strings.HasPrefix(name, "read_") || strings.HasPrefix(name, "list_")
	run := func(context.Context) (string, error) { return name, nil }
	switch name {
	case "read_note":
		description = "Reads a note."
	case "list_notes":
		description = "Lists all notes."
	case "delete_note":
		description = "Deletes a note for ever."
	case "create_note":
		description = "Creates a note."
	case "fail":
		description = "Fails."
		run = func(context.Context) (string, error) { return "", errors.New("quota of 5 notes exceeded") }
	case "die":
		description = "Ends the server."
		run = func(context.Context) (string, error) {
			fmt.Fprintln(os.Stderr, "out of memory")
			os.Exit(3)
			return "", nil
		}
	case "hang":
		description = "Takes for ever."
		run = func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
	case "flood":
		description = "Returns much."
		run = func(context.Context) (string, error) { return strings.Repeat("a line of a long result\n", 8000), nil }
	case "roots":
		description = "Says the client's working directories."
		run = func(ctx context.Context) (string, error) {
			roots, err := mcpserver.Roots(ctx)
			return strings.Join(roots, " "), err
		}
	case "think":
		description = "Uses the model."
		run = func(ctx context.Context) (string, error) {
			_, err := host.From(ctx).Sample(ctx, host.SampleRequest{Messages: []*message.Message{message.User("What is next?")}})
			return "", err
		}
	}
	return tool.Must(tool.New(name, description, func(ctx context.Context, _ noArguments) (string, error) { return run(ctx) },
		tool.Options{ReadOnly: readOnly}))
}
