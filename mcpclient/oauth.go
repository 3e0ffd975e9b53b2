package mcpclient

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// OAuth says how the client logs in to a server, by the MCP authorization specification: OAuth
// 2.1 with PKCE, with the authorization server found by the protected resource metadata.
// Authorize and RedirectURL are required.
type OAuth struct {
	// Authorize sends the user to the page, waits until the authorization server redirects to RedirectURL, and
	// returns the query of the redirect. It is called by one goroutine at a time and may take as long as
	// Timeouts.Start.
	Authorize   func(ctx context.Context, page string) (url.Values, error)
	RedirectURL string

	// ClientID and ClientSecret belong to a client that was registered by hand at the authorization server Issuer,
	// and are sent only there. An empty Issuer means the first one that the server names. ClientMetadataURL is the
	// URL of a client ID metadata document, for authorization servers that support such documents. Without either
	// the client registers itself.
	ClientID, ClientSecret, Issuer string
	ClientMetadataURL              string

	// Dir is where tokens are stored, in files that only the user may read. If it is empty they are kept in memory.
	Dir string
}

// How often one request may log in: maxDenials times after a refusal (first with a refreshed token, then with
// one that the user grants), and maxStepUps times for more scopes.
const (
	maxDenials = 2
	maxStepUps = 2
)

// A login gets tokens and adds them to the requests to one server.
type login struct {
	cfg    OAuth
	server *url.URL
	http   *http.Client // sends no tokens
	next   http.RoundTripper

	busy  semaphore // held by renew
	mu    sync.Mutex
	grant *grant // nil before the first login
}

func newLogin(cfg *OAuth, server *url.URL, next http.RoundTripper) *login {
	l := &login{cfg: *cfg, server: server, next: next, busy: make(semaphore, 1)}
	l.http = &http.Client{Transport: next, Timeout: 30 * time.Second, CheckRedirect: sameHost}
	l.grant = l.load()
	return l
}

// sameHost stops redirects to another host, which would receive the secrets.
func sameHost(req *http.Request, via []*http.Request) error {
	if len(via) > 5 || req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

// RoundTrip sends the request with the current token, and logs in when the server demands it.
// Requests to other hosts, after a redirect, get no token.
func (l *login) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != l.server.Host || req.URL.Scheme != l.server.Scheme {
		return l.next.RoundTrip(req)
	}
	g := l.current()
	denials, stepUps := 0, 0
	for {
		attempt, err := withToken(req, g, denials+stepUps > 0)
		if err != nil {
			return nil, err
		}
		res, err := l.next.RoundTrip(attempt)
		if err != nil {
			return nil, err
		}
		ch := challengeOf(res)
		switch {
		case res.StatusCode == http.StatusUnauthorized && denials < maxDenials:
			denials++
			ch.refresh = denials == 1
		case res.StatusCode == http.StatusForbidden && ch.err == "insufficient_scope" && stepUps < maxStepUps:
			stepUps++
			ch.more = true
		default:
			return res, nil
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
		res.Body.Close()
		if g, err = l.renew(req.Context(), g, ch); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLogin, err)
		}
	}
}

// withToken returns a copy of the request with the token.
func withToken(req *http.Request, g *grant, again bool) (*http.Request, error) {
	out := req.Clone(req.Context())
	if again && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		out.Body = body
	}
	if g != nil {
		out.Header.Set("Authorization", "Bearer "+g.Access)
	}
	return out, nil
}

// current returns the current grant, or nil.
func (l *login) current() *grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grant
}

// renew gets a grant in place of old, which the server refused: one that another goroutine has got meanwhile, a
// refreshed one, or a new one from the user.
func (l *login) renew(ctx context.Context, old *grant, ch challenge) (*grant, error) {
	if err := l.busy.lock(ctx); err != nil {
		return nil, err
	}
	defer l.busy.unlock()
	if now := l.current(); now != old && now != nil {
		return now, nil
	}
	site, err := l.discover(ctx, ch)
	if err != nil {
		return nil, err
	}
	if err := l.checkIssuer(site, old); err != nil {
		return nil, err
	}
	if old != nil && old.Issuer != site.Issuer {
		old = nil // credentials are only for their issuer
	}
	var g *grant
	if old != nil && old.Refresh != "" && ch.refresh {
		g, _ = l.refresh(ctx, site, old) // on failure the user is asked
	}
	if g == nil {
		if g, err = l.authorize(ctx, site, old, ch); err != nil {
			return nil, err
		}
	}
	if err := l.save(g); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grant = g
	return g, nil
}

// checkIssuer prevents sending the credentials of one issuer to another one, which a server could name later.
func (l *login) checkIssuer(site *authServer, old *grant) error {
	first := l.cfg.Issuer
	if first == "" && old != nil {
		first = old.Issuer
	}
	if l.cfg.ClientID == "" || first == "" || first == site.Issuer {
		return nil
	}
	return fmt.Errorf("the server names the authorization server %q, but OAuth.ClientID belongs to %q", site.Issuer, first)
}

// authorize asks the user to grant access.
func (l *login) authorize(ctx context.Context, site *authServer, old *grant, ch challenge) (*grant, error) {
	client, err := l.identify(ctx, site, old)
	if err != nil {
		return nil, err
	}
	scopes := site.choose(ch)
	if ch.more && old != nil {
		scopes = union(strings.Fields(old.Scope), scopes)
	}
	state, verifier := rand.Text(), rand.Text()+rand.Text()
	sum := sha256.Sum256([]byte(verifier))
	q := url.Values{
		"response_type": {"code"}, "client_id": {client.ID}, "redirect_uri": {l.cfg.RedirectURL}, "state": {state},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
		"resource": {site.Resource},
	}
	if len(scopes) > 0 {
		q.Set("scope", strings.Join(scopes, " "))
	}
	if slices.Contains(scopes, "offline_access") {
		q.Set("prompt", "consent")
	}
	page, err := url.Parse(site.AuthorizationEndpoint)
	if err != nil {
		return nil, err
	}
	for k, v := range page.Query() {
		if !q.Has(k) {
			q[k] = v
		}
	}
	page.RawQuery = q.Encode()
	back, err := l.cfg.Authorize(ctx, page.String())
	if err != nil {
		return nil, err
	}
	if err := site.checkReturn(back, state); err != nil {
		return nil, err
	}
	form := url.Values{
		"grant_type": {"authorization_code"}, "code": {back.Get("code")},
		"redirect_uri": {l.cfg.RedirectURL}, "code_verifier": {verifier}, "resource": {site.Resource},
	}
	return l.token(ctx, site, client, form, strings.Join(scopes, " "))
}

func (l *login) refresh(ctx context.Context, site *authServer, old *grant) (*grant, error) {
	g, err := l.token(ctx, site, old.Client, url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {old.Refresh}, "resource": {site.Resource},
	}, old.Scope)
	if err == nil && g.Refresh == "" {
		g.Refresh = old.Refresh
	}
	return g, err
}

// checkReturn checks the query of the redirect. The issuer is compared exactly (RFC 9207).
func (s *authServer) checkReturn(back url.Values, state string) error {
	iss := back.Get("iss")
	switch {
	case back.Get("state") != state:
		return errors.New("the state of the redirect differs from that of the request; log in again")
	case iss != "" && iss != s.Issuer:
		return fmt.Errorf("the redirect comes from the issuer %q, not from %q", iss, s.Issuer)
	case iss == "" && s.IssSupported:
		return fmt.Errorf("the redirect has no issuer (iss), although %q declares that it sends one", s.Issuer)
	case back.Get("error") != "":
		return fmt.Errorf("the authorization server refused: %s %s", back.Get("error"), clip(back.Get("error_description"), 300))
	case back.Get("code") == "":
		return errors.New("the redirect has no code")
	}
	return nil
}

// identify returns the client's credentials at the authorization server.
func (l *login) identify(ctx context.Context, site *authServer, old *grant) (credentials, error) {
	switch {
	case l.cfg.ClientID != "":
		return credentials{ID: l.cfg.ClientID, Secret: l.cfg.ClientSecret, Method: site.method(l.cfg.ClientSecret != "")}, nil
	case site.MetadataDocuments && l.cfg.ClientMetadataURL != "":
		return credentials{ID: l.cfg.ClientMetadataURL, Method: "none"}, nil
	case old != nil:
		return old.Client, nil
	case site.RegistrationEndpoint == "":
		return credentials{}, fmt.Errorf("%q does not support registration; register a client by hand and set OAuth.ClientID", site.Issuer)
	}
	method := site.method(true)
	var answer struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Method string `json:"token_endpoint_auth_method"`
	}
	err := l.postJSON(ctx, site.RegistrationEndpoint, map[string]any{
		"client_name": "kitbag", "redirect_uris": []string{l.cfg.RedirectURL}, "application_type": applicationType(l.cfg.RedirectURL),
		"grant_types": []string{"authorization_code", "refresh_token"}, "response_types": []string{"code"},
		"token_endpoint_auth_method": method,
	}, &answer)
	if err != nil {
		return credentials{}, fmt.Errorf("register at %q: %w", site.Issuer, err)
	}
	if answer.ID == "" {
		return credentials{}, fmt.Errorf("register at %q: the answer has no client_id", site.Issuer)
	}
	if answer.Method != "" {
		method = answer.Method
	}
	return credentials{ID: answer.ID, Secret: answer.Secret, Method: method}, nil
}

// applicationType is "native" for a program on the user's machine.
func applicationType(redirect string) string {
	if u, err := url.Parse(redirect); err == nil && u.Scheme == "https" && !loopback(u.Hostname()) {
		return "web"
	}
	return "native"
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
