package mcpgateway

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/internal/mcpgroups"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// toolkitConfig returns the toolkit's configuration for a style, and the names that [mcpgroups.Build] gives to each
// server's own groups.
func (gen *generation) toolkitConfig(st Style) (cfg toolkit.Config, groupNames []map[string]string) {
	cfg = toolkit.Config{Control: st.control(), Initial: gen.cfg.Initial}
	if gen.cfg.Search {
		cfg.Control = cfg.Control.WithSearch()
	}
	if st == StyleFull { // lists all tools; groups are not opened
		cfg.LabelsOnly, cfg.Initial = true, nil
	}
	var groups []mcpgroups.Group
	for _, group := range gen.cfg.Groups {
		groups = append(groups, mcpgroups.Group(group))
	}
	policies := []*permission.Policy{gen.cfg.Serve.Policy}
	for _, a := range gen.cfg.access() {
		if a.policy != nil {
			policies = append(policies, a.policy)
		}
	}
	var servers []*mcpgroups.Server
	for _, u := range gen.upstreams {
		s := u.describe()
		s.Denied = mcpgroups.DeniedBy(policies...)
		servers = append(servers, s)
	}
	cfg.Groups, groupNames = mcpgroups.Build(groups, servers)
	return cfg, groupNames
}

// setGroupNames stores the names of the servers' own groups, which are the same in all styles.
func (gen *generation) setGroupNames(groupNames []map[string]string) {
	for i, u := range gen.upstreams {
		u.mu.Lock()
		u.groupNames = groupNames[i]
		u.mu.Unlock()
	}
}

// describe describes the server for [mcpgroups.Build].
func (u *upstream) describe() *mcpgroups.Server {
	st := u.client.Status()
	s := &mcpgroups.Server{Name: u.name, Shown: clean(u.name, maxLine), Group: u.group, Prefix: u.prefix,
		Items: st.PromptsVersion+st.ResourcesVersion > 0, Known: u.cache.Tools(), Skills: serverSkills{u}}
	members := map[string][]string{}
	for _, l := range u.currentLabels() {
		members[l.Name] = l.Members()
		if l.Name == u.name { // the tools that have no label
			s.Rest = true
			continue
		}
		s.Labels = append(s.Labels, mcpgroups.Label{Name: l.Name, Title: clean(l.Title, maxLine), Description: clean(l.Description, maxLine), Parents: l.Parents})
	}
	s.Source = func(p mcpgroups.Part) tool.Source {
		if p.Label == "" && p.Others == nil { // all tools of the server
			return &source{u, p, p.Keep}
		}
		label := cmp.Or(p.Label, u.name)
		return &source{u, p, func(name string) bool { return slices.Contains(members[label], name) && p.Keep(name) }}
	}
	return s
}

// refreshLabels requests the groups of the servers that label their tools, in parallel. A
// server that fails keeps its last groups; calls of its tools report the failure.
func (gen *generation) refreshLabels(ctx context.Context) {
	var wg sync.WaitGroup
	for _, u := range gen.upstreams {
		if u.labeled {
			wg.Go(func() { _ = u.refreshLabels(ctx) })
		}
	}
	wg.Wait()
}

// signal puts an element into a channel of size one, unless it is full.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// itemsDelay is how long watchServers waits after the last signal of Gateway.moreItems before it notifies the clients: one
// call may start many servers, and first notifies its own session.
const itemsDelay = 200 * time.Millisecond

// watchServers computes the groups again when servers change their labels, and notifies the clients when servers are first
// known to have prompts or resources.
func (g *Gateway) watchServers() {
	var delayOver <-chan time.Time
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-g.moreItems:
			delayOver = time.After(itemsDelay)
		case <-delayOver:
			g.itemsChanged()
		case <-g.regroup:
			if err := g.updateGroups(); err != nil { // Config.Initial may name a group that a server no longer has
				slog.Warn("the gateway keeps its groups because a server's new groups do not fit the configuration", "err", err)
			}
		}
	}
}

// updateGroups computes the groups from the servers' labels.
func (g *Gateway) updateGroups() error {
	g.replacing.Lock()
	defer g.replacing.Unlock()
	gen := g.current.Load()
	gen.refreshLabels(g.ctx)
	return g.replaceGroups(gen)
}

// replaceGroups makes the groups of gen those of the toolkit. The caller holds g.replacing.
func (g *Gateway) replaceGroups(gen *generation) error {
	next, groupNames := gen.toolkitConfig(gen.cfg.Style)
	err := g.Toolkit.Update(func(cfg *toolkit.Config) error {
		cfg.Groups, cfg.Initial = next.Groups, next.Initial
		return nil
	})
	if err == nil {
		gen.setGroupNames(groupNames)
	}
	return err
}

// groupsOf returns the groups of a prompt or resource: the groups of the configuration whose globs match its
// name, otherwise the groups of its labels, otherwise the group for items without labels.
func (g *Gateway) groupsOf(u *upstream, name string, labels []string) (groups []string) {
	for _, group := range g.current.Load().cfg.Groups {
		if mcpgroups.Matches(group.Tools, u.prefix+mcpgroups.Legal(name)) {
			groups = append(groups, group.Name)
		}
	}
	if len(groups) > 0 {
		return groups
	}
	own := u.ownGroupNames()
	for _, label := range labels {
		if name, ok := own[u.name+"/"+label]; ok {
			groups = append(groups, name)
		}
	}
	if rest, ok := own[u.name]; ok && len(groups) == 0 {
		groups = append(groups, rest)
	}
	return groups
}

// groupsOfServer returns all groups that a server's prompts and resources can be in, in any order.
func (g *Gateway) groupsOfServer(u *upstream) (groups []string) {
	for _, group := range g.current.Load().cfg.Groups {
		if slices.ContainsFunc(group.Tools, func(glob string) bool { return mcpgroups.MayMatch(glob, u.prefix) }) {
			groups = append(groups, group.Name)
		}
	}
	return slices.AppendSeq(groups, maps.Values(u.ownGroupNames()))
}

// ownGroupNames returns the gateway's names of the server's own groups. The keys are the names in [mcpclient.Group].
func (u *upstream) ownGroupNames() map[string]string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.groupNames
}
