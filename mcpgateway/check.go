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
	"github.com/kitbag-go/kitbag/mcpclient"
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

func (c *checker) fail(where, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s: %w", where, fmt.Errorf(format, args...)))
}

// require fails unless ok.
func (c *checker) require(ok bool, where, format string, args ...any) {
	if !ok {
		c.fail(where, format, args...)
	}
}

// check returns all mistakes in the configuration. It repeats checks of toolkit.New and mcpserver.New, because
// the keys are only known here.
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
		names, _ := a.ceiling.Names()
		for i, name := range names {
			if name != "*" { // "*" grants everything
				k.requireGroup(fmt.Sprintf("%s.groups[%d]", a.key, i), name)
			}
		}
	}
	for i, t := range c.UpstreamTokens {
		where := "upstreamTokens." + t.Server
		known := c.serverNames()
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
		if errs, ok := c.OAuth.Check().(interface{ Unwrap() []error }); ok {
			for _, err := range errs.Unwrap() {
				k.errs = append(k.errs, fmt.Errorf("oauth: %w", err))
			}
		}
		if c.Serve.Authenticator != nil {
			k.errs = append(k.errs, errors.New("OAuth and Serve.Authenticator are both set; set one of them"))
		}
	}
	return errors.Join(k.errs...)
}

// An access is what a credential or an entry of oauth.grants allows. key is its key in the file.
type access struct {
	key     string
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

// tokensOf returns the source of the tokens for a server; nil if it gets none.
func (g *Gateway) tokensOf(s mcpclient.Server, c *Config) *tokenSource {
	i := slices.IndexFunc(c.UpstreamTokens, func(t UpstreamToken) bool { return t.Server == s.Name })
	if i < 0 {
		return nil
	}
	return newTokenSource(c.UpstreamTokens[i], s.Transport.(mcpclient.HTTP), g.logins) // check has checked the transport
}

func (c *Config) serverNames() []string {
	var out []string
	for _, s := range c.Servers {
		out = append(out, s.Name)
	}
	return out
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
	byPrefix := map[string]string{} // names; servers with different names may have the same prefix
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
	var servers []string
	example := "server__"
	for i, s := range k.cfg.Servers {
		if servers = append(servers, mcpgroups.GroupName(s.Name)); i == 0 {
			example = prefixOf(s.Name)
		}
	}
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
	var prefixes []string
	for _, s := range k.cfg.Servers {
		if prefixes = append(prefixes, prefixOf(s.Name)); mcpgroups.MayMatch(glob, prefixOf(s.Name)) {
			return
		}
	}
	// No later error would show that the group can have no tools.
	k.fail(where, "%q cannot match a tool; the names of tools begin with %s", glob, strings.Join(prefixes, ", "))
}

// policy reports rules with a pattern for tools of a server, which cannot have patterns, rules with the names
// that a host gives to tools, and rules for a server that does not exist if its name is similar to that of an
// existing server. The tools of the servers are not known yet; mcpserver.New checks the other names.
func (k *checker) policy(where string, p *permission.Policy) {
	if p == nil {
		return
	}
	var prefixes, servers []string
	for _, s := range k.cfg.Servers {
		prefixes = append(prefixes, prefixOf(s.Name))
		servers = append(servers, strings.TrimSuffix(prefixOf(s.Name), "__"))
	}
	for _, r := range p.Rules {
		server, _, ok := strings.Cut(r.Tool, "__")
		known := slices.ContainsFunc(servers, func(s string) bool { return mcpgroups.MayMatch(r.Tool, s+"__") })
		if known && r.Pattern != "" {
			k.fail(where, "rule %q (%s): rules for tools of MCP servers cannot have patterns; write %q to cover every call, or restrict arguments in the server itself", r, r.Behavior, r.Tool)
		}
		if !ok || known {
			continue
		}
		if inHost, ok := strings.CutPrefix(r.Tool, "mcp__"); ok {
			k.fail(where, "rule %q (%s): only a host names tools mcp__SERVER__TOOL; here their names begin with %s; write %q if you mean that server",
				r, r.Behavior, strings.Join(prefixes, ", "), inHost)
			continue
		}
		if meant := near.Typos(server, servers, 3); len(meant) > 0 {
			k.fail(where, "rule %q (%s): unknown server %q; did you mean %s?", r, r.Behavior, server, strings.Join(meant, " or "))
		}
	}
}

// requireGroup reports a group that does not exist. The groups of labels are not known yet.
func (k *checker) requireGroup(where, name string) {
	names := []string{}
	for _, g := range k.cfg.Groups {
		names = append(names, g.Name)
	}
	for _, s := range k.cfg.Servers {
		group := mcpgroups.GroupName(s.Name)
		if names = append(names, group); slices.Contains(k.cfg.Labels, s.Name) && strings.HasPrefix(name, group+".") {
			return
		}
	}
	k.require(slices.Contains(names, name), where, "unknown group %q%s; the groups are %s", name, didYouMean(name, names), strings.Join(names, ", "))
}

// didYouMean returns a suggestion if there is a similar name.
func didYouMean(name string, names []string) string {
	if like := near.Names(name, names, 1); len(like) > 0 {
		return fmt.Sprintf(" (did you mean %q?)", like[0])
	}
	return ""
}
