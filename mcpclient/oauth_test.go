package mcpclient

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/server"
)

// A guard is an MCP server and the authorization server before it, in one. The
// functions let a test make it do wrong.
type guard struct {
	*httptest.Server
	mu         sync.Mutex
	valid      map[string]bool   // access tokens
	codes      map[string]string // code → PKCE challenge
	refreshes  int
	registered []map[string]any

	resource func(m map[string]any) // changes the resource's metadata
	metadata func(m map[string]any) // changes the authorization server's
	back     func(q url.Values)     // changes the answer to an authorization
	noGrant  bool                   // refuses refresh tokens
}

func newGuard(t *testing.T) *guard {
	t.Helper()
	g := &guard{valid: map[string]bool{}, codes: map[string]string{}}
	nop := func(map[string]any) {}
	g.resource, g.metadata, g.back = nop, nop, func(url.Values) {}
	mux := http.NewServeMux()
	mcp := server.NewStreamableHTTPServer(goServer())
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		ok := g.valid[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		g.mu.Unlock()
		if !ok {
			w.Header().Set("WWW-Authenticate", `Basic realm="x", Bearer error="invalid_token", scope="a \"b"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mcp.ServeHTTP(w, r)
	})
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		m := map[string]any{"resource": g.URL + "/mcp", "authorization_servers": []string{g.URL}}
		g.resource(m)
		_ = json.NewEncoder(w).Encode(m)
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		m := map[string]any{
			"issuer": g.URL, "authorization_endpoint": g.URL + "/authorize?x=y", "token_endpoint": g.URL + "/token",
			"registration_endpoint": g.URL + "/register", "code_challenge_methods_supported": []string{"S256"},
			"token_endpoint_auth_methods_supported": []string{"client_secret_post"}, "authorization_response_iss_parameter_supported": true,
		}
		g.metadata(m)
		_ = json.NewEncoder(w).Encode(m)
	})
	mux.HandleFunc("/register", g.register)
	mux.HandleFunc("/token", g.token)
	g.Server = serveHTTP(t, mux)
	return g
}

func (g *guard) register(w http.ResponseWriter, r *http.Request) {
	var m map[string]any
	_ = json.NewDecoder(r.Body).Decode(&m)
	g.mu.Lock()
	g.registered = append(g.registered, m)
	g.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"client_id":"id1","client_secret":"sec1"}`)
}

func (g *guard) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	g.mu.Lock()
	defer g.mu.Unlock()
	sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
	switch {
	case r.Form.Get("resource") != g.URL+"/mcp", r.Form.Get("client_id") == "", r.Form.Get("client_secret") == "":
	case r.Form.Get("grant_type") == "authorization_code" && g.codes[r.Form.Get("code")] == base64.RawURLEncoding.EncodeToString(sum[:]),
		r.Form.Get("grant_type") == "refresh_token" && r.Form.Get("refresh_token") == "refresh1" && !g.noGrant:
		if r.Form.Get("grant_type") == "refresh_token" {
			g.refreshes++
		}
		token := fmt.Sprintf("token%d", len(g.valid)+1)
		g.valid[token] = true
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","refresh_token":"refresh1","expires_in":60}`, token)
		return
	}
	w.WriteHeader(http.StatusBadRequest)
	fmt.Fprint(w, `{"error":"invalid_grant","error_description":"no"}`)
}

// revoke makes all tokens given so far worthless.
func (g *guard) revoke() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for token := range g.valid {
		g.valid[token] = false
	}
}

// person agrees to everything, and counts how often she is asked.
func (g *guard) person(asked *atomic.Int64) func(context.Context, string) (url.Values, error) {
	return func(_ context.Context, page string) (url.Values, error) {
		asked.Add(1)
		u, err := url.Parse(page)
		if err != nil {
			return nil, err
		}
		q := u.Query()
		if q.Get("x") != "y" || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("scope") != `a "b` {
			return nil, fmt.Errorf("the page is %s", page)
		}
		g.mu.Lock()
		g.codes["code1"] = q.Get("code_challenge")
		g.mu.Unlock()
		back := url.Values{"state": {q.Get("state")}, "code": {"code1"}, "iss": {g.URL}}
		g.back(back)
		return back, nil
	}
}

func (g *guard) config(asked *atomic.Int64) Config {
	return Config{Name: "srv", URL: g.URL + "/mcp", PingInterval: -1, OAuth: &OAuth{
		RedirectURL: "http://127.0.0.1:7777/callback", Authorize: g.person(asked),
	}}
}

func TestLogin(t *testing.T) {
	g := newGuard(t)
	var asked atomic.Int64
	cfg := g.config(&asked)
	cfg.OAuth.Dir = filepath.Join(t.TempDir(), "tokens")
	c := connect(t, cfg)
	if res := mustRun(t, find(t, c, "echo"), `{"m":"in"}`); res.Text() != "in" {
		t.Errorf("%q", res.Text())
	}
	if reg := g.registered; len(reg) != 1 || reg[0]["application_type"] != "native" || reg[0]["token_endpoint_auth_method"] != "client_secret_post" {
		t.Errorf("registered: %v", reg)
	}
	files, err := filepath.Glob(filepath.Join(cfg.OAuth.Dir, "*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("files: %v %v", files, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f, info.Mode(), err)
		}
	}

	if u := g.URL + "/mcp"; !cfg.OAuth.LoggedIn(u) || cfg.OAuth.LoggedIn(g.URL+"/other") {
		t.Error("LoggedIn does not tell what is kept")
	}

	// Another client of the same server has what was kept, and when the token no
	// longer does, one of many calls side by side gets the next.
	again := connect(t, cfg)
	echo := find(t, again, "echo")
	g.revoke()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if res, err := run(t.Context(), echo, `{"m":"x"}`); err != nil || res.Text() != "x" {
				t.Errorf("%v %v", res, err)
			}
		})
	}
	wg.Wait()
	if asked.Load() != 1 || g.refreshes != 1 {
		t.Errorf("asked %d times, refreshed %d times", asked.Load(), g.refreshes)
	}

	g.revoke()
	g.noGrant = true
	if res := mustRun(t, echo, `{"m":"y"}`); res.Text() != "y" || asked.Load() != 2 || len(g.registered) != 1 {
		t.Errorf("%q, asked %d times, registered %d times", res.Text(), asked.Load(), len(g.registered))
	}

	for range 2 {
		if err := cfg.OAuth.Logout(g.URL + "/mcp"); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(cfg.OAuth.Dir, "*")); len(left) > 0 || cfg.OAuth.LoggedIn(g.URL+"/mcp") {
			t.Errorf("after the logout there is %v", left)
		}
	}
}

// TestLoginIsWanted holds that a client that cannot log in says what is missing.
func TestLoginIsWanted(t *testing.T) {
	g := newGuard(t)
	_, err := Connect(t.Context(), Config{Name: "srv", URL: g.URL + "/mcp", PingInterval: -1})
	if !errors.Is(err, ErrLogin) {
		t.Errorf("error: %v", err)
	}
}

func TestLoginRefuses(t *testing.T) {
	elsewhere := "https://evil.example"
	for _, row := range []struct {
		name string
		set  func(g *guard, o *OAuth)
		want string
	}{
		{"another resource", func(g *guard, _ *OAuth) { g.resource = with("resource", elsewhere+"/mcp") }, "not part of"},
		{"a resource below", func(g *guard, _ *OAuth) { g.resource = with("resource", g.URL+"/mcp/deeper") }, "not part of"},
		{"an authorization server in the clear", func(g *guard, _ *OAuth) {
			g.resource = with("authorization_servers", []string{"http://login.example"})
		}, "must be https"},
		{"metadata of another issuer", func(g *guard, _ *OAuth) { g.metadata = with("issuer", elsewhere) }, "says that it is"},
		{"an issuer that is nearly the same", func(g *guard, _ *OAuth) { g.metadata = with("issuer", g.URL+"/") }, "says that it is"},
		{"no PKCE", func(g *guard, _ *OAuth) { g.metadata = with("code_challenge_methods_supported", []string{"plain"}) }, "PKCE"},
		{"tokens in the clear", func(g *guard, _ *OAuth) { g.metadata = with("token_endpoint", "http://login.example/token") }, "must be https"},
		{"another state", func(g *guard, _ *OAuth) { g.back = func(q url.Values) { q.Set("state", "x") } }, "another state"},
		{"an answer of another issuer", func(g *guard, _ *OAuth) { g.back = func(q url.Values) { q.Set("iss", elsewhere) } }, "comes from"},
		{"an answer without its issuer", func(g *guard, _ *OAuth) { g.back = func(q url.Values) { q.Del("iss") } }, "does not say"},
		{"a refusal", func(g *guard, _ *OAuth) { g.back = func(q url.Values) { q.Set("error", "access_denied") } }, "access_denied"},
		{"no code", func(g *guard, _ *OAuth) { g.back = func(q url.Values) { q.Del("code") } }, "has no code"},
		{"no registration", func(g *guard, _ *OAuth) { g.metadata = with("registration_endpoint", "") }, "set OAuth.ClientID"},
		{"a client of another issuer", func(_ *guard, o *OAuth) { o.ClientID, o.Issuer = "mine", elsewhere }, "belongs to"},
		{"a person who goes away", func(_ *guard, o *OAuth) {
			o.Authorize = func(context.Context, string) (url.Values, error) { return nil, errors.New("window closed") }
		}, "window closed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newGuard(t)
			var asked atomic.Int64
			cfg := g.config(&asked)
			row.set(g, cfg.OAuth)
			_, err := Connect(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "log in") {
				t.Errorf("%v, want %q", err, row.want)
			}
			if asked.Load() > 1 {
				t.Errorf("the person was asked %d times", asked.Load())
			}
			if len(g.valid) > 0 {
				t.Error("there is a token all the same")
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
