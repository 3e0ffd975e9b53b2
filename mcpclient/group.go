package mcpclient

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/internal/mcpcontent"
	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/tool"
)

// A Group is a group of a server's tools. It is a [tool.Source] of its current members.
type Group struct {
	Name        string   // "server/group", or the server's name for the tools in no group
	Title       string   // may be empty
	Description string   // may be empty
	Parents     []string // names of the groups that contain this one

	cat     *catalogue
	key     string   // the server's name of the group; "" for the tools in no group
	members []string // names of the tools, sorted
}

// Members returns the names of the group's tools, sorted.
func (g Group) Members() []string { return slices.Clone(g.members) }

// Tools returns the current tools of the group.
func (g Group) Tools(ctx context.Context) ([]tool.Tool, error) {
	s, err := g.cat.current(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(s.groups, func(o Group) bool { return o.key == g.key })
	if i < 0 {
		return nil, nil // the server no longer has the group
	}
	var out []tool.Tool
	for _, t := range s.tools {
		if _, isMember := slices.BinarySearch(s.groups[i].members, t.Info().Name); isMember {
			out = append(out, t)
		}
	}
	return out, nil
}

// groupsTimeout is how long groups/list may take.
const groupsTimeout = 5 * time.Second

// listGroups requests the groups if the server declares them, as a capability or as an extension. Its timeout is short,
// because the tools can be used without groups.
func (c *conn) listGroups(ctx context.Context) ([]json.RawMessage, error) {
	if !c.server.declares("groups") && !c.server.declares(mcpcontent.GroupsKey) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, groupsTimeout, fmt.Errorf("%w: not answered in %v", ErrTimeout, groupsTimeout))
	defer cancel()
	items, _, _, err := c.listAll(ctx, "groups/list")
	if hasCode(err, codeMethodNotFound) {
		return nil, nil
	}
	return items, err
}

// decodeGroup reads an entry of groups/list.
func decodeGroup(raw json.RawMessage) (entry listEntry, ok bool) {
	err := strictjson.Unmarshal(raw, &entry)
	return entry, err == nil && validGroup(entry.Name)
}

func validGroup(name string) bool {
	return name != "" && len(name) <= maxNameBytes && visible.Text(name) == name
}

// buildGroups joins groups/list with the group labels of the tools. A tool without a label is in the group named after
// the server. A group without tools is left out; the groups in it move to its parents. text has the titles and
// descriptions of the groups, as Options.Pins allows them; if it is nil, groups have none.
func buildGroups(cat *catalogue, tools []*remoteTool, entries []json.RawMessage, text *serverText) []Group {
	server := cat.cfg.name
	byKey, parents := map[string]*Group{}, map[string][]string{}
	addOnce := func(key string) *Group {
		g := byKey[key]
		if g == nil {
			g = &Group{Name: server + "/" + key, cat: cat, key: key}
			if key == "" {
				g.Name = server
			}
			byKey[key] = g
		}
		return g
	}
	for _, raw := range entries {
		entry, ok := decodeGroup(raw)
		if !ok {
			continue
		}
		g := addOnce(entry.Name)
		if text != nil {
			g.Title, g.Description = text.Groups[entry.Name].Title, text.Groups[entry.Name].Description
		}
		parents[entry.Name] = entry.groups()
	}
	for _, t := range tools {
		keys := t.groups
		if len(keys) == 0 {
			keys = []string{""}
		}
		for _, key := range keys {
			g := addOnce(key)
			g.members = append(g.members, t.info.Name)
		}
	}
	out := make([]Group, 0, len(byKey))
	for _, g := range byKey {
		if len(g.members) == 0 {
			continue
		}
		slices.Sort(g.members)
		g.members = slices.Compact(g.members)
		g.Parents = parentsOf(g.key, byKey, parents)
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Group) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// parentsOf returns the names of the nearest groups with tools that contain the group.
func parentsOf(key string, byKey map[string]*Group, parents map[string][]string) (names []string) {
	seen := map[string]bool{key: true}
	var visit func(key string)
	visit = func(key string) {
		for _, p := range parents[key] {
			if seen[p] {
				continue
			}
			seen[p] = true
			if g := byKey[p]; g != nil && len(g.members) > 0 {
				names = append(names, g.Name)
				continue
			}
			visit(p)
		}
	}
	visit(key)
	slices.Sort(names)
	return names
}
