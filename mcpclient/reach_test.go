package mcpclient

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/server"
)

// A fakeAddr is a connection that claims that remote address.
type fakeAddr struct {
	net.Conn
	remote string
}

func (c fakeAddr) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.remote), Port: 443} }
func (c fakeAddr) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 9} }

// TestRebinding checks that each connection is judged by the address that its name led to, since names change,
// and redirects connect again.
func TestRebinding(t *testing.T) {
	const away = "203.0.113.5"
	for _, row := range []struct {
		name, server, url string
		addresses         []string // of the connections, in turn
		requests          int64    // how many arrive
		ok                bool
	}{
		{"another host", "https://mcp.example.com/", "https://login.example.com/token", []string{away}, 1, true},
		{"a name of this machine", "https://mcp.example.com/", "https://login.example.com/token", []string{"127.0.0.1"}, 0, false},
		{"in IPv6", "https://mcp.example.com/", "https://login.example.com/token", []string{"::1"}, 0, false},
		{"in IPv6 mapped", "https://mcp.example.com/", "https://login.example.com/token", []string{"::ffff:127.8.9.1"}, 0, false},
		{"the unspecified address", "https://mcp.example.com/", "https://login.example.com/token", []string{"0.0.0.0"}, 0, false},
		{"an address of our network card", "https://mcp.example.com/", "https://login.example.com/token", []string{"192.0.2.1"}, 0, false},
		{"rebound at the redirect", "https://mcp.example.com/", "https://login.example.com/moved", []string{away, "127.0.0.1"}, 1, false},
		{"a redirect", "https://mcp.example.com/", "https://login.example.com/moved", []string{away, away}, 2, true},
		{"a redirect to a name of this machine", "https://mcp.example.com/", "https://mcp.example.com/away", []string{away, "127.0.0.1"}, 1, false},
		{"a redirect to an address of this machine", "https://mcp.example.com/", "https://mcp.example.com/local", []string{away}, 1, false},
		{"the host that was configured", "https://mcp.example.com/", "https://mcp.example.com/", []string{"127.0.0.1"}, 1, true},
		{"another port of that host", "https://mcp.example.com/", "https://mcp.example.com:9200/", []string{"127.0.0.1"}, 0, false},
		{"that host, unencrypted", "https://mcp.example.com/", "http://mcp.example.com/", []string{"127.0.0.1"}, 0, false},
		{"a server on this machine", "https://localhost:8080/", "https://login.example.com/token", []string{"127.0.0.1"}, 1, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			var requests atomic.Int64
			victim := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				switch r.URL.Path {
				case "/moved":
					http.Redirect(w, r, "/token", http.StatusTemporaryRedirect)
				case "/away":
					http.Redirect(w, r, "https://other.example.com/", http.StatusTemporaryRedirect)
				case "/local":
					http.Redirect(w, r, "https://127.0.0.1:9200/", http.StatusTemporaryRedirect)
				}
			}))
			victim.Config.ErrorLog = log.New(io.Discard, "", 0) // no messages about aborted handshakes
			victim.StartTLS()
			defer victim.Close()
			transport := victim.Client().Transport.(*http.Transport).Clone()
			transport.DisableKeepAlives = true
			left := row.addresses
			transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, victim.Listener.Addr().String())
				if err != nil {
					return nil, err
				}
				next := "127.0.0.1" // for connections that should not be made
				if len(left) > 0 {
					next, left = left[0], left[1:]
				}
				return fakeAddr{conn, next}, nil
			}
			server, err := url.Parse(row.server)
			if err != nil {
				t.Fatal(err)
			}
			base, idle := baseTransport(&config{http: HTTP{Client: &http.Client{Transport: transport}}, url: server})
			defer idle()
			res, err := (&http.Client{Transport: base}).Post(row.url, "text/plain", strings.NewReader("secret"))
			if (err == nil) != row.ok || requests.Load() != row.requests || err != nil && !strings.Contains(err.Error(), "this machine") {
				t.Errorf("%d requests arrived: %v", requests.Load(), err)
			}
			if err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
	}
}

// TestReached checks ways to a server that must work: through a proxy on this machine, which also follows a
// redirect to another host, and from one name of this machine to another.
func TestReached(t *testing.T) {
	h := server.NewStreamableHTTPServer(goServer(), server.WithStateful(true))
	proxy := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Host == "moved.example.com" {
			http.Redirect(w, r, "http://mcp.example.com/mcp", http.StatusTemporaryRedirect)
			return
		}
		if r.URL.Host != "mcp.example.com" {
			t.Errorf("the proxy was asked for %s", r.URL)
		}
		r.Host = "localhost" // its real host
		h.ServeHTTP(w, r)
	}))
	through, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{Proxy: http.ProxyURL(through)}
	defer transport.CloseIdleConnections()
	here := serveHTTP(t, h).URL
	named := strings.Replace(serveHTTP(t, http.RedirectHandler(here, http.StatusTemporaryRedirect)).URL, "127.0.0.1", "localhost", 1)
	for _, cfg := range []Server{
		{Transport: HTTP{URL: "http://mcp.example.com/mcp", Client: &http.Client{Transport: transport}}},
		{Transport: HTTP{URL: "http://moved.example.com/mcp", Client: &http.Client{Transport: transport}}},
		{Transport: HTTP{URL: here}}, {Transport: HTTP{URL: named}},
	} {
		cfg.Name, cfg.Options.Protocol, cfg.Options.PingInterval = "srv", "2025-11-25", -1
		c, err := tryConnect(t.Context(), cfg)
		if err != nil {
			t.Errorf("%s: %v", cfg.Transport.(HTTP).URL, err)
			continue
		}
		if res := mustRun(t, find(t, c, "echo"), `{"m":"hi"}`); res.Text() != "hi" {
			t.Errorf("%s: %s", cfg.Transport.(HTTP).URL, res.Text())
		}
		c.Close()
	}
}
