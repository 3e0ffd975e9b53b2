package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/oauthurl"
)

// A challenge is the WWW-Authenticate header of a refusal, and how to react to it.
type challenge struct {
	err, scope, metadata string

	refresh bool // try the refresh token
}

// challengeOf reads the Bearer challenge of a response. If a parameter occurs twice, the first value counts.
func challengeOf(res *http.Response) (c challenge) {
	for _, header := range res.Header.Values("WWW-Authenticate") {
		for name, value := range authParams(header) {
			for key, to := range map[string]*string{"error": &c.err, "scope": &c.scope, "resource_metadata": &c.metadata} {
				if strings.EqualFold(name, key) && *to == "" {
					*to = value
				}
			}
		}
	}
	return c
}

// authParams yields the name=value pairs of a challenge; a value is a token or
// a quoted string (RFC 9110, section 11.2).
func authParams(s string) func(yield func(name, value string) bool) {
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

// unquote reads a quoted string after its opening quote.
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

// An authServer is where a login takes place: the protected resource and its authorization server.
type authServer struct {
	Resource string   // what tokens are for (RFC 8707)
	scopes   []string // of the resource

	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	RegistrationEndpoint  string   `json:"registration_endpoint"`
	Scopes                []string `json:"scopes_supported"`
	Challenges            []string `json:"code_challenge_methods_supported"`
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

// resource returns the metadata of the server; defaults replace what it lacks.
func (l *login) resource(ctx context.Context, ch challenge) (m resourceMetadata, err error) {
	if l.cfg.Scopes != nil {
		return resourceMetadata{l.server.String(), []string{l.cfg.Issuer}, l.cfg.Scopes}, nil
	}
	found, err := l.firstJSON(ctx, l.resourceURLs(ch), &m)
	if err != nil {
		return m, err
	}
	if !found || len(m.Servers) == 0 { // until 2025-03-26 the server is its own authorization server
		m.Servers = []string{(&url.URL{Scheme: l.server.Scheme, Host: l.server.Host}).String()}
	}
	if m.Resource == "" {
		m.Resource = l.server.String()
	}
	if !covers(m.Resource, l.server) {
		return m, fmt.Errorf("the metadata describes the resource %q, which does not include %q", m.Resource, l.server)
	}
	return m, nil
}

// discover returns the MCP server's authorization server, from its metadata (RFC 8414).
func (l *login) discover(ctx context.Context, ch challenge) (*authServer, error) {
	prm, err := l.resource(ctx, ch)
	if err != nil {
		return nil, err
	}
	issuer := prm.Servers[0]
	s := &authServer{}
	urls, err := oauthurl.Metadata(issuer)
	if err != nil {
		return nil, err
	}
	if err := l.mayReach(issuer); err != nil {
		return nil, err
	}
	found, err := l.firstJSON(ctx, urls, s)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("the authorization server %q has no metadata", issuer)
	}
	if s.Issuer != issuer {
		return nil, fmt.Errorf("the metadata of the authorization server %q has the issuer %q", issuer, s.Issuer)
	}
	s.Resource, s.scopes = prm.Resource, prm.Scopes
	return s, errors.Join(s.check(), l.mayReach(s.TokenEndpoint), l.mayReach(s.RegistrationEndpoint))
}

// mayReach checks the name of an endpoint before anything is sent; [outboundGuard] checks the address.
func (l *login) mayReach(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	return mayReach(l.server, u)
}

func (s *authServer) check() error {
	if !slices.Contains(s.Challenges, "S256") {
		return fmt.Errorf("the authorization server %q does not declare PKCE with S256, which a safe login requires", s.Issuer)
	}
	endpoints := []string{s.AuthorizationEndpoint, s.TokenEndpoint}
	if s.RegistrationEndpoint != "" {
		endpoints = append(endpoints, s.RegistrationEndpoint)
	}
	for _, endpoint := range endpoints {
		if err := oauthurl.Secure(endpoint); err != nil {
			return fmt.Errorf("an endpoint of the authorization server %q: %w", s.Issuer, err)
		}
	}
	return nil
}

// resourceURLs returns the possible URLs of the server's metadata.
func (l *login) resourceURLs(ch challenge) []string {
	const known = oauthurl.Resource
	if u, err := url.Parse(ch.metadata); err == nil && u.Host == l.server.Host && u.Scheme == l.server.Scheme {
		return []string{ch.metadata}
	}
	root := url.URL{Scheme: l.server.Scheme, Host: l.server.Host, Path: known}
	specific := root
	specific.Path = known + strings.TrimSuffix(l.server.Path, "/")
	if specific == root {
		return []string{root.String()}
	}
	return []string{specific.String(), root.String()}
}

// covers reports whether the server's URL is the resource or below it.
func covers(resource string, server *url.URL) bool {
	r, err := url.Parse(resource)
	if err != nil || r.Scheme != server.Scheme || r.Host != server.Host {
		return false
	}
	dir := func(p string) string { return strings.TrimSuffix(p, "/") + "/" }
	return strings.HasPrefix(dir(server.Path), dir(r.Path))
}

// wantedScopes returns the scopes to request: those of the challenge, or else of the resource; and also
// offline_access if the authorization server supports it, as it may be needed for a refresh token.
func (s *authServer) wantedScopes(ch challenge) []string {
	scopes := strings.Fields(ch.scope)
	if len(scopes) == 0 {
		scopes = s.scopes
	}
	if slices.Contains(s.Scopes, "offline_access") {
		scopes = union(scopes, []string{"offline_access"})
	}
	return scopes
}

// authMethod returns how the client authenticates at the token endpoint.
func (s *authServer) authMethod(hasSecret bool) string {
	known := s.AuthMethods
	if len(known) == 0 {
		known = []string{"client_secret_basic"} // RFC 8414
	}
	for _, m := range []string{"client_secret_basic", "client_secret_post"} {
		if hasSecret && slices.Contains(known, m) {
			return m
		}
	}
	return "none"
}

// firstJSON decodes the first document that exists.
func (l *login) firstJSON(ctx context.Context, urls []string, to any) (found bool, err error) {
	for _, u := range urls {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
		if err != nil {
			return false, err
		}
		req.Header.Set("Accept", "application/json")
		status, body, err := l.do(req)
		if err != nil {
			return false, err
		}
		if status == http.StatusOK && json.Unmarshal(body, to) == nil {
			return true, nil
		}
	}
	return false, nil
}

// do sends a request of the login itself, without a token.
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
		return errors.New("the answer cannot be read") // the cause could contain a token
	}
	return nil
}

// A refusedError says that an authorization server refused a request, or a login by its redirect (status 0).
type refusedError struct {
	status int
	code   string // of OAuth
}

// Error does not contain the description, nor an unknown code: they could repeat a token.
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

// A grant is a token and what is needed to get the next one.
type grant struct {
	Issuer   string      `json:"issuer"`
	Resource string      `json:"resource"`
	Client   credentials `json:"client"`
	Access   string      `json:"access_token"`
	Refresh  string      `json:"refresh_token,omitempty"`
	Scope    string      `json:"scope,omitempty"`
}

// token makes a request to the token endpoint.
func (l *login) token(ctx context.Context, s *authServer, c credentials, form url.Values, scope string) (*grant, error) {
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
		req.SetBasicAuth(url.QueryEscape(c.ID), url.QueryEscape(c.Secret))
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
	if t.Scope != "" {
		scope = t.Scope
	}
	return &grant{Issuer: s.Issuer, Resource: s.Resource, Client: c, Access: t.Access, Refresh: t.Refresh, Scope: scope}, nil
}
