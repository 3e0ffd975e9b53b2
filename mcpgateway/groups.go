package mcpgateway

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// matches reports whether one of the globs, which must be valid, matches the name.
func matches(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { ok, _ := path.Match(g, name); return ok })
}

// mayMatch reports whether a glob can match a name with the prefix.
func mayMatch(glob, prefix string) bool {
	head := glob
	if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
		head = glob[:i]
	}
	return strings.HasPrefix(prefix, head) || strings.HasPrefix(head, prefix)
}

// inConfiguredGroup reports whether a group of the configuration contains the tool. Then its server's group
// does not contain it: opening the server's group would circumvent a ceiling or a quota of the configured
// group.
func (g *Gateway) inConfiguredGroup(name string) bool {
	return slices.ContainsFunc(g.cfg.Groups, func(gr Group) bool { return matches(gr.Tools, name) })
}

// config returns the toolkit's configuration for a style.
func (g *Gateway) config(st Style) toolkit.Config {
	cfg := toolkit.Config{Control: st.control(), Initial: g.cfg.Initial}
	if st == StyleFull { // groups are only labels
		cfg.LabelsOnly, cfg.Initial = true, nil
	}
	described := map[string]Group{}
	for _, gr := range g.cfg.Groups {
		if len(gr.Tools) == 0 {
			described[gr.Name] = gr
			continue
		}
		cfg.Groups = append(cfg.Groups, g.configuredGroup(gr))
	}
	used := g.reservedNames()
	for _, u := range g.upstreams {
		if slices.ContainsFunc(g.cfg.Groups, func(gr Group) bool { return slices.Contains(gr.Tools, u.prefix+"*") }) {
			u.setGroupNames(nil)
			continue // an empty group would cost tokens
		}
		cfg.Groups = append(cfg.Groups, g.serverGroups(u, described[u.group], used)...)
	}
	return cfg
}

// reservedNames returns the names of groups in the configuration, and of the servers' groups. A label of a
// server cannot become one of these names, because a ceiling with that group would then grant everything that
// the server puts into it.
func (g *Gateway) reservedNames() map[string]bool {
	names := map[string]bool{}
	for _, gr := range g.cfg.Groups {
		names[gr.Name] = true
	}
	for _, u := range g.upstreams {
		names[u.group] = true
	}
	return names
}

// configuredGroup returns a group of the configuration. Its sources are the servers that its globs can match.
func (g *Gateway) configuredGroup(gr Group) toolkit.Group {
	out := toolkit.Group{Name: gr.Name, Description: gr.Description, Instructions: gr.Instructions, Parents: gr.Parents}
	for _, u := range g.upstreams {
		if slices.ContainsFunc(gr.Tools, func(glob string) bool { return mayMatch(glob, u.prefix) }) {
			out.Sources = append(out.Sources, &source{u, func(name string) bool { return matches(gr.Tools, name) }, gr.Instructions != ""})
		}
	}
	return out
}

// serverGroups returns the groups for the tools of a server that are in no group of the configuration: the
// groups of its labels, or a single one. A name in used is changed until it is unique.
func (g *Gateway) serverGroups(u *upstream, described Group, used map[string]bool) []toolkit.Group {
	rest := toolkit.Group{Name: u.group, Description: described.Description, Instructions: described.Instructions, Parents: described.Parents}
	if rest.Description == "" {
		rest.Description = fmt.Sprintf("The tools of the MCP server %q.", clean(u.name, maxLine))
	}
	labels := u.currentLabels()
	if len(labels) == 0 {
		rest.Sources = []tool.Source{&source{u, func(name string) bool { return !g.inConfiguredGroup(name) }, rest.Instructions != ""}}
		u.setGroupNames(map[string]string{u.name: rest.Name})
		return []toolkit.Group{rest}
	}
	own := u.nameGroups(labels, used)
	var out []toolkit.Group
	for _, l := range labels {
		members := l.Members()
		keep := func(name string) bool { return slices.Contains(members, name) && !g.inConfiguredGroup(name) }
		gr := rest // the tools without a label
		if l.Name != u.name {
			gr = labelGroup(l, own)
		}
		gr.Sources = []tool.Source{&source{u, keep, gr.Instructions != ""}}
		out = append(out, gr)
	}
	if st := u.client.Status(); own[u.name] == "" && st.PromptsVersion+st.ResourcesVersion > 0 {
		own[u.name] = rest.Name
		rest.Description = fmt.Sprintf("Prompts and resources of the MCP server %q.", clean(u.name, maxLine))
		out = append(out, rest)
	}
	u.setGroupNames(own)
	return toolkit.Import(out) // corrects groups that MCP allows and a toolkit does not
}

// nameGroups names the groups of a server's labels; the keys of the result are the server's own names. The
// names begin with the server's name, so that people see where the groups come from.
func (u *upstream) nameGroups(labels []mcpclient.Group, used map[string]bool) map[string]string {
	own := map[string]string{}
	for _, l := range labels {
		if l.Name == u.name {
			own[l.Name] = u.group
			continue
		}
		name := u.group + "." + groupName(strings.TrimPrefix(l.Name, u.name+"/"))
		for used[name] {
			name += "_"
		}
		used[name], own[l.Name] = true, name
	}
	return own
}

// labelGroup returns a group as its server describes it.
func labelGroup(l mcpclient.Group, own map[string]string) toolkit.Group {
	gr := toolkit.Group{Name: own[l.Name], Title: clean(l.Title, maxLine), Description: clean(l.Description, maxLine)}
	for _, p := range l.Parents {
		if name, ok := own[p]; ok {
			gr.Parents = append(gr.Parents, name)
		}
	}
	return gr
}

// refreshLabels requests the groups of the servers that label their tools, in parallel. A
// server that fails keeps its last groups; calls of its tools report the failure.
func (g *Gateway) refreshLabels(ctx context.Context) {
	var wg sync.WaitGroup
	for _, u := range g.upstreams {
		if u.labeled {
			wg.Go(func() { _ = u.refreshLabels(ctx) })
		}
	}
	wg.Wait()
}

// signalRegroup makes watchServers compute the groups again.
func (g *Gateway) signalRegroup() {
	select {
	case g.regroup <- struct{}{}:
	default:
	}
}

// signalItems makes watchServers announce the prompts and resources of another server.
func (g *Gateway) signalItems() {
	select {
	case g.moreItems <- struct{}{}:
	default:
	}
}

// itemsDelay is how long such signals are collected, until the call that has started the servers has notified
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
		g.refreshLabels(g.ctx)
		err := g.Toolkit.Update(func(cfg *toolkit.Config) error {
			cfg.Groups = g.config(g.cfg.Style).Groups
			return nil
		})
		if err != nil { // Config.Initial may name a group that a server no longer has
			slog.Warn("the gateway keeps its groups because a server's new groups do not fit the configuration", "err", err)
		}
	}
}

// setGroupNames stores the names of the server's own groups. They are the same in all styles.
func (u *upstream) setGroupNames(own map[string]string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.groupNames = own
}

// groupsOf returns the groups of a prompt or resource: the groups of the configuration whose globs match its
// name, otherwise the groups of its labels, otherwise the group for items without labels.
func (g *Gateway) groupsOf(u *upstream, name string, labels []string) (groups []string) {
	for _, gr := range g.cfg.Groups {
		if matches(gr.Tools, u.prefix+toolName(name)) {
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
	for _, gr := range g.cfg.Groups {
		if slices.ContainsFunc(gr.Tools, func(glob string) bool { return mayMatch(glob, u.prefix) }) {
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
