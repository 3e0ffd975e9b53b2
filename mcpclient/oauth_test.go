package mcpclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kitbag-go/kitbag/internal/oauthtest"
	"github.com/mark3labs/mcp-go/server"
)

// A guard is an MCP server behind its authorization server.
type guard struct{ *oauthtest.Server }

func newGuard(t *testing.T) *guard {
	t.Helper()
	return &guard{oauthtest.New(t, server.NewStreamableHTTPServer(goServer()))}
}

// user agrees to everything, and counts how often it is asked.
func (g *guard) user(asked *atomic.Int64) func(context.Context, string) (url.Values, error) {
	return func(_ context.Context, page string) (url.Values, error) {
		asked.Add(1)
		return g.Agree(page)
	}
}

func (g *guard) config(asked *atomic.Int64) Server {
	return Server{Name: "srv", Transport: HTTP{URL: g.URL + "/mcp", OAuth: &OAuth{
		RedirectURL: "http://127.0.0.1:7777/callback", Authorize: g.user(asked),
	}},
		Options: Options{PingInterval: -1}}
}

func TestLogin(t *testing.T) {
	g := newGuard(t)
	var asked atomic.Int64
	cfg := g.config(&asked)
	cfg.Transport.(HTTP).OAuth.Dir = filepath.Join(t.TempDir(), "tokens")
	c := connect(t, cfg)
	if res := mustRun(t, find(t, c, "echo"), `{"m":"in"}`); res.Text() != "in" {
		t.Errorf("%q", res.Text())
	}
	if reg := g.Registered(); len(reg) != 1 || reg[0]["application_type"] != "native" || reg[0]["token_endpoint_auth_method"] != "client_secret_post" {
		t.Errorf("registered: %v", reg)
	}
	files, err := filepath.Glob(filepath.Join(cfg.Transport.(HTTP).OAuth.Dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files: %v %v", files, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f, info.Mode(), err)
		}
	}

	if u := g.URL + "/mcp"; !cfg.Transport.(HTTP).OAuth.LoggedIn(u) || cfg.Transport.(HTTP).OAuth.LoggedIn(g.URL+"/other") {
		t.Error("LoggedIn does not report the stored tokens")
	}

	// Another client of the same server gets the stored token. When it expires, one of many parallel calls refreshes it.
	c.Close() // otherwise its late stream could also refresh the token
	again := connect(t, cfg)
	echo := find(t, again, "echo")
	g.Revoke()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if res, err := run(t.Context(), echo, `{"m":"x"}`); err != nil || res.Text() != "x" {
				t.Errorf("%v %v", res, err)
			}
		})
	}
	wg.Wait()
	if asked.Load() != 1 || g.Refreshes() != 1 {
		t.Errorf("asked %d times, refreshed %d times", asked.Load(), g.Refreshes())
	}

	g.Revoke()
	g.NoGrant = true
	if res := mustRun(t, echo, `{"m":"y"}`); res.Text() != "y" || asked.Load() != 2 || len(g.Registered()) != 1 {
		t.Errorf("%q, asked %d times, registered %d times", res.Text(), asked.Load(), len(g.Registered()))
	}

	for range 2 {
		if err := cfg.Transport.(HTTP).OAuth.Logout(g.URL + "/mcp"); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(cfg.Transport.(HTTP).OAuth.Dir, "*")); len(left) > 0 || cfg.Transport.(HTTP).OAuth.LoggedIn(g.URL+"/mcp") {
			t.Errorf("after the logout there is %v", left)
		}
	}
}

// TestLoginRequired checks the error of a client that cannot log in.
func TestLoginRequired(t *testing.T) {
	g := newGuard(t)
	_, err := tryConnect(t.Context(), Server{Name: "srv", Transport: HTTP{URL: g.URL + "/mcp"}, Options: Options{PingInterval: -1}})
	if !errors.Is(err, ErrLogin) {
		t.Errorf("error: %v", err)
	}
}

func TestLoginRefuses(t *testing.T) {
	evil := "https://evil.example"
	for _, row := range []struct {
		name string
		set  func(g *guard, o *OAuth)
		want string
	}{
		{"another resource", func(g *guard, _ *OAuth) { g.Resource = with("resource", evil+"/mcp") }, "does not include"},
		{"a resource below", func(g *guard, _ *OAuth) { g.Resource = with("resource", g.URL+"/mcp/deeper") }, "does not include"},
		{"an unencrypted authorization server", func(g *guard, _ *OAuth) {
			g.Resource = with("authorization_servers", []string{"http://login.example"})
		}, "must be https"},
		{"metadata of another issuer", func(g *guard, _ *OAuth) { g.Metadata = with("issuer", evil) }, "has the issuer"},
		{"an issuer that is nearly the same", func(g *guard, _ *OAuth) { g.Metadata = with("issuer", g.URL+"/") }, "has the issuer"},
		{"no PKCE", func(g *guard, _ *OAuth) { g.Metadata = with("code_challenge_methods_supported", []string{"plain"}) }, "PKCE"},
		{"an unencrypted token endpoint", func(g *guard, _ *OAuth) { g.Metadata = with("token_endpoint", "http://login.example/token") }, "must be https"},
		{"no endpoint", func(g *guard, o *OAuth) {
			o.ClientID = "mine"
			g.Metadata = func(m map[string]any) { delete(m, "authorization_endpoint"); delete(m, "registration_endpoint") }
		}, "must be https"},
		{"another state", func(g *guard, _ *OAuth) { g.Back = func(q url.Values) { q.Set("state", "x") } }, "the state of the redirect differs"},
		{"an answer of another issuer", func(g *guard, _ *OAuth) { g.Back = func(q url.Values) { q.Set("iss", evil) } }, "comes from"},
		{"an answer without its issuer", func(g *guard, _ *OAuth) { g.Back = func(q url.Values) { q.Del("iss") } }, "has no issuer"},
		{"a refusal", func(g *guard, _ *OAuth) { g.Back = func(q url.Values) { q.Set("error", "access_denied") } }, "access_denied"},
		{"no code", func(g *guard, _ *OAuth) { g.Back = func(q url.Values) { q.Del("code") } }, "has no code"},
		{"no registration", func(g *guard, _ *OAuth) { g.Metadata = with("registration_endpoint", "") }, "set OAuth.ClientID"},
		{"a client of another issuer", func(_ *guard, o *OAuth) { o.ClientID, o.Issuer = "mine", evil }, "belongs to"},
		{"a user who closes the window", func(_ *guard, o *OAuth) {
			o.Authorize = func(context.Context, string) (url.Values, error) { return nil, errors.New("window closed") }
		}, "window closed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGuard(t)
			var asked atomic.Int64
			cfg := g.config(&asked)
			row.set(g, cfg.Transport.(HTTP).OAuth)
			_, err := tryConnect(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "login required") {
				t.Errorf("%v, want %q", err, row.want)
			}
			if asked.Load() > 1 {
				t.Errorf("the user was asked %d times", asked.Load())
			}
			if g.Tokens() > 0 {
				t.Error("there is a token although the login failed")
			}
		})
	}
}

func with(key string, value any) func(map[string]any) {
	return func(m map[string]any) { m[key] = value }
}

func TestChallenges(t *testing.T) {
	for _, row := range []struct {
		headers []string
		want    challenge
	}{
		{nil, challenge{}},
		{[]string{`Bearer`}, challenge{}},
		{[]string{`Bearer error="insufficient_scope", scope="a b", resource_metadata="https://x/y?a=b"`},
			challenge{err: "insufficient_scope", scope: "a b", metadata: "https://x/y?a=b"}},
		{[]string{`Basic realm="a, scope=no"`, `bearer Scope=one,error=e`}, challenge{err: "e", scope: "one"}},
		{[]string{`Bearer scope="open`}, challenge{scope: "open"}},
		{[]string{`Bearer scope="first", scope="second"`}, challenge{scope: "first"}},
	} {
		res := &http.Response{Header: http.Header{"Www-Authenticate": row.headers}}
		if got := challengeOf(res); got != row.want {
			t.Errorf("%q: %+v", row.headers, got)
		}
	}
}

func TestTokensStayWithTheHost(t *testing.T) {
	var stolen atomic.Value
	other := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stolen.Store(r.Header.Get("Authorization"))
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	g := newGuard(t)
	var asked atomic.Int64
	c := connect(t, g.config(&asked))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, other.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.cfg.login.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if stolen.Load() != "" || res.StatusCode != http.StatusUnauthorized || asked.Load() != 1 {
		t.Errorf("the other host got %q; asked %d times", stolen.Load(), asked.Load())
	}
}

// TestReach checks that a server on another machine cannot make the client connect to this one, and that no
// redirect sends a secret to another host or unencrypted.
func TestReach(t *testing.T) {
	for _, row := range []struct {
		server, endpoint string
		ok               bool
	}{
		{"https://mcp.example.com/", "https://login.example.com/token", true},
		{"https://mcp.example.com/", "http://127.0.0.1:9200/_shutdown", false},
		{"https://mcp.example.com/", "https://localhost/token", false},
		{"https://mcp.example.com/", "http://[::1]:80/", false},
		{"https://mcp.example.com/", "https://LocalHost/token", false},
		{"https://mcp.example.com/", "https://localhost./token", false},
		{"https://mcp.example.com/", "https://a.localhost/token", false},
		{"https://mcp.example.com/", "https://0.0.0.0/token", false},
		{"https://mcp.example.com/", "https://[::]/token", false},
		{"https://mcp.example.com/", "https://[::ffff:127.0.0.1]/token", false},
		{"http://localhost:8080/", "http://127.0.0.1:9200/token", true},
		{"https://mcp.example.com/", "", true}, // check rejects it
	} {
		server, err := url.Parse(row.server)
		if err != nil {
			t.Fatal(err)
		}
		if err := (&login{server: server}).checkEndpoint(row.endpoint); (err == nil) != row.ok {
			t.Errorf("%s from %s: %v", row.endpoint, row.server, err)
		}
	}
	for _, row := range []struct {
		from, to string
		ok       bool
	}{
		{"https://a.example/x", "https://a.example/y", true},
		{"https://a.example/x", "http://a.example/x", false},
		{"https://a.example/x", "https://b.example/x", false},
	} {
		from, err1 := http.NewRequest(http.MethodPost, row.from, nil)
		to, err2 := http.NewRequest(http.MethodPost, row.to, nil)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if err := sameHost(to, []*http.Request{from}); (err == nil) != row.ok {
			t.Errorf("from %s to %s: %v", row.from, row.to, err)
		}
	}
}

// TestLoginLacksScopes checks that a request which needs more scopes than a stored login has does not end that login, and
// that the next login asks for all scopes.
func TestLoginLacksScopes(t *testing.T) {
	inner := server.NewStreamableHTTPServer(goServer())
	g := &guard{oauthtest.New(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if strings.Contains(string(body), "secret plans") {
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="write"`)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		inner.ServeHTTP(w, r)
	}))}
	for _, dir := range []string{"", t.TempDir()} {
		var asked atomic.Int64
		cfg := g.config(&asked)
		oauth := cfg.Transport.(HTTP).OAuth
		oauth.Dir = dir
		c := connect(t, cfg)
		c.cfg.login.cfg.Authorize = nil // from now on only the stored login is used
		echo := find(t, c, "echo")
		for _, text := range []string{"hello", "secret plans", "hello"} {
			res := mustRun(t, echo, `{"m":"`+text+`"}`)
			if lacks := strings.Contains(res.Text(), "does not have all scopes"); lacks != (text != "hello") || !lacks && res.Text() != text {
				t.Errorf("%s: %s", text, res.Text())
			}
		}
		stored, err := c.cfg.login.load(t.Context())
		if err != nil || stored.Access == "" || stored.Refresh == "" || !slices.Contains(strings.Fields(stored.Scope), "write") || asked.Load() != 1 {
			t.Errorf("the login is %+v, %v; asked %d times", stored, err, asked.Load())
		}
		server := cfg.Transport.(HTTP).URL
		if err := oauth.EndLogin(server); err != nil {
			t.Error(err)
		}
		ended, err := c.cfg.login.load(t.Context())
		if keeps := ended != nil && ended.Scope == stored.Scope && *ended == (grant{Issuer: stored.Issuer, Scope: stored.Scope}); err != nil || keeps != (dir != "") {
			t.Errorf("the ended login is %+v, %v", ended, err)
		}
	}
}

// TestUnreadableMetadata checks that a document which cannot be read contributes nothing to the next one.
func TestUnreadableMetadata(t *testing.T) {
	s := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := `{"issuer":"two"}`
		if r.URL.Path == "/one" {
			text = `{"issuer":"one","registration_endpoint":"https://one.example/","code_challenge_methods_supported":"S256"}`
		}
		_, _ = io.WriteString(w, text)
	}))
	server, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	l := newLogin(&OAuth{}, server, s.Client().Transport)
	got, err := firstJSON[loginSite](t.Context(), l, []string{s.URL + "/one", s.URL + "/two"})
	if want := (&loginSite{Issuer: "two"}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// A sharedLogin is a Store for tests.
type sharedLogin struct {
	mu       sync.Mutex
	login    []byte
	loggedIn bool
}

func (s *sharedLogin) Load(context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.login, nil
}

func (s *sharedLogin) Save(_ context.Context, login []byte, loggedIn bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.login, s.loggedIn = login, loggedIn
	return nil
}

func (s *sharedLogin) Lock(context.Context) (unlock func(), _ error) { return func() {}, nil }

// TestBeginLoginKeepsTokens begins a login while another one ends: its tokens stay.
func TestBeginLoginKeepsTokens(t *testing.T) {
	g := newGuard(t)
	store := &sharedLogin{}
	web := HTTP{URL: g.URL + "/mcp", OAuth: &OAuth{RedirectURL: "https://app.example.com/callback", Store: store}}
	first, begun, err := web.BeginLogin(t.Context())
	if err != nil || store.loggedIn {
		t.Fatal(store.loggedIn, err)
	}
	back, err := g.Agree(first)
	if err != nil {
		t.Fatal(err)
	}
	token := ""
	g.Metadata = func(map[string]any) { // during the second login, which has found no tokens
		if token == "" {
			token = "started"
			if token, err = web.FinishLogin(t.Context(), begun, back); err != nil {
				t.Error(err)
			}
		}
	}
	if _, _, err := web.BeginLogin(t.Context()); err != nil {
		t.Error(err)
	}
	if !store.loggedIn || !strings.Contains(string(store.login), token) {
		t.Errorf("the login that ended is lost: %s", store.login)
	}
}
