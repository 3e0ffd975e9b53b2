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
	auth      []Authenticator // in this order; none if clients need no credential
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
	s := &catalogue{cfg: cfg, limits: cfg.Limits.withDefaults(cfg.identities())}
	if len(cfg.Credentials) > 0 {
		s.auth = append(s.auth, tokens(cfg.Credentials))
	}
	if cfg.Authenticator != nil {
		s.auth = append(s.auth, cfg.Authenticator)
	}
	var err error
	if s.static, err = newStaticLists(cfg.Toolkit, cfg.MaxListBytes); err != nil {
		return nil, fmt.Errorf("the list for clients without sessions: %w", err)
	}
	return s, errors.Join(s.checkItems(), s.checkPolicies(cfg.Policy))
}

// reloaded has the arguments of the last [Server.Reload].
type reloaded struct {
	policy   *permission.Policy
	revision string
}

// policy returns the policy for clients whose credential has none.
func (s *catalogue) policy() *permission.Policy {
	if r := s.reloaded.Load(); r != nil {
		return r.policy
	}
	return s.cfg.Policy
}

// Reload replaces the policy for clients whose credential has none, also for sessions that exist, and sets the
// revision in the _meta of groups/list. If there is an error nothing changes.
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

// checkItems checks the prompts and resources.
func (s *catalogue) checkItems() error {
	s.cfg.Prompts = slices.Clone(s.cfg.Prompts)
	completes := func(a Argument) bool { return a.Complete != nil }
	_, s.completes = s.cfg.upstream.(mcpupstream.Completer)
	for i := range s.cfg.Prompts {
		p := &s.cfg.Prompts[i]
		if err := p.check(); err != nil {
			return err
		}
		if slices.ContainsFunc(s.cfg.Prompts[:i], func(o Prompt) bool { return o.Name == p.Name }) {
			return fmt.Errorf("duplicate prompt %q; give each prompt a unique name", p.Name)
		}
		s.completes = s.completes || slices.ContainsFunc(p.Arguments, completes)
	}
	for _, o := range s.cfg.Resources {
		r, err := newResource(o)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(s.resources, func(o *resource) bool { return o.URI == r.URI }) {
			return fmt.Errorf("duplicate resource %q; give each resource a unique URI", r.URI)
		}
		s.resources = append(s.resources, r)
		s.completes = s.completes || slices.ContainsFunc(r.Arguments, completes)
	}
	return nil
}

// checkPolicies reports rules that cannot work with the registered tools. It does not contact sources.
func (s *catalogue) checkPolicies(policy *permission.Policy) error {
	own, listed := s.cfg.Toolkit.Registered()
	// A rule may also be for a control tool of the list for clients without sessions.
	short, _ := s.static.current.Load().short.Registered()
	for _, t := range short {
		name := t.Info().Name
		if !slices.ContainsFunc(own, func(o tool.Tool) bool { return o.Info().Name == name }) {
			own = append(own, t)
		}
	}
	errs := []error{policycheck.Check(policy, own, listed, skillTool)}
	for _, c := range s.cfg.Credentials {
		if c.Policy == nil {
			continue
		}
		if err := policycheck.Check(c.Policy, own, listed, skillTool); err != nil {
			errs = append(errs, fmt.Errorf("the policy of credential %q: %w", c.Name, err))
		}
	}
	return errors.Join(errs...)
}

// visible returns what a client with this scope sees.
func (s *catalogue) visible(tk *toolkit.Toolkit, scope *toolkit.Scope) visibleItems {
	reachable := tk.Reachable(scope)
	shown := func(n int, groups func(i int) []string) string {
		all := make([]byte, n)
		for i := range all {
			if shows(reachable, groups(i)) {
				all[i] = 1
			}
		}
		return string(all)
	}
	seen := visibleItems{
		shown(len(s.cfg.Prompts), func(i int) []string { return s.cfg.Prompts[i].Groups }),
		shown(len(s.resources), func(i int) []string { return s.resources[i].Groups }),
	}
	if o := s.cfg.upstream; o != nil {
		seen.Prompts += o.Version(mcpupstream.KindPrompt, reachable)
		seen.Resources += o.Version(mcpupstream.KindResource, reachable)
	}
	return seen
}

// hasPrompts reports whether any client can have prompts.
func (s *catalogue) hasPrompts() bool {
	return len(s.cfg.Prompts) > 0 || s.cfg.upstream != nil
}

// hasResources reports whether any client can have resources.
func (s *catalogue) hasResources() bool { return s.ownResources() || s.cfg.upstream != nil }

// ownResources reports whether there are resources other than those of upstream servers.
func (s *catalogue) ownResources() bool { return len(s.resources) > 0 || s.hasSkills() }

// hasSubscriptions reports whether clients can subscribe to a resource.
func (s *catalogue) hasSubscriptions() bool {
	_, watches := s.cfg.upstream.(mcpupstream.Watcher)
	return watches || s.ownResources()
}

// hasSkills reports whether any group has skills.
func (s *catalogue) hasSkills() bool {
	cfg := s.cfg.Toolkit.Config()
	return len(cfg.Basic.Skills) > 0 || slices.ContainsFunc(cfg.Groups, func(g toolkit.Group) bool { return len(g.Skills) > 0 })
}
