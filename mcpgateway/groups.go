package mcpgateway

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/internal/mcpgroups"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// config returns the toolkit's configuration for a style, and the names of the servers' own groups, by server.
func (l *live) config(st Style) (toolkit.Config, []map[string]string) {
	cfg := toolkit.Config{Control: st.control(), Initial: l.cfg.Initial}
	if l.cfg.Search {
		cfg.Control = cfg.Control.WithSearch()
	}
	if st == StyleFull { // groups are only labels
		cfg.LabelsOnly, cfg.Initial = true, nil
	}
	var groups []mcpgroups.Group
	for _, gr := range l.cfg.Groups {
		groups = append(groups, mcpgroups.Group(gr))
	}
	policies := []*permission.Policy{l.cfg.Serve.Policy}
	for _, a := range l.cfg.access() {
		if a.policy != nil {
			policies = append(policies, a.policy)
		}
	}
	var servers []*mcpgroups.Server
	for _, u := range l.upstreams {
		s := u.forGroups()
		s.Denied = mcpgroups.DeniedBy(policies...)
		servers = append(servers, s)
	}
	var own []map[string]string
	cfg.Groups, own = mcpgroups.Build(groups, servers)
	return cfg, own
}

// setGroupNames stores the names of the servers' own groups. They are the same in all styles.
func (l *live) setGroupNames(own []map[string]string) {
	for i, u := range l.upstreams {
		u.mu.Lock()
		u.groupNames = own[i]
		u.mu.Unlock()
	}
}

// forGroups returns what the groups of the server are made from.
func (u *upstream) forGroups() *mcpgroups.Server {
	st := u.client.Status()
	s := &mcpgroups.Server{Name: u.name, Shown: clean(u.name, maxLine), Group: u.group, Prefix: u.prefix,
		Items: st.PromptsVersion+st.ResourcesVersion > 0, Known: u.cache.Tools(), Skills: serverSkills{u}}
	members := map[string][]string{}
	for _, l := range u.currentLabels() {
		members[l.Name] = l.Members()
		if l.Name == u.name {
			s.Rest = true
			continue
		}
		s.Labels = append(s.Labels, mcpgroups.Label{Name: l.Name, Title: clean(l.Title, maxLine), Description: clean(l.Description, maxLine), Parents: l.Parents})
	}
	s.Source = func(p mcpgroups.Part) tool.Source {
		if p.Label == "" && p.Others == nil { // all tools of the server
			return &source{u, p, p.Keep}
		}
		label := p.Label
		if label == "" {
			label = u.name
		}
		return &source{u, p, func(name string) bool { return slices.Contains(members[label], name) && p.Keep(name) }}
	}
	return s
}

// refreshLabels requests the groups of the servers that label their tools, in parallel. A
// server that fails keeps its last groups; calls of its tools report the failure.
func (l *live) refreshLabels(ctx context.Context) {
	var wg sync.WaitGroup
	for _, u := range l.upstreams {
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

// itemsDelay is how long signals of Gateway.moreItems are collected, until the call that has started the servers has notified
// its own session.
const itemsDelay = 200 * time.Millisecond

// watchServers computes the groups again when servers change their labels, and announces their prompts and resources.
func (g *Gateway) watchServers() {
	var settled <-chan time.Time
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-g.moreItems:
			settled = time.After(itemsDelay)
			continue
		case <-settled:
			g.itemsChanged()
			continue
		case <-g.regroup:
		}
		if err := g.updateGroups(); err != nil { // Config.Initial may name a group that a server no longer has
			slog.Warn("the gateway keeps its groups because a server's new groups do not fit the configuration", "err", err)
		}
	}
}

// updateGroups computes the groups from the servers' labels.
func (g *Gateway) updateGroups() error {
	g.changing.Lock()
	defer g.changing.Unlock()
	l := g.live.Load()
	l.refreshLabels(g.ctx)
	return g.replaceGroups(l)
}

// replaceGroups makes the groups those of l. The caller holds g.changing.
func (g *Gateway) replaceGroups(l *live) error {
	next, own := l.config(l.cfg.Style)
	err := g.Toolkit.Update(func(cfg *toolkit.Config) error {
		cfg.Groups, cfg.Initial = next.Groups, next.Initial
		return nil
	})
	if err == nil {
		l.setGroupNames(own)
	}
	return err
}

// groupsOf returns the groups of a prompt or resource: the groups of the configuration whose globs match its
// name, otherwise the groups of its labels, otherwise the group for items without labels.
func (g *Gateway) groupsOf(u *upstream, name string, labels []string) (groups []string) {
	for _, gr := range g.live.Load().cfg.Groups {
		if mcpgroups.Matches(gr.Tools, u.prefix+toolName(name)) {
			groups = append(groups, gr.Name)
		}
	}
	if len(groups) > 0 {
		return groups
	}
	own := u.ownGroupNames()
	for _, l := range labels {
		if group, ok := own[u.name+"/"+l]; ok {
			groups = append(groups, group)
		}
	}
	if rest, ok := own[u.name]; ok && len(groups) == 0 {
		groups = append(groups, rest)
	}
	return groups
}

// groupsOfServer returns all groups that a server's prompts and resources can be in.
func (g *Gateway) groupsOfServer(u *upstream) (groups []string) {
	for _, gr := range g.live.Load().cfg.Groups {
		if slices.ContainsFunc(gr.Tools, func(glob string) bool { return mcpgroups.MayMatch(glob, u.prefix) }) {
			groups = append(groups, gr.Name)
		}
	}
	for _, group := range u.ownGroupNames() {
		groups = append(groups, group)
	}
	return groups
}

// ownGroupNames returns the names of the server's own groups; the keys are the server's names for them, see
// [mcpclient.Group].
func (u *upstream) ownGroupNames() map[string]string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.groupNames
}
