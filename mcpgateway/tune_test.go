package mcpgateway

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// slowly is the client of a server. It delays setting the first level until the test releases it.
type slowly struct {
	*mcpclient.Client
	after  atomic.Bool // the first
	begun  chan struct{}
	goOn   chan struct{}
	levels chan string
}

func (s *slowly) SetLogLevel(level string) {
	if !s.after.Swap(true) {
		close(s.begun)
		<-s.goOn
	}
	s.levels <- level
}

// TestTuneInOrder checks that if two sessions set a level in parallel, the server's final level does not depend
// on which call of SetLogLevel ends first.
func TestTuneInOrder(t *testing.T) {
	up, err := mcpclient.New("up", mcpclient.Command{Path: "never-started"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	client := &slowly{Client: up, begun: make(chan struct{}), goOn: make(chan struct{}), levels: make(chan string, 2)}
	a := &audience{client: client, sessions: map[*mcpserver.Logger]bool{}, busy: map[string]int{}, abandoned: map[string]bool{}}
	use := tool.Must(tool.New("use", "Uses the server.", func(ctx context.Context, _ struct{}) (string, error) { a.beginCall(ctx)(false); return "", nil }))
	s, err := mcpserver.New(mcpserver.Config{Toolkit: toolkit.Of(use), Name: "n", Version: "1", Policy: &permission.Policy{Mode: permission.ModeBypass}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	session := func() *mcpclient.Client {
		c, err := mcpclient.New("s", mcpclient.Dial(func(context.Context) (io.ReadWriteCloser, error) {
			conn, serverConn := net.Pipe()
			go func() { _ = s.ServeStdio(context.Background(), serverConn, serverConn) }()
			return conn, nil
		}),
			&mcpclient.Options{PingInterval: -1, Protocol: "2025-11-25"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		all, err := c.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range tool.Run(t.Context(), all[0], tool.Call{ID: "1", Name: all[0].Info().Name, Input: []byte("{}")}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	one, two := session(), session()
	one.SetLogLevel("warning")
	<-client.begun
	two.SetLogLevel("debug")
	var levels []string
	select {
	case level := <-client.levels: // before the first
		levels = append(levels, level)
	case <-time.After(200 * time.Millisecond):
	}
	close(client.goOn)
	for len(levels) < 2 {
		levels = append(levels, <-client.levels)
	}
	if levels[1] != "debug" {
		t.Errorf("the levels are %q", levels)
	}
}
