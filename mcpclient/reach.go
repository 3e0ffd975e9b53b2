package mcpclient

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// A server elsewhere could have us call what listens on this machine and trusts whoever
// can (server-side request forgery, in MCP's security best practices): by a redirect, or
// by where it says that one logs in. It may use a name, which today leads here and
// elsewhere tomorrow.

// An outward round tripper sends requests to other hosts than the server's to other
// machines only. The server's own was named by who configured it.
type outward struct {
	server *url.URL
	next   http.RoundTripper
	proxy  func(*http.Request) (*url.URL, error)
	direct http.RoundTripper // for requests that no proxy sends on
}

// newOutward also returns a function that closes the idle connections it leaves. Who
// passes a round tripper of another kind dials, and judges, by themselves.
func newOutward(server *url.URL, next http.RoundTripper) (rt http.RoundTripper, idle func()) {
	o := &outward{server: server, next: next, proxy: http.ProxyURL(nil), direct: next}
	t, ok := next.(*http.Transport)
	//lint:ignore SA1019 a host may have set them, and then they must be used
	if !ok || t.Dial != nil || t.DialTLS != nil {
		return o, func() {}
	}
	direct := t.Clone()
	direct.Proxy = nil
	if direct.DialContext == nil {
		direct.DialContext = new(net.Dialer).DialContext
	}
	direct.DialContext = o.judged(direct.DialContext)
	if direct.DialTLSContext != nil {
		direct.DialTLSContext = o.judged(direct.DialTLSContext)
	}
	o.direct = direct
	if t.Proxy != nil {
		o.proxy = t.Proxy
	}
	return o, direct.CloseIdleConnections
}

func (o *outward) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host == o.server.Host && req.URL.Scheme == o.server.Scheme || thisMachine(o.server.Hostname()) {
		return o.next.RoundTrip(req)
	}
	if err := mayReach(o.server, req.URL); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	if proxy, err := o.proxy(req); proxy != nil || err != nil {
		return o.next.RoundTrip(req) // where it leads to is the proxy's to judge
	}
	return o.direct.RoundTrip(req)
}

// judged returns dial without the connections that lead to this machine.
func (o *outward) judged(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		remote, ok := conn.RemoteAddr().(*net.TCPAddr)
		local, _ := conn.LocalAddr().(*net.TCPAddr)
		if ok && (remote.IP.IsLoopback() || remote.IP.IsUnspecified() || local != nil && remote.IP.Equal(local.IP)) {
			conn.Close()
			return nil, notHere(o.server, fmt.Sprintf("%s (%v)", address, remote))
		}
		return conn, nil
	}
}

// mayReach refuses requests to this machine by its name or address, on the word of a server
// elsewhere.
func mayReach(server, endpoint *url.URL) error {
	if thisMachine(endpoint.Hostname()) && !thisMachine(server.Hostname()) {
		return notHere(server, endpoint.String())
	}
	return nil
}

func notHere(server *url.URL, what string) error {
	return fmt.Errorf("%q is on this machine, and the server %q is not; it has no business there. "+
		"If the server runs here, configure it as localhost, or give HTTP.Client a Transport that checks addresses itself", what, server.Host)
}

// thisMachine reports whether the host is this machine by its name or address, however
// that is written. Names that are looked up are judged when they are dialled.
func thisMachine(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	ip := net.ParseIP(host)
	return loopback(host) || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsUnspecified()
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
