package oauth_test

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/mcpserver/oauth"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// The tests of a gateway with users are here, as package mcpgateway does not require this module.

// open is a policy that allows everything.
var open = &permission.Policy{Mode: permission.ModeBypass}

type none struct{}

func newGateway(t testing.TB, cfg mcpgateway.Config) *mcpgateway.Gateway {
	t.Helper()
	cfg.Serve.Version, cfg.OpenOAuth = "1", oauth.New
	g, err := mcpgateway.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// behind returns a server in this process with one tool, which returns its own name.
func behind(t testing.TB, name, toolName string) mcpclient.Server {
	t.Helper()
	say := tool.Must(tool.New(toolName, "Says "+toolName+".",
		func(context.Context, none) (string, error) { return toolName, nil }))
	s, err := mcpserver.New(mcpserver.Config{Toolkit: toolkit.Of(say), Name: "upstream", Version: "1", Policy: open})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	dial := func(context.Context) (io.ReadWriteCloser, error) {
		a, b := net.Pipe()
		go func() {
			_ = s.ServeStdio(context.Background(), b, b)
			_ = b.Close()
		}()
		return a, nil
	}
	return mcpclient.Server{Name: name, Transport: mcpclient.Dial(dial),
		Options: mcpclient.Options{PingInterval: -1, Protocol: "2025-11-25"}}
}
