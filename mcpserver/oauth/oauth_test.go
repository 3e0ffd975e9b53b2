package oauth_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/internal/oauthtest"
	_ "github.com/kitbag-go/kitbag/internal/seed"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/mcpserver/oauth"
	"github.com/kitbag-go/kitbag/toolkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const resource = "https://mcp.example.com/mcp"

func protect(t testing.TB, change func(*mcpserver.OAuth), issuers ...*oauthtest.Issuer) mcpserver.ResourceServer {
	t.Helper()
	cfg := mcpserver.OAuth{Resource: resource, Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		Grants: []mcpserver.Grant{{Name: "all"}}}
	for _, i := range issuers {
		cfg.Issuers = append(cfg.Issuers, i.URL)
	}
	if change != nil {
		change(&cfg)
	}
	s, err := oauth.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func ask(s mcpserver.ResourceServer, token string) (mcpserver.Identity, error) {
	r := httptest.NewRequest(http.MethodPost, resource, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return s.Authenticate(r)
}

// check compares the result with a status, 200 for an identity, and looks for parts of the token in an error.
func check(t testing.TB, what, token string, err error, status int) *mcpserver.Refusal {
	t.Helper()
	refusal, ok := errors.AsType[*mcpserver.Refusal](err)
	if got := map[bool]int{true: 200}[err == nil]; ok && refusal.Status != status || !ok && got != status {
		t.Errorf("%s: %+v, want %d", what, err, status)
	}
	if ok {
		for part := range strings.SplitSeq(token, ".") {
			if len(part) > 8 && strings.Contains(fmt.Sprintf("%+v", *refusal), part) {
				t.Errorf("%s: the error has the token: %+v", what, *refusal)
			}
		}
	}
	return refusal
}

// TestTokens checks which tokens are accepted. The rules are those of RFC 9068, RFC 8725 and MCP's authorization
// specification.
func TestTokens(t *testing.T) {
	own, other := oauthtest.NewIssuer(t), oauthtest.NewIssuer(t)
	s := protect(t, nil, own)
	now := time.Now().Unix()
	none := func(v map[string]any) string {
		text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "."
		data, _ := json.Marshal(v)
		return text + base64.RawURLEncoding.EncodeToString(data) + "."
	}
	good := own.Token("anna", resource, nil)
	claims := map[string]any{"iss": own.URL, "sub": "anna", "aud": resource, "exp": now + 60}
	parts := strings.Split(good, ".")
	for _, row := range []struct {
		what, token string
		status      int
	}{
		{"good", good, 200},
		{"no token", "", 401},
		{"not a JWT", "hello", 401},
		{"a JWT with four parts", good + ".x", 401},
		{"too long", strings.Repeat("a", 20_000), 401},
		{"no signature", parts[0] + "." + parts[1] + ".", 401},
		{"a changed claim", parts[0] + "." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"iss":%q,"sub":"otto","aud":%q,"exp":%d}`, own.URL, resource, now+60)) + "." + parts[2], 401},
		{"alg none", none(claims), 401},
		{"HS256 with the public key", symmetric(own, claims), 401},
		{"another algorithm than the key's", own.Sign(map[string]any{"alg": "ES384"}, claims), 401},
		{"no key id", own.Sign(map[string]any{"kid": ""}, claims), 401},
		{"a key id that is a number", own.Sign(map[string]any{"kid": 7}, claims), 401},
		{"an unknown key id", own.Sign(map[string]any{"kid": "x"}, claims), 401},
		{"a key in the header", own.Sign(map[string]any{"kid": "x", "jku": other.URL + "/keys"}, claims), 401},
		{"a critical extension", own.Sign(map[string]any{"crit": []string{"b64"}, "b64": false}, claims), 401},
		{"no critical extensions, which is not allowed", own.Sign(map[string]any{"crit": nil}, claims), 401},
		{"another issuer", other.Token("anna", resource, nil), 401},
		{"another issuer that says it is this one", other.Token("anna", resource, map[string]any{"iss": own.URL}), 401},
		{"nearly the issuer", own.Token("anna", resource, map[string]any{"iss": own.URL + "/"}), 401},
		{"no issuer", own.Token("anna", resource, map[string]any{"iss": nil}), 401},
		{"another audience", own.Token("anna", "https://other.example/", nil), 401},
		{"nearly the audience", own.Token("anna", resource+"/", nil), 401},
		{"no audience", own.Token("anna", resource, map[string]any{"aud": nil}), 401},
		{"one of several audiences", own.Token("anna", resource, map[string]any{"aud": []string{"x", resource}}), 200},
		{"expired", own.Token("anna", resource, map[string]any{"exp": now - 60}), 401},
		{"expired within the skew", own.Token("anna", resource, map[string]any{"exp": now - 10}), 200},
		{"no expiry", own.Token("anna", resource, map[string]any{"exp": nil}), 401},
		{"an expiry that is a string", own.Token("anna", resource, map[string]any{"exp": fmt.Sprint(now + 60)}), 401},
		{"not valid yet", own.Token("anna", resource, map[string]any{"nbf": now + 60}), 401},
		{"not valid yet within the skew", own.Token("anna", resource, map[string]any{"nbf": now + 10}), 200},
		{"no subject", own.Token("", resource, nil), 401},
		{"a subject that is a number", own.Token("", resource, map[string]any{"sub": 7}), 401},
		{"a long subject", own.Token(strings.Repeat("a", 256), resource, nil), 401},
	} {
		id, err := ask(s, row.token)
		check(t, row.what, row.token, err, row.status)
		if err == nil && (id.Name != own.URL+" anna" || id.Grant != "all" || id.Expires.Before(time.Now())) {
			t.Errorf("%s: %+v", row.what, id)
		}
	}
	if other.Fetches() > 0 {
		t.Error("keys of an issuer that is not trusted were requested")
	}
}

// symmetric returns a token whose HMAC key is the key set of the issuer, or its public key.
func symmetric(i *oauthtest.Issuer, claims map[string]any) string {
	res, err := http.Get(i.URL + "/keys")
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	key, _ := io.ReadAll(res.Body)
	var set struct {
		Keys []struct {
			Kid string `json:"kid"`
		} `json:"keys"`
	}
	_ = json.Unmarshal(key, &set)
	signed := i.Sign(map[string]any{"alg": "HS256", "kid": set.Keys[0].Kid}, claims)
	text := signed[:strings.LastIndex(signed, ".")]
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// TestRotation checks that new keys are found, that removed ones are refused then, and that tokens with unknown keys do
// not cause many requests.
func TestRotation(t *testing.T) {
	i := oauthtest.NewIssuer(t)
	s := protect(t, nil, i)
	old := i.Token("anna", resource, nil)
	_, err := ask(s, old)
	check(t, "the first key", old, err, 200)
	i.Rotate()
	now := i.Token("anna", resource, nil)
	_, err = ask(s, now)
	check(t, "the second key", now, err, 200)
	_, err = ask(s, old)
	check(t, "the first key, which was removed", old, err, 401)
	before := i.Fetches()
	var work sync.WaitGroup
	for n := range 50 {
		work.Go(func() {
			_, err := ask(s, i.Sign(map[string]any{"kid": fmt.Sprint(n)}, map[string]any{"iss": i.URL, "sub": "x", "aud": resource, "exp": time.Now().Unix() + 60}))
			check(t, "unknown", "", err, 401)
		})
	}
	work.Wait()
	if more := i.Fetches() - before; more > 1 {
		t.Errorf("50 tokens with unknown keys caused %d requests", more)
	}
}

// TestRotationWithoutClient checks that a client that leaves while its token's key is looked for does not keep others from
// new keys: the next look is only allowed after a while.
func TestRotationWithoutClient(t *testing.T) {
	i := oauthtest.NewIssuer(t)
	s := protect(t, nil, i)
	ctx, leave := context.WithCancel(t.Context())
	fetches := 0
	i.Keys = func(map[string]any) {
		if fetches++; fetches == 2 {
			leave()
			time.Sleep(50 * time.Millisecond)
		}
	}
	first := i.Token("anna", resource, nil)
	_, err := ask(s, first)
	check(t, "the first key", first, err, 200)
	i.Rotate()
	now := i.Token("anna", resource, nil)
	r := httptest.NewRequest(http.MethodPost, resource, nil).WithContext(ctx)
	r.Header.Set("Authorization", "Bearer "+i.Sign(map[string]any{"kid": "x"}, map[string]any{"iss": i.URL, "exp": time.Now().Unix() + 60}))
	_, _ = s.Authenticate(r)
	_, err = ask(s, now)
	check(t, "the second key", now, err, 200)
}

// TestIssuers checks hostile and broken metadata, and that an issuer is not asked again for each token.
func TestIssuers(t *testing.T) {
	for name, set := range map[string]func(*oauthtest.Issuer){
		"another issuer": func(i *oauthtest.Issuer) {
			i.Metadata = func(m map[string]any) { m["issuer"] = "https://evil.example" }
		},
		"unencrypted keys": func(i *oauthtest.Issuer) {
			i.Metadata = func(m map[string]any) { m["jwks_uri"] = "http://evil.example/" }
		},
		"no keys":        func(i *oauthtest.Issuer) { i.Metadata = func(m map[string]any) { delete(m, "jwks_uri") } },
		"large metadata": func(i *oauthtest.Issuer) { i.Metadata = func(m map[string]any) { m["a"] = strings.Repeat("a", 2<<20) } },
		"large keys":     func(i *oauthtest.Issuer) { i.Keys = func(m map[string]any) { m["a"] = strings.Repeat("a", 2<<20) } },
		"closed":         func(i *oauthtest.Issuer) { i.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			i := oauthtest.NewIssuer(t)
			token := i.Token("anna", resource, nil)
			set(i)
			s := protect(t, nil, i)
			for range 3 {
				_, err := ask(s, token)
				check(t, name, token, err, 503)
			}
			if i.Fetches() > 1 {
				t.Errorf("%d requests for keys", i.Fetches())
			}
		})
	}
}

// TestPageInsteadOfMetadata finds the metadata of an issuer that answers unknown paths with a page.
func TestPageInsteadOfMetadata(t *testing.T) {
	i := oauthtest.NewIssuer(t)
	known := i.Config.Handler
	i.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/.well-known/oauth-authorization-server") {
			_, _ = io.WriteString(w, "<html>Welcome</html>")
			return
		}
		known.ServeHTTP(w, r)
	})
	token := i.Token("anna", resource, nil)
	_, err := ask(protect(t, nil, i), token)
	check(t, "a page", token, err, 200)
}

// TestKeyUse checks that a key that is for encryption verifies no token (RFC 7517, section 4.2).
func TestKeyUse(t *testing.T) {
	for use, status := range map[string]int{"sig": 200, "": 200, "enc": 401} {
		i := oauthtest.NewIssuer(t)
		i.Keys = func(m map[string]any) { m["keys"].([]any)[0].(map[string]any)["use"] = use }
		token := i.Token("anna", resource, nil)
		_, err := ask(protect(t, nil, i), token)
		check(t, "use "+use, token, err, status)
	}
}

// TestGrants checks which grant a token gets.
func TestGrants(t *testing.T) {
	i := oauthtest.NewIssuer(t)
	s := protect(t, func(c *mcpserver.OAuth) {
		c.Scopes = []string{"mcp"}
		c.Grants = []mcpserver.Grant{
			{Name: "admins", Claims: map[string][]string{"groups": {"admin", "root"}, "email_verified": {"true"}}},
			{Name: "staff", Claims: map[string][]string{"tenant": {"acme"}, "scope": {"write"}}, Ceiling: toolkit.Only("a"), Sessions: 3, Calls: 5},
			{Name: "level", Claims: map[string][]string{"level": {"7"}}},
		}
	}, i)
	for _, row := range []struct {
		claims string
		want   string
	}{
		{`{"groups": ["x", "admin"], "email_verified": true}`, "admins"},
		{`{"groups": "root", "email_verified": true, "tenant": "acme", "scope": "mcp write"}`, "admins"},
		{`{"groups": "root", "email_verified": false, "tenant": "acme", "scope": "mcp write"}`, "staff"},
		{`{"groups": "admin root", "email_verified": true}`, "403"},
		{`{"groups": [["admin"]], "email_verified": true}`, "403"},
		{`{"groups": {"admin": true}, "email_verified": true}`, "403"},
		{`{"groups": ["Admin"], "email_verified": true}`, "403"},
		{`{"tenant": "acme"}`, "403"},
		{`{"tenant": "acme", "scope": "mcp writer"}`, "403"},
		{`{"tenant": "acme", "scope": "write"}`, "403 insufficient_scope"},
		{`{"tenant": ["acme"], "scope": ["mcp", "write"]}`, "staff"},
		{`{"level": 7}`, "level"}, {`{"level": 7.5}`, "403"}, {`{"level": null}`, "403"}, {`{}`, "403"},
	} {
		claims := map[string]any{"scope": "mcp"}
		if err := json.Unmarshal([]byte(row.claims), &claims); err != nil {
			t.Fatal(err)
		}
		id, err := ask(s, i.Token("anna", resource, claims))
		got := id.Grant
		if refusal, ok := errors.AsType[*mcpserver.Refusal](err); ok {
			if got = fmt.Sprint(refusal.Status); strings.Contains(refusal.Challenge, `error="insufficient_scope"`) {
				got += " insufficient_scope"
			}
		}
		if got != row.want {
			t.Errorf("%s: %q, want %q", row.claims, got, row.want)
		}
		if id.Grant == "staff" && (id.Ceiling.String() != `["a"]` || id.Sessions != 3 || id.Calls != 5) {
			t.Errorf("%+v", id)
		}
	}
}

func TestConfig(t *testing.T) {
	good := mcpserver.OAuth{Resource: resource, Issuers: []string{"https://login.example"}, Grants: []mcpserver.Grant{{Name: "a"}}}
	for _, row := range []struct {
		change func(*mcpserver.OAuth)
		want   string
	}{
		{func(*mcpserver.OAuth) {}, ""},
		{func(c *mcpserver.OAuth) { c.Resource = "http://mcp.example.com" }, "https URL"},
		{func(c *mcpserver.OAuth) { c.Resource = "" }, "https URL"},
		{func(c *mcpserver.OAuth) { c.Issuers = nil }, "no issuers"},
		{func(c *mcpserver.OAuth) { c.Issuers = []string{"http://login.example"} }, "issuers[0]"},
		{func(c *mcpserver.OAuth) { c.Issuers = append(c.Issuers, c.Issuers[0]) }, "duplicate issuer"},
		{func(c *mcpserver.OAuth) { c.Scopes = []string{"a b"} }, "scopes[0]"},
		{func(c *mcpserver.OAuth) { c.Skew = time.Hour }, "skew"},
		{func(c *mcpserver.OAuth) { c.Grants = nil }, "every token would be refused"},
		{func(c *mcpserver.OAuth) { c.Grants = append(c.Grants, mcpserver.Grant{Name: "b"}) }, "never used"},
		{func(c *mcpserver.OAuth) {
			c.Grants = []mcpserver.Grant{{Name: "a", Claims: map[string][]string{"x": nil}}}
		}, "no values"},
		{func(c *mcpserver.OAuth) { c.Grants = []mcpserver.Grant{{}} }, "name is empty"},
		{func(c *mcpserver.OAuth) { c.Grants[0].Calls = -1 }, "negative"},
	} {
		cfg := good
		cfg.Grants = []mcpserver.Grant{good.Grants[0]}
		row.change(&cfg)
		s, err := oauth.New(cfg)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %q", err, row.want)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}

// TestServed checks a server behind a ResourceServer: the metadata, the challenges, and a session.
func TestServed(t *testing.T) {
	i := oauthtest.NewIssuer(t)
	auth := protect(t, func(c *mcpserver.OAuth) { c.Scopes = []string{"mcp", "more"} }, i)
	server, err := mcpserver.New(mcpserver.Config{Toolkit: toolkit.Of(), Name: "s", Version: "1", Authenticator: auth})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	h := server.Handler()
	do := func(method, path, token, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(context.Background(), method, "http://localhost"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, path := range []string{"/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"} {
		w := do(http.MethodGet, path, "", "")
		if want := fmt.Sprintf(`{"authorization_servers":[%q],"bearer_methods_supported":["header"],"resource":%q,"scopes_supported":["mcp","more"]}`, i.URL, resource); w.Code != 200 || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %d %s, want %s", path, w.Code, w.Body, want)
		}
	}
	const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`
	for _, row := range []struct {
		token, challenge string
		status           int
	}{
		{"", `Bearer resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp", scope="mcp more"`, 401},
		{i.Token("anna", "x", nil), `error="invalid_token", error_description="the token is for another server"`, 401},
		{i.Token("anna", resource, map[string]any{"scope": "mcp"}), `error="insufficient_scope"`, 403},
		{i.Token("anna", resource, map[string]any{"scope": "mcp more"}), "", 200},
	} {
		w := do(http.MethodPost, "/mcp", row.token, initialize)
		if got := w.Header().Get("WWW-Authenticate"); w.Code != row.status || !strings.Contains(got, row.challenge) || (row.challenge == "") != (got == "") {
			t.Errorf("%d %q, want %d %q", w.Code, got, row.status, row.challenge)
		}
	}
}

// TestHostile checks with random changes of a token that only what the issuer has signed is accepted.
func TestHostile(t *testing.T) {
	i := oauthtest.NewIssuer(t)
	s := protect(t, nil, i)
	good := i.Token("anna", resource, nil)
	if _, err := ask(s, good); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(r *rapid.T) {
		token := []byte(good)
		at := rapid.IntRange(0, len(token)-1).Draw(r, "at")
		switch rapid.IntRange(0, 2).Draw(r, "how") {
		case 0:
			token[at] = rapid.Byte().Draw(r, "byte")
		case 1:
			token = token[:at]
		default:
			token = append(token[:at:at], append(rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(r, "bytes"), token[at:]...)...)
		}
		if strings.TrimSpace(string(token)) == good {
			return
		}
		if id, err := ask(s, string(token)); err == nil {
			r.Errorf("%q is accepted as %q", token, id.Name)
		}
	})
}
