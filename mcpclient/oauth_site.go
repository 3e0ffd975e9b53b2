package mcpclient

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/oauthurl"
)

// A challenge is the WWW-Authenticate header of a refusal, and how the client reacts.
type challenge struct {
	err, scope, metadata string

	refresh bool // try the refresh token
	stepUp  bool // the token is valid, but lacks scopes
}

// challengeOf reads the challenge of a response. If a parameter occurs twice, the first value counts.
func challengeOf(res *http.Response) (c challenge) {
	for _, header := range res.Header.Values("WWW-Authenticate") {
		for name, value := range authParams(header) {
			switch strings.ToLower(name) {
			case "error":
				c.err = cmp.Or(c.err, value)
			case "scope":
				c.scope = cmp.Or(c.scope, value)
			case "resource_metadata":
				c.metadata = cmp.Or(c.metadata, value)
			}
		}
	}
	return c
}

// authParams yields the parameters of challenges, name=token or name="quoted string" (RFC 9110, section 11.2).
func authParams(s string) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for {
			eq := strings.IndexByte(s, '=')
			if eq < 0 {
				return
			}
			name := s[strings.LastIndexAny(s[:eq], " ,\t")+1 : eq]
			value, rest := s[eq+1:], ""
			if strings.HasPrefix(value, `"`) {
				value, rest = unquote(value[1:])
			} else if end := strings.IndexAny(value, ", \t"); end >= 0 {
				value, rest = value[:end], value[end:]
			}
			if !yield(name, value) {
				return
			}
			s = rest
		}
	}
}

// unquote reads a quoted string whose opening quote was read; rest follows the closing quote.
func unquote(s string) (value, rest string) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i < len(s) {
				b.WriteByte(s[i])
			}
		case '"':
			return b.String(), s[i+1:]
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), ""
}

// A loginSite is where a login takes place: the protected resource and the metadata of its authorization server.
type loginSite struct {
	Resource       string   // what tokens are for (RFC 8707)
	resourceScopes []string // the scopes that the resource declares

	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	RegistrationEndpoint  string   `json:"registration_endpoint"` // "" if clients cannot register themselves
	Scopes                []string `json:"scopes_supported"`
	PKCEMethods           []string `json:"code_challenge_methods_supported"`
	AuthMethods           []string `json:"token_endpoint_auth_methods_supported"`
	IssSupported          bool     `json:"authorization_response_iss_parameter_supported"`
	MetadataDocuments     bool     `json:"client_id_metadata_document_supported"`
}

// A resourceMetadata describes what tokens are for (RFC 9728).
type resourceMetadata struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`
}

// findResource returns the metadata of the server, with defaults for members that are missing.
func (l *login) findResource(ctx context.Context, ch challenge) (m resourceMetadata, err error) {
	if l.cfg.Scopes != nil {
		return resourceMetadata{l.server.String(), []string{l.cfg.Issuer}, l.cfg.Scopes}, nil
	}
	found, err := firstJSON[resourceMetadata](ctx, l, l.resourceURLs(ch))
	if err != nil {
		return m, err
	}
	if found != nil {
		m = *found
	}
	if len(m.Servers) == 0 { // in revision 2025-03-26 the server is its own authorization server
		m.Servers = []string{(&url.URL{Scheme: l.server.Scheme, Host: l.server.Host}).String()}
	}
	if m.Resource == "" {
		m.Resource = l.server.String()
	}
	if !covers(m.Resource, l.server) {
		return m, fmt.Errorf("the metadata describes the resource %q, which does not include %q", m.Resource, publicURL(l.server))
	}
	return m, nil
}

// discover finds the server's authorization server, and returns its metadata (RFC 8414).
func (l *login) discover(ctx context.Context, ch challenge) (*loginSite, error) {
	resource, err := l.findResource(ctx, ch)
	if err != nil {
		return nil, err
	}
	issuer := resource.Servers[0]
	urls, err := oauthurl.Metadata(issuer)
	if err != nil {
		return nil, err
	}
	if err := l.checkEndpoint(issuer); err != nil {
		return nil, err
	}
	s, err := firstJSON[loginSite](ctx, l, urls)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fmt.Errorf("the authorization server %q has no metadata", issuer)
	}
	if s.Issuer != issuer {
		return nil, fmt.Errorf("the metadata of the authorization server %q has the issuer %q", issuer, s.Issuer)
	}
	s.Resource, s.resourceScopes = resource.Resource, resource.Scopes
	return s, errors.Join(s.check(), l.checkEndpoint(s.TokenEndpoint), l.checkEndpoint(s.RegistrationEndpoint))
}

// checkEndpoint rejects the URL of an endpoint on this machine, unless the server is also on this machine. Addresses of
// other host names are checked by [outboundGuard].
func (l *login) checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	return checkReach(l.server, u)
}

// check checks what a safe login requires.
func (s *loginSite) check() error {
	if !slices.Contains(s.PKCEMethods, "S256") {
		return fmt.Errorf("the authorization server %q does not declare PKCE with S256, which a safe login requires", s.Issuer)
	}
	registration := cmp.Or(s.RegistrationEndpoint, s.TokenEndpoint) // optional
	for _, endpoint := range []string{s.AuthorizationEndpoint, s.TokenEndpoint, registration} {
		if err := oauthurl.Secure(endpoint); err != nil {
			return fmt.Errorf("an endpoint of the authorization server %q: %w", s.Issuer, err)
		}
	}
	return nil
}

// resourceURLs returns the possible URLs of the server's metadata. A URL in the challenge must be on the server's host.
func (l *login) resourceURLs(ch challenge) []string {
	if u, err := url.Parse(ch.metadata); err == nil && u.Host == l.server.Host && u.Scheme == l.server.Scheme {
		return []string{ch.metadata}
	}
	root := url.URL{Scheme: l.server.Scheme, Host: l.server.Host, Path: oauthurl.Resource}
	specific := root
	specific.Path += strings.TrimSuffix(l.server.Path, "/")
	return slices.Compact([]string{specific.String(), root.String()})
}

// covers reports whether the server's URL is the resource, or below the resource.
func covers(resource string, server *url.URL) bool {
	r, err := url.Parse(resource)
	if err != nil || r.Scheme != server.Scheme || r.Host != server.Host {
		return false
	}
	dir := func(path string) string { return strings.TrimSuffix(path, "/") + "/" } // so that /mcp does not cover /mcp2
	return strings.HasPrefix(dir(server.Path), dir(r.Path))
}

// wantedScopes returns the scopes of the challenge, or the scopes of the resource if the challenge names none. If the
// authorization server supports offline_access, that is added: some issue refresh tokens only with this scope.
func (s *loginSite) wantedScopes(ch challenge) []string {
	scopes := strings.Fields(ch.scope)
	if len(scopes) == 0 {
		scopes = s.resourceScopes
	}
	if slices.Contains(s.Scopes, "offline_access") {
		scopes = union(scopes, []string{"offline_access"})
	}
	return scopes
}

// authMethod returns how the client authenticates at the token endpoint.
func (s *loginSite) authMethod(hasSecret bool) string {
	supported := s.AuthMethods
	if len(supported) == 0 {
		supported = []string{"client_secret_basic"} // the default of RFC 8414
	}
	for _, m := range []string{"client_secret_basic", "client_secret_post"} {
		if hasSecret && slices.Contains(supported, m) {
			return m
		}
	}
	return "none"
}

// firstJSON returns the first of the documents that exists and decodes, or nil.
func firstJSON[T any](ctx context.Context, l *login, urls []string) (*T, error) {
	for _, u := range urls {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", "application/json")
		status, body, err := l.do(req)
		if err != nil {
			return nil, err
		}
		doc := new(T) // a document that does not decode must not leave members behind
		if status == http.StatusOK && json.Unmarshal(body, doc) == nil {
			return doc, nil
		}
	}
	return nil, nil
}

// do sends a request without a token, to the server or the authorization server.
func (l *login) do(req *http.Request) (status int, body []byte, err error) {
	res, err := l.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return res.StatusCode, body, err
}

func (l *login) postJSON(ctx context.Context, endpoint string, in, out any) error {
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return l.doJSON(req, out)
}

// doJSON sends a request and decodes the response or its OAuth error.
func (l *login) doJSON(req *http.Request, out any) error {
	req.Header.Set("Accept", "application/json")
	status, body, err := l.do(req)
	if err != nil {
		return err
	}
	if status >= 300 {
		var e struct {
			Error string `json:"error"`
		}
		_ = json.Unmarshal(body, &e)
		return &refusedError{status, e.Error}
	}
	if json.Unmarshal(body, out) != nil {
		return errors.New("the answer cannot be read") // the cause is left out, since it could contain a token
	}
	return nil
}

// A refusedError says that an authorization server refused a request or, with status 0, a login.
type refusedError struct {
	status int
	code   string // the OAuth error code
}

// Error contains neither the server's description nor an unknown code: both could repeat a token.
func (e *refusedError) Error() string {
	text := "the authorization server refused"
	if slices.Contains(oauthurl.ErrorCodes, e.code) {
		text += ": " + e.code
	}
	if e.status != 0 {
		text += fmt.Sprintf(" (HTTP status %d)", e.status)
	}
	return text
}

// credentials identify a client at one issuer.
type credentials struct {
	ID     string `json:"client_id"`
	Secret string `json:"client_secret,omitempty"`
	Method string `json:"token_endpoint_auth_method"`
}

// A grant is an access token and what is needed to get the next one. It has no tokens when the login has ended.
type grant struct {
	Issuer  string      `json:"issuer"`
	Client  credentials `json:"client"`
	Access  string      `json:"access_token"`
	Refresh string      `json:"refresh_token,omitempty"`
	Scope   string      `json:"scope,omitempty"`
}

// requestToken makes a request to the token endpoint. scope is the granted scope if the answer has none.
func (l *login) requestToken(ctx context.Context, s *loginSite, c credentials, form url.Values, scope string) (*grant, error) {
	if c.Method != "client_secret_basic" {
		form.Set("client_id", c.ID)
	}
	if c.Method == "client_secret_post" {
		form.Set("client_secret", c.Secret)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.TokenEndpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if c.Method == "client_secret_basic" {
		req.SetBasicAuth(url.QueryEscape(c.ID), url.QueryEscape(c.Secret)) // encoded as RFC 6749, section 2.3.1, requires
	}
	var t struct {
		Access  string `json:"access_token"`
		Type    string `json:"token_type"`
		Refresh string `json:"refresh_token"`
		Scope   string `json:"scope"`
	}
	if err := l.doJSON(req, &t); err != nil {
		return nil, fmt.Errorf("token endpoint: %w", err)
	}
	if t.Access == "" || !strings.EqualFold(t.Type, "bearer") {
		return nil, errors.New("token endpoint: the answer has no bearer token")
	}
	return &grant{Issuer: s.Issuer, Client: c, Access: t.Access, Refresh: t.Refresh, Scope: cmp.Or(t.Scope, scope)}, nil
}
