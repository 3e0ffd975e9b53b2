// Gateway is one MCP server in front of two. A client sees a tool that opens groups and the groups that its
// token grants. Secrets in the servers' results are hidden. The servers are this program again, started with a
// name as its argument.
package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	run := serve
	if len(os.Args) > 1 {
		run = upstream
	}
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

// serve serves the gateway over HTTP until it is interrupted.
func serve(ctx context.Context) error {
	g, err := newGateway(ctx, os.Args[0], os.Getenv("CI_TOKEN"), os.Getenv("TEAM_TOKEN"))
	if err != nil {
		return err
	}
	defer g.Close()
	srv := &http.Server{Addr: "127.0.0.1:8080", Handler: g.Server.Handler(), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	log.Printf("serving MCP at http://%s/", srv.Addr)
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// newGateway puts a gateway in front of two servers. The team may use everything; CI only sees the group reports.
func newGateway(ctx context.Context, program, ci, team string) (*mcpgateway.Gateway, error) {
	secrets, err := redact.New(redact.Rules()...)
	if err != nil {
		return nil, err
	}
	server := func(name string) mcpclient.Server {
		return mcpclient.Server{Name: name, Transport: mcpclient.Command{Path: program, Args: []string{name}}}
	}
	return mcpgateway.New(ctx, mcpgateway.Config{
		Servers: []mcpclient.Server{server("tickets"), server("deploy")},
		Groups: []mcpgateway.Group{
			{Name: "reports", Description: "What happened.", Tools: []string{"tickets__list", "deploy__log"}},
			{Name: "changes", Description: "What will happen.", Tools: []string{"*__add", "*__start"}},
		},
		Serve: mcpgateway.ServeOptions{
			Name: "office", Version: "1.0.0",
			// For a call that no rule covers the client asks its user.
			Policy: &permission.Policy{Rules: []permission.Rule{
				{Tool: "*__list", Behavior: permission.Allow},
				{Tool: "*__log", Behavior: permission.Allow},
			}},
			Credentials: []mcpserver.Credential{
				{Name: "ci", Token: ci, Ceiling: toolkit.Only("reports")},
				{Name: "team", Token: team},
			},
			Middleware: []tool.Middleware{hide(secrets)},
			Audit: func(r mcpserver.Record) {
				log.Printf("%s called %s: %s %s", r.Credential, r.Tool, r.Decision, r.Outcome)
			},
		},
	})
}

// hide replaces secrets in the text of results and errors.
func hide(secrets *redact.Redactor) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
			return func(yield func(tool.Chunk, error) bool) {
				for c, err := range next(ctx, t, call) {
					if text, ok := c.Block.(*message.Text); ok {
						c.Block = &message.Text{ID: text.ID, Text: secrets.Text(text.Text)}
					}
					if err != nil && secrets.Text(err.Error()) != err.Error() {
						err = errors.New(secrets.Text(err.Error()))
					}
					c.Structured = nil // it has the same text as the block, with the secrets
					if !yield(c, err) {
						return
					}
				}
			}
		}
	}
}

type (
	none   struct{}
	textIn struct{ Text string }
)

// upstream is a server with a read-only tool and a tool that changes something.
func upstream(ctx context.Context) error {
	reads := tool.Options{ReadOnly: true}
	tools := map[string][]tool.Tool{
		"tickets": {
			tool.Must(tool.New("list", "Lists the open tickets.", func(context.Context, none) ([]string, error) {
				return []string{"The lamp is dark."}, nil
			}, reads)),
			tool.Must(tool.New("add", "Adds a ticket.", func(_ context.Context, in textIn) (string, error) { return "added " + in.Text, nil })),
		},
		"deploy": {
			tool.Must(tool.New("log", "Shows the log of the last deployment.", func(context.Context, none) (string, error) {
				return "logged in with ghp_" + "0123456789abcdefghijABCDEFGHIJ012345" + ", all is well", nil
			}, reads)),
			tool.Must(tool.New("start", "Starts a deployment.", func(context.Context, none) (string, error) { return "started", nil })),
		},
	}[os.Args[1]]
	if tools == nil {
		return fmt.Errorf("there is no server %q", os.Args[1])
	}
	// The gateway decides which calls are allowed.
	s, err := mcpserver.New(mcpserver.Config{Toolkit: toolkit.Of(tools...), Name: os.Args[1], Version: "1.0.0",
		Policy: &permission.Policy{Rules: []permission.Rule{
			{Tool: "list", Behavior: permission.Allow}, {Tool: "add", Behavior: permission.Allow},
			{Tool: "log", Behavior: permission.Allow}, {Tool: "start", Behavior: permission.Allow},
		}}})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.ServeStdio(ctx, os.Stdin, os.Stdout)
}
