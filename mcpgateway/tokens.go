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

// A tokenSource has the tokens for one server.
type tokenSource struct {
	cfg    UpstreamToken
	web    mcpclient.HTTP     // how the server is reached, without a token
	http   *http.Client       // for requests for tokens
	own    oauth2.TokenSource // of the gateway itself; not with UserLogin
	logins *logins            // with UserLogin, otherwise nil
}

const tokenTimeout = 10 * time.Second // of a request for a token

func newTokenSource(cfg UpstreamToken, web mcpclient.HTTP, l *logins) *tokenSource {
	s := &tokenSource{cfg: cfg, web: web, http: &http.Client{Timeout: tokenTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}} // a redirect would resend secrets
	if cfg.Grant == UserLogin {
		s.logins = l
	} else {
		s.own = s.newSource(context.Background(), nil)
	}
	return s
}

// newSource returns a source of tokens by client credentials, or, if exchange is not nil, by the grant with those parameters.
func (s *tokenSource) newSource(ctx context.Context, exchange url.Values) oauth2.TokenSource {
	params := url.Values{"resource": {s.web.URL}} // RFC 8707
	if s.cfg.Audience != "" {
		params.Set("audience", s.cfg.Audience)
	}
	maps.Copy(params, exchange)
	c := clientcredentials.Config{ClientID: s.cfg.ClientID, ClientSecret: s.cfg.ClientSecret, TokenURL: s.cfg.TokenURL, Scopes: s.cfg.Scopes,
		AuthStyle: oauth2.AuthStyleInHeader, EndpointParams: params}
	return c.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, s.http))
}

// forGateway returns the transport with which the gateway itself lists what the server has.
func (s *tokenSource) forGateway() mcpclient.HTTP {
	web := s.web
	if s.logins == nil {
		web.Token = func(context.Context) (string, error) {
			t, err := s.own.Token()
			if err != nil {
				return "", s.tokenError(err)
			}
			return t.AccessToken, nil
		}
	} else if s.cfg.ListAs != "" {
		web = s.login(s.cfg.ListAs).transport()
	}
	return web
}

// exchange returns a token of the user for the server, which expires with the user's own token at the latest.
func (s *tokenSource) exchange(ctx context.Context, id mcpserver.Identity) (*oauth2.Token, error) {
	t, err := s.newSource(ctx, url.Values{
		"grant_type":         {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"subject_token":      {id.Token()},
		"subject_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
	}).Token()
	if err != nil {
		return nil, s.tokenError(err)
	}
	if t.AccessToken == id.Token() || !strings.EqualFold(t.TokenType, "bearer") {
		return nil, fmt.Errorf("no token for the server from %s: its answer is the user's own token, or no bearer token", s.cfg.TokenURL)
	}
	if t.Expiry.IsZero() || !id.Expires.IsZero() && id.Expires.Before(t.Expiry) {
		t.Expiry = id.Expires
	}
	return t, nil
}

// tokenError returns an error without the text of the answer, which may repeat a token.
func (s *tokenSource) tokenError(err error) error {
	why := "it cannot be reached, or its answer has no token"
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.Response != nil {
		why = fmt.Sprintf("it answers with status %d", refused.Response.StatusCode)
		if slices.Contains(oauthurl.ErrorCodes, refused.ErrorCode) {
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

// A userClient is the connection of a user.
type userClient struct {
	*mcpclient.Client
	user  user
	login string // the ID of the user's login; empty with TokenExchange

	// Guarded by userClients.mu.
	busy  int
	since time.Time   // when it became idle
	idle  *time.Timer // closes the client; nil while it is busy

	mu    sync.Mutex    // held while a token is requested
	token *oauth2.Token // with TokenExchange
}

// client returns the client of the user of ctx. done must be called after its use.
func (a *userClients) client(ctx context.Context) (c *mcpclient.Client, done func(), err error) {
	id, ok := mcpserver.IdentityFrom(ctx)
	if !ok || id.Token == nil {
		return nil, nil, fmt.Errorf("MCP server %q: it needs a token of the user, and this client has none; log in at an issuer of the gateway", a.cfg.Name)
	}
	login := ""
	if a.tokens.logins != nil {
		if login, err = a.tokens.login(id.Name).ensure(ctx); err != nil {
			return nil, nil, err
		}
	}
	u, err := a.acquire(user{id.Name, id.Grant}, login)
	if err != nil {
		return nil, nil, err
	}
	done = sync.OnceFunc(func() { a.release(u) })
	if a.tokens.logins == nil {
		if _, err := a.tokenOf(ctx, u); err != nil { // requests that open the connection do not have ctx
			done()
			return nil, nil, fmt.Errorf("MCP server %q: %w", a.cfg.Name, err)
		}
	}
	return u.Client, done, nil
}

// tokenOf is [mcpclient.HTTP.Token] with TokenExchange. A request that belongs to no call uses the token of the last call.
func (a *userClients) tokenOf(ctx context.Context, u *userClient) (string, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.token.Valid() {
		return u.token.AccessToken, nil
	}
	if id, ok := mcpserver.IdentityFrom(ctx); ok && id.Token != nil && (user{id.Name, id.Grant}) == u.user {
		t, err := a.tokens.exchange(ctx, id)
		if err != nil {
			return "", err
		}
		u.token = t
	} else if u.token == nil || !u.token.Expiry.After(time.Now()) { // Valid is false some seconds before the expiry
		return "", errors.New("the user's token has expired")
	}
	return u.token.AccessToken, nil
}

// acquire returns the user's client for the login with the ID. It closes the client of an earlier login, which may be for
// another account.
func (a *userClients) acquire(who user, login string) (u *userClient, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if u = a.clients[who]; u == nil || u.login != login {
		if u != nil {
			a.remove(u)
		}
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
		var oldest *userClient
		for _, u := range a.clients {
			if u.busy == 0 && (oldest == nil || u.since.Before(oldest.since)) {
				oldest = u
			}
		}
		if oldest == nil {
			return nil, fmt.Errorf("MCP server %q: too many users have a connection to it (%d); try again later", a.cfg.Name, len(a.clients))
		}
		a.remove(oldest)
	}
	u := &userClient{user: who, login: login}
	web := a.tokens.web
	if a.tokens.logins != nil {
		web = a.tokens.login(who.name).transport()
	} else {
		web.Token = func(ctx context.Context) (string, error) { return a.tokenOf(ctx, u) }
	}
	var err error
	if u.Client, err = mcpclient.New(a.cfg.Name, web, &a.cfg.Options); err != nil {
		return nil, err
	}
	a.clients[who] = u
	return u, nil
}

// release ends a use of the client, which is closed when it is not used for a while.
func (a *userClients) release(u *userClient) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if u.busy--; u.busy > 0 || a.clients[u.user] != u {
		return
	}
	u.since = time.Now()
	u.idle = time.AfterFunc(userIdle, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if u.busy == 0 {
			a.remove(u)
		}
	})
}

// remove closes a client, unless it was removed before. The caller holds a.mu.
func (a *userClients) remove(u *userClient) {
	if a.clients[u.user] != u {
		return
	}
	delete(a.clients, u.user)
	if u.idle != nil {
		u.idle.Stop()
	}
	a.closing.Go(func() { _ = u.Close() }) // calls in flight fail
}

// closeEnded closes the clients whose login has ended, here or on another replica.
func (a *userClients) closeEnded(ctx context.Context) {
	a.mu.Lock()
	all := slices.Collect(maps.Values(a.clients))
	a.mu.Unlock()
	for _, u := range all {
		if r, err := a.tokens.login(u.user.name).load(ctx); err == nil && r.ID != u.login {
			a.mu.Lock()
			a.remove(u)
			a.mu.Unlock()
		}
	}
}

// close closes all clients, and waits until they are closed.
func (a *userClients) close() {
	a.mu.Lock()
	a.closed = true
	for _, u := range a.clients {
		a.remove(u)
	}
	a.mu.Unlock()
	a.closing.Wait()
}

// upstreamToken checks the configuration of a server's tokens.
func (k *checker) upstreamToken(where string, t UpstreamToken) {
	k.require(slices.Contains([]TokenGrant{ClientCredentials, TokenExchange, UserLogin}, t.Grant), where+".grant",
		"is %q; it must be %q, one token for all clients, %q, one for each user in exchange for the user's own, or %q, each user's own account",
		t.Grant, ClientCredentials, TokenExchange, UserLogin)
	if t.Grant == UserLogin {
		k.require(t.TokenURL == "" && t.Audience == "" && len(t.Scopes) == 0, where, "with %q the server names the authorization server and the scopes; remove tokenURL, audience and scopes", UserLogin)
		k.require(t.ClientID != "" || t.ClientSecret == "", where, "has a secret without clientID; add clientID")
		k.require(t.Issuer == "" || oauthurl.Secure(t.Issuer) == nil, where+".issuer", "must be the https URL of the authorization server")
		k.require(k.cfg.Logins != nil && k.cfg.OAuth != nil, where+".grant", "%q needs oauth, by which users show who they are, and logins, where their logins are stored; add them", UserLogin)
	} else {
		u, err := url.Parse(t.TokenURL)
		k.require(t.ClientID != "" && t.ClientSecret != "", where, "the client's id or secret is missing; set both to those that the gateway has at the authorization server")
		k.require(err == nil && oauthurl.Secure(t.TokenURL) == nil && u.User == nil, where+".tokenURL", "must be the https URL of the token endpoint of the authorization server")
		k.require(t.Issuer == "" && t.ListAs == "", where, "issuer and listAs are for the grant %q; remove them", UserLogin)
	}
	k.require(t.Grant != TokenExchange || k.cfg.OAuth != nil || k.cfg.Serve.Authenticator != nil, where+".grant",
		"without oauth users have no tokens to exchange; add oauth, or use %q", ClientCredentials)
	for _, s := range k.cfg.Servers {
		if s.Name != t.Server {
			continue
		}
		web, ok := s.Transport.(mcpclient.HTTP)
		if !ok {
			k.fail(where, "the server is started by a command; only servers with a url get tokens")
			continue
		}
		k.require(oauthurl.Secure(web.URL) == nil, where, "the url of the server must be https, or others could read the tokens")
		k.require(web.Token == nil && web.OAuth == nil, where, "the server has another way to log in; use one of them")
		for header := range web.Headers {
			k.require(!strings.EqualFold(header, "Authorization"), where, "the server has the header Authorization; remove it, or do not configure tokens")
		}
	}
}
