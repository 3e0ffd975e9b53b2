package main

import (
	"context"
	"errors"
	"fmt"
	"os"
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
// ends the process at once, "mute" answers nothing.
func serveFlawed(names []string) {
	if slices.Contains(names, "dead") {
		fmt.Fprintln(os.Stderr, "cannot open notes.db: it is locked by another process")
		os.Exit(3)
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
