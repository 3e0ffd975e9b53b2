// Command confserver serves the tools, prompts and resources that the MCP conformance suite
// expects, with mcpserver, and runs a command against it: the suite, with the server's URL
// appended. It exits with the command's status. With $REPLICAS the server is that many replicas,
// which get the requests in turn.
//
// The names and texts are those that the suite's scenarios require.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
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
	ctx, cancel := context.WithCancelCause(context.Background())
	serve := func(handler http.Handler, l net.Listener) *http.Server {
		web := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
		go func() { cancel(web.Serve(l)) }()
		return web
	}
	replicas, err := strconv.Atoi(cmp.Or(os.Getenv("REPLICAS"), "0")) // 0 for a single server without a balancer
	if err != nil {
		return fmt.Errorf("$REPLICAS: %w; set it to a number", err)
	}
	shared := mcpserver.NewShared()
	var urls []*url.URL
	for range max(1, replicas) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		urls = append(urls, &url.URL{Scheme: "http", Host: l.Addr().String()})
		cfg := mcpserver.Config{
			Toolkit: tk, Name: "kitbag-conformance", Version: "1.0.0",
			Policy:  &permission.Policy{Mode: permission.ModeBypass}, // the suite cannot approve calls
			Prompts: prompts(), Resources: resources(),
			TaskAfter: time.Hour, // only calls of taskTools become tasks earlier
		}
		if replicas > 0 {
			cfg.Replicas = &mcpserver.Replicas{Shared: shared, URL: urls[len(urls)-1].String() + "/mcp"}
		}
		server, err := mcpserver.New(cfg)
		if err != nil {
			return err
		}
		defer server.Close()
		defer serve(server.Handler(), l).Close()
	}
	address := urls[0]
	if replicas > 0 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		address = &url.URL{Scheme: "http", Host: l.Addr().String()}
		var next atomic.Int64
		balancer := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(urls[int(next.Add(1))%len(urls)])
			p.Out.Host = p.In.Host
		}}
		defer serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// Otherwise the body is closed when the answer begins, and if the transport has not seen the body's end
			// by then, it closes the connection to the replica.
			_ = http.NewResponseController(w).EnableFullDuplex()
			balancer.ServeHTTP(w, r)
		}), l).Close()
	}
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], "--url", address.String()+"/mcp")...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	return cmp.Or(context.Cause(ctx), err) // a server that fails ends the command
}

// fixture returns the toolkit with the suite's tools. Two of the tools change it.
func fixture() (*toolkit.Toolkit, error) {
	var tk *toolkit.Toolkit
	tools := contentTools()
	tools = append(tools, reportingTools()...)
	tools = append(tools, askingTools()...)
	tools = append(tools, taskTools()...)
	tools = append(tools, changingTools(func() *toolkit.Toolkit { return tk })...)
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: tools}, Control: new(toolkit.Control)})
	return tk, err
}
