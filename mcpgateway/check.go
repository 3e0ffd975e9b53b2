package mcpgateway

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/internal/near"
)

// validName is what a group may be called: model APIs take its name for the name
// of a field.
var validName = lazy.Regexp(`^[A-Za-z0-9_.-]{1,64}$`)

// A checker collects mistakes. Each says where it is, in the words of the file that
// Load reads.
type checker struct {
	cfg  *Config
	errs []error
}

func (c *checker) fail(where, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s: %w", where, fmt.Errorf(format, args...)))
}

// check returns all that is wrong with the configuration. What toolkit.New or
// mcpserver.New would find as well is looked for here where they could not say which
// key it is.
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
	k.knowServers("labels", c.Labels)
	k.knowServers("perSession", c.PerSession)
	for i, name := range c.Initial {
		k.knowGroup(fmt.Sprintf("initial[%d]", i), name)
	}
	for _, cred := range c.Serve.Credentials {
		names, _ := cred.Ceiling.Names()
		for i, name := range names {
			if name != "*" { // which grants everything
				k.knowGroup(fmt.Sprintf("credentials.%s.groups[%d]", cred.Name, i), name)
			}
		}
	}
	return errors.Join(k.errs...)
}

func (c *Config) serverNames() []string {
	var out []string
	for _, s := range c.Servers {
		out = append(out, s.Name)
	}
	return out
}

func (k *checker) knowServers(key string, names []string) {
	known := k.cfg.serverNames()
	for i, name := range names {
		if !slices.Contains(known, name) {
			k.fail(fmt.Sprintf("%s[%d]", key, i), "there is no server %q%s", name, meant(name, known))
		}
	}
}

func (k *checker) servers() {
	if len(k.cfg.Servers) == 0 {
		k.errs = append(k.errs, errors.New("no server is named; add one under mcpServers"))
	}
	users := map[string]string{} // of prefixes: names that differ may have the same one
	for _, s := range k.cfg.Servers {
		where, prefix := "mcpServers."+s.Name, strings.ToLower(prefixOf(s.Name))
		if other, taken := users[prefix]; taken {
			k.fail(where, "its tools would have the same names as those of %q, but for case; rename one", other)
		}
		users[prefix] = s.Name
		if s.Options.Prefix != "" {
			k.fail(where, "Prefix is %q; leave it empty, the gateway names tools SERVER__TOOL", s.Options.Prefix)
		}
	}
}

func (k *checker) group(g Group, twice bool) {
	where := "groups." + g.Name
	switch {
	case !validName().MatchString(g.Name):
		k.fail(where, `%q cannot name a group; use 1 to 64 letters, digits, "_", "-" and "."`, g.Name)
	case twice:
		k.fail(where, "there are two groups of this name; join them")
	case strings.TrimSpace(g.Description) == "":
		k.fail(where, "description is missing; the model chooses by it")
	}
	var servers []string
	for _, s := range k.cfg.Servers {
		servers = append(servers, groupName(s.Name))
	}
	if len(g.Tools) == 0 && !slices.Contains(servers, g.Name) {
		k.fail(where, `tools is missing, and no server is called %q%s; name tools such as "%s*"`, g.Name, meant(g.Name, servers), k.example())
	}
	for i, glob := range g.Tools {
		k.glob(fmt.Sprintf("%s.tools[%d]", where, i), glob)
	}
	for i, name := range g.Parents {
		k.knowGroup(fmt.Sprintf("%s.parents[%d]", where, i), name)
	}
}

func (k *checker) example() string {
	if len(k.cfg.Servers) == 0 {
		return "server__"
	}
	return prefixOf(k.cfg.Servers[0].Name)
}

func (k *checker) glob(where, glob string) {
	if _, err := path.Match(glob, ""); err != nil {
		k.fail(where, `%q cannot be read as a glob: %w; "*" is any text, "?" a character, "[ab]" one of some`, glob, err)
		return
	}
	var prefixes []string
	for _, s := range k.cfg.Servers {
		if prefixes = append(prefixes, prefixOf(s.Name)); mayMatch(glob, prefixOf(s.Name)) {
			return
		}
	}
	// A group that nothing can be in is a slip of the pen, and only here it shows.
	k.fail(where, "%q can match no tool; their names begin with %s", glob, strings.Join(prefixes, ", "))
}

// knowGroup reports a group that does not exist. Those that a server labels its
// tools with are not known yet.
func (k *checker) knowGroup(where, name string) {
	names := []string{}
	for _, g := range k.cfg.Groups {
		names = append(names, g.Name)
	}
	for _, s := range k.cfg.Servers {
		group := groupName(s.Name)
		if names = append(names, group); slices.Contains(k.cfg.Labels, s.Name) && strings.HasPrefix(name, group+".") {
			return
		}
	}
	if !slices.Contains(names, name) {
		k.fail(where, "there is no group %q%s; the groups are %s", name, meant(name, names), strings.Join(names, ", "))
	}
}

// meant asks whether one of the names was meant, if one is like it.
func meant(name string, names []string) string {
	if like := near.Names(name, names, 1); len(like) > 0 {
		return fmt.Sprintf(" (did you mean %q?)", like[0])
	}
	return ""
}
