package mcpclient

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/internal/loopback"
)

// OAuth configures the login to a server by the MCP authorization specification: OAuth 2.1 with PKCE. The
// authorization server is found by the protected resource metadata.
type OAuth struct {
	// Authorize sends the user to the page, waits until the authorization server redirects to RedirectURL, and
	// returns the query of the redirect. It is called by one goroutine at a time and may take as long as
	// Timeouts.Start. If Authorize is nil only a stored login is used, and a call that needs a new login, or one with more
	// scopes, fails with [ErrLogin]; see [HTTP.BeginLogin].
	Authorize   func(ctx context.Context, page string) (url.Values, error)
	RedirectURL string

	// ClientID and ClientSecret belong to a client that was registered by hand at the authorization server Issuer,
	// and are sent only there. An empty Issuer means the first authorization server that the server names; if Issuer is
	// set, any other authorization server is refused. ClientMetadataURL is the URL of a client ID metadata document, for
	// authorization servers that support such documents. Without ClientID and ClientMetadataURL the client registers
	// itself.
	ClientID, ClientSecret, Issuer string
	ClientMetadataURL              string

	// Dir is where tokens are stored, in files that only the user may read. With an empty Dir they are kept in memory.
	Dir string

	// Store, unless nil, is used instead of Dir. It keeps the login of one user to one server, and must be safe for
	// concurrent use. Load returns nil if nothing is stored. The bytes contain tokens if loggedIn is set, and otherwise
	// only what the next login needs. The Lock is held while a login is renewed or saved, so that no two programs use
	// the same refresh token.
	Store interface {
		Load(ctx context.Context) ([]byte, error)
		Save(ctx context.Context, login []byte, loggedIn bool) error
		Lock(ctx context.Context) (unlock func(), err error)
	}

	// Scopes, unless nil, are requested from Issuer for the server's URL, and no metadata of the server is read. Use
	// them in a program to which users log in, with the program's own URL as the server's.
	Scopes []string
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

	renewing ctxMutex // held by renew
}

func newLogin(cfg *OAuth, server *url.URL, next http.RoundTripper) *login {
	l := &login{cfg: *cfg, server: server, next: next, renewing: make(ctxMutex, 1)}
	l.http = &http.Client{Transport: next, Timeout: 30 * time.Second, CheckRedirect: sameHost}
	if cfg.Store == nil {
		l.cfg.Store = cfg.loginFile(server.String())
	}
	return l
}

// sameHost stops redirects to another host, which would receive the secrets, and long chains of redirects.
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
	current, err := l.load(req.Context())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLogin, err)
	}
	denials, stepUps := 0, 0
	for {
		attempt, err := withToken(req, current, denials+stepUps > 0)
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
			ch.stepUp = true
		default:
			hideToken(res, attempt)
			return res, nil
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection can be used again
		res.Body.Close()
		if current, err = l.renew(req.Context(), current, ch); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLogin, withoutToken(err, attempt))
		}
	}
}

// withToken returns a copy of the request with the token, and with a new body if the request was sent before.
func withToken(req *http.Request, g *grant, sentBefore bool) (*http.Request, error) {
	out := req.Clone(req.Context())
	if sentBefore && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		out.Body = body
	}
	if g != nil && g.Access != "" {
		out.Header.Set("Authorization", "Bearer "+g.Access)
	}
	return out, nil
}

// load returns the stored grant, or nil if there is none that can be read. A grant whose login has ended has no tokens.
func (l *login) load(ctx context.Context) (*grant, error) {
	data, err := l.cfg.Store.Load(ctx)
	g := &grant{}
	if err != nil || json.Unmarshal(data, g) != nil {
		return nil, err
	}
	return g, nil
}

func (l *login) save(ctx context.Context, g *grant) error {
	data, err := json.Marshal(g)
	if err == nil {
		err = l.cfg.Store.Save(ctx, data, g.Access != "")
	}
	if err != nil {
		return fmt.Errorf("store the login: %w", err)
	}
	return nil
}

// renew returns a grant in place of refused, which is nil if there was none. If another goroutine or program
// has stored a new grant meanwhile, renew returns that grant.
func (l *login) renew(ctx context.Context, refused *grant, ch challenge) (*grant, error) {
	if err := l.renewing.lock(ctx); err != nil {
		return nil, err
	}
	defer l.renewing.unlock()
	unlock, err := l.cfg.Store.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	stored, err := l.load(ctx)
	if err != nil {
		return nil, err
	}
	if stored != nil && stored.Access != "" && (refused == nil || stored.Access != refused.Access) {
		return stored, nil
	}
	g, err := l.refreshOrLogin(ctx, stored, ch)
	if err != nil {
		return nil, err
	}
	return g, l.save(context.WithoutCancel(ctx), g) // the stored refresh token may have been used up
}

// refreshOrLogin returns a grant in place of old, which may be nil: a refreshed grant, or a new one from the user.
func (l *login) refreshOrLogin(ctx context.Context, old *grant, ch challenge) (*grant, error) {
	site, old, err := l.findSite(ctx, old, ch)
	if err != nil {
		return nil, err
	}
	if old != nil && old.Refresh != "" && ch.refresh {
		g, err := l.refresh(context.WithoutCancel(ctx), site, old) // a lost answer could have the only valid refresh token
		e, refused := errors.AsType[*refusedError](err)
		if !refused || e.status >= 500 || e.status == http.StatusTooManyRequests {
			return g, err
		}
		// The refresh token is not valid any more.
	}
	if l.cfg.Authorize == nil {
		next := &grant{Issuer: site.Issuer, Scope: scope(site, old, ch)}
		if old != nil {
			next.Client = old.Client
		}
		cause := errors.New("there is no login, or it has ended")
		// Other requests need fewer scopes. But the program of OAuth.Store asks the user only when a login without tokens is saved.
		if _, ownStore := l.cfg.Store.(*loginFile); ownStore && old != nil && ch.stepUp {
			next.Access, next.Refresh = old.Access, old.Refresh
			cause = errors.New("the login does not have all scopes that this request needs; log in again")
		}
		return nil, errors.Join(cause, l.save(ctx, next))
	}
	page, p, err := l.begin(ctx, site, old, ch)
	if err != nil {
		return nil, err
	}
	redirect, err := l.cfg.Authorize(ctx, page)
	if err != nil {
		return nil, err
	}
	return l.finish(ctx, p, redirect)
}

// findSite discovers the site of the login. usable is old, or nil if another authorization server has issued old, since
// credentials are only for their issuer.
func (l *login) findSite(ctx context.Context, old *grant, ch challenge) (site *loginSite, usable *grant, err error) {
	site, err = l.discover(ctx, ch)
	if err == nil {
		err = l.checkIssuer(site, old)
	}
	if old != nil && err == nil && old.Issuer != site.Issuer {
		old = nil
	}
	return site, old, err
}

// checkIssuer rejects an issuer other than the configured one. A configured client without an Issuer belongs to the
// issuer of the last login: otherwise the server could name another issuer later, which would get the client's secret.
func (l *login) checkIssuer(site *loginSite, old *grant) error {
	required := l.cfg.Issuer
	if required == "" && old != nil && l.cfg.ClientID != "" {
		required = old.Issuer
	}
	if required == "" || required == site.Issuer {
		return nil
	}
	return fmt.Errorf("the server names the authorization server %q, but the login belongs to %q", site.Issuer, required)
}

// A pendingLogin is a login whose redirect has not arrived.
type pendingLogin struct {
	Site            loginSite
	Client          credentials
	State, Verifier string
	Scope           string
}

// begin returns the page on which the user grants access.
func (l *login) begin(ctx context.Context, site *loginSite, old *grant, ch challenge) (page string, p *pendingLogin, err error) {
	p = &pendingLogin{Site: *site, State: rand.Text(), Verifier: rand.Text() + rand.Text(), Scope: scope(site, old, ch)}
	if p.Client, err = l.identify(ctx, site, old); err != nil {
		return "", nil, err
	}
	sum := sha256.Sum256([]byte(p.Verifier))
	q := url.Values{
		"response_type": {"code"}, "client_id": {p.Client.ID}, "redirect_uri": {l.cfg.RedirectURL}, "state": {p.State},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
		"resource": {site.Resource},
	}
	if p.Scope != "" {
		q.Set("scope", p.Scope)
	}
	if slices.Contains(strings.Fields(p.Scope), "offline_access") {
		q.Set("prompt", "consent") // which OpenID Connect requires for offline_access
	}
	u, err := url.Parse(site.AuthorizationEndpoint)
	if err != nil {
		return "", nil, err
	}
	for k, v := range u.Query() { // the endpoint may have parameters of its own
		if !q.Has(k) {
			q[k] = v
		}
	}
	u.RawQuery = q.Encode()
	return u.String(), p, nil
}

// scope returns the scopes to request. They include the scopes of the last login, because an earlier call has needed them.
func scope(site *loginSite, old *grant, ch challenge) string {
	var last []string
	if old != nil {
		last = strings.Fields(old.Scope)
	}
	return strings.Join(union(last, site.wantedScopes(ch)), " ")
}

// finish exchanges the code of the redirect for a grant.
func (l *login) finish(ctx context.Context, p *pendingLogin, redirect url.Values) (*grant, error) {
	if err := p.Site.checkRedirect(redirect, p.State); err != nil {
		return nil, err
	}
	return l.requestToken(ctx, &p.Site, p.Client, url.Values{
		"grant_type": {"authorization_code"}, "code": {redirect.Get("code")},
		"redirect_uri": {l.cfg.RedirectURL}, "code_verifier": {p.Verifier}, "resource": {p.Site.Resource},
	}, p.Scope)
}

func (l *login) refresh(ctx context.Context, site *loginSite, old *grant) (*grant, error) {
	g, err := l.requestToken(ctx, site, old.Client, url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {old.Refresh}, "resource": {site.Resource},
	}, old.Scope)
	if err == nil && g.Refresh == "" {
		g.Refresh = old.Refresh // without a new refresh token the old one stays valid
	}
	return g, err
}

// checkRedirect checks the query of the redirect. The issuer is compared exactly (RFC 9207).
func (s *loginSite) checkRedirect(redirect url.Values, state string) error {
	iss := redirect.Get("iss")
	switch {
	case redirect.Get("state") != state:
		return errors.New("the state of the redirect differs from the state of the request; log in again")
	case iss != "" && iss != s.Issuer:
		return fmt.Errorf("the redirect comes from the issuer %q, not from %q", iss, s.Issuer)
	case iss == "" && s.IssSupported:
		return fmt.Errorf("the redirect has no issuer (iss), although %q declares that redirects have one", s.Issuer)
	case redirect.Get("error") != "":
		return &refusedError{code: redirect.Get("error")}
	case redirect.Get("code") == "":
		return errors.New("the redirect has no code")
	}
	return nil
}

// identify returns the client's credentials at the authorization server. If there are none it registers the client.
func (l *login) identify(ctx context.Context, site *loginSite, old *grant) (credentials, error) {
	switch {
	case l.cfg.ClientID != "":
		return credentials{ID: l.cfg.ClientID, Secret: l.cfg.ClientSecret, Method: site.authMethod(l.cfg.ClientSecret != "")}, nil
	case site.MetadataDocuments && l.cfg.ClientMetadataURL != "":
		return credentials{ID: l.cfg.ClientMetadataURL, Method: "none"}, nil
	case old != nil && old.Client.ID != "":
		return old.Client, nil
	case site.RegistrationEndpoint == "":
		return credentials{}, fmt.Errorf("%q does not support registration; register a client by hand and set OAuth.ClientID", site.Issuer)
	}
	method := site.authMethod(true)
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
	return credentials{ID: answer.ID, Secret: answer.Secret, Method: cmp.Or(answer.Method, method)}, nil
}

// applicationType is "web" for a program on a web server, and "native" for a program on the user's machine.
func applicationType(redirect string) string {
	if u, err := url.Parse(redirect); err == nil && u.Scheme == "https" && !loopback.Host(u.Hostname()) {
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
