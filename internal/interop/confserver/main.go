// Command confserver serves the tools, prompts and resources that the MCP conformance suite
// expects, with mcpserver, and runs a command against it: the suite, with the server's URL
// appended. It exits with the command's status.
//
// The names and texts are those that the suite's scenarios require.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

func main() {
	err := run(os.Args[1:])
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "confserver:", err)
		os.Exit(1)
	}
}

func run(command []string) error {
	if len(command) == 0 {
		return errors.New("usage: confserver COMMAND [ARGUMENT…]; --url URL is appended")
	}
	tk, err := fixture()
	if err != nil {
		return err
	}
	server, err := mcpserver.New(mcpserver.Config{
		Toolkit: tk, Name: "kitbag-conformance", Version: "1.0.0",
		Policy:  &permission.Policy{Mode: permission.ModeBypass}, // the suite cannot approve calls
		Prompts: prompts(), Resources: resources(),
	})
	if err != nil {
		return err
	}
	defer server.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: server.Handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	defer web.Close()

	ctx, cancel := context.WithCancelCause(context.Background())
	go func() { cancel(<-served) }()
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], "--url", "http://"+listener.Addr().String()+"/mcp")...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return err
	}
	return nil
}

// fixture returns the toolkit with the suite's tools. Two of the tools change it.
func fixture() (*toolkit.Toolkit, error) {
	var tk *toolkit.Toolkit
	tools := contentTools()
	tools = append(tools, reportingTools()...)
	tools = append(tools, askingTools()...)
	tools = append(tools, changingTools(func() *toolkit.Toolkit { return tk })...)
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: tools}, Control: new(toolkit.Control)})
	return tk, err
}
