package mcpserver

import (
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/hostcheck"
	"github.com/kitbag-go/kitbag/mcpserver/internal/replica"
)

// admit checks the host, the origin and the identity of a request, and returns the request with its identity in the context.
// If ok is false, admit has answered the request. The caller must call [registry.leave] with the account.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (who *account, identified *http.Request, ok bool) {
	who, r, refusal := s.authenticate(r)
	forwarded := s.replicas != nil && isForwarded(r) // another replica has checked the host and the origin
	if forwarded && refusal == nil {                 // a client without a valid credential must not cause reads of the store
		if err := s.replicas.forwarder.Check(r); err != nil {
			status := http.StatusForbidden
			if err == replica.ErrUnavailable || err == replica.ErrNotHere { // the forwarding replica tries again
				status = http.StatusMisdirectedRequest
			}
			http.Error(w, "header "+replica.Header+": "+err.Error(), status)
			return who, nil, false
		}
	}
	if !forwarded && !s.knownHost(r.Host) {
		http.Error(w, "unknown Host; the owner of the server can add it to Config.Hosts", http.StatusForbidden)
		return who, nil, false
	}
	for _, origin := range r.Header.Values("Origin") {
		if !forwarded && !s.knownOrigin(origin) {
			http.Error(w, "unknown Origin; the owner of the server can add it to Config.Origins", http.StatusForbidden)
			return who, nil, false
		}
	}
	if len(s.cat.auth) == 0 && !forwarded && !arrivedOnLoopback(r) {
		http.Error(w, "without Config.Credentials the server accepts only connections to a loopback address", http.StatusForbidden)
		return who, nil, false
	}
	if refusal != nil {
		if refusal.Challenge != "" {
			w.Header().Set("WWW-Authenticate", refusal.Challenge)
		}
		http.Error(w, refusal.Reason, refusal.Status)
		return who, nil, false
	}
	return who, r, true
}

// knownHost reports whether a request may name the host. It excludes names that an attacker has made to resolve
// to this server (DNS rebinding).
func (s *Server) knownHost(hostport string) bool { return hostcheck.Local(hostport, s.cat.cfg.Hosts) }

// knownOrigin reports whether a browser may send requests from the origin. The origin "null", for example of a
// file, is rejected.
func (s *Server) knownOrigin(origin string) bool {
	if slices.ContainsFunc(s.cat.cfg.Origins, func(o string) bool { return strings.EqualFold(o, origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && s.knownHost(u.Host)
}

// arrivedOnLoopback reports whether the request came over a loopback address or a Unix socket, as far as is known.
func arrivedOnLoopback(r *http.Request) bool {
	switch a := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// isJSON reports whether the media type is JSON. A form of a web page, which may be an attacker's, cannot send JSON.
func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}
