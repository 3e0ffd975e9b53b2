package oauthtest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// An Issuer is an authorization server that signs JWTs. It listens until the test ends.
type Issuer struct {
	*httptest.Server

	Metadata func(m map[string]any) // changes the metadata; set it before the first request
	Keys     func(m map[string]any) // changes the key set; set it before the first request

	// Grant, unless nil, changes the answer to a request for a token, and returns its status. It may be called by several
	// goroutines.
	Grant func(form url.Values, answer map[string]any) int

	mu        sync.Mutex
	key       *ecdsa.PrivateKey
	kid       string
	fetches   int
	clients   map[string]bool  // that have registered themselves
	codes     map[string]*code // also refresh tokens
	exchanged int              // codes used
	reused    int              // codes sent a second time
}

// A code is an authorization code or a refresh token, which a client exchanges for tokens.
type code struct {
	subject, client, redirect, challenge, resource, scope string
	used                                                  bool
}

// NewIssuer returns an issuer with one key.
func NewIssuer(t testing.TB) *Issuer {
	t.Helper()
	nop := func(map[string]any) {}
	i := &Issuer{Metadata: nop, Keys: nop, clients: map[string]bool{}, codes: map[string]*code{}}
	i.Rotate()
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		m := map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "token_endpoint": i.URL + "/token", "authorization_endpoint": i.URL + "/authorize",
			"registration_endpoint": i.URL + "/register", "code_challenge_methods_supported": []string{"S256"},
			"authorization_response_iss_parameter_supported": true}
		i.Metadata(m)
		_ = json.NewEncoder(w).Encode(m)
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		i.fetches++
		m := map[string]any{"keys": []any{i.jwk()}}
		i.mu.Unlock()
		i.Keys(m)
		_ = json.NewEncoder(w).Encode(m)
	})
	mux.HandleFunc("/token", i.token)
	mux.HandleFunc("/authorize", i.authorize)
	mux.HandleFunc("/register", func(w http.ResponseWriter, _ *http.Request) {
		id := rand.Text()
		i.mu.Lock()
		i.clients[id] = true
		i.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{"client_id": id, "token_endpoint_auth_method": "none"})
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		i.CloseClientConnections()
		i.Close()
	})
	return i
}

// Secret is the secret of the client "kitbag" at the token endpoint.
const Secret = "the-secret-of-the-client"

// UserCookie names the user of a browser.
const UserCookie = "user"

// authorize serves the authorization page; a visit counts as consent.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	user, err := r.Cookie(UserCookie)
	if err != nil || q.Get("code_challenge_method") != "S256" || q.Get("response_type") != "code" {
		http.Error(w, "no user, or no PKCE", http.StatusBadRequest)
		return
	}
	c := i.newCode(&code{user.Value, q.Get("client_id"), q.Get("redirect_uri"), q.Get("code_challenge"), q.Get("resource"), q.Get("scope"), false})
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"state": {q.Get("state")}, "code": {c}, "iss": {i.URL}}.Encode(), http.StatusFound)
}

func (i *Issuer) newCode(c *code) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	text := rand.Text()
	i.codes[text] = c
	return text
}

// redeem returns what a code or refresh token is for, or nil if it is not valid. Both can be used once.
func (i *Issuer) redeem(form url.Values, client, secret string) *code {
	refresh := form.Get("grant_type") == "refresh_token"
	text := form.Get("code")
	if refresh {
		text = form.Get("refresh_token")
	}
	sum := sha256.Sum256([]byte(form.Get("code_verifier")))
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.codes[text]
	switch {
	case c == nil || c.client != client || c.resource != form.Get("resource") || !i.clients[client] && secret != Secret,
		!refresh && (c.redirect != form.Get("redirect_uri") || c.challenge != base64.RawURLEncoding.EncodeToString(sum[:])),
		refresh && c.challenge != "":
		return nil
	case c.used:
		i.reused++
		return nil
	}
	c.used = true
	i.exchanged++
	return c
}

// Exchanged returns how many codes and refresh tokens were exchanged for tokens, how many were sent a second time, and how
// many clients have registered themselves.
func (i *Issuer) Exchanged() (exchanged, reused, clients int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.exchanged, i.reused, len(i.clients)
}

// Forget makes the refresh tokens and codes of a user invalid.
func (i *Issuer) Forget(user string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.codes, func(_ string, c *code) bool { return c.subject == user })
}

// token serves authorization codes, refresh tokens, client credentials and token exchange (RFC 8693) for the resource that
// the client names (RFC 8707).
func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	id, secret, _ := r.BasicAuth()
	id = cmp.Or(id, r.Form.Get("client_id"))
	subject, scope, granted := id, "", secret == Secret
	answer, status := map[string]any{"token_type": "Bearer", "expires_in": 3600}, http.StatusOK
	switch r.Form.Get("grant_type") {
	case "client_credentials":
	case "urn:ietf:params:oauth:grant-type:token-exchange":
		var claims struct{ Iss, Sub string }
		if parts := strings.Split(r.Form.Get("subject_token"), "."); len(parts) == 3 {
			data, _ := base64.RawURLEncoding.DecodeString(parts[1])
			_ = json.Unmarshal(data, &claims)
		}
		subject, granted = claims.Sub, granted && claims.Iss == i.URL
	case "authorization_code", "refresh_token":
		c := i.redeem(r.Form, id, secret)
		if granted = c != nil; granted {
			subject, scope = c.subject, c.scope
			answer["refresh_token"] = i.newCode(&code{c.subject, c.client, "", "", c.resource, c.scope, false})
		}
	default:
		granted = false
	}
	if !granted {
		answer, status = map[string]any{"error": "invalid_grant"}, http.StatusUnauthorized
	} else {
		answer["access_token"] = i.Token(subject, r.Form.Get("resource"), map[string]any{"jti": rand.Text(), "scope": scope})
	}
	if i.Grant != nil && status == http.StatusOK {
		status = i.Grant(r.Form, answer)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

// Rotate replaces the key.
func (i *Issuer) Rotate() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key, i.kid = key, rand.Text()
}

// jwk returns the public key. The caller holds i.mu.
func (i *Issuer) jwk() map[string]any {
	point, err := i.key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		panic(err)
	}
	return map[string]any{"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": i.kid,
		"x": base64.RawURLEncoding.EncodeToString(point[1:33]), "y": base64.RawURLEncoding.EncodeToString(point[33:])}
}

// Fetches returns how often the keys were requested.
func (i *Issuer) Fetches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// Token returns a token for the subject and the audience that is valid for an hour, with further claims; a claim that is
// nil is left out.
func (i *Issuer) Token(subject, audience string, extra map[string]any) string {
	now := time.Now().Unix()
	claims := map[string]any{"iss": i.URL, "sub": subject, "aud": audience, "iat": now, "nbf": now, "exp": now + 3600}
	maps.Copy(claims, extra)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return i.Sign(nil, claims)
}

// Sign returns a JWT signed with the current key, with changes to its header.
func (i *Issuer) Sign(header, claims map[string]any) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	h := map[string]any{"alg": "ES256", "typ": "at+jwt", "kid": i.kid}
	maps.Copy(h, header)
	part := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			panic(fmt.Sprint("not JSON: ", err))
		}
		return base64.RawURLEncoding.EncodeToString(data)
	}
	text := part(h) + "." + part(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	if err != nil {
		panic(err)
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}
