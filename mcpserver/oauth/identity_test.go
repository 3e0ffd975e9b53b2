package oauth_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/oauthtest"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
)

// docIdentity returns the configuration in docs/identity.md, with an issuer and servers of this test.
func docIdentity(t *testing.T, i *oauthtest.Issuer) mcpgateway.Config {
	t.Helper()
	doc, err := os.ReadFile("../../docs/identity.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(doc, []byte("```json\n"))
	text, _, _ := bytes.Cut(rest, []byte("```"))
	file := filepath.Join(t.TempDir(), "kitbag.json")
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte("https://login.example.com"), []byte(i.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"PAYROLL_SECRET", "LOGIN_SECRET", "LOGIN_KEY"} {
		t.Setenv(name, oauthtest.Secret+oauthtest.Secret)
	}
	cfg, err := mcpgateway.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	for n := range cfg.Servers {
		if cfg.Servers[n].Name == "crm" { // see TestUserLogin; nobody has logged in to list its tools
			web := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(web.Close)
			cfg.Servers[n].Transport = mcpclient.HTTP{URL: web.URL}
			continue
		}
		u := behind(t, cfg.Servers[n].Name, "list")
		cfg.Servers[n].Transport, cfg.Servers[n].Options = u.Transport, u.Options
	}
	cfg.UpstreamTokens = slices.DeleteFunc(cfg.UpstreamTokens, func(u mcpgateway.UpstreamToken) bool { return u.Grant == mcpgateway.TokenExchange }) // see TestUpstreamTokens
	cfg.Style = mcpgateway.StyleFull
	cfg.OAuth.Client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return cfg
}

// TestIdentity checks what users of the configuration in docs/identity.md see, and that no token is in the audit log or
// in another log.
func TestIdentity(t *testing.T) {
	var logs bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
	i := oauthtest.NewIssuer(t)
	cfg := docIdentity(t, i)
	cfg.AuditFile = filepath.Join(t.TempDir(), "audit")
	g := newGateway(t, cfg)
	web := httptest.NewServer(g.Server.Handler())
	t.Cleanup(web.Close)
	t.Cleanup(func() { _ = g.Close() }) // before web.Close, which waits for streams
	token := func(sub string, claims map[string]any) string {
		return i.Token(sub, "https://mcp.example.com/", claims)
	}
	res, err := http.Get(web.URL + "/oauth/connect?server=crm")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK || res.Header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("the page for logins: %d %v", res.StatusCode, res.Header)
	}
	var tokens []string
	for _, row := range []struct {
		token, want string // the tools, or the error
	}{
		{token("anna", map[string]any{"scope": "mcp", "groups": []string{"x", "accounting"}}), "payroll__list tickets__list"},
		{token("otto", map[string]any{"scope": "mcp x", "tenant": "acme-labs"}), "tickets__list"},
		{"kb_example_key_of_the_docs", "tickets__list"},
		{token("eve", map[string]any{"scope": "mcp", "tenant": "evil"}), "403"},
		{token("eve", map[string]any{"tenant": "acme"}), "403"},
		{i.Token("eve", "https://other.example.com/", map[string]any{"scope": "mcp", "tenant": "acme"}), "401"},
		{"sha256:62c67fde9f6d75cb04e535c73df387722fafeca19af0a7a904dc0fbdc2d558fc", "401"},
	} {
		tokens = append(tokens, row.token)
		c, err := mcpclient.New("g", mcpclient.HTTP{URL: web.URL, Headers: map[string]string{"Authorization": "Bearer " + row.token}},
			&mcpclient.Options{Prefix: "_", PingInterval: -1, Protocol: "2025-11-25"})
		if err != nil {
			t.Fatal(err)
		}
		tools, err := c.Tools(t.Context())
		var names []string
		for _, tl := range tools {
			names = append(names, strings.TrimPrefix(tl.Info().Name, "_"))
		}
		slices.Sort(names)
		got := strings.Join(names, " ")
		if err != nil {
			got = err.Error()
		} else if _, err := c.Call(t.Context(), "tickets__list", nil); err != nil {
			t.Error(err)
		}
		if err == nil && got != row.want || err != nil && !strings.Contains(got, row.want) {
			t.Errorf("got %s, want %s", got, row.want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	audit, err := os.ReadFile(cfg.AuditFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{i.URL + " anna", i.URL + " otto", `"ci"`} {
		if !strings.Contains(string(audit), who) {
			t.Errorf("the audit log does not have %s: %s", who, audit)
		}
	}
	for _, token := range tokens {
		if signature := token[strings.LastIndex(token, ".")+1:]; strings.Contains(string(audit)+logs.String(), signature) {
			t.Errorf("a log has the token %s", token)
		}
	}
}
