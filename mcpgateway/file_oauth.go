package mcpgateway

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/kitbag-go/kitbag/mcpserver"
)

// oauth reads Config.OAuth. [mcpserver.OAuth.Check] checks the values.
func (r *reader) oauth(data json.RawMessage) {
	c := &mcpserver.OAuth{}
	var grants []json.RawMessage
	ms, ok := r.fields("oauth", data, field{"resource", &c.Resource, "a URL"}, field{"issuers", &c.Issuers, "a list of URLs"},
		field{"audience", &c.Audience, "a string"}, field{"scopes", &c.Scopes, "a list of scopes"}, field{name: "skew"},
		field{"grants", &grants, "a list of objects"})
	if !ok {
		return
	}
	c.Skew = r.duration("oauth.skew", ms.get("skew"))
	for i, data := range grants {
		c.Grants = append(c.Grants, r.grant(fmt.Sprintf("oauth.grants[%d]", i), data))
	}
	r.cfg.OAuth = c
}

// grant reads an entry of oauth.grants.
func (r *reader) grant(key string, data json.RawMessage) (g mcpserver.Grant) {
	ms, ok := r.fields(key, data, field{"name", &g.Name, "a string"}, field{name: "claims"}, field{name: "groups"}, field{name: "permissions"},
		field{"sessions", &g.Sessions, "a number"}, field{"calls", &g.Calls, "a number"})
	if !ok {
		return g
	}
	g.Ceiling, g.Policy = r.allowed(key, ms)
	key = join(key, "claims")
	if ms.get("claims") == nil {
		r.fail(key, "is missing; name the claims that a token must have, or {} for every user of the issuers")
		return g
	}
	claims, _ := r.object(key, ms.get("claims"))
	g.Claims = map[string][]string{}
	for _, m := range claims {
		var value string
		var values []string
		if json.Unmarshal(m.value, &values) != nil { // not a list
			r.decode(join(key, m.key), m.value, &value, "a string, or a list of strings of which one must match")
			values = []string{value}
		}
		g.Claims[m.key] = values
	}
	return g
}

// upstreamTokens reads Config.UpstreamTokens.
func (r *reader) upstreamTokens(data json.RawMessage) {
	servers, _ := r.object("upstreamTokens", data)
	for _, m := range servers {
		key := join("upstreamTokens", m.key)
		t := UpstreamToken{Server: m.key}
		var secretEnv string
		if _, ok := r.fields(key, m.value, field{"grant", &t.Grant, "a string"}, field{"tokenURL", &t.TokenURL, "a URL"}, field{"clientID", &t.ClientID, "a string"},
			field{"secretEnv", &secretEnv, "the name of a variable"}, field{"audience", &t.Audience, "a string"}, field{"scopes", &t.Scopes, "a list of scopes"},
			field{"issuer", &t.Issuer, "a URL"}, field{"listAs", &t.ListAs, "the name of a user"}); !ok {
			continue
		}
		if t.Grant != UserLogin || secretEnv != "" { // optional with UserLogin
			t.ClientSecret = r.variable(join(key, "secretEnv"), secretEnv, "the secret of the gateway's client")
		}
		r.cfg.UpstreamTokens = append(r.cfg.UpstreamTokens, t)
	}
}

// logins reads Config.Logins.
func (r *reader) logins(data json.RawMessage) {
	c := &Logins{Clients: map[string]LoginClient{}}
	var keyEnv, dir string
	ms, ok := r.fields("logins", data, field{name: "clients"}, field{"keyEnv", &keyEnv, "the name of a variable"}, field{"dir", &dir, "the name of a directory"})
	if !ok {
		return
	}
	clients, _ := r.object("logins.clients", ms.get("clients"))
	for _, m := range clients {
		var client LoginClient
		var secretEnv string
		key := join("logins.clients", m.key)
		r.fields(key, m.value, field{"clientID", &client.ID, "a string"}, field{"secretEnv", &secretEnv, "the name of a variable"})
		if secretEnv != "" {
			client.Secret = r.variable(join(key, "secretEnv"), secretEnv, "the secret of the gateway's client")
		}
		c.Clients[m.key] = client
	}
	c.Key = r.variable("logins.keyEnv", keyEnv, "a random key: kitbag mcp key makes one")
	if dir != "" {
		c.Dir = r.path(dir)
	}
	r.cfg.Logins = c
}

// variable returns the content of the environment variable that a key of the file names. The content must not be empty.
// content describes it for errors.
func (r *reader) variable(key, name, content string) string {
	value := os.Getenv(name)
	switch {
	case name == "":
		r.fail(key, "is missing; set it to the name of an environment variable that has %s", content)
	case value == "":
		r.fail(key, "the environment variable %q is empty or not set; set it to %s", name, content)
	}
	return value
}
