package mcpgateway_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// This example shows a gateway in front of two servers, and what a host sees of it. Here the servers run in
// this program; usually their configurations have a Command or a URL.
func Example() {
	ctx := context.Background()
	tracker := newServer(toolkit.Of(named("find_issue"), named("close_issue"), named("burn_down")))
	defer tracker.Close()
	wiki := newServer(toolkit.Of(named("find_page")))
	defer wiki.Close()
	g, err := mcpgateway.New(ctx, mcpgateway.Config{
		Servers: []mcpclient.Server{
			{Name: "tracker", Transport: mcpclient.Dial(dial(tracker))},
			{Name: "wiki", Transport: mcpclient.Dial(dial(wiki))},
		},
		Groups: []mcpgateway.Group{
			{Name: "finding", Description: "Look for issues and pages.", Tools: []string{"*__find_*"}},
		},
		Serve: mcpgateway.ServeOptions{Version: "1.0.0", Policy: &permission.Policy{Mode: permission.ModeDontAsk,
			Rules: []permission.Rule{{Tool: "*__find_*", Behavior: permission.Allow}}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()

	host, err := mcpclient.New("gateway", mcpclient.Dial(dial(g.Server)), &mcpclient.Options{NoPrefix: true, Protocol: "2025-11-25"})
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close()
	changed := make(chan struct{}, 1)
	host.OnChange(func() { changed <- struct{}{} })
	show := func() {
		tools, err := host.Tools(ctx)
		if err != nil {
			log.Fatal(err)
		}
		var names []string
		for _, t := range tools {
			names = append(names, t.Info().Name)
		}
		fmt.Println("the host sees:", strings.Join(names, " "))
	}
	call := func(name string, args any) *message.ToolResult {
		result, err := host.Call(ctx, name, args)
		if err != nil {
			log.Fatal(err)
		}
		return result
	}
	show()
	call("reset_tools", map[string]bool{"finding": true})
	<-changed
	show()
	fmt.Println("it calls one:", call("wiki__find_page", nil).Text())
	// Output:
	// the host sees: reset_tools
	// the host sees: reset_tools tracker__find_issue wiki__find_page
	// it calls one: find_page
}
