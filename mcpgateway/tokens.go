package mcpgateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/kitbag-go/kitbag/internal/oauthurl"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
)

// A TokenGrant is how the gateway gets access tokens for a server.
type TokenGrant string

const (
	// ClientCredentials gets one token for the gateway itself, with which all clients use the server.
	ClientCredentials TokenGrant = "client_credentials"
	// TokenExchange exchanges the token of each user for one for the server (RFC 8693). Each user has a connection of their
	// own. The gateway's own token, by client credentials, lists the server's tools, prompts, resources and skills.
	TokenExchange TokenGrant = "token_exchange"
	// UserLogin has each user log in to the server, with an account of their own, when they first use it; see Config.Logins.
	// Each user has a connection of their own.
	UserLogin TokenGrant = "user_login"
)

// An UpstreamToken configures the access tokens for a server that is reached by a URL. With [UserLogin], the server names
// its authorization server, and Server and Grant are enough. Otherwise all fields up to ClientSecret are required.
type UpstreamToken struct {
	Server                 string // its name
	Grant                  TokenGrant
	TokenURL               string // of the authorization server; not with UserLogin
	ClientID, ClientSecret string // with UserLogin, if the gateway cannot register itself; the secret may be empty

	Audience string   // of the tokens, if the authorization server needs more than the server's URL; not with UserLogin
	Scopes   []string // not with UserLogin

	// The following are for UserLogin. Issuer is the only authorization server that the server may name; empty is any.
	// ListAs is the name of the user ([mcpserver.Identity.Name]) whose login lists the server's tools, prompts, resources
	// and skills for all; if it is empty they are listed without a token.
	Issuer, ListAs string
}

// perUser reports whether each user has a connection.
func (t UpstreamToken) perUser() bool { return t.Grant == TokenExchange || t.Grant == UserLogin }

// tokenTimeout is how long a request for a token may take.
const tokenTimeout = 10 * time.Second

// A tokenSource requests tokens for one server.
type tokenSource struct {
	cfg  UpstreamToken
	url  string // of the server
	http *http.Client
	own  oauth2.TokenSource // of the gateway itself

	logins *logins // with UserLogin, which needs only cfg
}

func newTokenSource(cfg UpstreamToken, server string) *tokenSource {
	s := &tokenSource{cfg: cfg, url: server, http: &http.Client{Timeout: tokenTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}} // it would resend secrets
	s.own = s.request(context.Background(), nil)
	return s
}

// request returns a source of tokens. exchange is what distinguishes an exchange from client credentials; it may be nil.
func (s *tokenSource) request(ctx context.Context, exchange url.Values) oauth2.TokenSource {
	params := url.Values{"resource": {s.url}} // RFC 8707
	if s.cfg.Audience != "" {
		params.Set("audience", s.cfg.Audience)
	}
	maps.Copy(params, exchange)
	c := clientcredentials.Config{ClientID: s.cfg.ClientID, ClientSecret: s.cfg.ClientSecret, TokenURL: s.cfg.TokenURL, Scopes: s.cfg.Scopes,
		AuthStyle: oauth2.AuthStyleInHeader, EndpointParams: params}
	return c.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, s.http))
}

// login returns the login of a user, with UserLogin.
func (s *tokenSource) login(user string) *userLogin { return s.logins.of(s.cfg.Server, s.url, user) }

// forGateway returns how the gateway itself reaches the server, to list what it has.
func (s *tokenSource) forGateway(web mcpclient.HTTP) mcpclient.HTTP {
	switch {
	case s.logins == nil:
		web.Token = s.ofGateway
	case s.cfg.ListAs != "":
		web = s.login(s.cfg.ListAs).transport(web, s.cfg)
	}
	return web
}

// ofGateway is [mcpclient.HTTP.Token] for the gateway itself.
func (s *tokenSource) ofGateway(context.Context) (string, error) {
	t, err := s.own.Token()
	if err != nil {
		return "", s.failed(err)
	}
	return t.AccessToken, nil
}

// exchange returns a token of the user for the server. It is used no longer than the user's own.
func (s *tokenSource) exchange(ctx context.Context, id mcpserver.Identity) (*oauth2.Token, error) {
	t, err := s.request(ctx, url.Values{
		"grant_type":         {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"subject_token":      {id.Token()},
		"subject_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
	}).Token()
	if err != nil {
		return nil, s.failed(err)
	}
	if t.AccessToken == id.Token() || !strings.EqualFold(t.TokenType, "bearer") {
		return nil, fmt.Errorf("no token for the server from %s: its answer is the user's own token, or no bearer token", s.cfg.TokenURL)
	}
	if t.Expiry.IsZero() || !id.Expires.IsZero() && id.Expires.Before(t.Expiry) {
		t.Expiry = id.Expires
	}
	return t, nil
}

// failed returns an error without the text of the answer, which may repeat a token.
func (s *tokenSource) failed(err error) error {
	why := "it cannot be reached, or its answer has no token"
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.Response != nil {
		why = fmt.Sprintf("it answers with status %d", refused.Response.StatusCode)
		switch refused.ErrorCode {
		case "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope", "invalid_target":
			why += " " + refused.ErrorCode
		}
	}
	return fmt.Errorf("no token for the server from %s: %s", s.cfg.TokenURL, why)
}

const (
	maxUserClients = 256              // of a server
	userIdle       = 10 * time.Minute // how long a connection without calls is kept
)

// userClients are the clients of a server that has a connection for each user.
type userClients struct {
	cfg    mcpclient.Server
	tokens *tokenSource

	mu      sync.Mutex
	clients map[user]*userClient
	closed  bool
	closing sync.WaitGroup
}

// A user is an identity of mcpserver. Tokens of one user with different grants may allow different things.
type user struct{ name, grant string }

// A userClient is the connection of a user. Its fields but token are guarded by userClients.mu.
type userClient struct {
	*mcpclient.Client
	login string // the ID of the user's login; empty with TokenExchange
	busy  int
	since time.Time   // when it became idle
	idle  *time.Timer // closes the client; nil while it is busy

	token userToken
}

// A userToken is the token of a user for the server.
type userToken struct {
	user   user
	source *tokenSource

	mu  sync.Mutex // held while a token is requested
	now *oauth2.Token
}

// get is [mcpclient.HTTP.Token]. Requests that belong to no call use the token of the last one.
func (t *userToken) get(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now.Valid() {
		return t.now.AccessToken, nil
	}
	id, ok := mcpserver.IdentityFrom(ctx)
	if !ok || id.Token == nil || (user{id.Name, id.Grant}) != t.user {
		if t.now == nil || !t.now.Expiry.After(time.Now()) {
			return "", errors.New("the user's token has expired")
		}
		return t.now.AccessToken, nil // Valid is false some seconds before the expiry
	}
	now, err := t.source.exchange(ctx, id)
	if err != nil {
		return "", err
	}
	t.now = now
	return now.AccessToken, nil
}

// client returns the client of the user of ctx. done must be called after its use.
func (a *userClients) client(ctx context.Context) (c *mcpclient.Client, done func(), err error) {
	id, ok := mcpserver.IdentityFrom(ctx)
	if !ok || id.Token == nil {
		return nil, nil, fmt.Errorf("MCP server %q: it needs a token of the user, and this client has none; log in at an issuer of the gateway", a.cfg.Name)
	}
	who, login := user{id.Name, id.Grant}, ""
	if a.tokens.logins != nil {
		if login, err = a.tokens.login(id.Name).ensure(ctx); err != nil {
			return nil, nil, err
		}
	}
	u, err := a.acquire(who, login)
	if err != nil {
		return nil, nil, err
	}
	done = sync.OnceFunc(func() { a.release(who, u) })
	if a.tokens.logins != nil {
		return u.Client, done, nil
	}
	if _, err := u.token.get(ctx); err != nil { // requests that open the connection do not have ctx
		done()
		return nil, nil, fmt.Errorf("MCP server %q: %w", a.cfg.Name, err)
	}
	return u.Client, done, nil
}

// acquire returns the user's client for the login with the ID. The one of an earlier login is closed: it may be of another
// account.
func (a *userClients) acquire(who user, login string) (u *userClient, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if u = a.clients[who]; u != nil && u.login != login {
		a.remove(who, u)
		u = nil
	}
	if u == nil {
		if u, err = a.add(who, login); err != nil {
			return nil, err
		}
	}
	if u.busy++; u.idle != nil {
		u.idle.Stop()
		u.idle = nil
	}
	return u, nil
}

// add returns a new client. If there are too many it closes the one that has been idle for the longest time. The caller holds a.mu.
func (a *userClients) add(who user, login string) (*userClient, error) {
	if a.closed {
		return nil, fmt.Errorf("MCP server %q: the gateway is closing", a.cfg.Name)
	}
	if len(a.clients) >= maxUserClients {
		a.removeOldest()
	}
	if len(a.clients) >= maxUserClients {
		return nil, fmt.Errorf("MCP server %q: too many users have a connection to it (%d); try again later", a.cfg.Name, len(a.clients))
	}
	u := &userClient{login: login, token: userToken{user: who, source: a.tokens}}
	web := a.cfg.Transport.(mcpclient.HTTP) // Config.check has checked that
	if a.tokens.logins != nil {
		web = a.tokens.login(who.name).transport(web, a.tokens.cfg)
	} else {
		web.Token = u.token.get
	}
	var err error
	if u.Client, err = mcpclient.New(a.cfg.Name, web, &a.cfg.Options); err != nil {
		return nil, err
	}
	a.clients[who] = u
	return u, nil
}

// removeOldest closes the client that has been idle for the longest time, if one is idle. The caller holds a.mu.
func (a *userClients) removeOldest() {
	var who user
	var oldest *userClient
	for other, u := range a.clients {
		if u.busy == 0 && (oldest == nil || u.since.Before(oldest.since)) {
			who, oldest = other, u
		}
	}
	if oldest != nil {
		a.remove(who, oldest)
	}
}

func (a *userClients) release(who user, u *userClient) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if u.busy--; u.busy > 0 || a.clients[who] != u {
		return
	}
	u.since = time.Now()
	u.idle = time.AfterFunc(userIdle, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if u.busy == 0 && a.clients[who] == u {
			a.remove(who, u)
		}
	})
}

// remove closes a client. The caller holds a.mu.
func (a *userClients) remove(who user, u *userClient) {
	delete(a.clients, who)
	if u.idle != nil {
		u.idle.Stop()
	}
	a.closing.Go(func() { _ = u.Close() }) // calls in flight fail
}

// removeUser closes the clients of a user.
func (a *userClients) removeUser(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for who, u := range a.clients {
		if who.name == name {
			a.remove(who, u)
		}
	}
}

// close closes all clients, and waits until they are closed.
func (a *userClients) close() {
	a.mu.Lock()
	a.closed = true
	for who, u := range a.clients {
		a.remove(who, u)
	}
	a.mu.Unlock()
	a.closing.Wait()
}

// upstreamToken checks the configuration of a server's tokens.
func (k *checker) upstreamToken(where string, t UpstreamToken) {
	if !slices.Contains([]TokenGrant{ClientCredentials, TokenExchange, UserLogin}, t.Grant) {
		k.fail(where+".grant", "is %q; it must be %q, one token for all clients, %q, one for each user in exchange for the user's own, or %q, each user's own account",
			t.Grant, ClientCredentials, TokenExchange, UserLogin)
	}
	if t.Grant == UserLogin {
		k.userLogin(where, t)
	} else {
		if t.ClientID == "" || t.ClientSecret == "" {
			k.fail(where, "the client's id or secret is missing; set both to those that the gateway has at the authorization server")
		}
		if u, err := url.Parse(t.TokenURL); err != nil || oauthurl.Secure(t.TokenURL) != nil || u.User != nil {
			k.fail(where+".tokenURL", "must be the https URL of the token endpoint of the authorization server")
		}
		if t.Issuer != "" || t.ListAs != "" {
			k.fail(where, "issuer and listAs are for the grant %q; remove them", UserLogin)
		}
	}
	if t.Grant == TokenExchange && k.cfg.OAuth == nil && k.cfg.Serve.Authenticator == nil {
		k.fail(where+".grant", "without oauth users have no tokens to exchange; add oauth, or use %q", ClientCredentials)
	}
	for _, s := range k.cfg.Servers {
		if s.Name != t.Server {
			continue
		}
		web, ok := s.Transport.(mcpclient.HTTP)
		switch {
		case !ok:
			k.fail(where, "the server is started by a command; only servers with a url get tokens")
		case oauthurl.Secure(web.URL) != nil:
			k.fail(where, "the url of the server must be https, or others could read the tokens")
		case web.Token != nil || web.OAuth != nil:
			k.fail(where, "the server has another way to log in; use one of them")
		}
		for header := range web.Headers {
			if strings.EqualFold(header, "Authorization") {
				k.fail(where, "the server has the header Authorization; remove it, or do not configure tokens")
			}
		}
	}
}

func (k *checker) userLogin(where string, t UpstreamToken) {
	if t.TokenURL != "" || t.Audience != "" || len(t.Scopes) > 0 {
		k.fail(where, "with %q the server names the authorization server and the scopes; remove tokenURL, audience and scopes", UserLogin)
	}
	if t.ClientSecret != "" && t.ClientID == "" {
		k.fail(where, "has a secret without clientID; add clientID")
	}
	if t.Issuer != "" && oauthurl.Secure(t.Issuer) != nil {
		k.fail(where+".issuer", "must be the https URL of the authorization server")
	}
	if k.cfg.Logins == nil || k.cfg.OAuth == nil {
		k.fail(where+".grant", "%q needs oauth, by which users show who they are, and logins, where their logins are stored; add them", UserLogin)
	}
}
