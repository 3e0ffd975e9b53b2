// Package oauth makes a server of package mcpserver an OAuth 2.1 resource server, as the authorization specification of
// MCP requires: it serves protected resource metadata (RFC 9728), and accepts access tokens that are JWTs of the
// authorization servers in its configuration.
//
//	auth, err := oauth.New(mcpserver.OAuth{
//		Resource: "https://mcp.example.com/",
//		Issuers:  []string{"https://login.example.com"},
//		Grants: []mcpserver.Grant{
//			{Name: "engineers", Claims: map[string][]string{"groups": {"engineering"}}},
//			{Name: "staff", Claims: map[string][]string{"tenant": {"acme"}}, Ceiling: toolkit.Only("issues")},
//		},
//	})
//	defer auth.Close()
//	server, err := mcpserver.New(mcpserver.Config{Authenticator: auth, …})
//
// A user is the pair of issuer and subject of a token. The first grant that matches the claims of the token says what
// the user may see and do; if none matches, the request is refused.
//
// # What is checked
//
// The signature by a key of the token's issuer, which is found by its metadata (RFC 8414, OpenID Connect), with an
// asymmetric algorithm that suits the key. The issuer, exactly. The audience: a token for another server is refused.
// Expiry, which a token must have, and not-before, with the clock skew and the scopes of the
// configuration.
//
// The keys are read again every hour, and when a token names an unknown key, at most once in ten seconds: tokens
// cannot make the server send many requests. A key that the issuer removes is trusted for up to an hour, or longer
// while the issuer cannot be reached.
//
// # What is a boundary
//
// One user cannot get at what belongs to another, provided that the issuers are honest: an issuer can speak for all
// of its own users, but not for those of another issuer, unless a grant matches both; name the claim iss in a grant
// if it is for the users of one issuer. A token that was stolen can be used until it expires; tokens are not bound
// to a client, and revocation is not checked. Tokens are in no log and no error.
package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/kitbag-go/kitbag/internal/oauthurl"
	"github.com/kitbag-go/kitbag/mcpserver"
)

const (
	defaultSkew = 30 * time.Second
	maxToken    = 16 << 10 // bytes of an Authorization header
	maxSubject  = 255      // bytes, as in OpenID Connect
)

// algorithms may sign a token. With a symmetric one, the public key would be the secret.
var algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

type resourceServer struct {
	cfg      mcpserver.OAuth
	resource *url.URL
	issuers  map[string]*issuer
	end      context.CancelFunc
}

// New returns the [mcpserver.Authenticator] of a protected server, which is safe for concurrent use. It contacts no issuer
// before the first token. The caller must call Close.
func New(cfg mcpserver.OAuth) (mcpserver.ResourceServer, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("oauth: %w", err)
	}
	if cfg.Skew == 0 {
		cfg.Skew = defaultSkew
	}
	if cfg.Audience == "" {
		cfg.Audience = cfg.Resource
	}
	s := &resourceServer{cfg: cfg, issuers: map[string]*issuer{}}
	s.resource, _ = url.Parse(cfg.Resource) // Check has parsed it
	ctx, end := context.WithCancel(context.Background())
	s.end = end
	client := boundedClient(cfg.Client)
	for _, u := range cfg.Issuers {
		s.issuers[u] = &issuer{url: u, ctx: ctx, client: client}
	}
	return s, nil
}

// Close ends the requests for keys.
func (s *resourceServer) Close() error {
	s.end()
	return nil
}

// matches reports whether a token with these claims gets a grant.
func matches(g mcpserver.Grant, claims jwt.MapClaims) bool {
	for name, values := range g.Claims {
		if !slices.ContainsFunc(valuesOf(name, claims[name]), func(v string) bool { return slices.Contains(values, v) }) {
			return false
		}
	}
	return true
}

// valuesOf returns the values of a claim. Objects and null have none.
func valuesOf(name string, claim any) (out []string) {
	switch v := claim.(type) {
	case string:
		if name == "scope" {
			return strings.Fields(v)
		}
		return []string{v}
	case bool, json.Number:
		return []string{fmt.Sprint(v)}
	case []any:
		for _, e := range v {
			if _, nested := e.([]any); !nested {
				out = append(out, valuesOf("", e)...)
			}
		}
	}
	return out
}

// Authenticate implements [mcpserver.Authenticator].
func (s *resourceServer) Authenticate(r *http.Request) (id mcpserver.Identity, err error) {
	header := r.Header.Values("Authorization")
	if len(header) == 0 {
		return id, s.refuse(http.StatusUnauthorized, "", "an access token is required")
	}
	scheme, token, _ := strings.Cut(header[0], " ")
	if token = strings.TrimSpace(token); len(header) > 1 || len(token) > maxToken || !strings.EqualFold(scheme, "Bearer") {
		return id, s.refuse(http.StatusUnauthorized, "invalid_request", "send one header Authorization: Bearer TOKEN")
	}
	claims, err := s.verify(r.Context(), token)
	if err != nil {
		return id, err
	}
	// verify has checked that the token has both.
	sub, _ := claims.GetSubject()
	expires, _ := claims.GetExpirationTime()
	tokenScopes := valuesOf("scope", claims["scope"])
	if slices.ContainsFunc(s.cfg.Scopes, func(scope string) bool { return !slices.Contains(tokenScopes, scope) }) {
		return id, s.refuse(http.StatusForbidden, "insufficient_scope", "the token does not have the scopes that this server requires")
	}
	for _, g := range s.cfg.Grants {
		if matches(g, claims) {
			return mcpserver.Identity{Name: claims["iss"].(string) + " " + sub, Grant: g.Name, Ceiling: g.Ceiling, Policy: g.Policy,
				Sessions: g.Sessions, Calls: g.Calls, Expires: expires.Add(s.cfg.Skew), Token: func() string { return token }}, nil
		}
	}
	return id, &mcpserver.Refusal{Status: http.StatusForbidden, Reason: "no grant of this server is for this account; its owner can add one"}
}

// verify returns the claims of a token. The error is a *mcpserver.Refusal, without anything from the token.
func (s *resourceServer) verify(ctx context.Context, token string) (jwt.MapClaims, error) {
	invalid := func(why string) (jwt.MapClaims, error) {
		return nil, s.refuse(http.StatusUnauthorized, "invalid_token", why)
	}
	unverified := jwt.MapClaims{}
	if _, _, err := jwt.NewParser().ParseUnverified(token, unverified); err != nil {
		return invalid("the token is not a JWT")
	}
	name, _ := unverified.GetIssuer()
	from := s.issuers[name]
	if from == nil {
		return invalid("the issuer of the token is not trusted")
	}
	keys, err := from.keyfunc(ctx)
	if err != nil {
		return nil, &mcpserver.Refusal{Status: http.StatusServiceUnavailable, Reason: "the authorization server cannot be reached, so that the token cannot be checked; try again later"}
	}
	claims := jwt.MapClaims{}
	_, err = jwt.NewParser(jwt.WithValidMethods(algorithms), jwt.WithIssuer(from.url), jwt.WithAudience(s.cfg.Audience),
		jwt.WithExpirationRequired(), jwt.WithLeeway(s.cfg.Skew), jwt.WithStrictDecoding(), jwt.WithJSONNumber()).ParseWithClaims(token, claims, keys)
	sub, subErr := claims.GetSubject()
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return invalid("the token has expired")
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return invalid("the token is not valid yet")
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return invalid("the token is for another server")
	case err != nil:
		return invalid("the token cannot be verified")
	case subErr != nil || sub == "" || len(sub) > maxSubject:
		return invalid("the token has no usable subject")
	}
	return claims, nil
}

// refuse returns an answer with a challenge that names the metadata (RFC 6750, RFC 9728). The reason has no quotes.
func (s *resourceServer) refuse(status int, code, reason string) *mcpserver.Refusal {
	challenge := fmt.Sprintf("Bearer resource_metadata=%q", s.metadataURL())
	if code != "" {
		challenge += fmt.Sprintf(", error=%q, error_description=%q", code, reason)
	}
	if len(s.cfg.Scopes) > 0 {
		challenge += fmt.Sprintf(", scope=%q", strings.Join(s.cfg.Scopes, " "))
	}
	return &mcpserver.Refusal{Status: status, Challenge: challenge, Reason: reason}
}

func (s *resourceServer) metadataPath() string {
	return oauthurl.Resource + strings.TrimSuffix(s.resource.Path, "/")
}

func (s *resourceServer) metadataURL() string {
	return (&url.URL{Scheme: s.resource.Scheme, Host: s.resource.Host, Path: s.metadataPath()}).String()
}

// Wrap returns a handler that serves the protected resource metadata at its well-known paths, and everything else with
// next. [mcpserver.Server.Handler] calls it.
func (s *resourceServer) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != s.metadataPath() && r.URL.Path != oauthurl.Resource {
			next.ServeHTTP(w, r)
			return
		}
		m := map[string]any{"resource": s.cfg.Resource, "authorization_servers": s.cfg.Issuers, "bearer_methods_supported": []string{"header"}}
		if len(s.cfg.Scopes) > 0 {
			m["scopes_supported"] = s.cfg.Scopes
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Access-Control-Allow-Origin", "*") // it is public, and clients in browsers need it
		_ = json.NewEncoder(w).Encode(m)                   // fails if the client has left
	})
}
