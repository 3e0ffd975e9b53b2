package oauth_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
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

	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/internal/oauthtest"
	_ "github.com/kitbag-go/kitbag/internal/seed"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/mcpserver/oauth"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

const gatewayURL = "https://mcp.example.com/"

// A tokenWorld is a gateway whose users come from an issuer, in front of the server "crm", which gets tokens from the same
// issuer and records them.
type tokenWorld struct {
	issuer, evil *oauthtest.Issuer
	gateway      *mcpgateway.Gateway
	handler      http.Handler
	logs         *syncBuffer
	audit        string
	hostile      atomic.Int32 // how the token endpoint behaves

	mu      sync.Mutex
	seen    map[string]bool // Authorization headers at the server
	secrets []string        // what must appear in no log
}

// A syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// take returns what was written since the last take.
func (b *syncBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.b.Reset()
	return b.b.String()
}

// The behaviours of the token endpoint.
const (
	honest = iota
	repeatsTokenInError
	repeatsTokenInCode
	returnsCallersToken
	returnsNothing
	returnsMAC
	behaviours
)

func newTokenWorld(t *testing.T, grant mcpgateway.TokenGrant, perSession ...string) *tokenWorld {
	t.Helper()
	w := &tokenWorld{issuer: oauthtest.NewIssuer(t), evil: oauthtest.NewIssuer(t), logs: &syncBuffer{}, seen: map[string]bool{}, secrets: []string{oauthtest.Secret}}
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
	w.issuer.Grant = w.grant
	quiet := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

	who := tool.Must(tool.New("who", "Says who calls.", func(ctx context.Context, _ none) (string, error) {
		id, _ := mcpserver.IdentityFrom(ctx)
		return id.Name, nil
	}))
	var inner http.Handler
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.seen[r.Header.Get("Authorization")] = true
		w.mu.Unlock()
		inner.ServeHTTP(rw, r)
	}))
	t.Cleanup(web.Close)
	auth, err := oauth.New(mcpserver.OAuth{Resource: web.URL, Issuers: []string{w.issuer.URL}, Grants: []mcpserver.Grant{{Name: "all"}}, Client: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = auth.Close() })
	skills := t.TempDir()
	if err := os.Mkdir(filepath.Join(skills, "refunds"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(skills, "refunds", "SKILL.md"), []byte("---\nname: refunds\ndescription: Refunds. Use when asked.\n---\n\nPay.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tk := toolkit.Of(who)
	if err := tk.Update(func(c *toolkit.Config) error { c.Basic.Skills = []skill.Loader{skill.In(skills)}; return nil }); err != nil {
		t.Fatal(err)
	}
	crm, err := mcpserver.New(mcpserver.Config{Toolkit: tk, Name: "crm", Version: "1", Policy: open, Authenticator: auth})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = crm.Close() })
	inner = crm.Handler()

	w.audit = filepath.Join(t.TempDir(), "audit")
	w.gateway = newGateway(t, mcpgateway.Config{
		Servers: []mcpclient.Server{{Name: "crm", Transport: mcpclient.HTTP{URL: web.URL, Client: quiet}, Options: mcpclient.Options{PingInterval: -1, Protocol: "2025-11-25"}}},
		Style:   mcpgateway.StyleFull, AuditFile: w.audit, AuditArguments: true, PerSession: perSession,
		OAuth:          &mcpserver.OAuth{Resource: gatewayURL, Issuers: []string{w.issuer.URL}, Grants: []mcpserver.Grant{{Name: "all"}}, Client: quiet},
		UpstreamTokens: []mcpgateway.UpstreamToken{{Server: "crm", Grant: grant, TokenURL: w.issuer.URL + "/token", ClientID: "kitbag", ClientSecret: oauthtest.Secret}},
		Serve:          mcpgateway.ServeOptions{Credentials: []mcpserver.Credential{{Name: "ci", Token: "the-token-of-the-ci-credential", Policy: open}}, Policy: open},
	})
	w.handler = w.gateway.Server.Handler()
	t.Cleanup(func() { _ = w.gateway.Close() })
	return w
}

// grant is the token endpoint, which may be hostile towards users.
func (w *tokenWorld) grant(form url.Values, answer map[string]any) int {
	w.remember(fmt.Sprint(answer["access_token"]))
	subject := form.Get("subject_token")
	if subject == "" {
		return 200
	}
	answer["expires_in"] = 5 // so short that it is used only once
	switch w.hostile.Load() {
	case repeatsTokenInError:
		delete(answer, "access_token")
		answer["error"], answer["error_description"] = "invalid_grant", subject
		return 400
	case repeatsTokenInCode:
		delete(answer, "access_token")
		answer["error"], answer["error_uri"] = subject, oauthtest.Secret
		return 403
	case returnsCallersToken:
		answer["access_token"] = subject
	case returnsNothing:
		delete(answer, "access_token")
		answer["x"] = subject
	case returnsMAC:
		answer["token_type"] = "mac"
	}
	return 200
}

func (w *tokenWorld) remember(secret string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets = append(w.secrets, secret)
	return secret
}

// token returns a token of a user for the gateway.
func (w *tokenWorld) token(sub string, change map[string]any) string {
	return w.remember(w.issuer.Token(sub, gatewayURL, change))
}

// post sends a message to the gateway.
func (w *tokenWorld) post(token, session, body string) (status int, newSession, answer string) {
	r := httptest.NewRequest(http.MethodPost, "http://localhost/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer "+token)
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	out := httptest.NewRecorder()
	w.handler.ServeHTTP(out, r)
	data, _ := io.ReadAll(out.Body)
	return out.Code, out.Header().Get("Mcp-Session-Id"), string(data) + out.Header().Get("WWW-Authenticate")
}

func (w *tokenWorld) open(t rapid.TB, token string) string {
	t.Helper()
	status, session, got := w.post(token, "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
	if status != 200 {
		t.Fatalf("initialize: %d %s", status, got)
	}
	return session
}

const callWho = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"crm__who","arguments":{}}}`

// checkSecrets looks for tokens in logs and answers, and for tokens of the gateway's users at the server.
func (w *tokenWorld) checkSecrets(t rapid.TB, text string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.secrets {
		if part := s[strings.LastIndex(s, ".")+1:]; strings.Contains(text, part) {
			t.Errorf("%q appears in %s", s, text)
		}
	}
	for header := range w.seen {
		token := strings.TrimPrefix(header, "Bearer ")
		if parts := strings.Split(token, "."); len(parts) == 3 && strings.Contains(decode(parts[1]), gatewayURL) {
			t.Errorf("the server got a token for the gateway: %s", header)
		}
	}
}

func decode(part string) string {
	var raw []byte
	_ = json.Unmarshal([]byte(`"`+strings.NewReplacer("-", "+", "_", "/").Replace(part)+strings.Repeat("=", -len(part)&3)+`"`), &raw)
	return string(raw)
}

// TestUpstreamTokens checks whose token a server gets.
func TestUpstreamTokens(t *testing.T) {
	for _, row := range []struct {
		grant             mcpgateway.TokenGrant
		perSession        []string
		anna, credentials string
	}{
		{mcpgateway.ClientCredentials, nil, "kitbag", "kitbag"},
		{mcpgateway.ClientCredentials, []string{"crm"}, "kitbag", "kitbag"},
		{mcpgateway.TokenExchange, nil, "anna", "needs a token of the user"},
	} {
		t.Run(fmt.Sprint(row.grant, row.perSession), func(t *testing.T) {
			w := newTokenWorld(t, row.grant, row.perSession...)
			for token, want := range map[string]string{w.token("anna", nil): row.anna, "the-token-of-the-ci-credential": row.credentials} {
				for range 2 {
					_, _, got := w.post(token, w.open(t, token), callWho)
					if !strings.Contains(got, want) {
						t.Errorf("%s: %s, want %s", token, got, want)
					}
				}
			}
			audit, err := os.ReadFile(w.audit)
			if err != nil || !bytes.Contains(audit, []byte(w.issuer.URL+" anna")) {
				t.Errorf("%v %s", err, audit)
			}
			w.checkSecrets(t, string(audit)+w.logs.take())
		})
	}
}

// TestSkillsOfUsers checks that a file of a skill is read with the token of the user, not with the one that lists the skill.
func TestSkillsOfUsers(t *testing.T) {
	const read = `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"skill://crm/refunds/SKILL.md"}}`
	for _, row := range []struct {
		grant                  mcpgateway.TokenGrant
		anna, eve, credentials string
	}{
		{mcpgateway.ClientCredentials, "Pay.", "Pay.", "Pay."},
		{mcpgateway.TokenExchange, "Pay.", "status 400", "needs a token of the user"},
	} {
		w := newTokenWorld(t, row.grant)
		for _, who := range []struct {
			token, want string
			hostile     int32
		}{{w.token("anna", nil), row.anna, honest}, {w.token("eve", nil), row.eve, repeatsTokenInError}, {"the-token-of-the-ci-credential", row.credentials, honest}} {
			w.hostile.Store(who.hostile)
			session := w.open(t, who.token)
			_, _, _ = w.post(who.token, session, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`) // starts the server
			if _, _, got := w.post(who.token, session, read); !strings.Contains(got, who.want) {
				t.Errorf("%s: %s, want %s", row.grant, got, who.want)
			}
		}
	}
}

// TestTokensOfUsers runs random schedules with a hostile client, a token endpoint that is hostile towards users, and an
// issuer that is not trusted: no token crosses users, reaches another server or appears in a log, an error or the audit log.
func TestTokensOfUsers(t *testing.T) {
	w := newTokenWorld(t, mcpgateway.TokenExchange)
	users := []string{"anna", "otto", "eve"}
	sessions, tokens := map[string]string{}, map[string]string{}
	for _, u := range users {
		tokens[u] = w.token(u, map[string]any{"exp": 1 << 33}) // long runs outlive the usual hour
		sessions[u] = w.open(t, tokens[u])
	}
	audit, err := os.Open(w.audit)
	if err != nil {
		t.Fatal(err)
	}
	defer audit.Close()
	served := 0 // calls that reached the server
	rapid.Check(t, func(t *rapid.T) {
		w.hostile.Store(int32(rapid.IntRange(0, behaviours-1).Draw(t, "token endpoint")))
		var work sync.WaitGroup
		var mu sync.Mutex
		var all strings.Builder
		for range rapid.IntRange(1, 6).Draw(t, "calls") {
			u, in := rapid.SampledFrom(users).Draw(t, "user"), rapid.SampledFrom(users).Draw(t, "session")
			how := rapid.IntRange(0, 5).Draw(t, "token")
			token := tokens[u]
			switch how {
			case 1: // a new one of the same user
				token = w.token(u, map[string]any{"jti": rapid.String().Draw(t, "jti")})
			case 2:
				token = w.token(u, map[string]any{"exp": time.Now().Unix() - 60})
			case 3:
				token = w.remember(w.evil.Token(u, gatewayURL, map[string]any{"iss": w.issuer.URL}))
			case 4:
				token = w.remember(w.issuer.Token(u, "https://other.example.com/", nil))
			case 5: // the header and signature of one user with the claims of another
				a, b := strings.Split(tokens[u], "."), strings.Split(tokens[in], ".")
				if token = a[0] + "." + b[1] + "." + a[2]; u == in {
					how = 0
				}
			}
			work.Go(func() {
				status, _, got := w.post(token, sessions[in], callWho)
				mu.Lock()
				defer mu.Unlock()
				all.WriteString(got)
				switch valid := how <= 1; {
				case !valid && status != 401:
					t.Errorf("an invalid token (%d): %d %s", how, status, got)
				case valid && u != in && status != 404:
					t.Errorf("%s in the session of %s: %d %s", u, in, status, got)
				case valid && u == in && status != 200:
					t.Errorf("%s: %d %s", u, status, got)
				}
				if strings.Contains(got, w.issuer.URL+" "+u) {
					served++
				}
				for _, other := range users {
					if other != u && strings.Contains(got, w.issuer.URL+" "+other) {
						t.Errorf("%s got what is of %s: %s", u, other, got)
					}
				}
			})
		}
		work.Wait()
		records, err := io.ReadAll(audit) // since the last schedule
		if err != nil {
			t.Fatal(err)
		}
		w.checkSecrets(t, all.String()+string(records)+w.logs.take())
		w.mu.Lock()
		w.secrets = slices.Delete(w.secrets, 0, max(0, len(w.secrets)-200)) // earlier ones were checked
		clear(w.seen)
		w.mu.Unlock()
	})
	if served == 0 {
		t.Error("no call has reached the server")
	}
}
