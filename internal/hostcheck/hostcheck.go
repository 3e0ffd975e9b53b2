// Package hostcheck recognizes requests that do not come from an attacker's page: the attacker can make the page's name
// resolve to this machine (DNS rebinding), but then the Host of the page's requests is that name.
package hostcheck

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/loopback"
)

// Name returns the name or address in a Host, in lower case and without port and brackets.
func Name(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		hostport = host
	}
	return strings.ToLower(strings.Trim(hostport, "[]"))
}

// Local reports whether a Host is localhost, a loopback address, or one of the names.
func Local(hostport string, names []string) bool {
	host := Name(hostport)
	return loopback.Host(host) || slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, host) })
}

// LocalOrAddress reports whether a Host is localhost, any IP address, or one of the names.
func LocalOrAddress(hostport string, names []string) bool {
	_, err := netip.ParseAddr(Name(hostport))
	return err == nil || Local(hostport, names)
}
