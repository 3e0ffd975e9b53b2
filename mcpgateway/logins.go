package mcpgateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/mcpserver/oauth"
	"github.com/kitbag-go/kitbag/tool/host"
)

// Logins configures the logins of users to servers with the grant [UserLogin]. Users show who they are by a login at the
// first of Config.OAuth.Issuers, where the gateway must be registered as the client ClientID, with the redirect URI
// /oauth/callback at the host of Config.OAuth.Resource.
type Logins struct {
	ClientID, ClientSecret string // the secret may be empty

	Key string // seals what is stored: at least 32 random bytes, the same for all replicas
	Dir string // where logins are stored, unless Serve.Replicas.Shared is set
}

// logins checks Config.Logins.
func (k *checker) logins() {
	c := k.cfg.Logins
	if c == nil {
		return
	}
	if c.ClientID == "" {
		k.fail("logins.clientID", "is missing; register the gateway at the first of oauth.issuers, with the redirect URI /oauth/callback at its own host")
	}
	if len(c.Key) < minLoginKey {
		k.fail("logins.keyEnv", "the key has %d bytes; use a random one of at least %d bytes: kitbag mcp key makes one", len(c.Key), minLoginKey)
	}
	if c.Dir == "" && k.cfg.Serve.Replicas == nil {
		k.fail("logins.dir", "is missing; set it to the directory where logins are stored")
	}
	if k.cfg.OAuth == nil {
		k.fail("logins", "needs oauth, by which users show who they are; add it")
	}
}

// A Login is the login of a user to a server.
type Login struct {
	Server string    `json:"server"`
	User   string    `json:"user"` // see [mcpserver.Identity.Name]
	Since  time.Time `json:"since"`
}

const (
	minLoginKey  = 32
	loginKept    = 365 * 24 * time.Hour // after it was last renewed
	loginTime    = 10 * time.Minute     // in which a user must have logged in
	loginWait    = 50 * time.Second     // for which a call waits for the login; many clients give up after a minute
	lockTime     = 2 * time.Minute
	lockInterval = 20 * time.Millisecond
	waitInterval = 500 * time.Millisecond
)

// logins keeps the logins of users. Values in the stores are sealed, with their key as additional data.
type logins struct {
	gateway  *Gateway
	auth     *oauth.ResourceServer
	identify mcpclient.HTTP // the login at the gateway's own issuer, without OAuth.Store
	audience string
	origin   string
	seal     cipher.AEAD
	kept     mcpserver.Shared
	brief    mcpserver.Shared // locks and spent redirects

	asking sync.Map // the keys of logins that a user is being asked for
}

func newLogins(g *Gateway, cfg *Config, auth *oauth.ResourceServer) (*logins, error) {
	key := sha256.Sum256([]byte(cfg.Logins.Key))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	l := &logins{gateway: g, auth: auth, audience: cfg.OAuth.Audience}
	if l.seal, err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return nil, err
	}
	if r := cfg.Serve.Replicas; r != nil {
		l.kept, l.brief = r.Shared, r.Shared
	} else {
		l.kept, l.brief = &loginDir{dir: cfg.Logins.Dir}, mcpserver.NewShared()
		if err := os.MkdirAll(cfg.Logins.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("logins.dir: %w", err)
		}
	}
	resource, err := url.Parse(cfg.OAuth.Resource)
	if err != nil {
		return nil, err
	}
	l.origin = (&url.URL{Scheme: resource.Scheme, Host: resource.Host}).String()
	client := http.Client{}
	if cfg.OAuth.Client != nil {
		client = *cfg.OAuth.Client
	}
	client.Transport = &ownMetadata{cfg.OAuth, cmp.Or(client.Transport, http.DefaultTransport)}
	l.identify = mcpclient.HTTP{URL: cfg.OAuth.Resource, Client: &client, OAuth: &mcpclient.OAuth{
		RedirectURL: l.origin + callbackPath, Issuer: cfg.OAuth.Issuers[0], ClientID: cfg.Logins.ClientID, ClientSecret: cfg.Logins.ClientSecret}}
	return l, nil
}

// A loginRecord is a login as stored. Store is empty or has no token if the user must log in.
type loginRecord struct {
	Login
	ID    string          // of the login; renewing its tokens keeps it
	Store json.RawMessage // of mcpclient
}

// loggedIn reports whether there are tokens.
func (r *loginRecord) loggedIn() bool {
	var g struct {
		Access string `json:"access_token"`
	}
	return json.Unmarshal(r.Store, &g) == nil && g.Access != ""
}

// A userLogin is what [mcpclient.OAuth] stores for one user and server.
type userLogin struct {
	*logins
	server, user string
	key          string
	fresh        bool // the user logs in now
}

// of returns the login of a user to a server. A server at another URL is another server.
func (l *logins) of(server, url, user string) *userLogin {
	sum := sha256.Sum256([]byte(strings.Join([]string{server, url, user}, "\x00")))
	return &userLogin{logins: l, server: server, user: user, key: "login/" + hex.EncodeToString(sum[:])}
}

// transport returns how the user reaches the server.
func (u *userLogin) transport(web mcpclient.HTTP, cfg UpstreamToken) mcpclient.HTTP {
	own := "/" + url.PathEscape(u.server)
	web.OAuth = &mcpclient.OAuth{Store: u, RedirectURL: u.origin + callbackPath + own, Issuer: cfg.Issuer, ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret}
	if strings.HasPrefix(u.origin, "https:") {
		web.OAuth.ClientMetadataURL = u.origin + clientPath + own
	}
	return web
}

func (l *logins) get(ctx context.Context, key string, to any) (raw []byte, err error) {
	if raw, err = l.kept.Get(ctx, key); err != nil || raw == nil {
		return nil, err
	}
	data, err := l.seal.Open(nil, nil, raw, []byte(key))
	if err != nil || json.Unmarshal(data, to) != nil {
		return raw, nil // sealed with another key: the user has to log in again
	}
	return raw, nil
}

// change replaces a stored value, of which do gets the current one; do returns nil to remove it.
func change[T any](ctx context.Context, l *logins, key string, do func(now T) any) error {
	for {
		var now T
		raw, err := l.get(ctx, key, &now)
		if err != nil {
			return err
		}
		var sealed []byte
		if next := do(now); next != nil {
			data, err := json.Marshal(next)
			if err != nil {
				return err
			}
			sealed = l.seal.Seal(nil, nil, data, []byte(key))
		}
		if ok, err := l.kept.Swap(ctx, key, raw, sealed, loginKept); ok || err != nil {
			return err
		}
	}
}

func (u *userLogin) load(ctx context.Context) (*loginRecord, error) {
	var r loginRecord
	_, err := u.get(ctx, u.key, &r)
	return &r, err
}

// Load implements OAuth.Store of mcpclient.
func (u *userLogin) Load(ctx context.Context) ([]byte, error) {
	r, err := u.load(ctx)
	return r.Store, err
}

// Save implements OAuth.Store of mcpclient. Its caller has the lock.
func (u *userLogin) Save(ctx context.Context, login []byte) error {
	var r loginRecord
	listed := false
	err := change(ctx, u.logins, u.key, func(now loginRecord) any {
		r, listed = now, now.loggedIn()
		r.Server, r.User, r.Store = u.server, u.user, login
		if u.fresh && r.loggedIn() {
			r.ID, r.Since, listed = rand.Text(), time.Now(), false
		}
		return r
	})
	if err != nil || r.loggedIn() == listed {
		return err
	}
	return u.list(ctx, r.Login, !listed)
}

// loginList is the key of the list of logins.
const loginList = "logins"

// list adds a login to the list, or removes it.
func (l *logins) list(ctx context.Context, login Login, add bool) error {
	return change(ctx, l, loginList, func(all []Login) any {
		all = slices.DeleteFunc(all, func(o Login) bool { return o.Server == login.Server && o.User == login.User })
		if add {
			all = append(all, login)
		}
		return all
	})
}

// Lock implements OAuth.Store of mcpclient. The lock of a replica that has died is released after a while.
func (u *userLogin) Lock(ctx context.Context) (unlock func(), err error) {
	key, mine := "login-lock/"+u.key, []byte(rand.Text())
	for {
		ok, err := u.brief.Swap(ctx, key, nil, mine, lockTime)
		if err != nil {
			return nil, err
		}
		if ok {
			return func() { _, _ = u.brief.Swap(context.WithoutCancel(ctx), key, mine, nil, 0) }, nil
		}
		select {
		case <-time.After(lockInterval):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// remove forgets a login.
func (u *userLogin) remove(ctx context.Context) error {
	unlock, err := u.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	err = errors.Join(change(ctx, u.logins, u.key, func(loginRecord) any { return nil }), u.list(ctx, Login{Server: u.server, User: u.user}, false))
	for _, up := range u.gateway.live.Load().upstreams {
		if up.name == u.server && up.users != nil {
			up.users.removeUser(u.user)
		}
	}
	return err
}

// ensure returns the ID of the login. If there is none, the user is asked to log in.
func (u *userLogin) ensure(ctx context.Context) (id string, err error) {
	r, err := u.load(ctx)
	if err != nil {
		return "", fmt.Errorf("MCP server %q: the login of the user cannot be read: %w", u.server, err)
	}
	if r.loggedIn() {
		return r.ID, nil
	}
	if issuer := u.identify.OAuth.Issuer; !strings.HasPrefix(u.user, issuer+" ") {
		return "", fmt.Errorf("MCP server %q: users log in to it by %s, and this one comes from another issuer", u.server, issuer)
	}
	page := u.page(u.server)
	failed := func(why string) error {
		return fmt.Errorf("MCP server %q: %s. The user can log in at %s; call again after that", u.server, why, page)
	}
	h := host.From(ctx)
	if h == nil {
		return "", failed("the user must log in to it first")
	}
	if _, asking := u.asking.LoadOrStore(u.key, true); asking {
		return "", failed("the user must log in to it first, and is being asked to")
	}
	defer u.asking.Delete(u.key)
	answer, err := h.Elicit(ctx, host.Elicitation{Message: fmt.Sprintf("Log in to %q: its tools work with your own account there.", u.server), URL: page, ID: rand.Text()})
	switch {
	case err != nil || answer.Action == host.ActionCancel:
		return "", failed("the user must log in to it first, and was not or could not be asked to")
	case answer.Action == host.ActionDecline:
		return "", fmt.Errorf("MCP server %q: the user declined to log in to it. Continue without it", u.server)
	}
	wait := time.NewTimer(loginWait)
	defer wait.Stop()
	for {
		select {
		case <-time.After(waitInterval):
		case <-wait.C:
			return "", failed("the user has not finished the login yet")
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		if r, err := u.load(ctx); err == nil && r.loggedIn() {
			return r.ID, nil
		}
	}
}

// Logins returns the logins of users to servers, in the order in which they were made.
func (g *Gateway) Logins(ctx context.Context) (all []Login, err error) {
	if g.logins != nil {
		_, err = g.logins.get(ctx, loginList, &all)
	}
	return all, err
}

// Logout forgets the login of a user to a server, on all replicas. It does not notify the authorization server. Calls in
// flight fail, or still end if they run on another replica.
func (g *Gateway) Logout(ctx context.Context, server, user string) error {
	if g.logins == nil {
		return errNoLogins(server)
	}
	login, _, err := g.logins.find(server, user)
	if err != nil {
		return err
	}
	return login.remove(ctx)
}

func errNoLogins(server string) error {
	return fmt.Errorf("there is no server %q with the grant %q", server, UserLogin)
}

// find returns the login of a user, and how the user reaches the server.
func (l *logins) find(server, user string) (login *userLogin, web mcpclient.HTTP, err error) {
	cfg := &l.gateway.live.Load().cfg
	t := slices.IndexFunc(cfg.UpstreamTokens, func(t UpstreamToken) bool { return t.Server == server && t.Grant == UserLogin })
	s := slices.IndexFunc(cfg.Servers, func(s mcpclient.Server) bool { return s.Name == server })
	if t < 0 || s < 0 {
		return nil, web, errNoLogins(server)
	}
	web = cfg.Servers[s].Transport.(mcpclient.HTTP) // Config.check has checked that
	login = l.of(server, web.URL, user)
	return login, login.transport(web, cfg.UpstreamTokens[t]), nil
}

// A loginDir keeps values in files that only the gateway's user can read, for one gateway. They do not expire.
type loginDir struct {
	dir string
	mu  sync.Mutex
}

func (d *loginDir) file(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(d.dir, hex.EncodeToString(sum[:]))
}

// Get implements [mcpserver.Shared].
func (d *loginDir) Get(_ context.Context, key string) ([]byte, error) {
	data, err := os.ReadFile(d.file(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Swap implements [mcpserver.Shared].
func (d *loginDir) Swap(ctx context.Context, key string, old, new []byte, _ time.Duration) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, err := d.Get(ctx, key)
	if err != nil || (now == nil) != (old == nil) || !bytes.Equal(now, old) {
		return false, err
	}
	if file := d.file(key); new != nil {
		err = errors.Join(os.WriteFile(file+".new", new, 0o600), os.Rename(file+".new", file))
	} else if now != nil {
		err = os.Remove(file)
	}
	return err == nil, err
}
