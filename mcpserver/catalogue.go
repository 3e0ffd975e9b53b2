package mcpserver

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/internal/policycheck"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A catalogue has the configured items that a server serves, and its limits. Only static and reloaded change.
type catalogue struct {
	cfg       Config
	auth      []Authenticator // tried in this order until one succeeds; none if clients need no credential
	limits    Limits
	static    *staticLists
	reloaded  atomic.Pointer[reloaded] // nil before the first Reload
	resources []*resource
	completes bool // whether any argument can be completed
}

// newCatalogue checks the configuration and fills in its defaults.
func newCatalogue(cfg Config) (*catalogue, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Credentials = slices.Clone(cfg.Credentials)
	if cfg.Policy == nil {
		cfg.Policy = &permission.Policy{}
	}
	if cfg.MaxInstructions == 0 {
		cfg.MaxInstructions = 16 << 10
	}
	cat := &catalogue{cfg: cfg, limits: cfg.Limits.withDefaults(cfg.identities())}
	if len(cfg.Credentials) > 0 {
		cat.auth = append(cat.auth, tokens(cfg.Credentials))
	}
	if cfg.Authenticator != nil {
		cat.auth = append(cat.auth, cfg.Authenticator)
	}
	var err error
	if cat.static, err = newStaticLists(cfg.Toolkit, cfg.MaxListBytes); err != nil {
		return nil, fmt.Errorf("the list for clients without sessions: %w", err)
	}
	return cat, errors.Join(cat.addItems(), cat.checkPolicies(cfg.Policy))
}

// reloaded has the arguments of the last [Server.Reload].
type reloaded struct {
	policy   *permission.Policy
	revision string
}

// policy returns the policy for clients whose credential has none.
func (cat *catalogue) policy() *permission.Policy {
	if r := cat.reloaded.Load(); r != nil {
		return r.policy
	}
	return cat.cfg.Policy
}

// Reload replaces the policy for clients whose credential has none, including clients with open sessions, and sets the
// revision in the _meta of groups/list. If Reload returns an error, nothing changes.
func (s *Server) Reload(policy *permission.Policy, revision string) error {
	if policy == nil {
		policy = &permission.Policy{}
	}
	if err := s.cat.checkPolicies(policy); err != nil {
		return err
	}
	s.cat.reloaded.Store(&reloaded{policy, revision})
	return nil
}

// addItems checks the configured prompts and resources, and sets the catalogue's fields for them.
func (cat *catalogue) addItems() error {
	cat.cfg.Prompts = slices.Clone(cat.cfg.Prompts)
	canComplete := func(a Argument) bool { return a.Complete != nil }
	_, cat.completes = cat.cfg.upstream.(mcpupstream.Completer)
	for i := range cat.cfg.Prompts {
		p := &cat.cfg.Prompts[i]
		if err := p.check(); err != nil {
			return err
		}
		if slices.ContainsFunc(cat.cfg.Prompts[:i], func(o Prompt) bool { return o.Name == p.Name }) {
			return fmt.Errorf("duplicate prompt %q; give each prompt a unique name", p.Name)
		}
		cat.completes = cat.completes || slices.ContainsFunc(p.Arguments, canComplete)
	}
	for _, o := range cat.cfg.Resources {
		r, err := newResource(o)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(cat.resources, func(o *resource) bool { return o.URI == r.URI }) {
			return fmt.Errorf("duplicate resource %q; give each resource a unique URI", r.URI)
		}
		cat.resources = append(cat.resources, r)
		cat.completes = cat.completes || slices.ContainsFunc(r.Arguments, canComplete)
	}
	return nil
}

// checkPolicies reports rules that cannot work with the registered tools. It does not contact sources.
func (cat *catalogue) checkPolicies(policy *permission.Policy) error {
	own, listed := cat.cfg.Toolkit.Registered() // the program's tools, and those of sources
	// Add the control tools of clients without sessions.
	sessionless, _ := cat.static.current.Load().fallback.Registered()
	for _, t := range sessionless {
		if !slices.ContainsFunc(own, func(o tool.Tool) bool { return o.Info().Name == t.Info().Name }) {
			own = append(own, t)
		}
	}
	errs := []error{policycheck.Check(policy, own, listed, skillTool)}
	for _, c := range cat.cfg.Credentials {
		if c.Policy == nil {
			continue
		}
		if err := policycheck.Check(c.Policy, own, listed, skillTool); err != nil {
			errs = append(errs, fmt.Errorf("the policy of credential %q: %w", c.Name, err))
		}
	}
	return errors.Join(errs...)
}

// visible returns which prompts and resources a client with this scope sees.
func (cat *catalogue) visible(tk *toolkit.Toolkit, scope *toolkit.Scope) visibleItems {
	reachable := tk.Reachable(scope)
	visibility := func(n int, groups func(i int) []string) string {
		all := make([]byte, n)
		for i := range all {
			if isVisible(reachable, groups(i)) {
				all[i] = 1
			}
		}
		return string(all)
	}
	seen := visibleItems{
		visibility(len(cat.cfg.Prompts), func(i int) []string { return cat.cfg.Prompts[i].Groups }),
		visibility(len(cat.resources), func(i int) []string { return cat.resources[i].Groups }),
	}
	if provider := cat.cfg.upstream; provider != nil {
		seen.Prompts += provider.Version(mcpupstream.KindPrompt, reachable)
		seen.Resources += provider.Version(mcpupstream.KindResource, reachable)
	}
	return seen
}

// hasPrompts reports whether any client can have prompts.
func (cat *catalogue) hasPrompts() bool { return len(cat.cfg.Prompts) > 0 || cat.cfg.upstream != nil }

// hasResources reports whether any client can have resources.
func (cat *catalogue) hasResources() bool { return cat.hasOwnResources() || cat.cfg.upstream != nil }

// hasOwnResources reports whether there are configured resources or skills, which are resources too.
func (cat *catalogue) hasOwnResources() bool { return len(cat.resources) > 0 || cat.hasSkills() }

// hasSubscriptions reports whether clients can subscribe to a resource.
func (cat *catalogue) hasSubscriptions() bool {
	_, watches := cat.cfg.upstream.(mcpupstream.Watcher)
	return watches || cat.hasOwnResources()
}

// hasSkills reports whether any group has skills.
func (cat *catalogue) hasSkills() bool {
	cfg := cat.cfg.Toolkit.Config()
	return len(cfg.Basic.Skills) > 0 || slices.ContainsFunc(cfg.Groups, func(g toolkit.Group) bool { return len(g.Skills) > 0 })
}
