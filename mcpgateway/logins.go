package mcpgateway

import (
	"bytes"
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
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool/host"
)

// Logins configures the logins of users to servers with the grant [UserLogin]. Users first show who they are by a login at
// their issuer, one of Config.OAuth.Issuers. The gateway must be registered at these issuers. The redirect URI, at the host of
// Config.OAuth.Resource, is /oauth/callback for the first issuer, /oauth/callback/issuers/2 for the second, and so on.
type Logins struct {
	Clients map[string]LoginClient // by issuer; users of an issuer without a client cannot log in to servers

	Key string // encrypts the stored logins: at least 32 random bytes, the same for all replicas
	Dir string // the directory where logins are stored; not used with Serve.Replicas
}

// A LoginClient is the gateway as a client that is registered at an issuer. The secret may be empty.
type LoginClient struct{ ID, Secret string }

// logins checks Config.Logins.
func (k *checker) logins() {
	c := k.cfg.Logins
	if c == nil {
		return
	}
	k.require(len(c.Clients) > 0, "logins.clients", "is missing; register the gateway at an issuer, with the redirect URI /oauth/callback at its own host")
	for _, issuer := range slices.Sorted(maps.Keys(c.Clients)) {
		where := "logins.clients." + issuer
		k.require(c.Clients[issuer].ID != "", where+".clientID", "is missing; register the gateway at the issuer")
		k.require(k.cfg.OAuth == nil || slices.Contains(k.cfg.OAuth.Issuers, issuer), where, "is not one of oauth.issuers; add it there")
	}
	k.require(len(c.Key) >= minLoginKey, "logins.keyEnv", "the key has %d bytes; use a random one of at least %d bytes: kitbag mcp key makes one", len(c.Key), minLoginKey)
	k.require(c.Dir != "" || k.cfg.Serve.Replicas != nil, "logins.dir", "is missing; set it to the directory where logins are stored")
	k.require(k.cfg.OAuth != nil, "logins", "needs oauth, by which users show who they are; add it")
}

// A Login is the login of a user to a server.
type Login struct {
	Server string    `json:"server"`
	User   string    `json:"user"` // see [mcpserver.Identity.Name]
	Since  time.Time `json:"since"`
}

const (
	minLoginKey  = 32                     // bytes
	loginTTL     = 365 * 24 * time.Hour   // how long a login is stored after its tokens were last renewed
	stepTime     = 10 * time.Minute       // how long a user may take for a step in the browser
	callWait     = 50 * time.Second       // how long a call waits for the login; many clients give up after a minute
	lockTTL      = 2 * time.Minute        // after this time the lock of a dead replica is released
	lockInterval = 20 * time.Millisecond  // between attempts to get a lock
	callInterval = 500 * time.Millisecond // a waiting call looks for the login this often
	endInterval  = 5 * time.Second        // how often the gateway looks for logins that another replica has ended
)

// logins stores the logins of users. Logins are encrypted, with the key in the store as additional data.
type logins struct {
	gateway   *Gateway
	issuers   map[string]mcpclient.HTTP // how users log in at the gateway's own issuers, by issuer
	audience  string                    // of Config.OAuth
	origin    string                    // scheme and host of the gateway's pages
	seal      cipher.AEAD               // encrypts logins, and the cookies of the pages
	stored    mcpserver.Shared          // logins, and the list of all logins
	transient mcpserver.Shared          // locks, and names of cookies that were used; may be lost when the gateway ends

	asking sync.Map // the keys of logins that a user is being asked for
}

func newLogins(g *Gateway, cfg *Config) (*logins, error) {
	key := sha256.Sum256([]byte(cfg.Logins.Key))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	l := &logins{gateway: g, issuers: map[string]mcpclient.HTTP{}, audience: cfg.OAuth.Audience}
	if l.seal, err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return nil, err
	}
	if r := cfg.Serve.Replicas; r != nil {
		l.stored, l.transient = r.Shared, r.Shared
	} else {
		l.stored, l.transient = &loginDir{dir: cfg.Logins.Dir}, mcpserver.NewShared()
		if err := os.MkdirAll(cfg.Logins.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("logins.dir: %w", err)
		}
	}
	resource, err := url.Parse(cfg.OAuth.Resource)
	if err != nil {
		return nil, err
	}
	l.origin = (&url.URL{Scheme: resource.Scheme, Host: resource.Host}).String()
	for i, issuer := range cfg.OAuth.Issuers {
		redirect := l.origin + callbackPath
		if i > 0 {
			redirect += fmt.Sprintf("/issuers/%d", i+1)
		}
		if client := cfg.Logins.Clients[issuer]; client.ID != "" {
			l.issuers[issuer] = mcpclient.HTTP{URL: cfg.OAuth.Resource, Client: cfg.OAuth.Client, OAuth: &mcpclient.OAuth{RedirectURL: redirect,
				Issuer: issuer, ClientID: client.ID, ClientSecret: client.Secret, Scopes: append([]string{}, cfg.OAuth.Scopes...)}}
		}
	}
	return l, nil
}

// A loginRecord is a login as stored.
type loginRecord struct {
	Login
	ID    string          // of the login; does not change when the tokens are renewed; empty if the user must log in
	Store json.RawMessage // what mcpclient stores
}

// A userLogin is the login of a user to a server. It is the Store of an [mcpclient.OAuth].
type userLogin struct {
	*logins
	source        *tokenSource
	user          string
	key           string // in the store
	newlyLoggedIn bool   // Save must give the login a new ID
}

// login returns the login of a user to the server. If the server's URL changes, users must log in again.
func (s *tokenSource) login(user string) *userLogin {
	sum := sha256.Sum256([]byte(strings.Join([]string{s.cfg.Server, s.web.URL, user}, "\x00")))
	return &userLogin{logins: s.logins, source: s, user: user, key: "login/" + hex.EncodeToString(sum[:])}
}

// transport returns how the user reaches the server.
func (u *userLogin) transport() mcpclient.HTTP {
	web, cfg, serverPath := u.source.web, u.source.cfg, "/"+url.PathEscape(u.source.cfg.Server)
	web.OAuth = &mcpclient.OAuth{Store: u, RedirectURL: u.origin + callbackPath + serverPath, Issuer: cfg.Issuer, ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret}
	if strings.HasPrefix(u.origin, "https:") { // which client ID metadata documents require
		web.OAuth.ClientMetadataURL = u.origin + clientPath + serverPath
	}
	return web
}

// loadSealed returns a stored value, and its encrypted form. The value is zero if there is none, or if it was encrypted with
// an earlier Logins.Key: then users must log in again.
func loadSealed[T any](ctx context.Context, l *logins, key string) (value T, sealed []byte, err error) {
	if sealed, err = l.stored.Get(ctx, key); err != nil || sealed == nil {
		return value, nil, err
	}
	if data, err := l.seal.Open(nil, nil, sealed, []byte(key)); err == nil {
		_ = json.Unmarshal(data, &value) // this program has encoded it
	}
	return value, sealed, nil
}

// updateSealed replaces a stored value by the result of update for the current value. A nil result removes the value. It
// calls update again if another replica has changed the value meanwhile.
func updateSealed[T any](ctx context.Context, l *logins, key string, update func(current T) any) error {
	for {
		current, oldSealed, err := loadSealed[T](ctx, l, key)
		if err != nil {
			return err
		}
		var sealed []byte
		if next := update(current); next != nil {
			data, err := json.Marshal(next)
			if err != nil {
				return err
			}
			sealed = l.seal.Seal(nil, nil, data, []byte(key))
		}
		if swapped, err := l.stored.Swap(ctx, key, oldSealed, sealed, loginTTL); swapped || err != nil {
			return err
		}
	}
}

func (u *userLogin) load(ctx context.Context) (loginRecord, error) {
	r, _, err := loadSealed[loginRecord](ctx, u.logins, u.key)
	return r, err
}

// Load implements OAuth.Store of mcpclient.
func (u *userLogin) Load(ctx context.Context) ([]byte, error) {
	r, err := u.load(ctx)
	return r.Store, err
}

// Save implements OAuth.Store of mcpclient.
func (u *userLogin) Save(ctx context.Context, login []byte, loggedIn bool) error {
	var r loginRecord
	lastID := ""
	err := updateSealed(ctx, u.logins, u.key, func(current loginRecord) any {
		r, lastID = current, current.ID
		r.Server, r.User, r.Store = u.source.cfg.Server, u.user, login
		if !loggedIn {
			r.ID = ""
		} else if r.ID == "" || u.newlyLoggedIn {
			r.ID, r.Since = rand.Text(), time.Now()
		}
		return r
	})
	if err != nil || r.ID == lastID {
		return err
	}
	return u.updateList(ctx, r.Login, loggedIn)
}

// loginList is the key of the list of logins.
const loginList = "logins"

// updateList adds a login to the list, or removes it.
func (l *logins) updateList(ctx context.Context, login Login, add bool) error {
	return updateSealed(ctx, l, loginList, func(all []Login) any {
		all = slices.DeleteFunc(all, func(o Login) bool { return o.Server == login.Server && o.User == login.User })
		if add {
			all = append(all, login)
		}
		return all
	})
}

// Lock implements OAuth.Store of mcpclient.
func (u *userLogin) Lock(ctx context.Context) (unlock func(), err error) {
	key, mine := "login-lock/"+u.key, []byte(rand.Text())
	for {
		locked, err := u.transient.Swap(ctx, key, nil, mine, lockTTL)
		if err != nil {
			return nil, err
		}
		if locked { // if unlock fails, the lock ends after lockTTL
			return func() { _, _ = u.transient.Swap(context.WithoutCancel(ctx), key, mine, nil, 0) }, nil
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
	err = errors.Join(updateSealed(ctx, u.logins, u.key, func(loginRecord) any { return nil }), u.updateList(ctx, Login{Server: u.source.cfg.Server, User: u.user}, false))
	u.closeEnded(context.WithoutCancel(ctx))
	return err
}

// closeEndedPeriodically closes the connections whose login another replica has ended, until the gateway is closed.
func (l *logins) closeEndedPeriodically() {
	tick := time.NewTicker(endInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.closeEnded(l.gateway.ctx)
		case <-l.gateway.ctx.Done():
			return
		}
	}
}

func (l *logins) closeEnded(ctx context.Context) {
	for _, users := range l.servers() {
		users.closeEnded(ctx)
	}
}

// usersLogIn reports whether the server has the grant [UserLogin].
func (u *upstream) usersLogIn() bool { return u.users != nil && u.users.tokens.logins != nil }

// servers returns the connections to the servers that users log in to. l may be nil.
func (l *logins) servers() (all []*userClients) {
	if l == nil {
		return nil
	}
	for _, u := range l.gateway.current.Load().upstreams {
		if u.usersLogIn() {
			all = append(all, u.users)
		}
	}
	return all
}

// find returns the login of a user to the server with the name server. l may be nil.
func (l *logins) find(server, user string) (*userLogin, error) {
	for _, users := range l.servers() {
		if users.cfg.Name == server {
			return users.tokens.login(user), nil
		}
	}
	return nil, fmt.Errorf("there is no server %q with the grant %q", server, UserLogin)
}

// ensure returns the ID of the login. If the user must log in, it asks the user, and waits for the login for callWait.
func (u *userLogin) ensure(ctx context.Context) (id string, err error) {
	server := u.source.cfg.Server
	r, err := u.load(ctx)
	if err != nil {
		return "", fmt.Errorf("MCP server %q: the login of the user cannot be read: %w", server, err)
	}
	if r.ID != "" {
		return r.ID, nil
	}
	issuer, _, _ := strings.Cut(u.user, " ")
	if _, ok := u.issuers[issuer]; !ok {
		return "", fmt.Errorf("MCP server %q: users of %s cannot log in to it, because logins.clients has no client for that issuer", server, issuer)
	}
	page := u.startURL(server)
	notLoggedIn := func(why string) error {
		return fmt.Errorf("MCP server %q: %s. The user can log in at %s; call again after that", server, why, page)
	}
	h := host.From(ctx)
	if h == nil {
		return "", notLoggedIn("the user must log in to it first")
	}
	if _, asking := u.asking.LoadOrStore(u.key, true); asking {
		return "", notLoggedIn("the user must log in to it first, and is being asked to")
	}
	defer u.asking.Delete(u.key)
	answer, err := h.Elicit(ctx, host.Elicitation{Message: fmt.Sprintf("Log in to %q, first at %s: its tools work with your own account there.", server, issuer), URL: page, ID: rand.Text()})
	switch {
	case err != nil || answer.Action == host.ActionCancel:
		return "", notLoggedIn("the user must log in to it first, and was not or could not be asked to")
	case answer.Action == host.ActionDecline:
		return "", fmt.Errorf("MCP server %q: the user declined to log in to it. Continue without it", server)
	}
	timeout := time.After(callWait)
	for {
		select {
		case <-time.After(callInterval):
		case <-timeout:
			return "", notLoggedIn("the user has not finished the login yet")
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		if r, err := u.load(ctx); err == nil && r.ID != "" {
			return r.ID, nil
		}
	}
}

// Logins returns the logins of users to servers, in the order in which they were made.
func (g *Gateway) Logins(ctx context.Context) (all []Login, err error) {
	if g.logins != nil {
		all, _, err = loadSealed[[]Login](ctx, g.logins, loginList)
	}
	return all, err
}

// Logout forgets the login of a user to a server. It does not notify the authorization server. Calls of the user to the server
// that are in flight fail; calls on other replicas fail within some seconds.
func (g *Gateway) Logout(ctx context.Context, server, user string) error {
	login, err := g.logins.find(server, user)
	if err != nil {
		return err
	}
	return login.remove(ctx)
}

// A loginDir is the [mcpserver.Shared] of one gateway. It stores each value in a file that only the operating system's user
// can read. Values do not expire.
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
	current, err := d.Get(ctx, key)
	if err != nil || (current == nil) != (old == nil) || !bytes.Equal(current, old) {
		return false, err
	}
	if file := d.file(key); new != nil {
		if err = os.WriteFile(file+".new", new, 0o600); err == nil {
			err = os.Rename(file+".new", file)
		}
	} else if current != nil {
		err = os.Remove(file)
	}
	return err == nil, err
}
