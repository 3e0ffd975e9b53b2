package mcpgateway

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/internal/mcpgroups"
	"github.com/kitbag-go/kitbag/internal/near"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// validName matches the names that groups may have: model APIs use them as field names.
var validName = lazy.Regexp(`^[A-Za-z0-9_.-]{1,64}$`)

// A checker collects mistakes, each with its key in the file that Load reads.
type checker struct {
	cfg  *Config
	errs []error
}

func (k *checker) fail(where, format string, args ...any) {
	k.errs = append(k.errs, fmt.Errorf("%s: %w", where, fmt.Errorf(format, args...)))
}

// require reports a mistake unless ok.
func (k *checker) require(ok bool, where, format string, args ...any) {
	if !ok {
		k.fail(where, format, args...)
	}
}

// check returns all mistakes in the configuration. It repeats checks of toolkit.New and mcpserver.New, which do not know
// the keys of the file.
func (c *Config) check() error {
	k := &checker{cfg: c}
	if c.Style != "" {
		if _, err := ParseStyle(string(c.Style)); err != nil {
			k.errs = append(k.errs, err)
		}
	}
	k.servers()
	for i, g := range c.Groups {
		k.group(g, slices.ContainsFunc(c.Groups[:i], func(o Group) bool { return o.Name == g.Name }))
	}
	k.requireServers("labels", c.Labels)
	k.requireServers("perSession", c.PerSession)
	for i, name := range c.Initial {
		k.requireGroup(fmt.Sprintf("initial[%d]", i), name)
	}
	k.policy("permissions", c.Serve.Policy)
	for _, a := range c.access() {
		k.policy(a.key+".permissions", a.policy)
		names, _ := a.ceiling.Names() // none if the ceiling is unset
		for i, name := range names {
			if name != "*" { // "*" grants everything
				k.requireGroup(fmt.Sprintf("%s.groups[%d]", a.key, i), name)
			}
		}
	}
	for i, t := range c.UpstreamTokens {
		where, known := "upstreamTokens."+t.Server, c.serverNames()
		k.require(slices.Contains(known, t.Server), where, "unknown server %q%s", t.Server, didYouMean(t.Server, known))
		k.require(!slices.ContainsFunc(c.UpstreamTokens[:i], func(o UpstreamToken) bool { return o.Server == t.Server }), where, "duplicate server; merge the two")
		k.require(!t.perUser() || !slices.Contains(c.PerSession, t.Server), where,
			"with %q the server has a connection for each user, and cannot also have one for each session; remove it from perSession", t.Grant)
		k.upstreamToken(where, t)
	}
	k.logins()
	for i, r := range c.Serve.Rates {
		where := fmt.Sprintf("rates[%d]", i)
		if err := r.Check(); err != nil {
			k.fail(where, "%w", err)
		} else if r.Tools != "*" {
			k.glob(where+".tools", r.Tools)
		}
	}
	if c.OAuth != nil {
		for _, err := range unjoin(c.OAuth.Check()) {
			k.fail("oauth", "%w", err)
		}
		if c.Serve.Authenticator != nil {
			k.errs = append(k.errs, errors.New("OAuth and Serve.Authenticator are both set; set one of them"))
		}
	}
	return errors.Join(k.errs...)
}

// unjoin returns the errors that errors.Join has joined, or err itself.
func unjoin(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// An access is what a credential, or a grant of OAuth, allows.
type access struct {
	key     string // of the credential or grant in the file
	ceiling toolkit.Ceiling
	policy  *permission.Policy
}

func (c *Config) access() (all []access) {
	for _, cred := range c.Serve.Credentials {
		all = append(all, access{"credentials." + cred.Name, cred.Ceiling, cred.Policy})
	}
	if c.OAuth != nil {
		for i, g := range c.OAuth.Grants {
			all = append(all, access{fmt.Sprintf("oauth.grants[%d]", i), g.Ceiling, g.Policy})
		}
	}
	return all
}

func (c *Config) serverNames() (names []string) {
	for _, s := range c.Servers {
		names = append(names, s.Name)
	}
	return names
}

// serverGroups returns the names of the servers' groups.
func (c *Config) serverGroups() (names []string) {
	for _, s := range c.Servers {
		names = append(names, mcpgroups.GroupName(s.Name))
	}
	return names
}

// prefixes returns the prefixes of the names of the servers' tools.
func (c *Config) prefixes() (prefixes []string) {
	for _, s := range c.Servers {
		prefixes = append(prefixes, prefixOf(s.Name))
	}
	return prefixes
}

func (k *checker) requireServers(key string, names []string) {
	known := k.cfg.serverNames()
	for i, name := range names {
		k.require(slices.Contains(known, name), fmt.Sprintf("%s[%d]", key, i), "unknown server %q%s", name, didYouMean(name, known))
	}
}

func (k *checker) servers() {
	if len(k.cfg.Servers) == 0 {
		k.errs = append(k.errs, errors.New("there are no servers; add one under mcpServers"))
	}
	byPrefix := map[string]string{} // server names; different names may have the same prefix
	for _, s := range k.cfg.Servers {
		where, prefix := "mcpServers."+s.Name, strings.ToLower(prefixOf(s.Name))
		if other, used := byPrefix[prefix]; used {
			k.fail(where, "its tools would have the same names as those of %q, ignoring case; rename one of the two", other)
		}
		byPrefix[prefix] = s.Name
		k.require(s.Options.Prefix == "", where, "Prefix is %q; leave it empty, the gateway names tools SERVER__TOOL", s.Options.Prefix)
		k.require(!s.Options.NoPrefix, where, "NoPrefix is set; do not set it, the gateway names tools SERVER__TOOL")
	}
}

func (k *checker) group(g Group, duplicate bool) {
	where := "groups." + g.Name
	switch {
	case !validName().MatchString(g.Name):
		k.fail(where, `%q is not a valid group name; use 1 to 64 letters, digits, "_", "-" and "."`, g.Name)
	case duplicate:
		k.fail(where, "duplicate group; merge the two")
	case strings.TrimSpace(g.Description) == "":
		k.fail(where, "description is missing; the model needs it to choose groups")
	}
	servers, example := k.cfg.serverGroups(), append(k.cfg.prefixes(), "server__")[0] // server__ if there are no servers
	k.require(len(g.Tools) > 0 || slices.Contains(servers, g.Name), where,
		`tools is missing, and there is no server %q%s to describe; set tools to globs such as "%s*"`, g.Name, didYouMean(g.Name, servers), example)
	for i, glob := range g.Tools {
		k.glob(fmt.Sprintf("%s.tools[%d]", where, i), glob)
	}
	for i, name := range g.Parents {
		k.requireGroup(fmt.Sprintf("%s.parents[%d]", where, i), name)
	}
}

func (k *checker) glob(where, glob string) {
	if _, err := path.Match(glob, ""); err != nil {
		k.fail(where, `%q is not a valid glob: %w; "*" matches any text, "?" one character, "[ab]" one character of a set`, glob, err)
		return
	}
	prefixes := k.cfg.prefixes()
	k.require(slices.ContainsFunc(prefixes, func(prefix string) bool { return mcpgroups.MayMatch(glob, prefix) }), where,
		"%q cannot match a tool; the names of tools begin with %s", glob, strings.Join(prefixes, ", "))
}

// policy reports three mistakes in rules: a pattern for tools of a server, a tool name of the form that hosts use, and an
// unknown server whose name is similar to that of a server. It does not check the rest of the name, because the tools of the
// servers are not known yet.
func (k *checker) policy(where string, p *permission.Policy) {
	if p == nil {
		return
	}
	prefixes := k.cfg.prefixes()
	var servers []string
	for _, prefix := range prefixes {
		servers = append(servers, strings.TrimSuffix(prefix, "__"))
	}
	for _, r := range p.Rules {
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return mcpgroups.MayMatch(r.Tool, prefix) }) {
			k.require(r.Pattern == "", where, "rule %q (%s): rules for tools of MCP servers cannot have patterns; write %q to cover every call, or restrict arguments in the server itself", r, r.Behavior, r.Tool)
			continue
		}
		if withoutMCP, ok := strings.CutPrefix(r.Tool, "mcp__"); ok {
			k.fail(where, "rule %q (%s): only a host names tools mcp__SERVER__TOOL; here their names begin with %s; write %q if you mean that server",
				r, r.Behavior, strings.Join(prefixes, ", "), withoutMCP)
			continue
		}
		server, _, ok := strings.Cut(r.Tool, "__")
		if !ok { // not a tool of a server
			continue
		}
		if meant := near.Typos(server, servers, 3); len(meant) > 0 {
			k.fail(where, "rule %q (%s): unknown server %q; did you mean %s?", r, r.Behavior, server, strings.Join(meant, " or "))
		}
	}
}

// requireGroup reports a group that does not exist. It accepts every group SERVER.GROUP of a server in Config.Labels,
// because the server has not listed its groups yet.
func (k *checker) requireGroup(where, name string) {
	if slices.ContainsFunc(k.cfg.Labels, func(server string) bool { return strings.HasPrefix(name, mcpgroups.GroupName(server)+".") }) {
		return
	}
	var names []string
	for _, g := range k.cfg.Groups {
		names = append(names, g.Name)
	}
	names = append(names, k.cfg.serverGroups()...)
	k.require(slices.Contains(names, name), where, "unknown group %q%s; the groups are %s", name, didYouMean(name, names), strings.Join(names, ", "))
}

// didYouMean returns a suggestion if there is a similar name.
func didYouMean(name string, names []string) string {
	if like := near.Names(name, names, 1); len(like) > 0 {
		return fmt.Sprintf(" (did you mean %q?)", like[0])
	}
	return ""
}
