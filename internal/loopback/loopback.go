// Package loopback recognizes names and addresses of this machine.
package loopback

import "net/netip"

// Host reports whether a host always means this machine. A name other than localhost may resolve to any address.
func Host(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
