package oauthurl

import (
	"slices"
	"strings"
	"testing"
)

// TestSecure checks which endpoints may get secrets. An error shows neither a password nor a query, which may have a key.
func TestSecure(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://a.example/x":                      "",
		"http://127.0.0.1:80/x":                    "",
		"http://[::1]/x":                           "",
		"http://localhost/":                        "",
		"http://u:hunter2@a.example/x?key=hunter2": `"http://a.example/x" must be https`,
		"http://localhost.example/":                `"http://localhost.example/" must be https`,
		"https:/x":                                 `"https:///x" must be https`,
		"https://u:hunter2@a.example:x/":           "invalid URL",
		"https://a.example/%zz?key=hunter2":        "invalid URL",
	} {
		err := Secure(endpoint)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: %v, want %s", endpoint, err, want)
		}
	}
}

// TestMetadata checks the URLs that RFC 8414 and OpenID Connect Discovery define. The escapes of a path stay: a%2Fb is
// another path than a/b.
func TestMetadata(t *testing.T) {
	for issuer, want := range map[string][]string{
		"https://a.example":  {"https://a.example/.well-known/oauth-authorization-server", "https://a.example/.well-known/openid-configuration"},
		"https://a.example/": {"https://a.example/.well-known/oauth-authorization-server", "https://a.example/.well-known/openid-configuration"},
		"https://a.example:1/b%2Fc/d": {"https://a.example:1/.well-known/oauth-authorization-server/b%2Fc/d",
			"https://a.example:1/.well-known/openid-configuration/b%2Fc/d", "https://a.example:1/b%2Fc/d/.well-known/openid-configuration"},
		"http://a.example": nil,
	} {
		if got, err := Metadata(issuer); !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %q, %v, want %q", issuer, got, err, want)
		}
	}
}
