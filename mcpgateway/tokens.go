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
	Server                 string // the server's name
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

// perUser reports whether each user has a connection of their own.
func (t UpstreamToken) perUser() bool { return t.Grant == TokenExchange || t.Grant == UserLogin }

// A tokenSource gets the tokens for one server.
type tokenSource struct {
	cfg           UpstreamToken
	web           mcpclient.HTTP     // the transport to the server, without a token
	tokenClient   *http.Client       // sends the requests for tokens
	gatewayTokens oauth2.TokenSource // of the gateway itself; nil with UserLogin
	logins        *logins            // nil unless with UserLogin
}

const tokenTimeout = 10 * time.Second // of a request for a token

func newTokenSource(cfg UpstreamToken, web mcpclient.HTTP, l *logins) *tokenSource {
	s := &tokenSource{cfg: cfg, web: web, tokenClient: &http.Client{Timeout: tokenTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}} // a redirect would resend secrets
	if cfg.Grant == UserLogin {
		s.logins = l
	} else {
		s.gatewayTokens = s.newSource(context.Background(), nil)
	}
	return s
}

// newSource returns a source of tokens by client credentials. exchange are the parameters of another grant, or nil.
func (s *tokenSource) newSource(ctx context.Context, exchange url.Values) oauth2.TokenSource {
	params := url.Values{"resource": {s.web.URL}} // RFC 8707
	if s.cfg.Audience != "" {
		params.Set("audience", s.cfg.Audience)
	}
	maps.Copy(params, exchange)
	c := clientcredentials.Config{ClientID: s.cfg.ClientID, ClientSecret: s.cfg.ClientSecret, TokenURL: s.cfg.TokenURL, Scopes: s.cfg.Scopes,
		AuthStyle: oauth2.AuthStyleInHeader, EndpointParams: params}
	return c.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, s.tokenClient))
}

// gatewayTransport returns the transport with which the gateway itself lists the server's tools and other items.
func (s *tokenSource) gatewayTransport() mcpclient.HTTP {
	web := s.web
	if s.logins == nil {
		web.Token = func(context.Context) (string, error) {
			t, err := s.gatewayTokens.Token()
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
	userIdle       = 10 * time.Minute // how long a client without calls is kept
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

// A user is the Name and Grant of a [mcpserver.Identity]: tokens of one user with different grants may allow different things.
type user struct{ name, grant string }

// A userClient is the client with the connection of a user.
type userClient struct {
	*mcpclient.Client
	user  user
	login string // the ID of the user's login; empty with TokenExchange

	// Guarded by userClients.mu.
	calls     int // in flight
	idleSince time.Time
	idleTimer *time.Timer // closes the client; nil while it has calls

	mu    sync.Mutex    // held while a token is requested
	token *oauth2.Token // with TokenExchange
}

// client returns the client of the user of ctx for a call. The caller must call done when the call has ended.
func (u *userClients) client(ctx context.Context) (_ *mcpclient.Client, done func(), err error) {
	id, ok := mcpserver.IdentityFrom(ctx)
	if !ok || id.Token == nil {
		return nil, nil, fmt.Errorf("MCP server %q: it needs a token of the user, and this client has none; log in at an issuer of the gateway", u.cfg.Name)
	}
	login := ""
	if u.tokens.logins != nil {
		if login, err = u.tokens.login(id.Name).ensure(ctx); err != nil {
			return nil, nil, err
		}
	}
	c, err := u.acquire(user{id.Name, id.Grant}, login)
	if err != nil {
		return nil, nil, err
	}
	done = sync.OnceFunc(func() { u.release(c) })
	if u.tokens.logins == nil {
		if _, err := u.tokenOf(ctx, c); err != nil { // get a token now: the requests that open the connection do not have ctx
			done()
			return nil, nil, fmt.Errorf("MCP server %q: %w", u.cfg.Name, err)
		}
	}
	return c.Client, done, nil
}

// tokenOf is [mcpclient.HTTP.Token] with TokenExchange. A request that belongs to no call uses the token of the last call.
func (u *userClients) tokenOf(ctx context.Context, c *userClient) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token.Valid() {
		return c.token.AccessToken, nil
	}
	if id, ok := mcpserver.IdentityFrom(ctx); ok && id.Token != nil && (user{id.Name, id.Grant}) == c.user {
		t, err := u.tokens.exchange(ctx, id)
		if err != nil {
			return "", err
		}
		c.token = t
	} else if c.token == nil || !c.token.Expiry.After(time.Now()) { // Valid is false some seconds before the expiry
		return "", errors.New("the user's token has expired")
	}
	return c.token.AccessToken, nil
}

// acquire returns the user's client for the login with the ID, and counts a call. It closes the client of an earlier login,
// which may be for another account.
func (u *userClients) acquire(who user, login string) (c *userClient, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c = u.clients[who]; c == nil || c.login != login {
		if c != nil {
			u.remove(c)
		}
		if c, err = u.add(who, login); err != nil {
			return nil, err
		}
	}
	if c.calls++; c.idleTimer != nil {
		c.idleTimer.Stop()
		c.idleTimer = nil
	}
	return c, nil
}

// add adds a client. If there are too many, add closes the client that has been idle for the longest time. The caller holds
// u.mu.
func (u *userClients) add(who user, login string) (*userClient, error) {
	if u.closed {
		return nil, fmt.Errorf("MCP server %q: the gateway no longer has the server", u.cfg.Name)
	}
	if len(u.clients) >= maxUserClients {
		var oldest *userClient
		for _, c := range u.clients {
			if c.calls == 0 && (oldest == nil || c.idleSince.Before(oldest.idleSince)) {
				oldest = c
			}
		}
		if oldest == nil {
			return nil, fmt.Errorf("MCP server %q: too many users have a connection to it (%d); try again later", u.cfg.Name, len(u.clients))
		}
		u.remove(oldest)
	}
	c := &userClient{user: who, login: login}
	web := u.tokens.web
	if u.tokens.logins != nil {
		web = u.tokens.login(who.name).transport()
	} else {
		web.Token = func(ctx context.Context) (string, error) { return u.tokenOf(ctx, c) }
	}
	var err error
	if c.Client, err = mcpclient.New(u.cfg.Name, web, &u.cfg.Options); err != nil {
		return nil, err
	}
	u.clients[who] = c
	return c, nil
}

// release ends a call of the client, which is closed when it has no calls for a while.
func (u *userClients) release(c *userClient) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.calls--; c.calls > 0 || u.clients[c.user] != c {
		return
	}
	c.idleSince = time.Now()
	c.idleTimer = time.AfterFunc(userIdle, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if c.calls == 0 { // no call has begun while the timer fired
			u.remove(c)
		}
	})
}

// remove closes a client, unless it was removed before. The caller holds u.mu.
func (u *userClients) remove(c *userClient) {
	if u.clients[c.user] != c {
		return
	}
	delete(u.clients, c.user)
	if c.idleTimer != nil {
		c.idleTimer.Stop()
	}
	u.closing.Go(func() { _ = c.Close() }) // calls in flight fail
}

// closeEnded closes the clients whose login has ended, here or on another replica.
func (u *userClients) closeEnded(ctx context.Context) {
	u.mu.Lock()
	all := slices.Collect(maps.Values(u.clients))
	u.mu.Unlock()
	for _, c := range all {
		if r, err := u.tokens.login(c.user.name).load(ctx); err == nil && r.ID != c.login {
			u.mu.Lock()
			u.remove(c)
			u.mu.Unlock()
		}
	}
}

// close closes all clients, and waits until they are closed.
func (u *userClients) close() {
	u.mu.Lock()
	u.closed = true
	for _, c := range u.clients {
		u.remove(c)
	}
	u.mu.Unlock()
	u.closing.Wait()
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
		k.require(web.Token == nil && web.OAuth == nil, where, "the server has a token or OAuth of its own; remove that, or do not configure tokens")
		for header := range web.Headers {
			k.require(!strings.EqualFold(header, "Authorization"), where, "the server has the header Authorization; remove it, or do not configure tokens")
		}
	}
}
