package mcpserver_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// authenticated makes serve replace Config.Credentials by an Authenticator.
var authenticated bool

// bearer is an Authenticator that another package could have written.
type bearer []mcpserver.Credential

func (b bearer) Authenticate(r *http.Request) (mcpserver.Identity, error) {
	for _, c := range b {
		if r.Header.Get("Authorization") == "Bearer "+c.Token {
			return mcpserver.Identity{Name: c.Name, Grant: "g", Ceiling: c.Ceiling, Policy: c.Policy, Expires: time.Now().Add(time.Hour)}, nil
		}
	}
	return mcpserver.Identity{}, &mcpserver.Refusal{Status: 401, Challenge: "Bearer", Reason: "missing or unknown token"}
}

// TestAuthenticatedAttacks checks that what holds between credentials holds between the identities of an Authenticator.
func TestAuthenticatedAttacks(t *testing.T) {
	authenticated = true
	defer func() { authenticated = false }()
	for name, test := range map[string]func(*testing.T){
		"other sessions": TestOtherSessions, "share": TestShare, "resume": TestResumeAttacks, "ceilings": TestCeilingTellsNothing,
		"parked calls": TestParkedCalls, "state": TestWhoseState, "the old transport": TestOldTransportGuards, "tickets": TestTickets,
		"prompts": TestPromptAndResourceAccess, "watches": TestWatcherShare,
		"replicas": TestReplicasSession, "tickets of replicas": TestReplicasTickets, "a draining replica": TestReplicasDrain,
	} {
		t.Run(name, test)
	}
}

// claims is an Authenticator whose tokens are the identity: NAME GRANT LIFETIME.
type claims struct{}

func (claims) Authenticate(r *http.Request) (mcpserver.Identity, error) {
	var id mcpserver.Identity
	var life time.Duration
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	var s string
	if n, _ := fmt.Sscan(token, &id.Name, &id.Grant, &s); n == 3 && id.Grant == "-" {
		id.Grant = ""
	} else if n < 3 {
		return id, fmt.Errorf("secret %s", token)
	}
	life, _ = time.ParseDuration(s)
	id.Expires = time.Now().Add(life)
	id.Token = func() string { return token }
	if id.Grant == "forbidden" {
		return id, &mcpserver.Refusal{Status: 403, Challenge: `Bearer error="insufficient_scope"`, Reason: "the token lacks a scope"}
	}
	if id.Grant == "aviary" {
		id.Ceiling = toolkit.Only("aviary")
	}
	return id, nil
}

// TestIdentities checks what an Authenticator decides about a request.
func TestIdentities(t *testing.T) {
	fx := newFixture(t)
	url := listen(t, serve(t, mcpserver.Config{Toolkit: fx.tk, Policy: open, Authenticator: claims{},
		Credentials: []mcpserver.Credential{{Name: "ci", Hash: mcpserver.HashToken(tokenA)}}}))
	anna := newWire(t, url)
	anna.token = "anna all 1h"
	anna.initialize(`{}`)
	for _, row := range []struct {
		token  string
		status int
	}{
		{"anna all 1h", 200}, {"anna all 2h", 200}, // a new token of the same identity
		{"anna aviary 1h", 404}, {"otto all 1h", 404}, {`"anna" all 1h`, 404},
		{tokenA, 404}, {mcpserver.HashToken(tokenA), 401},
		{"anna all 0s", 401}, {"anna all -1h", 401}, {"anna", 401}, {"", 401}, {"anna forbidden 1h", 403},
	} {
		w := newWire(t, url)
		w.token, w.session = row.token, anna.session
		status, got := w.post(t.Context(), listBody)
		if status != row.status {
			t.Errorf("%q with anna's session: %d, want %d", row.token, status, row.status)
		}
		if len(row.token) > 8 && strings.Contains(fmt.Sprint(got), row.token) {
			t.Errorf("the answer has the token: %s", got)
		}
	}
	low := newWire(t, url)
	low.token = "anna aviary 1h"
	low.initialize(`{}`)
	if _, got := low.post(t.Context(), listBody); strings.Contains(fmt.Sprint(got), "slow") {
		t.Errorf("the ceiling of the grant does not hold: %s", got)
	}
}

// hostile is an Authenticator whose tokens are names of mistakes.
type hostile struct{}

func (hostile) Authenticate(r *http.Request) (mcpserver.Identity, error) {
	id := mcpserver.Identity{Name: "anna"}
	refusal := &mcpserver.Refusal{Status: 401, Reason: "no"}
	switch strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") {
	case "nil":
		refusal = nil
	case "wrapped nil":
		return id, fmt.Errorf("wrapped: %w", (*mcpserver.Refusal)(nil))
	case "no status":
		refusal.Status = 0
	case "ok":
		refusal.Status = 200
	case "continue":
		refusal.Status = 100
	case "redirect":
		refusal.Status = 302
	case "split":
		refusal.Challenge = "Bearer\r\nSet-Cookie: a=b"
	}
	return id, refusal
}

// TestHostileRefusals checks that whatever error an Authenticator returns, the request is refused with a status for that.
func TestHostileRefusals(t *testing.T) {
	url := listen(t, serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open, Authenticator: hostile{}}))
	for _, token := range []string{"nil", "wrapped nil", "no status", "ok", "continue", "redirect", "split"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Errorf("%s: %v", token, err)
			continue
		}
		_ = res.Body.Close()
		if res.StatusCode != 401 || res.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %v", token, res.StatusCode, res.Header)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestNamesDoNotMeet checks that an Authenticator cannot return the identity of a credential, whatever names it chooses.
func TestNamesDoNotMeet(t *testing.T) {
	quoted := `"anna" all`
	c := newCluster(t, 2, func() mcpserver.Config {
		return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open, Authenticator: claims{},
			Credentials: []mcpserver.Credential{{Name: "anna", Token: tokenA}, {Name: quoted, Token: tokenB}}}
	})
	for _, owner := range []string{tokenA, tokenB} {
		_, direct := c.client(owner)
		for _, token := range []string{"anna - 1h", "anna all 1h", `"anna" all 1h`, `"anna" - 1h`} {
			for i, d := range direct {
				d.token = token
				if status, got := d.post(t.Context(), listBody); status != 404 && status != 401 {
					t.Errorf("%q in the session of %q, replica %d: %d %s", token, owner, i, status, got)
				}
			}
		}
	}
}

// TestExpiry checks that streams and calls end when the identity of their request expires, and that the session does not.
func TestExpiry(t *testing.T) {
	fx := newFixture(t)
	url := listen(t, serve(t, mcpserver.Config{Toolkit: fx.tk, Policy: open, Authenticator: claims{}}))
	w := newWire(t, url)
	w.token = "anna all 1h"
	w.initialize(`{}`)
	w.token = "anna all 300ms"
	_, got := w.post(t.Context(), `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"slow","arguments":{"ms":60000}}}`)
	if err := <-fx.ended; err == nil || !strings.Contains(fmt.Sprint(got), "token has expired") {
		t.Errorf("the call ended with %v and %q", err, got)
	}
	modern := newWire(t, url)
	modern.token = "anna all 300ms"
	modern.header = map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "slow"}
	_, got = modern.post(t.Context(), `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"slow","arguments":{"ms":60000},
		"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"w","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`)
	if err := <-fx.ended; err == nil || !strings.Contains(fmt.Sprint(got), "token has expired") {
		t.Errorf("without a session the call ended with %v and %q", err, got)
	}
	for _, session := range []string{w.session, ""} { // "" opens HTTP+SSE
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{"Authorization": "Bearer anna all 300ms", "Accept": "text/event-stream", "Mcp-Session-Id": session} {
			if v != "" {
				req.Header.Set(k, v)
			}
		}
		res, err := w.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for _, err = res.Body.Read(make([]byte, 999)); err == nil; _, err = res.Body.Read(make([]byte, 999)) {
		}
		if _ = res.Body.Close(); time.Since(start) > 20*time.Second {
			t.Errorf("the stream ended after %v", time.Since(start))
		}
	}
	w.token = "anna all 1h"
	if status, got := w.post(t.Context(), listBody); status != 200 {
		t.Errorf("the session with a new token: %d %q", status, got)
	}
}

// TestIdentityFrom checks that a tool knows who calls it, and that printing the identity does not print the token.
func TestIdentityFrom(t *testing.T) {
	who := tool.Must(tool.New("who", "Says who calls.", func(ctx context.Context, _ none) (string, error) {
		id, ok := mcpserver.IdentityFrom(ctx)
		return fmt.Sprintf("%t %s %s %t", ok, id.Name, id.Grant, strings.Contains(fmt.Sprintf("%+v %#v", id, id), "1h") || id.Token() != "anna all 1h"), nil
	}))
	w := newWire(t, listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(who), Policy: open, Authenticator: claims{}})))
	w.token = "anna all 1h"
	w.initialize(`{}`)
	_, got := w.post(t.Context(), `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"who"}}`)
	if !strings.Contains(fmt.Sprint(got), "true anna all false") {
		t.Errorf("%s", got)
	}
}

// TestManyIdentities checks that identities cannot use up the server's memory, and that those of idle users are dropped.
func TestManyIdentities(t *testing.T) {
	url := listen(t, serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open, Authenticator: claims{},
		Limits: mcpserver.Limits{Sessions: 3, Idle: 100 * time.Millisecond, Ask: 100 * time.Millisecond}}))
	status := func(name string) int {
		w := newWire(t, url)
		w.token, w.session = name+" all 1h", "none"
		status, _ := w.post(t.Context(), listBody)
		return status
	}
	busy := 0
	for i := range 20 {
		if got := status(fmt.Sprint("user", i)); got == 503 {
			busy++
		} else if got != 404 {
			t.Errorf("user %d: %d", i, got)
		}
	}
	if busy == 0 {
		t.Error("20 users had accounts at the same time")
	}
	for end := time.Now().Add(30 * time.Second); status("late") == 503; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the accounts of idle users are not dropped")
		}
	}
}

func TestHashes(t *testing.T) {
	good := mcpserver.HashToken(tokenA)
	for _, row := range []struct {
		c    mcpserver.Credential
		want string
	}{
		{mcpserver.Credential{Name: "a", Hash: good}, ""},
		{mcpserver.Credential{Name: "a", Hash: good, Token: tokenA}, "only one"},
		{mcpserver.Credential{Name: "a", Hash: strings.TrimPrefix(good, "sha256:")}, "kitbag mcp key"},
		{mcpserver.Credential{Name: "a", Hash: good[:20]}, "kitbag mcp key"},
		{mcpserver.Credential{Name: "a", Hash: "sha256:" + hex.EncodeToString(make([]byte, 33))}, "kitbag mcp key"},
		{mcpserver.Credential{Name: "a", Hash: "sha256:" + strings.Repeat("x", 64)}, "kitbag mcp key"},
	} {
		s, err := mcpserver.New(mcpserver.Config{Toolkit: newFixture(t).tk, Name: "n", Version: "1", Credentials: []mcpserver.Credential{row.c}})
		if err == nil {
			_ = s.Close()
		}
		if (err == nil) != (row.want == "") || err != nil && (!strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), good[7:])) {
			t.Errorf("%+v: %v, want %q", row.c, err, row.want)
		}
	}
}

// metadata is an Authenticator that serves an endless document at every path.
type metadata struct {
	bearer
	ended chan error
}

func (m metadata) Wrap(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var err error
		for err == nil {
			_, err = w.Write(make([]byte, 64<<10))
		}
		m.ended <- err
	})
}

// TestMetadataWrite checks that Limits.Write applies to a client that does not read what an Authenticator serves.
func TestMetadataWrite(t *testing.T) {
	m := metadata{ended: make(chan error, 1)}
	s := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Authenticator: m, Limits: mcpserver.Limits{Write: 200 * time.Millisecond}})
	h := httptest.NewServer(s.Handler())
	defer h.Close()
	conn, err := net.Dial("tcp", h.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /metadata HTTP/1.1\r\nHost: localhost\r\n\r\n")
	select {
	case err := <-m.ended:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("a client that does not read keeps its connection")
	}
}
