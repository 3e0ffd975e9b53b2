package mcpgateway

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/tool/toolstate"
)

// TestShareOfProcesses checks that one credential cannot use all processes of a server, and can start another
// when one of its sessions has ended.
func TestShareOfProcesses(t *testing.T) {
	a := newSessionClients(mcpclient.Server{Name: "a", Transport: mcpclient.Command{Path: "never-started"}}, "one")
	a.maxPerCredential = 2
	defer a.close()
	var ends []context.CancelFunc
	start := func() error {
		ctx, end := context.WithCancel(t.Context())
		ends = append(ends, end)
		_, err := a.client(ctx)
		return err
	}
	for range 2 {
		if err := start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := start(); err == nil || !strings.Contains(err.Error(), "of which 2 with this credential") {
		t.Errorf("the third: %v", err)
	}
	for _, end := range ends {
		end()
	}
	a.closing.Wait()
	if err := start(); err != nil || len(a.byCredential) != 1 {
		t.Errorf("after the others have ended: %v %v", err, a.byCredential)
	}
	ends[len(ends)-1]()
}

// TestCloseDuringSession checks that the processes of a server that a reload removes end before their sessions.
func TestCloseDuringSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessionClients(mcpclient.Server{Name: "a", Transport: mcpclient.Command{Path: "never-started"}}, "one")
		c, err := s.client(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.close()
		if _, err := c.Tools(t.Context()); !errors.Is(err, mcpclient.ErrClosed) {
			t.Errorf("the session's client is not closed: %v", err)
		}
		if _, err := s.client(t.Context()); err == nil || !strings.Contains(err.Error(), "no longer has the server") {
			t.Errorf("a call after the reload: %v", err)
		}
	})
}

// TestLostProcess checks that a session learns once that its process has ended with another gateway.
func TestLostProcess(t *testing.T) {
	var state toolstate.State
	ctx, end := context.WithCancel(toolstate.With(t.Context(), &state))
	call := func(gateway, server string) error {
		a := newSessionClients(mcpclient.Server{Name: server, Transport: mcpclient.Command{Path: "never-started"}}, gateway)
		t.Cleanup(func() { end(); a.close() })
		_, err := a.client(ctx)
		return err
	}
	for i, row := range []struct {
		gateway, server string
		lost            bool
	}{{"one", "a", false}, {"one", "a", false}, {"one", "b", false}, {"two", "a", true}, {"two", "a", false}, {"two", "b", true}, {"one", "b", true}} {
		if err := call(row.gateway, row.server); (err != nil) != row.lost || row.lost && !strings.Contains(err.Error(), "its state is lost") {
			t.Errorf("call %d, of %s by gateway %s: %v", i, row.server, row.gateway, err)
		}
	}
}
