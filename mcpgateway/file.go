package mcpgateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// Load reads a configuration. All members except mcpServers may be left out:
//
//	{
//	  "mcpServers": {
//	    "github": {"command": "github-mcp-server", "args": ["stdio"], "env": {"TOKEN": "${GITHUB_TOKEN}"}},
//	    "files":  {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "."]},
//	    "crm":    {"url": "https://crm.example.com/mcp"},
//	    "mail":   {"url": "https://mail.example.com/mcp"}
//	  },
//	  "groups": {
//	    "issues": {"tools": ["github__*issue*"], "description": "Bugs and wishes.", "instructions": "Search first."},
//	    "files":  {"description": "The files of the project."}
//	  },
//	  "labels": [], "perSession": [], "initial": ["files"], "style": "reset", "search": true,
//	  "permissions": {"mode": "default", "allow": ["files__read_*"], "deny": ["github__delete_*"], "trustReadOnly": true},
//	  "credentials": {
//	    "ci": {"tokenEnv": "CI_TOKEN", "groups": ["issues"], "permissions": {"mode": "dont-ask", "allow": ["github__*"]}}
//	  },
//	  "oauth": {
//	    "resource": "https://mcp.example.com/", "issuers": ["https://login.example.com"],
//	    "grants": [
//	      {"name": "engineers", "claims": {"groups": "engineering", "tenant": ["acme", "acme-labs"]}},
//	      {"name": "others", "claims": {}, "groups": ["issues"], "sessions": 5}
//	    ]
//	  },
//	  "upstreamTokens": {
//	    "crm": {"grant": "token_exchange", "tokenURL": "https://login.example.com/token", "clientID": "kitbag", "secretEnv": "CRM_SECRET"},
//	    "mail": {"grant": "user_login", "listAs": "https://login.example.com 1234"}
//	  },
//	  "logins": {
//	    "clients": {"https://login.example.com": {"clientID": "kitbag", "secretEnv": "LOGIN_SECRET"}},
//	    "keyEnv": "LOGIN_KEY", "dir": "logins"
//	  },
//	  "rates": [{"tools": "github__*", "calls": 60, "every": "1m"}, {"tools": "*", "calls": 600, "every": "1h", "each": true}],
//	  "taskAfter": "30s",
//	  "audit": {"file": "audit.jsonl", "arguments": false},
//	  "instructions": "…", "hosts": ["mcp.example.com"], "origins": [],
//	  "replicas": {"store": "${KITBAG_REPLICAS:-postgres://mcp@db/mcp}", "url": "http://${POD_IP:-10.0.0.7}:8080/"}
//	}
//
// [mcpclient.Load] reads the servers. Clients over HTTP must send the token of a credential: the content of an
// environment variable (tokenEnv) or of a file (tokenFile), of at least 16 bytes. The configuration itself does not
// contain tokens, but may contain the hash of a token (hash); "kitbag mcp key" prints a new token and its hash. If other
// users can read the token's file, Load logs a warning to [slog.Default]. The groups of a credential limit what its
// sessions see: all groups if the member is left out, and none if the list is empty. The permissions of a credential
// replace the permissions of the configuration. File names are relative to the directory of the configuration.
//
// With oauth, clients may instead send access tokens of the issuers: JWTs for the resource, which is the URL of the gateway
// as clients write it. The first grant whose claims a token has determines what the user sees and may do. For each
// claim of the grant the token must have the value in the grant, or one of its values if the grant has a list. A claim with a
// list in the token must contain such a value. A user without a grant is refused. See package mcpserver/oauth; skew is a
// duration such as "30s".
//
// The servers in upstreamTokens get access tokens of an authorization server. With the grant "client_credentials" the gateway
// gets one token for itself. With "token_exchange" it exchanges the token that a user has sent for a token for the server; the
// user's own token is sent to no server. The secret of the gateway's client is the content of the variable secretEnv. With
// "user_login" each user logs in to the server, when a call first needs it. Then logins must have the gateway's clients at the
// issuers, the key that encrypts the stored logins, and their directory, which is not needed with replicas; see [Logins].
//
// The rates limit how often tools run, on all replicas together; a rate with "each": true limits every credential and user
// separately. A call that takes longer than taskAfter becomes a task, for clients that support tasks. See [mcpserver.Rate] and
// [mcpserver.Config].
//
// The audit log is a file ("-" for standard output), or a Postgres database if audit has "database", a URL, in place of "file".
// The caller must open AuditDatabase and set AuditWriter.
//
// Gateways with the same replicas.store, the URL of a Postgres database, serve as one; replicas.url is where the other
// gateways reach this one. These URLs may refer to environment variables, as mcpServers may. The caller must open
// ReplicaStore and set Serve.Replicas.Shared.
//
// With trustReadOnly the tools that a server declares as read-only are treated as read-only. In permissions trustReadOnly
// is for all servers, in a server's entry of mcpServers for that server. In the permissions of a credential or grant it only
// has an effect for servers for which one of the other two is set.
//
// The members that only "kitbag run" uses (model, baseURL, system, maxSteps, window, sandbox, skills) are ignored.
//
// Mistakes are reported together, as errors that name the file and the key. Mistakes in values are only reported if the file
// could be read without other mistakes, such as unknown keys. The caller must set Serve.Version.
func Load(file string) (Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Config{}, fmt.Errorf("the gateway's configuration: %w", err)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // a byte order mark, which editors on Windows write
	r := &reader{file: file, dir: filepath.Dir(file)}
	top, ok := r.fields("", data, field{name: "mcpServers"}, field{name: "groups"},
		field{"labels", &r.cfg.Labels, "a list of names of servers"}, field{"perSession", &r.cfg.PerSession, "a list of names of servers"},
		field{"initial", &r.cfg.Initial, "a list of names of groups"}, field{"style", &r.cfg.Style, "the name of a style"},
		field{"search", &r.cfg.Search, "true or false"}, field{name: "permissions"}, field{name: "credentials"}, field{name: "oauth"},
		field{name: "upstreamTokens"}, field{name: "logins"}, field{name: "audit"},
		field{"instructions", &r.cfg.Serve.Instructions, "a string"}, field{"hosts", &r.cfg.Serve.Hosts, "a list of host names"},
		field{"origins", &r.cfg.Serve.Origins, "a list of origins"}, field{name: "replicas"}, field{name: "rates"}, field{name: "taskAfter"},
		// These are for kitbag run, which reads the same file.
		field{name: "model"}, field{name: "baseURL"}, field{name: "system"}, field{name: "maxSteps"}, field{name: "window"}, field{name: "sandbox"}, field{name: "skills"})
	if !ok {
		return Config{}, errors.Join(r.errs...)
	}
	r.servers(top)
	r.groups(top.get("groups"))
	r.cfg.Serve.Policy = r.policy("permissions", top.get("permissions"))
	r.credentials(top.get("credentials"))
	r.oauth(top.get("oauth"))
	r.upstreamTokens(top.get("upstreamTokens"))
	r.logins(top.get("logins"))
	r.applyTrust()
	r.audit(top.get("audit"))
	r.replicas(top.get("replicas"))
	r.rates(top.get("rates"))
	r.cfg.Serve.TaskAfter = r.duration("taskAfter", top.get("taskAfter"))
	// Without mcpServers the caller adds the servers. Other mistakes can have caused mistakes in values.
	if top.get("mcpServers") != nil && len(r.errs) == 0 {
		for _, err := range unjoin(r.cfg.check()) {
			r.fail("", "%w", err)
		}
	}
	return r.cfg, errors.Join(r.errs...)
}

// A reader reads a configuration file and collects the mistakes in the file.
type reader struct {
	file, dir string
	cfg       Config
	errs      []error
}

func (r *reader) fail(key, format string, args ...any) {
	where := r.file
	if key != "" {
		where += ": " + key
	}
	r.errs = append(r.errs, fmt.Errorf("%s: %w", where, fmt.Errorf(format, args...)))
}

// A member is a member of a JSON object. Members are not in a map, because models read groups in the order of the file.
type member struct {
	key   string
	value json.RawMessage
}

type members []member

func (ms members) get(key string) json.RawMessage {
	for _, m := range ms {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// object reads an object that may only have the known members, or any members if known is empty. ok is false if data is
// not an object, which is a mistake, or if data is nil, because the object is missing.
func (r *reader) object(key string, data json.RawMessage, known ...string) (ms members, ok bool) {
	if data == nil {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	bad := func(err error) (members, bool) {
		r.fail(key, "must be a JSON object: %w", err)
		return nil, false
	}
	first, err := dec.Token()
	if err != nil {
		return bad(err)
	}
	if first != json.Delim('{') {
		return bad(errors.New(describeValue(key, data)))
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return bad(err)
		}
		m := member{key: fmt.Sprint(name)}
		if err := dec.Decode(&m.value); err != nil {
			return bad(fmt.Errorf("%s: %w", m.key, err))
		}
		switch {
		case ms.get(m.key) != nil:
			r.fail(join(key, m.key), "duplicate key; merge the two")
		case len(known) > 0 && !slices.Contains(known, m.key):
			r.fail(join(key, m.key), "unknown key%s; the keys are %s", didYouMean(m.key, known), strings.Join(known, ", "))
		default:
			ms = append(ms, m)
		}
	}
	if _, err := dec.Token(); err != nil { // not the closing brace
		return bad(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return bad(errors.New("there is more data after the object"))
	}
	return ms, true
}

// A field is a known member of an object.
type field struct {
	name string
	to   any    // pointer to the variable for the value; nil if the caller decodes the value
	want string // what the value must be, for errors
}

// fields is object for the members in fields, whose values it decodes.
func (r *reader) fields(key string, data json.RawMessage, fields ...field) (members, bool) {
	var known []string
	for _, f := range fields {
		known = append(known, f.name)
	}
	ms, ok := r.object(key, data, known...)
	for _, f := range fields {
		if f.to != nil {
			r.decode(join(key, f.name), ms.get(f.name), f.to, f.want)
		}
	}
	return ms, ok
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// decode reads a value into the variable that to points to. If data is nil, the variable stays as it is.
func (r *reader) decode(key string, data json.RawMessage, to any, want string) {
	if data != nil && json.Unmarshal(data, to) != nil {
		r.fail(key, "must be %s; %s", want, describeValue(key, data))
	}
}

// describeValue describes a wrong value for an error. It does not show values below keys that may have secrets.
func describeValue(key string, data json.RawMessage) string {
	if slices.ContainsFunc([]string{"credentials", "upstreamTokens", "logins", "replicas", "audit.database"}, func(secret string) bool { return strings.HasPrefix(key, secret) }) {
		return "it has another type"
	}
	return fmt.Sprintf("it is %.40s", bytes.TrimSpace(data))
}

func (r *reader) servers(top members) {
	if top.get("mcpServers") == nil {
		return
	}
	r.object("mcpServers", top.get("mcpServers")) // finds duplicate names, which mcpclient.Load does not
	servers, err := mcpclient.Load(r.file)
	r.cfg.Servers, r.errs = servers, append(r.errs, unjoin(err)...)
}

func (r *reader) groups(data json.RawMessage) {
	groups, _ := r.object("groups", data)
	for _, m := range groups {
		key := join("groups", m.key)
		g := Group{Name: m.key}
		r.fields(key, m.value, field{"description", &g.Description, "a string"}, field{"tools", &g.Tools, "a list of globs"},
			field{"instructions", &g.Instructions, "a string"}, field{"parents", &g.Parents, "a list of names of groups"})
		r.cfg.Groups = append(r.cfg.Groups, g)
	}
}

// policy reads permissions, which have the form of settings files and trustReadOnly. It returns nil if there are none.
func (r *reader) policy(key string, data json.RawMessage) *permission.Policy {
	ms, ok := r.object(key, data)
	if !ok {
		return nil
	}
	trust, rest := false, map[string]json.RawMessage{}
	for _, m := range ms {
		rest[m.key] = m.value
	}
	r.decode(join(key, "trustReadOnly"), rest["trustReadOnly"], &trust, "true or false")
	delete(rest, "trustReadOnly")
	// Decoded JSON can be encoded.
	settings, _ := json.Marshal(map[string]any{"permissions": rest})
	where := r.file // for errors; ParseSettings adds "permissions"
	outer := strings.TrimSuffix(key, "permissions")
	if outer != "" {
		where += ": " + strings.TrimSuffix(outer, ".")
	}
	s, err := permission.ParseSettings(where, settings)
	if err != nil {
		r.errs = append(r.errs, err)
		return nil
	}
	for _, unknown := range s.Unknown() {
		r.fail(outer+unknown, "unknown key; the keys are mode, allow, ask, deny, trustReadOnly, additionalDirectories")
	}
	s.Policy.TrustReadOnly = trust
	return &s.Policy
}

// applyTrust sets Options.TrustReadOnly of all servers if permissions.trustReadOnly is set. The trustReadOnly of one
// credential or grant must not make calls of others read-only, so it sets no option.
func (r *reader) applyTrust() {
	anyTrusted := false
	for i := range r.cfg.Servers {
		s := &r.cfg.Servers[i]
		s.Options.TrustReadOnly = s.Options.TrustReadOnly || r.cfg.Serve.Policy != nil && r.cfg.Serve.Policy.TrustReadOnly
		anyTrusted = anyTrusted || s.Options.TrustReadOnly
	}
	for _, a := range r.cfg.access() {
		if !anyTrusted && a.policy != nil && a.policy.TrustReadOnly {
			r.fail(a.key+".permissions.trustReadOnly", "has no effect because no server is trusted; set trustReadOnly in the entry of a server under mcpServers")
		}
	}
}

func (r *reader) credentials(data json.RawMessage) {
	if data == nil {
		return
	}
	credentials, _ := r.object("credentials", data)
	for _, m := range credentials {
		key := join("credentials", m.key)
		ms, ok := r.object(key, m.value, "tokenEnv", "tokenFile", "hash", "groups", "permissions")
		if !ok {
			continue
		}
		c := mcpserver.Credential{Name: m.key}
		if c.Hash = r.hash(key, ms); c.Hash == "" {
			c.Token = r.token(key, ms)
		}
		c.Ceiling, c.Policy = r.allowed(key, ms)
		r.cfg.Serve.Credentials = append(r.cfg.Serve.Credentials, c)
	}
	if len(credentials) == 0 {
		// Without credentials every client would be admitted.
		r.fail("credentials", "has no credentials; add one, or remove the key")
	}
}

// allowed reads the groups and permissions of a credential or grant.
func (r *reader) allowed(key string, ms members) (c toolkit.Ceiling, p *permission.Policy) {
	if groups := ms.get("groups"); groups != nil {
		names := []string{}
		r.decode(join(key, "groups"), groups, &names, "a list of names of groups")
		c = toolkit.Only(names...) // no groups if the value is null
	}
	return c, r.policy(join(key, "permissions"), ms.get("permissions"))
}

// hash returns the hash of a credential's token; empty if the credential has tokenEnv or tokenFile instead.
func (r *reader) hash(key string, ms members) (hash string) {
	if ms.get("hash") == nil {
		return ""
	}
	r.decode(join(key, "hash"), ms.get("hash"), &hash, "the hash of a token")
	if ms.get("tokenEnv") != nil || ms.get("tokenFile") != nil {
		r.fail(key, "has a hash and a token; give only one of them")
	}
	if !mcpserver.ValidHash(hash) {
		r.fail(join(key, "hash"), "is not the hash of a token; make both with: kitbag mcp key")
		return "invalid" // not empty, or the credential's token would be reported as missing
	}
	return hash
}

// token reads a credential's token from its tokenEnv or tokenFile. The token is never part of an error.
func (r *reader) token(key string, ms members) string {
	var env, file string
	r.decode(join(key, "tokenEnv"), ms.get("tokenEnv"), &env, "the name of a variable")
	r.decode(join(key, "tokenFile"), ms.get("tokenFile"), &file, "the name of a file")
	token := ""
	switch {
	case (env == "") == (file == ""):
		r.fail(key, "give one of tokenEnv, the name of a variable, tokenFile, the name of a file, and hash, which kitbag mcp key prints")
		return ""
	case env != "":
		key = join(key, "tokenEnv")
		if token = os.Getenv(env); token == "" {
			r.fail(key, "the environment variable %s is empty or not set; set it to the token", env)
			return ""
		}
	default:
		key = join(key, "tokenFile")
		data, err := os.ReadFile(r.path(file))
		if err != nil {
			r.fail(key, "%w", err)
			return ""
		}
		if info, err := os.Stat(r.path(file)); err == nil && info.Mode().Perm()&0o044 != 0 && runtime.GOOS != "windows" {
			slog.Warn("other users of this machine can read the token of a credential; make the file readable only by its owner (chmod 600)", "file", r.path(file))
		}
		token = strings.TrimSpace(string(data))
	}
	if len(token) < mcpserver.MinToken {
		r.fail(key, "the token has %d bytes; use a random token of at least %d bytes", len(token), mcpserver.MinToken)
	}
	return token
}

// path returns a file name, relative to the directory of the configuration unless it is absolute.
func (r *reader) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(r.dir, name)
}
