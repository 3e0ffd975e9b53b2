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

// An OAuth says how the client logs in where a server wants it, by the MCP
// authorization specification: OAuth 2.1 with PKCE, the server found through
// its protected-resource metadata. Authorize and RedirectURL are required.
type OAuth struct {
	// Authorize sends a person to the page, waits until the authorization server
	// sends them on to RedirectURL, and returns the query they came with. It is
	// called by one goroutine at a time and may take as long as Timeouts.Start.
	Authorize   func(ctx context.Context, page string) (url.Values, error)
	RedirectURL string

	// ClientID and ClientSecret are those of a client that was registered by
	// hand, at the authorization server Issuer; no other gets them. An empty
	// Issuer is the first one that the server names. ClientMetadataURL is where a client ID metadata document is; it is
	// the client id for servers that take such. Without either the client
	// registers itself.
	ClientID, ClientSecret, Issuer string
	ClientMetadataURL              string

	// Dir is where tokens are kept, in files that only the user may read. Empty
	// keeps them in memory.
	Dir string
}

// How often one request may make the client log in: with a refreshed token,
// then with one that the person gives; and for further scopes.
const (
	maxDenials = 2
	maxStepUps = 2
)

// A login adds tokens to the requests to one server, and gets them.
type login struct {
	cfg    OAuth
	server *url.URL
	http   *http.Client // without tokens
	next   http.RoundTripper

	turn  chan struct{} // holds a token while somebody logs in
	mu    sync.Mutex
	grant *grant // nil before the first login
}

func newLogin(cfg *OAuth, server *url.URL, next http.RoundTripper) *login {
	l := &login{cfg: *cfg, server: server, next: next, turn: make(chan struct{}, 1)}
	l.http = &http.Client{Transport: next, Timeout: 30 * time.Second, CheckRedirect: sameHost}
	l.grant = l.load()
	return l
}

// sameHost keeps secrets from following a redirect elsewhere.
func sameHost(req *http.Request, via []*http.Request) error {
	if len(via) > 5 || req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

// RoundTrip sends the request with the token there is, and logs in when the
// server says that it will not do. Tokens are for the server only: a request
// that a redirect has led elsewhere goes without.
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

// withToken returns the request to send; it is copied, since the caller's must
// not be changed.
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

// current returns the grant there is, or nil.
func (l *login) current() *grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grant
}

// renew gets another grant than old, which the server did not take: one that
// somebody else has got meanwhile, a refreshed one, or one that the person gives.
func (l *login) renew(ctx context.Context, old *grant, ch challenge) (*grant, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if now := l.current(); now != old && now != nil {
		return now, nil
	}
	site, err := l.discover(ctx, ch)
	if err != nil {
		return nil, err
	}
	if err := l.mayTell(site, old); err != nil {
		return nil, err
	}
	if old != nil && old.Issuer != site.Issuer {
		old = nil // credentials belong to the issuer they come from
	}
	var g *grant
	if old != nil && old.Refresh != "" && ch.refresh {
		g, _ = l.refresh(ctx, site, old) // on failure the person is asked
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

// mayTell refuses to show the credentials of one issuer to another, which a
// server may name that is not what it was.
func (l *login) mayTell(site *site, old *grant) error {
	first := l.cfg.Issuer
	if first == "" && old != nil {
		first = old.Issuer
	}
	if l.cfg.ClientID == "" || first == "" || first == site.Issuer {
		return nil
	}
	return fmt.Errorf("the server now sends us to %q; OAuth.ClientID belongs to %q", site.Issuer, first)
}

// authorize has the person grant access.
func (l *login) authorize(ctx context.Context, site *site, old *grant, ch challenge) (*grant, error) {
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

func (l *login) refresh(ctx context.Context, site *site, old *grant) (*grant, error) {
	g, err := l.token(ctx, site, old.Client, url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {old.Refresh}, "resource": {site.Resource},
	}, old.Scope)
	if err == nil && g.Refresh == "" {
		g.Refresh = old.Refresh
	}
	return g, err
}

// checkReturn checks what the authorization server has sent the person back
// with. The issuer is compared letter for letter (RFC 9207).
func (s *site) checkReturn(back url.Values, state string) error {
	iss := back.Get("iss")
	switch {
	case back.Get("state") != state:
		return errors.New("the answer of the authorization server has another state than the question; start again")
	case iss != "" && iss != s.Issuer:
		return fmt.Errorf("the answer comes from %q and not from %q, which was asked", iss, s.Issuer)
	case iss == "" && s.IssSupported:
		return fmt.Errorf("the answer does not say that it comes from %q, although that server promises to", s.Issuer)
	case back.Get("error") != "":
		return fmt.Errorf("the authorization server refused: %s %s", back.Get("error"), clip(back.Get("error_description"), 300))
	case back.Get("code") == "":
		return errors.New("the answer of the authorization server has no code")
	}
	return nil
}

// identify returns what we are to the authorization server.
func (l *login) identify(ctx context.Context, site *site, old *grant) (credentials, error) {
	switch {
	case l.cfg.ClientID != "":
		return credentials{ID: l.cfg.ClientID, Secret: l.cfg.ClientSecret, Method: site.method(l.cfg.ClientSecret != "")}, nil
	case site.MetadataDocuments && l.cfg.ClientMetadataURL != "":
		return credentials{ID: l.cfg.ClientMetadataURL, Method: "none"}, nil
	case old != nil:
		return old.Client, nil
	case site.RegistrationEndpoint == "":
		return credentials{}, fmt.Errorf("%q registers no clients; register one there and set OAuth.ClientID", site.Issuer)
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

// applicationType is "native" for what runs on the person's machine.
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
