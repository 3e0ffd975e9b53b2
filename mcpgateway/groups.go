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

// matches reports whether one of the globs, which are valid, covers the name.
func matches(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { ok, _ := path.Match(g, name); return ok })
}

// mayMatch reports whether a glob can cover a name that begins with the prefix:
// whether what it demands at the beginning and the prefix go together.
func mayMatch(glob, prefix string) bool {
	head := glob
	if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
		head = glob[:i]
	}
	return strings.HasPrefix(prefix, head) || strings.HasPrefix(head, prefix)
}

// claimed reports whether a group of the configuration has the tool. Then it is not
// in its server's group as well: opening that would bring it in by the back door of
// a ceiling or a quota that was meant for the other.
func (g *Gateway) claimed(name string) bool {
	return slices.ContainsFunc(g.cfg.Groups, func(gr Group) bool { return matches(gr.Tools, name) })
}

// config makes the toolkit's configuration in a style.
func (g *Gateway) config(st Style) toolkit.Config {
	cfg := toolkit.Config{Control: st.control(), Initial: g.cfg.Initial}
	if st == Full { // groups are labels there, which nothing opens
		cfg.LabelsOnly, cfg.Initial = true, nil
	}
	described := map[string]Group{}
	for _, gr := range g.cfg.Groups {
		if len(gr.Tools) == 0 {
			described[gr.Name] = gr
			continue
		}
		cfg.Groups = append(cfg.Groups, g.configured(gr))
	}
	taken := g.ownerNames()
	for _, u := range g.upstreams {
		if slices.ContainsFunc(g.cfg.Groups, func(gr Group) bool { return slices.Contains(gr.Tools, u.prefix+"*") }) {
			u.setOwn(nil)
			continue // nothing is left of it, and an empty group would cost room
		}
		cfg.Groups = append(cfg.Groups, g.own(u, described[u.group], taken)...)
	}
	return cfg
}

// ownerNames are the names of groups that the owner of the gateway has given. No
// server can have them for a group of its own: a ceiling that grants one would
// grant what the server puts into it.
func (g *Gateway) ownerNames() map[string]bool {
	names := map[string]bool{}
	for _, gr := range g.cfg.Groups {
		names[gr.Name] = true
	}
	for _, u := range g.upstreams {
		names[u.group] = true
	}
	return names
}

// configured makes a group of the configuration, with the servers that its globs
// can match.
func (g *Gateway) configured(gr Group) toolkit.Group {
	out := toolkit.Group{Name: gr.Name, Description: gr.Description, Instructions: gr.Instructions, Parents: gr.Parents}
	for _, u := range g.upstreams {
		if slices.ContainsFunc(gr.Tools, func(glob string) bool { return mayMatch(glob, u.prefix) }) {
			out.Sources = append(out.Sources, &source{u, func(name string) bool { return matches(gr.Tools, name) }, gr.Instructions != ""})
		}
	}
	return out
}

// own makes the groups of a server's tools that no group of the configuration has:
// those that it labels them with, or one. Names that are taken get another one.
func (g *Gateway) own(u *upstream, described Group, taken map[string]bool) []toolkit.Group {
	rest := toolkit.Group{Name: u.group, Description: described.Description, Instructions: described.Instructions, Parents: described.Parents}
	if rest.Description == "" {
		rest.Description = fmt.Sprintf("The tools of the MCP server %q.", clean(u.name, maxLine))
	}
	labels := u.told()
	if len(labels) == 0 {
		rest.Sources = []tool.Source{&source{u, func(name string) bool { return !g.claimed(name) }, rest.Instructions != ""}}
		u.setOwn(map[string]string{u.name: rest.Name})
		return []toolkit.Group{rest}
	}
	own := u.nameGroups(labels, taken)
	var out []toolkit.Group
	for _, l := range labels {
		members := l.Members()
		keep := func(name string) bool { return slices.Contains(members, name) && !g.claimed(name) }
		gr := rest // what it puts into no group
		if l.Name != u.name {
			gr = labeled(l, own)
		}
		gr.Sources = []tool.Source{&source{u, keep, gr.Instructions != ""}}
		out = append(out, gr)
	}
	if st := u.client.Status(); own[u.name] == "" && st.PromptsVersion+st.ResourcesVersion > 0 {
		own[u.name] = rest.Name
		rest.Description = fmt.Sprintf("Prompts and resources of the MCP server %q.", clean(u.name, maxLine))
		out = append(out, rest)
	}
	u.setOwn(own)
	return toolkit.Import(out) // which puts right what MCP allows and a toolkit does not
}

// nameGroups names the groups that a server labels its tools with, by its names for them:
// they begin with the server's, so that people see whose they are.
func (u *upstream) nameGroups(labels []mcpclient.Group, taken map[string]bool) map[string]string {
	own := map[string]string{}
	for _, l := range labels {
		if l.Name == u.name {
			own[l.Name] = u.group
			continue
		}
		name := u.group + "." + groupName(strings.TrimPrefix(l.Name, u.name+"/"))
		for taken[name] {
			name += "_"
		}
		taken[name], own[l.Name] = true, name
	}
	return own
}

// labeled describes a group as its server does.
func labeled(l mcpclient.Group, own map[string]string) toolkit.Group {
	gr := toolkit.Group{Name: own[l.Name], Title: clean(l.Title, maxLine), Description: clean(l.Description, maxLine)}
	for _, p := range l.Parents {
		if name, ok := own[p]; ok {
			gr.Parents = append(gr.Parents, name)
		}
	}
	return gr
}

// askLabels asks the servers that label their tools for their groups, side by
// side. One that fails keeps the groups it told of before: that it fails is for the
// calls of its tools to say.
func (g *Gateway) askLabels(ctx context.Context) {
	var wg sync.WaitGroup
	for _, u := range g.upstreams {
		if u.labeled {
			wg.Go(func() { _ = u.ask(ctx) })
		}
	}
	wg.Wait()
}

// lookAgain has follow make the groups anew.
func (g *Gateway) lookAgain() {
	select {
	case g.regroup <- struct{}{}:
	default:
	}
}

// knowMore has follow tell of prompts and resources that more servers have.
func (g *Gateway) knowMore() {
	select {
	case g.known <- struct{}{}:
	default:
	}
}

// settle is how long servers that become known are collected, until the call that has
// started them has told its own session.
const settle = 200 * time.Millisecond

// follow makes the groups anew when servers label their tools anew, or for the first time,
// and tells of what they have besides.
func (g *Gateway) follow() {
	var settled <-chan time.Time
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-g.known:
			settled = time.After(settle)
			continue
		case <-settled:
			g.Server.OffersChanged()
			continue
		case <-g.regroup:
		}
		g.askLabels(g.ctx)
		err := g.Toolkit.Update(func(cfg *toolkit.Config) error {
			cfg.Groups = g.config(g.cfg.Style).Groups
			return nil
		})
		if err != nil { // Config.Initial may name a group that a server no longer has
			slog.Warn("the groups of the gateway stay what they were: a server's new ones do not fit the configuration", "err", err)
		}
	}
}

// setOwn notes the server's own groups. They are the same in all styles.
func (u *upstream) setOwn(own map[string]string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.own = own
}
