package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/postgres/pggateway"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// The environment of the processes that this command starts.
const (
	roleVar     = "REPLICAS_ROLE"
	addressVar  = "REPLICAS_ADDRESS"
	databaseVar = "REPLICAS_DATABASE"
	marksVar    = "REPLICAS_MARKS" // the file to which mark and sign append the token of each call
)

// runRole runs one of the processes that this command starts: a gateway, or an MCP server.
func runRole(role string) error {
	switch role {
	case "gateway":
		return serveGateway()
	case "work":
		return serveTools(markTool("mark"), markTool("sign"))
	case "state":
		return serveTools(countTool())
	}
	return fmt.Errorf("unknown role in $%s; leave the variable unset", roleVar)
}

// grace is how long a gateway that is stopped waits for its calls.
const grace = 20 * time.Second

// serveGateway serves a gateway until SIGTERM.
func serveGateway() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	shared, err := pggateway.Open(ctx, os.Getenv(databaseVar))
	if err != nil {
		return err
	}
	defer shared.Close()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	server := func(role string) mcpclient.Server {
		return mcpclient.Server{Name: role, Transport: mcpclient.Command{Path: exe, Env: map[string]string{roleVar: role, marksVar: os.Getenv(marksVar)}}}
	}
	at := os.Getenv(addressVar)
	g, err := mcpgateway.New(ctx, mcpgateway.Config{
		Servers: []mcpclient.Server{server("work"), server("state")}, PerSession: []string{"state"},
		Serve: mcpgateway.ServeOptions{Version: "1", Policy: policy(), Replicas: &mcpserver.Replicas{Shared: shared, URL: "http://" + at + "/"}},
	})
	if err != nil {
		return err
	}
	defer g.Close()
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	web := &http.Server{Handler: g.Server.Handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- web.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	draining, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	drained := g.Server.Drain(draining)
	return errors.Join(drained, web.Shutdown(draining))
}

// policy allows all calls but those of sign, which need approval.
func policy() *permission.Policy {
	allow := func(tool string) permission.Rule { return permission.Rule{Tool: tool, Behavior: permission.Allow} }
	return &permission.Policy{Rules: []permission.Rule{allow("work__mark"), allow("state__count")}}
}

func serveTools(tools ...tool.Tool) error {
	s, err := mcpserver.New(mcpserver.Config{Toolkit: toolkit.Of(tools...), Name: "tools", Version: "1", Policy: &permission.Policy{Mode: permission.ModeBypass}})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.ServeStdio(context.Background(), os.Stdin, os.Stdout)
}

// markTool appends a token to the file $REPLICAS_MARKS, so that countMarks can tell how often each call was made.
func markTool(name string) tool.Tool {
	type in struct {
		Token string `json:"token"`
	}
	return tool.Must(tool.New(name, "Writes a token down.", func(_ context.Context, in in) (string, error) {
		f, err := os.OpenFile(os.Getenv(marksVar), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return "", err
		}
		_, err = fmt.Fprintln(f, in.Token)
		return "marked " + in.Token, errors.Join(err, f.Close())
	}))
}

// countTool counts its calls in this process.
func countTool() tool.Tool {
	var n atomic.Int64
	return tool.Must(tool.New("count", "Counts.", func(context.Context, struct{}) (string, error) {
		return fmt.Sprint("count ", n.Add(1)), nil
	}))
}
