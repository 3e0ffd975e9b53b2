package mcpserver_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
)

// TestSlowCallHTTP2 checks that Limits.Write applies to a client that does not read, and not to a call that
// takes longer. Over HTTP/2 a write deadline also resets a stream that is waiting.
func TestSlowCallHTTP2(t *testing.T) {
	fx := newFixture(t)
	s := serve(t, mcpserver.Config{Toolkit: fx.tk, Policy: open, Limits: mcpserver.Limits{Write: 100 * time.Millisecond}})
	h := httptest.NewUnstartedServer(s.Handler())
	h.EnableHTTP2 = true
	h.StartTLS()
	t.Cleanup(h.Close)
	t.Cleanup(func() { _ = s.Close() })
	w := newWire(t, h.URL)
	w.client = h.Client()
	w.initialize(`{}`)
	session := strings.Join(w.rpc("tools/call", `{"name":"slow","arguments":{"ms":400}}`), "")
	if !strings.Contains(session, "done") {
		t.Errorf("in a session: %q", session)
	}
	m := newModern(t, h.URL, "", `{}`)
	m.client = h.Client()
	if _, got := m.send(t.Context(), "tools/call", "slow", `,"arguments":{"ms":400}`); !strings.Contains(got, "done") {
		t.Errorf("without a session: %q", got)
	}
}
