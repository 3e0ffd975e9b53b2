// Package oauthurl has the rules for URLs of OAuth that clients and servers share.
package oauthurl

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/kitbag-go/kitbag/internal/loopback"
)

// Secure rejects an endpoint to which secrets would be sent unencrypted.
func Secure(endpoint string) error {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return errors.New("invalid URL; it must be like https://host/path") // err repeats the URL, which may have a password or a key
	case u.Scheme == "https" && u.Host != "" || u.Scheme == "http" && loopback.Host(u.Hostname()):
		return nil
	}
	return fmt.Errorf("%q must be https", (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String())
}

// Metadata returns the possible URLs of an authorization server's metadata (RFC 8414, OpenID Connect Discovery).
func Metadata(issuer string) ([]string, error) {
	if err := Secure(issuer); err != nil {
		return nil, err
	}
	u, err := url.Parse(issuer)
	if err != nil {
		return nil, err
	}
	host, path := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String(), strings.TrimSuffix(u.EscapedPath(), "/")
	urls := []string{host + "/.well-known/oauth-authorization-server" + path, host + "/.well-known/openid-configuration" + path}
	if path != "" {
		urls = append(urls, host+path+"/.well-known/openid-configuration")
	}
	return urls, nil
}

// Resource is the path under which a protected resource has its metadata, before its own path (RFC 9728).
const Resource = "/.well-known/oauth-protected-resource"

// ErrorCodes are the errors of a token endpoint (RFC 6749, RFC 7591, RFC 8707). Another code could be a secret.
var ErrorCodes = []string{"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
	"invalid_scope", "invalid_target", "invalid_redirect_uri", "invalid_client_metadata", "access_denied"}
