package mcpserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// admit checks the host, the origin and the credential of a request. The credential is nil if the server has no
// credentials. If ok is false, admit has answered the request.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (cred *Credential, ok bool) {
	if !s.knownHost(r.Host) {
		http.Error(w, "unknown Host; the owner of the server can add it to Config.Hosts", http.StatusForbidden)
		return nil, false
	}
	for _, origin := range r.Header.Values("Origin") {
		if !s.knownOrigin(origin) {
			http.Error(w, "unknown Origin; the owner of the server can add it to Config.Origins", http.StatusForbidden)
			return nil, false
		}
	}
	if len(s.cat.cfg.Credentials) == 0 {
		if !arrivedOnLoopback(r) {
			http.Error(w, "without Config.Credentials the server accepts only connections to a loopback address", http.StatusForbidden)
			return nil, false
		}
		return nil, true
	}
	if cred = s.credential(r.Header.Get("Authorization")); cred == nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "missing or unknown token; send Authorization: Bearer TOKEN", http.StatusUnauthorized)
		return nil, false
	}
	return cred, true
}

// credential returns the credential of an Authorization header, or nil. The comparison takes constant time, so
// that it does not reveal how many bytes of a token are right.
func (s *Server) credential(header string) *Credential {
	scheme, token, _ := strings.Cut(header, " ")
	sent := sha256.Sum256([]byte(strings.TrimSpace(token)))
	var found *Credential
	for i := range s.cat.cfg.Credentials {
		c := &s.cat.cfg.Credentials[i]
		want := sha256.Sum256([]byte(c.Token))
		if subtle.ConstantTimeCompare(sent[:], want[:]) == 1 {
			found = c
		}
	}
	if !strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	return found
}

// knownHost reports whether a request may name the host. It excludes names that an attacker has made to resolve
// to this server (DNS rebinding).
func (s *Server) knownHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	return isLoopback(host) || slices.ContainsFunc(s.cat.cfg.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// knownOrigin reports whether a browser may send requests from the origin. The origin "null", for example of a
// file, is rejected.
func (s *Server) knownOrigin(origin string) bool {
	if slices.ContainsFunc(s.cat.cfg.Origins, func(o string) bool { return strings.EqualFold(o, origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && s.knownHost(u.Host)
}

// isLoopback reports whether the name always means this machine. A name other than localhost may resolve to any
// address.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// arrivedOnLoopback reports whether the request came over a loopback address or a Unix socket. It is
// false if the address is unknown.
func arrivedOnLoopback(r *http.Request) bool {
	switch a := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// isJSON reports whether the media type is JSON, which a form of a web page cannot send.
func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}
