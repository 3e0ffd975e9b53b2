// Package oauthtest has authorization servers for tests: a [Server] for clients that log in, which also serves the MCP server
// that it protects, and an [Issuer] of JWTs. Both enforce the rules that a client could break: PKCE, redirect URI, resource.
package oauthtest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A Server listens until the test ends. Its functions let a test change its answers; set them before the first
// request.
type Server struct {
	*httptest.Server

	Resource func(m map[string]any) // changes the metadata of the resource
	Metadata func(m map[string]any) // changes the metadata of the authorization server
	Back     func(q url.Values)     // changes the parameters of the redirect after authorization
	NoGrant  bool                   // makes it reject refresh tokens

	mu         sync.Mutex
	valid      map[string]bool   // access tokens
	codes      map[string]string // code → PKCE challenge
	refreshes  int
	registered []map[string]any
}

// New returns a server that protects an MCP server and serves it at /mcp.
func New(t testing.TB, guarded http.Handler) *Server {
	t.Helper()
	nop := func(map[string]any) {}
	s := &Server{valid: map[string]bool{}, codes: map[string]string{}, Resource: nop, Metadata: nop, Back: func(url.Values) {}}
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		ok := s.valid[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		s.mu.Unlock()
		if !ok {
			w.Header().Set("WWW-Authenticate", `Basic realm="x", Bearer error="invalid_token", scope="a \"b"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		guarded.ServeHTTP(w, r)
	})
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		m := map[string]any{"resource": s.URL + "/mcp", "authorization_servers": []string{s.URL}}
		s.Resource(m)
		_ = json.NewEncoder(w).Encode(m)
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		m := map[string]any{
			"issuer": s.URL, "authorization_endpoint": s.URL + "/authorize?x=y", "token_endpoint": s.URL + "/token",
			"registration_endpoint": s.URL + "/register", "code_challenge_methods_supported": []string{"S256"},
			"token_endpoint_auth_methods_supported": []string{"client_secret_post"}, "authorization_response_iss_parameter_supported": true,
		}
		s.Metadata(m)
		_ = json.NewEncoder(w).Encode(m)
	})
	mux.HandleFunc("/register", s.register)
	mux.HandleFunc("/authorize", s.authorize)
	mux.HandleFunc("/token", s.token)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// Agree acts as a user who agrees to everything on the page, and returns the parameters of the redirect.
func (s *Server) Agree(page string) (url.Values, error) {
	u, err := url.Parse(page)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	if q.Get("x") != "y" || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("scope") != `a "b` {
		return nil, fmt.Errorf("the page is %s", page)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	code := fmt.Sprintf("code%d", len(s.codes)+1)
	s.codes[code] = q.Get("code_challenge")
	back := url.Values{"state": {q.Get("state")}, "code": {code}, "iss": {s.URL}}
	s.Back(back)
	return back, nil
}

// authorize serves the authorization page; a visit counts as consent.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	redirect := r.URL.Query().Get("redirect_uri")
	known := slices.ContainsFunc(s.Registered(), func(m map[string]any) bool {
		list, _ := m["redirect_uris"].([]any)
		return slices.Contains(list, any(redirect))
	})
	back, err := s.Agree(s.URL + r.URL.String())
	if err != nil || !known {
		http.Error(w, fmt.Sprintf("redirect to %q: %v", redirect, err), http.StatusBadRequest)
		return
	}
	http.Redirect(w, r, redirect+"?"+back.Encode(), http.StatusFound)
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	var m map[string]any
	_ = json.NewDecoder(r.Body).Decode(&m)
	s.mu.Lock()
	s.registered = append(s.registered, m)
	s.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"client_id":"id1","client_secret":"sec1"}`)
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
	challenge, known := s.codes[r.Form.Get("code")]
	refresh := r.Form.Get("grant_type") == "refresh_token"
	switch {
	case r.Form.Get("resource") != s.URL+"/mcp", r.Form.Get("client_id") == "", r.Form.Get("client_secret") == "":
	case r.Form.Get("grant_type") == "authorization_code" && known && challenge == base64.RawURLEncoding.EncodeToString(sum[:]),
		refresh && r.Form.Get("refresh_token") == "refresh1" && !s.NoGrant:
		if refresh {
			s.refreshes++
		}
		token := fmt.Sprintf("token%d", len(s.valid)+1)
		s.valid[token] = true
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","refresh_token":"refresh1","expires_in":60}`, token)
		return
	}
	w.WriteHeader(http.StatusBadRequest)
	fmt.Fprint(w, `{"error":"invalid_grant","error_description":"no"}`)
}

// Revoke invalidates all tokens issued so far.
func (s *Server) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token := range s.valid {
		s.valid[token] = false
	}
}

// Tokens returns how many access tokens were issued.
func (s *Server) Tokens() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.valid)
}

// Refreshes returns how many access tokens were issued for a refresh token.
func (s *Server) Refreshes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refreshes
}

// Registered returns the metadata that clients registered.
func (s *Server) Registered() []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.registered)
}
