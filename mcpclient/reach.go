package mcpclient

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/kitbag-go/kitbag/internal/loopback"
)

// A server on another machine could make the client call a service on this one that trusts local callers
// (server-side request forgery, in MCP's security best practices): by a redirect, by its OAuth metadata, or by
// a name whose address changes.

// An outboundGuard sends requests to the configured host of the server, and to other hosts only if they are not
// this machine. If the server is on this machine, every host is allowed.
type outboundGuard struct {
	server *url.URL
	next   http.RoundTripper                     // checks no addresses; for the server, and for other hosts through a proxy
	proxy  func(*http.Request) (*url.URL, error) // returns nil for a request without a proxy
	direct http.RoundTripper                     // for other hosts without a proxy
}

// newOutboundGuard returns a guard around next, and a function that closes the guard's idle connections. If next is not
// an *http.Transport, or has its own Dial or DialTLS, next must check addresses itself.
func newOutboundGuard(server *url.URL, next http.RoundTripper) (rt http.RoundTripper, closeIdle func()) {
	o := &outboundGuard{server: server, next: next, proxy: http.ProxyURL(nil), direct: next}
	t, ok := next.(*http.Transport)
	//lint:ignore SA1019 a program may have set the deprecated fields
	if !ok || t.Dial != nil || t.DialTLS != nil {
		return o, func() {}
	}
	direct := t.Clone()
	direct.Proxy = nil
	if direct.DialContext == nil {
		direct.DialContext = new(net.Dialer).DialContext
	}
	direct.DialContext = o.checkAddress(direct.DialContext)
	if direct.DialTLSContext != nil {
		direct.DialTLSContext = o.checkAddress(direct.DialTLSContext)
	}
	o.direct = direct
	if t.Proxy != nil {
		o.proxy = t.Proxy
	}
	return o, direct.CloseIdleConnections
}

func (o *outboundGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host == o.server.Host && req.URL.Scheme == o.server.Scheme || isThisMachine(o.server.Hostname()) {
		return o.next.RoundTrip(req)
	}
	if err := checkReach(o.server, req.URL); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	if proxy, err := o.proxy(req); proxy != nil || err != nil {
		return o.next.RoundTrip(req) // the proxy has to check the address
	}
	return o.direct.RoundTrip(req)
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// checkAddress wraps dial so that it refuses connections to this machine.
func (o *outboundGuard) checkAddress(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		remote, ok := conn.RemoteAddr().(*net.TCPAddr)
		local, _ := conn.LocalAddr().(*net.TCPAddr)
		// A connection to any address of this machine has that address at both ends.
		if ok && (remote.IP.IsLoopback() || remote.IP.IsUnspecified() || local != nil && remote.IP.Equal(local.IP)) {
			conn.Close()
			return nil, errThisMachine(o.server, fmt.Sprintf("%s (%v)", address, remote))
		}
		return conn, nil
	}
}

// checkReach rejects requests to this machine, by its name or address, that a server on another machine has caused.
func checkReach(server, endpoint *url.URL) error {
	if isThisMachine(endpoint.Hostname()) && !isThisMachine(server.Hostname()) {
		return errThisMachine(server, endpoint.String())
	}
	return nil
}

func errThisMachine(server *url.URL, what string) error {
	return fmt.Errorf("%q is on this machine, but the server %q is not, and must not make the client connect to this machine. "+
		"If the server runs here, configure it as localhost, or give HTTP.Client a Transport that checks addresses itself", what, server.Host)
}

// isThisMachine reports whether a name or address means this machine. Other names are checked when they are dialled.
func isThisMachine(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	ip := net.ParseIP(host)
	return loopback.Host(host) || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsUnspecified()
}
