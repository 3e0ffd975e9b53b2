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

// admit checks who calls, and returns their credential, nil if none are needed. It
// has answered the request if ok is false.
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
	if len(s.cfg.Credentials) == 0 {
		if !arrivedOnLoopback(r) {
			http.Error(w, "without Config.Credentials only loopback addresses are served", http.StatusForbidden)
			return nil, false
		}
		return nil, true
	}
	if cred = s.credential(r.Header.Get("Authorization")); cred == nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "send a known token: Authorization: Bearer TOKEN", http.StatusUnauthorized)
		return nil, false
	}
	return cred, true
}

// credential finds the credential of a header. It takes the same time whichever
// token is given, and does not tell how much of it was right.
func (s *Server) credential(header string) *Credential {
	scheme, token, _ := strings.Cut(header, " ")
	given := sha256.Sum256([]byte(strings.TrimSpace(token)))
	var found *Credential
	for i := range s.cfg.Credentials {
		c := &s.cfg.Credentials[i]
		have := sha256.Sum256([]byte(c.Token))
		if subtle.ConstantTimeCompare(given[:], have[:]) == 1 {
			found = c
		}
	}
	if !strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	return found
}

// knownHost keeps out pages whose name was made to point here (DNS rebinding).
func (s *Server) knownHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	return isLoopback(host) || slices.ContainsFunc(s.cfg.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// knownOrigin keeps out pages of others that a browser shows. An origin that is "null", as
// of a file, is nobody's.
func (s *Server) knownOrigin(origin string) bool {
	if slices.ContainsFunc(s.cfg.Origins, func(o string) bool { return strings.EqualFold(o, origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && s.knownHost(u.Host)
}

// isLoopback reports whether the name can only be this machine. Names other than localhost
// may resolve to anything.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// arrivedOnLoopback reports whether the connection ends at a loopback address of
// this machine, or a Unix socket. What cannot be told counts as outside.
func arrivedOnLoopback(r *http.Request) bool {
	switch a := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// isJSON keeps out what a form of a web page could send.
func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}
