package mcpserver

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/internal/oauthurl"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A ResourceServer is an [Authenticator] that checks the access tokens of an OAuth, and serves their metadata.
type ResourceServer interface {
	Authenticator

	// Wrap returns a handler that serves the protected resource metadata (RFC 9728) at its well-known paths, and
	// everything else with next. [Server.Handler] calls it.
	Wrap(next http.Handler) http.Handler

	// Close ends the requests for keys.
	Close() error
}

// OAuth says which users of OAuth authorization servers may use a server, and what for. Package mcpserver/oauth, a module
// of its own, makes a [ResourceServer] of it. Resource, Issuers and Grants are required.
type OAuth struct {
	Resource string   // the URL of the MCP server as its clients write it
	Issuers  []string // URLs of the authorization servers whose tokens are accepted; clients use the first
	Audience string   // of tokens; Resource by default
	Scopes   []string // that every token must have
	Grants   []Grant  // the first that matches counts

	// Skew is how much the clocks of the issuers may differ from this machine's: 30 s by default, 5 min at most.
	Skew time.Duration

	// Client requests metadata and keys; nil uses a default client.
	Client *http.Client
}

// A Grant says what users whose tokens have certain claims may see and do.
type Grant struct {
	Name string // unique

	// Claims are claims that a token must have, each with one of the values. A claim that is a list must contain one of
	// them, and the claim scope is a list separated by spaces. true and numbers are written as in JSON. A Grant without
	// Claims matches every token.
	Claims map[string][]string

	Ceiling         toolkit.Ceiling    // the zero Ceiling is no limit
	Policy          *permission.Policy // unless nil, replaces the server's
	Sessions, Calls int                // see [Identity]
}

// maxSkew is the largest OAuth.Skew.
const maxSkew = 5 * time.Minute

// Check returns all mistakes in the configuration.
func (c *OAuth) Check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	u, err := url.Parse(c.Resource)
	if err != nil || u.Host == "" || u.Fragment != "" || u.RawQuery != "" || oauthurl.Secure(c.Resource) != nil {
		fail("resource is %q; set it to the https URL under which clients reach the server, without a query", c.Resource)
	}
	if len(c.Issuers) == 0 {
		fail("there are no issuers; add the URL of the authorization server that issues the tokens")
	}
	for i, u := range c.Issuers {
		if err := oauthurl.Secure(u); err != nil || strings.ContainsAny(u, " #?") {
			fail("issuers[%d] is %q; it must be an https URL without a query", i, u)
		}
		if slices.Contains(c.Issuers[:i], u) {
			fail("issuers[%d]: duplicate issuer %q; remove one of the two", i, u)
		}
	}
	for i, scope := range c.Scopes {
		if scope == "" || strings.ContainsAny(scope, " \"\\") {
			fail("scopes[%d] is %q; a scope has no spaces, quotes and backslashes", i, scope)
		}
	}
	if c.Skew < 0 || c.Skew > maxSkew {
		fail("skew is %v; it must be between 0 and %v", c.Skew, maxSkew)
	}
	if len(c.Grants) == 0 {
		fail("there are no grants, so that every token would be refused; add one for each kind of user")
	}
	for i, g := range c.Grants {
		for _, err := range g.check() {
			fail("grants[%d]: %w", i, err)
		}
		if slices.ContainsFunc(c.Grants[:i], func(o Grant) bool { return o.Name == g.Name }) {
			fail("grants[%d]: duplicate name %q; give each grant a unique one", i, g.Name)
		}
		if i > 0 && len(c.Grants[i-1].Claims) == 0 {
			fail("grants[%d]: it is never used, because %q before it matches every token; move that grant to the end", i, c.Grants[i-1].Name)
		}
	}
	return errors.Join(errs...)
}

func (g *Grant) check() (errs []error) {
	if strings.TrimSpace(g.Name) == "" {
		errs = append(errs, errors.New("name is empty; give it one for audit records"))
	}
	for _, claim := range slices.Sorted(maps.Keys(g.Claims)) {
		if values := g.Claims[claim]; claim == "" || len(values) == 0 {
			errs = append(errs, fmt.Errorf("claim %q has no values, so that no token would match; add a value, or remove the claim", claim))
		}
	}
	if g.Sessions < 0 || g.Calls < 0 {
		errs = append(errs, fmt.Errorf("sessions is %d and calls %d; they must not be negative (0: the server's limit)", g.Sessions, g.Calls))
	}
	return errs
}
