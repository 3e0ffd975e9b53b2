package oauth_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/internal/oauthtest"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/mcpserver/oauth"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A loginWorld is a gateway at a URL whose users come from issuer, in front of the server "crm", to which they log in at
// vendor.
type loginWorld struct {
	issuer, vendor *oauthtest.Issuer
	gateway        *mcpgateway.Gateway
	url, crm       string
	cfg            mcpgateway.Config
	logs           *syncBuffer
	quiet          *http.Client
	waiting        chan struct{} // has one element for each call of crm's tool wait that runs

	front, back atomic.Pointer[http.Handler] // of the gateway, and of crm

	mu      sync.Mutex
	revoked map[string]bool // Authorization headers that crm refuses
	seen    []string        // Authorization headers that crm got
}

type lateHandler struct{ *atomic.Pointer[http.Handler] }

func (h lateHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*h.Load()).ServeHTTP(w, r) }

// newLoginWorld makes a world whose gateway keeps logins in the store, or in a directory if that is nil.
func newLoginWorld(t *testing.T, store mcpserver.Shared) *loginWorld {
	t.Helper()
	w := &loginWorld{issuer: oauthtest.NewIssuer(t), vendor: oauthtest.NewIssuer(t), logs: &syncBuffer{}, revoked: map[string]bool{}, waiting: make(chan struct{}),
		quiet: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
	crm := httptest.NewServer(lateHandler{&w.back})
	t.Cleanup(crm.Close)
	front := httptest.NewServer(lateHandler{&w.front})
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	w.url, w.crm = front.URL+"/", crm.URL
	w.upstream(t)
	w.cfg = mcpgateway.Config{
		Servers: []mcpclient.Server{{Name: "crm", Transport: mcpclient.HTTP{URL: w.crm, Client: w.quiet}, Options: mcpclient.Options{PingInterval: -1}}},
		Style:   mcpgateway.StyleFull, AuditFile: filepath.Join(t.TempDir(), "audit"), AuditArguments: true,
		OAuth:          &mcpserver.OAuth{Resource: w.url, Issuers: []string{w.issuer.URL}, Grants: []mcpserver.Grant{{Name: "all"}}, Client: w.quiet},
		UpstreamTokens: []mcpgateway.UpstreamToken{{Server: "crm", Grant: mcpgateway.UserLogin, ListAs: w.issuer.URL + " lister"}},
		Logins:         &mcpgateway.Logins{Clients: clientsOf(w.issuer), Key: strings.Repeat("k", 32), Dir: filepath.Join(t.TempDir(), "logins")},
		Serve:          mcpgateway.ServeOptions{Credentials: []mcpserver.Credential{{Name: "ci", Token: "the-token-of-the-ci-credential", Policy: open}}, Policy: open},
	}
	if store != nil {
		w.cfg.Logins.Dir, w.cfg.Serve.Replicas = "", &mcpserver.Replicas{Shared: store, URL: w.url}
	}
	w.start(t)
	return w
}

// clientsOf returns the gateway's clients at issuers.
func clientsOf(issuers ...*oauthtest.Issuer) map[string]mcpgateway.LoginClient {
	clients := map[string]mcpgateway.LoginClient{}
	for _, i := range issuers {
		clients[i.URL] = mcpgateway.LoginClient{ID: "kitbag", Secret: oauthtest.Secret}
	}
	return clients
}

// eachStore runs a test with logins in a directory, for which store is nil, and in the store of replicas. Package sharedtest
// of mcpserver checks that other stores do the same.
func eachStore(t *testing.T, do func(t *testing.T, store mcpserver.Shared)) {
	t.Run("directory", func(t *testing.T) { do(t, nil) })
	t.Run("shared", func(t *testing.T) { do(t, mcpserver.NewShared()) })
}

// upstream makes crm, with a tool that says who calls.
func (w *loginWorld) upstream(t *testing.T) {
	auth, err := oauth.New(mcpserver.OAuth{Resource: w.crm, Issuers: []string{w.vendor.URL}, Grants: []mcpserver.Grant{{Name: "all"}}, Client: w.quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = auth.Close() })
	who := tool.Must(tool.New("who", "Says who calls.", func(ctx context.Context, _ none) (string, error) {
		id, _ := mcpserver.IdentityFrom(ctx)
		return strings.TrimPrefix(id.Name, w.vendor.URL), nil
	}))
	wait := tool.Must(tool.New("wait", "Waits until the call is cancelled.", func(ctx context.Context, _ none) (string, error) {
		w.waiting <- struct{}{}
		<-ctx.Done()
		return "", context.Cause(ctx)
	}))
	s, err := mcpserver.New(mcpserver.Config{Toolkit: toolkit.Of(who, wait), Name: "crm", Version: "1", Policy: open, Authenticator: auth})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	inner := s.Handler()
	h := http.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		header := r.Header.Get("Authorization")
		w.seen = append(w.seen, header)
		refused := header != "" && w.revoked[header]
		w.mu.Unlock()
		if refused {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(rw, r)
	}))
	w.back.Store(&h)
}

// revoke makes crm refuse the access tokens of a user that it has seen.
func (w *loginWorld) revoke(user string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, header := range w.seen {
		if parts := strings.Split(header, "."); len(parts) == 3 && strings.Contains(claims(parts[1]), `"`+user+`"`) {
			w.revoked[header] = true
		}
	}
}

func claims(part string) string {
	data, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// start starts the gateway, again if it runs.
func (w *loginWorld) start(t *testing.T) {
	t.Helper()
	if w.gateway != nil {
		if err := w.gateway.Close(); err != nil {
			t.Fatal(err)
		}
	}
	w.gateway = newGateway(t, w.cfg)
	h := w.gateway.Server.Handler()
	w.front.Store(&h)
	t.Cleanup(func() { _ = w.gateway.Close() })
}

// A browser has the cookies of a user who is logged in everywhere, and who presses the buttons of an issuer.
type browser struct {
	*http.Client
	w      *loginWorld
	issuer string
}

func (w *loginWorld) browser(t *testing.T, user string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	jar.SetCookies(u, []*http.Cookie{{Name: oauthtest.UserCookie, Value: user}}) // for all ports
	return &browser{&http.Client{Jar: jar, Transport: w.quiet.Transport}, w, w.issuer.URL}
}

func (b *browser) do(r *http.Request, err error) string {
	if err != nil {
		return err.Error()
	}
	res, err := b.Do(r)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// press presses a button of the start page, and returns the text of the last page.
func (b *browser) press(page, do string) string {
	u, err := url.Parse(page)
	if err != nil {
		return err.Error()
	}
	server := u.Query().Get("server")
	u.RawQuery = ""
	r, err := http.NewRequest(http.MethodPost, u.String(), strings.NewReader(url.Values{"server": {server}, "issuer": {b.issuer}, "do": {do}}.Encode()))
	if err == nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	return b.do(r, err)
}

func (b *browser) get(page string) string { return b.do(http.NewRequest(http.MethodGet, page, nil)) }

func (w *loginWorld) page() string { return w.url + "oauth/connect?server=crm" }

// client returns an MCP client of a user. elicit may be nil.
func (w *loginWorld) client(t *testing.T, user, protocol string, elicit func(context.Context, host.Elicitation) (host.Answer, error)) *mcpclient.Client {
	t.Helper()
	token := w.issuer.Token(user, w.url, nil)
	if user == "ci" {
		token = "the-token-of-the-ci-credential"
	}
	return w.clientWith(t, token, protocol, elicit)
}

func (w *loginWorld) clientWith(t *testing.T, token, protocol string, elicit func(context.Context, host.Elicitation) (host.Answer, error)) *mcpclient.Client {
	t.Helper()
	c, err := mcpclient.New("g", mcpclient.HTTP{URL: w.url, Client: w.quiet, Headers: map[string]string{"Authorization": "Bearer " + token}},
		&mcpclient.Options{Prefix: "_", PingInterval: -1, Protocol: protocol, Elicitation: elicit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func callAs(t *testing.T, c *mcpclient.Client) string {
	t.Helper()
	if res, err := c.Call(t.Context(), "crm__who", nil); err != nil {
		return err.Error()
	} else {
		return res.Text()
	}
}

var eras = []string{"2025-11-25", "2026-07-28"}

// TestUserLogin goes through the life of logins, in both eras of the protocol.
func TestUserLogin(t *testing.T) {
	eachStore(t, func(t *testing.T, store mcpserver.Shared) { testUserLogin(t, newLoginWorld(t, store)) })
}

func testUserLogin(t *testing.T, w *loginWorld) {
	if _, err := w.client(t, "anna", eras[0], nil).Tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.browser(t, "lister").get(w.page()); !strings.Contains(got, `name="server" value="crm"`) {
		t.Errorf("the start page: %s", got)
	}
	if got := w.browser(t, "lister").get(w.url + "oauth/client/crm"); !strings.Contains(got, `"redirect_uris":["`+w.url+`oauth/callback/crm"]`) {
		t.Errorf("the metadata document: %s", got)
	}
	if got := w.browser(t, "lister").press(w.page(), ""); !strings.Contains(got, "Logged in to &#34;crm&#34; for "+w.issuer.URL+" lister") {
		t.Fatalf("the last page: %s", got)
	}
	w.listed(t)
	for _, era := range eras {
		user := "anna" + era
		b := w.browser(t, user)
		var asked []host.Elicitation
		action, later := host.ActionDecline, make(chan string, 1)
		c := w.client(t, user, era, func(_ context.Context, q host.Elicitation) (host.Answer, error) {
			asked = append(asked, q)
			if action == host.ActionAccept {
				go func() { later <- b.press(q.URL, "") }()
			}
			return host.Answer{Action: action}, nil
		})
		expect := func(what, want string, questions int) {
			t.Helper()
			if got := callAs(t, c); !strings.Contains(got, want) || len(asked) != questions {
				t.Errorf("%s %s: %s, want %s; asked %d times", era, what, got, want, len(asked))
			}
			if len(asked) > 0 && action == host.ActionAccept {
				if got := <-later; !strings.Contains(got, "Logged in") {
					t.Errorf("%s %s: %s", era, what, got)
				}
			}
			asked = nil
		}
		expect("declined", "declined to log in", 1)
		action = host.ActionCancel
		expect("cancelled", "can log in at "+w.page(), 1)
		action = host.ActionAccept
		expect("first", " "+user, 1)
		expect("again", " "+user, 0)
		w.revoke(user)
		expect("refreshed", " "+user, 0)
		w.revoke(user)
		w.vendor.Forget(user)
		expect("refresh token revoked", " "+user, 1)
		if err := w.gateway.Logout(t.Context(), "crm", w.issuer.URL+" "+user); err != nil {
			t.Error(err)
		}
		expect("logged out by the owner", " "+user, 1)
		w.start(t)
		expect("restarted", " "+user, 0)
		if got := b.press(w.page(), "logout"); !strings.Contains(got, "has forgotten") {
			t.Error(got)
		}
		action = host.ActionCancel
		expect("logged out by the user", "can log in at "+w.page(), 1)
	}
	all, err := w.gateway.Logins(t.Context())
	if err != nil || len(all) != 1 || all[0].User != w.issuer.URL+" lister" || all[0].Since.IsZero() {
		t.Errorf("%v %v", all, err)
	}
	if exchanged, reused, clients := w.vendor.Exchanged(); reused > 0 || clients != 5 { // a logout also forgets the client
		t.Errorf("%d codes and tokens, %d used again, %d clients", exchanged, reused, clients)
	}
	audit, err := os.ReadFile(w.cfg.AuditFile)
	if err != nil {
		t.Fatal(err)
	}
	w.checkNoTokens(t, string(audit)+w.logs.take())
}

// TestUserLoginIssuers checks users of two issuers. Those with the same subject are two users.
func TestUserLoginIssuers(t *testing.T) {
	eachStore(t, func(t *testing.T, store mcpserver.Shared) { testUserLoginIssuers(t, newLoginWorld(t, store)) })
}

func testUserLoginIssuers(t *testing.T, w *loginWorld) {
	other, machines := oauthtest.NewIssuer(t), oauthtest.NewIssuer(t)
	w.cfg.OAuth.Issuers = []string{w.issuer.URL, other.URL, machines.URL}
	w.cfg.Logins.Clients = clientsOf(w.issuer, other)
	w.start(t)
	start := w.browser(t, "anna").get(w.page())
	for _, i := range []*oauthtest.Issuer{w.issuer, other, machines} {
		if got := strings.Contains(start, `name="issuer" value="`+i.URL+`"`); got == (i == machines) {
			t.Errorf("the start page has a button for %s: %t", i.URL, got)
		}
	}
	if got := w.browser(t, "lister").press(w.page(), ""); !strings.Contains(got, "Logged in") {
		t.Fatal(got)
	}
	w.listed(t)
	client := func(i *oauthtest.Issuer) *mcpclient.Client {
		return w.clientWith(t, i.Token("anna", w.url, nil), eras[1], nil)
	}
	press := func(i *oauthtest.Issuer, account, do string) string {
		b := w.browser(t, "anna")
		b.issuer = i.URL
		b.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
			if "http://"+r.URL.Host == w.vendor.URL { // where the two users have different accounts
				b.Jar.SetCookies(r.URL, []*http.Cookie{{Name: oauthtest.UserCookie, Value: account}})
			}
			return nil
		}
		return b.press(w.page(), do)
	}
	first, second := client(w.issuer), client(other)
	expect := func(what, ofFirst, ofSecond string) {
		t.Helper()
		for c, want := range map[*mcpclient.Client]string{first: ofFirst, second: ofSecond} {
			if got := callAs(t, c); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
	}
	const none = "can log in at"
	expect("no user is logged in", none, none)
	if got := press(other, "second-anna", ""); !strings.Contains(got, other.URL+" anna") {
		t.Error(got)
	}
	expect("the second user is logged in", none, " second-anna")
	if got := press(w.issuer, "first-anna", ""); !strings.Contains(got, w.issuer.URL+" anna") {
		t.Error(got)
	}
	expect("both are logged in", " first-anna", " second-anna")
	if got := press(w.issuer, "", "logout"); !strings.Contains(got, "has forgotten") {
		t.Error(got)
	}
	expect("the first user is logged out", none, " second-anna")
	if got := callAs(t, client(machines)); !strings.Contains(got, "users of "+machines.URL+" cannot log in") {
		t.Error(got)
	}
}

// TestUserLoginHostileIssuer tries what one of two issuers can do to get at users of the other.
func TestUserLoginHostileIssuer(t *testing.T) {
	const failed = "The login has failed"
	for _, row := range []struct {
		name string
		do   func(t *testing.T, w *loginWorld, evil *oauthtest.Issuer, bob *browser) string
	}{
		{"sends the browser to the other for a code of its user", func(t *testing.T, w *loginWorld, evil *oauthtest.Issuer, bob *browser) string {
			evil.Metadata = func(m map[string]any) { m["authorization_response_iss_parameter_supported"] = false }
			honest := evil.Config.Handler
			evil.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/token" {
					t.Error("evil has got the code")
				}
				honest.ServeHTTP(rw, r)
			})
			bob.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
				q := r.URL.Query()
				if q.Del("iss"); q.Has("redirect_uri") {
					r.URL.Host = mustParse(w.issuer.URL).Host
					q.Set("redirect_uri", w.url+"oauth/callback")
				}
				r.URL.RawQuery = q.Encode()
				return nil
			}
			return bob.press(w.page(), "")
		}},
		{"has a token of a user of the other", func(t *testing.T, w *loginWorld, evil *oauthtest.Issuer, bob *browser) string {
			evil.Grant = func(_ url.Values, answer map[string]any) int {
				answer["access_token"] = w.issuer.Token("bob", w.url, nil)
				return http.StatusOK
			}
			return bob.press(w.page(), "")
		}},
		{"signs a token in the name of the other", func(t *testing.T, w *loginWorld, evil *oauthtest.Issuer, bob *browser) string {
			evil.Grant = func(_ url.Values, answer map[string]any) int {
				answer["access_token"] = evil.Token("bob", w.url, map[string]any{"iss": w.issuer.URL})
				return http.StatusOK
			}
			return bob.press(w.page(), "")
		}},
		{"logs out a user of the other", func(t *testing.T, w *loginWorld, evil *oauthtest.Issuer, bob *browser) string {
			evil.Grant = func(_ url.Values, answer map[string]any) int {
				answer["access_token"] = w.issuer.Token("lister", w.url, nil)
				return http.StatusOK
			}
			return bob.press(w.page(), "logout")
		}},
		{"is not configured", func(t *testing.T, w *loginWorld, _ *oauthtest.Issuer, bob *browser) string {
			bob.issuer = oauthtest.NewIssuer(t).URL
			return bob.press(w.page(), "")
		}},
		{"is not named", func(t *testing.T, w *loginWorld, _ *oauthtest.Issuer, bob *browser) string {
			bob.issuer = ""
			return bob.press(w.page(), "")
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, evil := newLoginWorld(t, nil), oauthtest.NewIssuer(t)
			w.cfg.OAuth.Issuers, w.cfg.Logins.Clients = []string{w.issuer.URL, evil.URL}, clientsOf(w.issuer, evil)
			w.start(t)
			if got := w.browser(t, "lister").press(w.page(), ""); !strings.Contains(got, "Logged in") {
				t.Fatal(got)
			}
			bob := w.browser(t, "bob")
			bob.issuer = evil.URL
			if got := row.do(t, w, evil, bob); !strings.Contains(got, failed) {
				t.Error(got)
			}
			if all, err := w.gateway.Logins(t.Context()); len(all) != 1 || err != nil {
				t.Errorf("logins: %v %v", all, err)
			}
		})
	}
}

// checkNoTokens looks for tokens of users in a text.
func (w *loginWorld) checkNoTokens(t *testing.T, text string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, header := range w.seen {
		if token := strings.TrimPrefix(header, "Bearer "); token != "" && strings.Contains(text, token[strings.LastIndex(token, ".")+1:]) {
			t.Errorf("%s is in %s", token, text)
		}
	}
}

// TestUserLoginWithoutQuestion checks what clients get that cannot be asked, or have no user.
func TestUserLoginWithoutQuestion(t *testing.T) {
	w := newLoginWorld(t, nil)
	if got := w.browser(t, "lister").press(w.page(), ""); !strings.Contains(got, "Logged in") {
		t.Fatal(got)
	}
	w.listed(t)
	for _, era := range eras {
		for user, want := range map[string]string{"otto": "can log in at " + w.page(), "ci": "needs a token of the user"} {
			if got := callAs(t, w.client(t, user, era, nil)); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", era, got, want)
			}
		}
	}
}

var errStopped = errors.New("stopped")

// until makes the browser stop before it requests the n-th callback, and returns its URL.
func (b *browser) until(n int) *string {
	var at string
	b.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), b.w.url+"oauth/callback") {
			if n--; n == 0 {
				at = r.URL.String()
				return errStopped
			}
		}
		return nil
	}
	return &at
}

// TestUserLoginAttacks tries what a hostile user and pages of others can do with the links of a login.
func TestUserLoginAttacks(t *testing.T) {
	const failed = "The login has failed"
	for _, row := range []struct {
		name string
		do   func(t *testing.T, w *loginWorld, alice, bob *browser)
	}{
		{"alice has bob finish her login", func(t *testing.T, w *loginWorld, alice, bob *browser) {
			// The link to the vendor with Alice's state, as Alice would send it.
			at := alice.until(2)
			alice.press(w.page(), "")
			if got := bob.get(*at); !strings.Contains(got, failed) {
				t.Error(got)
			}
		}},
		{"alice has bob's browser become hers", func(t *testing.T, w *loginWorld, alice, bob *browser) {
			at := alice.until(1)
			alice.press(w.page(), "")
			if got := bob.get(*at); !strings.Contains(got, failed) {
				t.Error(got)
			}
		}},
		{"alice sends bob her link", func(t *testing.T, w *loginWorld, _, bob *browser) {
			if got := bob.press(w.page(), ""); !strings.Contains(got, w.issuer.URL+" bob") {
				t.Error(got)
			}
			if all, err := w.gateway.Logins(t.Context()); len(all) != 1 || all[0].User != w.issuer.URL+" bob" {
				t.Error(all, err)
			}
			if err := w.gateway.Logout(t.Context(), "crm", w.issuer.URL+" bob"); err != nil {
				t.Error(err)
			}
		}},
		{"replay", func(t *testing.T, w *loginWorld, alice, _ *browser) {
			for n := range 2 {
				at := alice.until(n + 1)
				alice.press(w.page(), "")
				cookies := alice.Jar.Cookies(mustParse(*at))
				alice.CheckRedirect = nil
				alice.get(*at)
				alice.Jar.SetCookies(mustParse(*at), cookies) // that of the step was removed
				if got := alice.get(*at); !strings.Contains(got, failed) {
					t.Error(got)
				}
			}
			if err := w.gateway.Logout(t.Context(), "crm", w.issuer.URL+" alice"); err != nil {
				t.Error(err)
			}
			if _, reused, _ := w.vendor.Exchanged(); reused > 0 {
				t.Error("a code was exchanged twice")
			}
		}},
		{"swapped states", func(t *testing.T, w *loginWorld, alice, _ *browser) {
			first := alice.until(2)
			alice.press(w.page(), "")
			second := alice.until(2)
			alice.press(w.page(), "")
			a, b := mustParse(*first), mustParse(*second)
			q := a.Query()
			q.Set("state", b.Query().Get("state"))
			a.RawQuery = q.Encode()
			alice.CheckRedirect = nil
			if got := alice.get(a.String()); !strings.Contains(got, failed) {
				t.Error(got)
			}
		}},
		{"another issuer's answer", func(t *testing.T, w *loginWorld, alice, _ *browser) {
			at := alice.until(2)
			alice.press(w.page(), "")
			alice.CheckRedirect = nil
			if got := alice.get(strings.Replace(*at, url.QueryEscape(w.vendor.URL), url.QueryEscape(w.issuer.URL), 1)); !strings.Contains(got, failed) {
				t.Error(got)
			}
		}},
		{"the callback of the other step", func(t *testing.T, w *loginWorld, alice, _ *browser) {
			at := alice.until(1)
			alice.press(w.page(), "")
			alice.CheckRedirect = nil
			if got := alice.get(strings.Replace(*at, "/callback", "/callback/crm", 1)); !strings.Contains(got, failed) {
				t.Error(got)
			}
			at = alice.until(2)
			alice.press(w.page(), "")
			alice.CheckRedirect = nil
			if got := alice.get(strings.Replace(*at, "/callback/crm", "/callback", 1)); !strings.Contains(got, failed) || !strings.Contains(*at, "/callback/crm") {
				t.Error(*at, got)
			}
		}},
		{"a cookie of the second step in the first", func(t *testing.T, w *loginWorld, alice, _ *browser) {
			at := alice.until(2)
			alice.press(w.page(), "")
			var sealed string
			for _, c := range alice.Jar.Cookies(mustParse(*at)) {
				if strings.HasPrefix(c.Name, "kitbag-") {
					sealed = c.Value
				}
			}
			first := alice.until(1)
			alice.press(w.page(), "")
			for _, c := range alice.Jar.Cookies(mustParse(*first)) {
				if strings.HasPrefix(c.Name, "kitbag-") {
					c.Value = sealed
					alice.Jar.SetCookies(mustParse(*first), []*http.Cookie{c})
				}
			}
			alice.CheckRedirect = nil
			if got := alice.get(*first); !strings.Contains(got, failed) {
				t.Error(got)
			}
		}},
		{"a page of another site", func(t *testing.T, w *loginWorld, _, bob *browser) {
			r, err := http.NewRequest(http.MethodPost, w.url+"oauth/connect", strings.NewReader("server=crm&do=logout"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			if got := bob.do(r, nil); !strings.Contains(got, "cross-origin request") {
				t.Error(got)
			}
		}},
		{"an unknown server", func(t *testing.T, w *loginWorld, alice, _ *browser) {
			if got := alice.press(w.url+"oauth/connect?server=other", ""); !strings.Contains(got, failed) {
				t.Error(got)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, store mcpserver.Shared) {
				w := newLoginWorld(t, store)
				row.do(t, w, w.browser(t, "alice"), w.browser(t, "bob"))
				if all, err := w.gateway.Logins(t.Context()); len(all) > 0 || err != nil {
					t.Errorf("logins: %v %v", all, err)
				}
			})
		})
	}
}

// TestUserLoginTabs logs in on two tabs at the same time.
func TestUserLoginTabs(t *testing.T) {
	eachStore(t, func(t *testing.T, store mcpserver.Shared) { testUserLoginTabs(t, newLoginWorld(t, store)) })
}

func testUserLoginTabs(t *testing.T, w *loginWorld) {
	b := w.browser(t, "anna")
	var steps []string
	for range 2 {
		at := b.until(1)
		b.press(w.page(), "")
		steps = append(steps, *at)
	}
	b.CheckRedirect = nil
	for _, at := range steps {
		if got := b.get(at); !strings.Contains(got, "Logged in") {
			t.Error(got)
		}
	}
	if all, err := w.gateway.Logins(t.Context()); len(all) != 1 || err != nil {
		t.Error(all, err)
	}
}

func mustParse(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(fmt.Sprint(s, err))
	}
	return u
}

// listed waits until clients get the server's tools, which are listed again some time after the login of the lister.
func (w *loginWorld) listed(t *testing.T) {
	t.Helper()
	waitFor(t, func() bool {
		c := w.client(t, "ci", eras[1], nil)
		defer c.Close()
		tools, err := c.Tools(t.Context())
		return err == nil && slices.ContainsFunc(tools, func(x tool.Tool) bool { return strings.HasSuffix(x.Info().Name, "crm__who") })
	})
}

// waitFor waits until ok is true.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for range 3000 {
		if ok() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("it did not happen within a minute")
}

// TestUserLoginReplicas checks that two replicas have the same logins, and renew one only once.
func TestUserLoginReplicas(t *testing.T) {
	w, shared := newLoginWorld(t, nil), mcpserver.NewShared()
	var fronts [2]atomic.Pointer[http.Handler]
	var replicas [2]*mcpgateway.Gateway
	for i := range replicas {
		web := httptest.NewServer(lateHandler{&fronts[i]})
		t.Cleanup(web.Close)
		cfg := w.cfg
		cfg.AuditFile, cfg.Logins = "", &mcpgateway.Logins{Clients: w.cfg.Logins.Clients, Key: w.cfg.Logins.Key}
		cfg.Serve.Replicas = &mcpserver.Replicas{Shared: shared, URL: web.URL}
		replicas[i] = newGateway(t, cfg)
		t.Cleanup(func() { _ = replicas[i].Close() })
		h := replicas[i].Server.Handler()
		fronts[i].Store(&h)
	}
	var requests atomic.Int64 // they alternate
	balancer := http.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		lateHandler{&fronts[requests.Add(1)%2]}.ServeHTTP(rw, r)
	}))
	w.front.Store(&balancer)
	for _, user := range []string{"lister", "anna"} {
		if got := w.browser(t, user).press(w.page(), ""); !strings.Contains(got, "Logged in") {
			t.Fatal(got)
		}
	}
	c := w.client(t, "anna", eras[1], nil)
	known := 0 // how many replicas in turn know her login
	waitFor(t, func() bool {
		if known++; !strings.Contains(callAs(t, c), " anna") {
			known = 0
		}
		return known == len(replicas)
	})
	for range 3 {
		w.revoke("anna")
		var work sync.WaitGroup
		for range 8 {
			work.Go(func() {
				if got := callAs(t, c); !strings.Contains(got, " anna") {
					t.Error(got)
				}
			})
		}
		work.Wait()
	}
	if exchanged, reused, _ := w.vendor.Exchanged(); reused > 0 || exchanged != 5 {
		t.Errorf("%d codes and refresh tokens were exchanged, %d again", exchanged, reused)
	}
	var work sync.WaitGroup
	for range len(replicas) { // one of them is not the one that ends the login
		work.Go(func() {
			if res, err := c.Call(t.Context(), "crm__wait", nil); err == nil && res.Outcome == message.OutcomeSuccess {
				t.Errorf("a call has survived the login: %s", res.Text())
			}
		})
		<-w.waiting
	}
	if err := replicas[0].Logout(t.Context(), "crm", w.issuer.URL+" anna"); err != nil {
		t.Error(err)
	}
	work.Wait()
	for range 2 {
		if got := callAs(t, c); !strings.Contains(got, "can log in at") {
			t.Error(got)
		}
	}
}

// TestUserLoginScopes checks that a user is asked again for scopes that a call needs.
func TestUserLoginScopes(t *testing.T) {
	eachStore(t, func(t *testing.T, store mcpserver.Shared) { testUserLoginScopes(t, newLoginWorld(t, store)) })
}

func testUserLoginScopes(t *testing.T, w *loginWorld) {
	honest := *w.back.Load()
	strict := http.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		parts := strings.Split(r.Header.Get("Authorization"), ".")
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if strings.Contains(string(body), `"tools/call"`) && !strings.Contains(claims(parts[1]), `"scope":"write"`) {
			rw.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="write"`)
			rw.WriteHeader(http.StatusForbidden)
			return
		}
		honest.ServeHTTP(rw, r)
	}))
	w.back.Store(&strict)
	for _, user := range []string{"lister", "anna"} {
		if got := w.browser(t, user).press(w.page(), ""); !strings.Contains(got, "Logged in") {
			t.Fatal(got)
		}
	}
	w.listed(t)
	asked := 0
	c := w.client(t, "anna", eras[1], func(_ context.Context, q host.Elicitation) (host.Answer, error) {
		asked++
		if got := w.browser(t, "anna").press(q.URL, ""); !strings.Contains(got, "Logged in") {
			t.Error(got)
		}
		return host.Answer{Action: host.ActionAccept}, nil
	})
	for range 2 {
		if got := callAs(t, c); !strings.Contains(got, " anna") || asked != 1 {
			t.Errorf("%s; asked %d times", got, asked)
		}
	}
	w.revoke("anna")
	w.vendor.Forget("anna")
	if got := callAs(t, c); !strings.Contains(got, " anna") || asked != 2 {
		t.Errorf("after the login has ended: %s; asked %d times, want once more for all scopes", got, asked)
	}
}
