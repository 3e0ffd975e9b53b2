// Package mcpgroups makes the groups of a toolkit from MCP servers, for the gateway and for agents: those of a
// configuration, those that servers give their tools, and one for the rest of each server.
package mcpgroups

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A Group is a group of a configuration. Without globs it describes the group of the server with its name.
type Group struct {
	Name, Description string
	Tools             []string // globs over names, SERVER__TOOL
	Instructions      string   // in place of the servers' own
	Parents           []string
}

// A Server is an MCP server. Its texts must be clean; see package visible.
type Server struct {
	Name   string // as configured
	Shown  string // the name in texts
	Group  string // the name of the group for its other tools; see [GroupName]
	Prefix string // of its tools' names, as globs see them
	Strip  string // what precedes Prefix in the names that models see

	Labels []Label // its own groups
	Rest   bool    // it may have tools that are in none of Labels
	Items  bool    // it has prompts or resources, which need a group even without tools

	Known  []string               // the names of its tools in an earlier run, as models see them; nil if they are not known
	Denied func(tool string) bool // whether every call of a tool is denied, so that it is in no group; nil for none
	Source func(Part) tool.Source
	Skills skill.Loader // of all its skills, called SERVER/PATH; nil for none
}

func (s *Server) denied(name string) bool { return s.Denied != nil && s.Denied(name) }

// DeniedBy returns a function that reports whether each of the policies has a rule that denies every call of a tool. Such
// a tool is not shown to a model, since its calls would be wasted.
func DeniedBy(policies ...*permission.Policy) func(tool string) bool {
	return func(tool string) bool {
		return len(policies) > 0 && !slices.ContainsFunc(policies, func(p *permission.Policy) bool {
			return p == nil || !slices.ContainsFunc(p.Rules, func(r permission.Rule) bool {
				return r.Behavior == permission.Deny && r.Pattern == "" && r.Names(tool)
			})
		})
	}
}

// A Label is one of a server's own groups. Its name is SERVER/LABEL.
type Label struct {
	Name, Title, Description string
	Parents                  []string
}

// A Part is the part of a server that is in a group.
type Part struct {
	Label            string                 // the server's own group; empty for any
	Others           []string               // the server's own groups whose tools are not in this part
	Keep             func(tool string) bool // whether a tool may be in the part
	HideInstructions bool
	Known            []string // the names of its tools in an earlier run, nil if they are not known
}

// maxName is how many bytes of a name [GroupName] uses.
const maxName = 64

// illegalInNames matches characters that model APIs reject in the name of a tool or a field.
var illegalInNames = lazy.Regexp(`[^A-Za-z0-9_.-]`)

// Legal replaces the characters that a name must not have by underscores.
func Legal(s string) string { return illegalInNames().ReplaceAllString(s, "_") }

// GroupName converts a name that a person or a server chose to the name of a group.
func GroupName(s string) string { return Legal(s[:min(len(s), maxName)]) }

// Matches reports whether one of the globs, which must be valid, matches the name.
func Matches(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { ok, _ := path.Match(g, name); return ok })
}

// MayMatch reports whether a glob can match a name with the prefix.
func MayMatch(glob, prefix string) bool {
	head := glob
	if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
		head = glob[:i]
	}
	return strings.HasPrefix(prefix, head) || strings.HasPrefix(head, prefix)
}

// Build returns the groups in the order for the model: those of the configuration, then those of the servers. A tool in a
// group of the configuration is not in a group of its server, which would circumvent a ceiling or a quota on the group.
// names has for each server the names of its own groups by their labels, and of the group for the rest by the name of the
// server; nil for a server whose tools are all in one group of the configuration.
func Build(groups []Group, servers []*Server) (out []toolkit.Group, names []map[string]string) {
	b := builder{configured: groups, described: map[string]Group{}, used: map[string]bool{}}
	for _, g := range groups {
		b.used[g.Name] = true
		if len(g.Tools) == 0 {
			b.described[g.Name] = g
			continue
		}
		out = append(out, b.group(g, servers))
	}
	for _, s := range servers {
		b.used[s.Group] = true
	}
	for _, s := range servers {
		if slices.ContainsFunc(groups, func(g Group) bool { return g.hasAll(s) }) {
			names = append(names, nil)
			continue // an empty group would cost tokens
		}
		more, own := b.serverGroups(s)
		out, names = append(out, more...), append(names, own)
	}
	return out, names
}

// hasAll reports whether a glob of the group matches all tools of a server.
func (g Group) hasAll(s *Server) bool {
	return slices.ContainsFunc(g.Tools, func(glob string) bool {
		head, ok := strings.CutSuffix(glob, "*")
		return ok && strings.HasPrefix(s.Prefix, head)
	})
}

type builder struct {
	configured []Group
	described  map[string]Group // by the name of the server's group

	// used has the names of groups. A label must not get the name of a group of the configuration or of another server,
	// since a ceiling with that group would then grant everything that the server puts into it.
	used map[string]bool
}

// group returns a group of the configuration. Its sources are the servers that its globs can match.
func (b *builder) group(g Group, servers []*Server) toolkit.Group {
	out := toolkit.Group{Name: g.Name, Description: g.Description, Instructions: g.Instructions, Parents: g.Parents}
	for _, s := range servers {
		if slices.ContainsFunc(g.Tools, func(glob string) bool { return MayMatch(glob, s.Prefix) }) {
			keep := func(name string) bool { return !s.denied(name) && Matches(g.Tools, strings.TrimPrefix(name, s.Strip)) }
			out.Sources = append(out.Sources, s.Source(Part{Keep: keep, HideInstructions: g.Instructions != "", Known: kept(s.Known, keep)}))
			out.Skills = append(out.Skills, s.skills(func(name string) bool { return Matches(g.Tools, name) })...)
		}
	}
	return out
}

// serverGroups returns the groups for the tools of a server that are in no group of the configuration: its own
// groups and one for the rest, or a single one.
func (b *builder) serverGroups(s *Server) ([]toolkit.Group, map[string]string) {
	ungrouped := func(name string) bool {
		return !slices.ContainsFunc(b.configured, func(g Group) bool { return Matches(g.Tools, name) })
	}
	keep := func(name string) bool { return !s.denied(name) && ungrouped(strings.TrimPrefix(name, s.Strip)) }
	d := b.described[s.Group]
	rest := toolkit.Group{Name: s.Group, Description: d.Description, Instructions: d.Instructions, Parents: d.Parents, Skills: s.skills(ungrouped)}
	hide := d.Instructions != ""
	known := kept(s.Known, keep)
	if len(s.Labels) == 0 {
		if rest.Description == "" {
			rest.Description = describe(s, known)
		}
		rest.Sources = []tool.Source{s.Source(Part{Keep: keep, HideInstructions: hide, Known: known})}
		return []toolkit.Group{rest}, map[string]string{s.Name: rest.Name}
	}
	own := b.nameLabels(s)
	var out []toolkit.Group
	var labels []string
	for _, l := range s.Labels {
		g := toolkit.Group{Name: own[l.Name], Title: l.Title, Description: l.Description,
			Sources: []tool.Source{s.Source(Part{Label: l.Name, Keep: keep})}}
		for _, p := range l.Parents {
			if name, ok := own[p]; ok {
				g.Parents = append(g.Parents, name)
			}
		}
		labels, out = append(labels, l.Name), append(out, g)
	}
	if s.Rest || s.Items {
		own[s.Name] = rest.Name
		switch {
		case rest.Description != "":
		case !s.Rest:
			rest.Description = fmt.Sprintf("Prompts and resources of the MCP server %q.", s.Shown)
		default:
			rest.Description = fmt.Sprintf("The tools of the MCP server %q that are in no other group.", s.Shown)
		}
		if s.Rest {
			rest.Sources = []tool.Source{s.Source(Part{Others: labels, Keep: keep, HideInstructions: hide})}
		}
		out = append(out, rest)
	}
	return toolkit.Import(out), own // corrects groups that MCP allows and a toolkit does not
}

// nameLabels names a server's own groups. The names begin with the name of the server's group, so that users see which
// server they are from.
func (b *builder) nameLabels(s *Server) map[string]string {
	own := map[string]string{}
	for _, l := range s.Labels {
		name := s.Group + "." + GroupName(strings.TrimPrefix(l.Name, s.Name+"/"))
		for b.used[name] {
			name += "_"
		}
		b.used[name], own[l.Name] = true, name
	}
	return own
}

// kept returns the names that are kept; nil if no names are known.
func kept(known []string, keep func(string) bool) []string {
	if known == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(known), func(name string) bool { return !keep(name) })
}

// describe describes the group of a server: by its tools, if they are known.
func describe(s *Server, known []string) string {
	if len(known) == 0 {
		return fmt.Sprintf("The tools of the MCP server %q.", s.Shown)
	}
	const maxNames = 50 // bytes of names; enough to see what a server is for
	noun := "tools"
	if len(known) == 1 {
		noun = "tool"
	}
	text, names := fmt.Sprintf("%d %s: ", len(known), noun), ""
	for i, name := range known {
		name = strings.TrimPrefix(strings.TrimPrefix(name, s.Strip), s.Prefix)
		if i > 0 && len(names)+len(name) > maxNames {
			return text + names + ", …"
		}
		if i > 0 {
			names += ", "
		}
		names += name
	}
	return text + names
}

// skills returns a loader of the skills that keep accepts, by names of the form SERVER__PATH; none if the server has no
// skills.
func (s *Server) skills(keep func(name string) bool) []skill.Loader {
	if s.Skills == nil {
		return nil
	}
	return []skill.Loader{&groupSkills{s.Skills, func(k *skill.Skill) bool {
		return keep(s.Prefix + Legal(strings.TrimPrefix(k.Name, s.Name+"/")))
	}}}
}

// groupSkills loads the skills of a server that are in a group.
type groupSkills struct {
	all  skill.Loader
	keep func(*skill.Skill) bool
}

func (l *groupSkills) kept(all []*skill.Skill) []*skill.Skill {
	return slices.DeleteFunc(all, func(s *skill.Skill) bool { return !l.keep(s) })
}

// Load implements [skill.Loader].
func (l *groupSkills) Load(ctx context.Context) ([]*skill.Skill, []skill.Diagnostic, error) {
	all, problems, err := l.all.Load(ctx)
	return l.kept(all), problems, err
}

// Known returns the skills that are known without contacting the server.
func (l *groupSkills) Known() []*skill.Skill {
	if k, ok := l.all.(interface{ Known() []*skill.Skill }); ok {
		return l.kept(k.Known())
	}
	return nil
}
