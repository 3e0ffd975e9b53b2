package toolkit

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/tool"
)

// A catalogue is an immutable snapshot of what is registered. An operation loads the current one once and uses it
// throughout, so that it never mixes two catalogues. Only caches are filled in later: static, lazyIndex and prompt.
//
// A program may have thousands of catalogues, one for each conversation, so maps are made only when needed and equal
// places are shared.
type catalogue struct {
	gen        uint64 // counts the catalogues of the toolkit
	cfg        Config
	rules      *rules // of cfg.Preset
	basic      *group
	groups     []*group            // in order of registration
	index      map[string]int      // position in groups by name
	entries    []*entry            // in order of registration
	tools      map[string][]*entry // by name; nil up to maxLinear tools; read it with named
	labels     map[string][]*entry // by label, in order of registration; nil unless cfg.LabelsOnly is set
	always     []*entry            // tools that can be visible without an open group, in order of registration
	predicates []*entry            // tools with a predicate
	skipped    []Skipped           // tools and sources that could not be loaded
	control    *Control
	reserved   map[string]bool      // names of the control tools of all groups, except those in cfg.Hidden
	listings   map[*source]*listing // a nil listing: the source was not listed yet
	static     sync.Map             // definitions of static control tools; see controlInfos
	staticSize atomic.Int32         // the length of static; approximate, since views are made concurrently
	due        time.Time            // when the next source must be listed again; zero for never
	prompt     *prompt
	shadows    bool // two tools share a name

	indexOnce sync.Once
	lazyIndex *searchIndex // read it with searchIndex
}

// A group is a Group with its names resolved to indexes. The basic group has index -1.
type group struct {
	*Group
	index           int
	requiredParents []int   // must be open to open the group; nil if the preset's parents only contain groups
	children        []int   // groups that have this group as a parent, sorted by name
	exclusive       [][]int // for each exclusion set with this group, the other groups in order
	entries         []*entry
	sources         []*source
}

// An entry is a registered tool. It does not store the definition, since the tool's Info always returns the same definition.
type entry struct {
	tool tool.Tool
	name string
	*place
	hash      atomic.Pointer[[sha256.Size]byte] // of the definition; nil until first used
	seq       int32                             // position in catalogue.entries
	predicate int32                             // position in catalogue.predicates, or -1
}

// A place is where a tool is registered and what decides its visibility. It is
// immutable, since tools with equal registrations share one.
type place struct {
	home      int // index of the group in which the tool was first registered
	groups    []int
	labels    []string // names by which a ceiling may grant the tool
	ungrouped bool     // registered in the basic group, and neither the setting nor the tool names other groups
	setting   *Setting
	from      *listing // the list that has the tool; nil if the host registered it
}

// Skipped is a tool, source or skill that could not be loaded, and why. The model does not see it. If Source and Tool
// are empty, Reason names the file or server.
type Skipped struct {
	Source string // the source that failed or listed the tool; empty if there is none
	Tool   string // empty if the source or skill itself failed
	Reason string
}

// build checks and resolves the configuration, with the tools of the sources' latest lists.
func build(tk *Toolkit, cfg Config) (*catalogue, error) {
	c := &catalogue{cfg: cfg.clone()}
	c.rules = &c.cfg.Preset.rules
	c.cfg.LabelsOnly = cfg.LabelsOnly || c.rules.labelsOnly
	c.control = cmp.Or(cfg.Control, c.rules.control, ResetTools(nil))
	if cfg.Control == nil && c.cfg.LabelsOnly {
		c.control = new(Control) // no group opens or closes
	}
	if err := c.control.check(); err != nil {
		return nil, err
	}
	if err := c.addGroups(); err != nil {
		return nil, err
	}
	if err := c.addExclusions(); err != nil {
		return nil, err
	}
	if err := (&registrar{catalogue: c}).addTools(tk); err != nil {
		return nil, err
	}
	if err := c.checkInitial(); err != nil {
		return nil, err
	}
	c.prompt = new(prompt)
	c.due = c.nextFetch()
	return c, nil
}

// clone returns a copy whose slices can be changed freely.
func (cfg Config) clone() Config {
	cfg.Basic = cfg.Basic.clone()
	cfg.Groups = slices.Clone(cfg.Groups)
	for i, g := range cfg.Groups {
		cfg.Groups[i] = g.clone()
	}
	cfg.Settings = slices.Clone(cfg.Settings)
	cfg.Exclusive = slices.Clone(cfg.Exclusive)
	cfg.Initial = slices.Clone(cfg.Initial)
	cfg.Hidden = slices.Clone(cfg.Hidden)
	return cfg
}

// clone returns a copy whose slices can be changed freely.
func (g Group) clone() Group {
	g.Parents = slices.Clone(g.Parents)
	g.Tools = slices.Clone(g.Tools)
	g.Sources = slices.Clone(g.Sources)
	g.Skills = slices.Clone(g.Skills)
	return g
}

// stateOf returns the scope's current state, resolved with this catalogue.
func (c *catalogue) stateOf(s *Scope) *scopeState {
	st, _ := s.snapshot(c)
	return c.resolve(st)
}

// allGroups returns the groups, the basic group first.
func (c *catalogue) allGroups() []*group { return append([]*group{c.basic}, c.groups...) }

// addGroups resolves the groups, in the order given, which is the order in which models and users see them.
func (c *catalogue) addGroups() error {
	if n := c.cfg.Basic.Name; n != "" {
		return fmt.Errorf("the basic group is called %q; it must have no name", n)
	}
	if b := c.cfg.Basic; len(b.Parents) > 0 || b.OnActivate != nil || b.OnDeactivate != nil {
		return errors.New("the basic group has parents or hooks; remove them, it is always open")
	}
	c.basic = &group{Group: &c.cfg.Basic, index: -1}
	if len(c.cfg.Groups) > 0 {
		c.index = make(map[string]int, len(c.cfg.Groups))
	}
	for i := range c.cfg.Groups {
		g := &c.cfg.Groups[i]
		if err := c.checkGroup(g); err != nil {
			return err
		}
		c.index[g.Name] = i
		c.groups = append(c.groups, &group{Group: g, index: i})
	}
	return c.linkParents()
}

// linkParents resolves the parents' names, and rejects cycles unless the preset allows them.
func (c *catalogue) linkParents() error {
	required := c.rules.parents != parentContains
	for _, g := range c.groups {
		for _, name := range g.Parents {
			i, ok := c.index[name]
			switch {
			case !ok && required:
				return fmt.Errorf("group %q: parent %q does not exist; add that group, or correct Parents", g.Name, name)
			case !ok || slices.Contains(c.groups[i].children, g.index): // a parent may be unknown or named twice
				continue
			case c.rules.pathNames && !strings.HasPrefix(g.Name, name+"."):
				return fmt.Errorf("group %q: the name must start with that of its parent, %q", g.Name, name+".")
			}
			c.groups[i].children = append(c.groups[i].children, g.index)
			if required {
				g.requiredParents = append(g.requiredParents, i)
			}
		}
	}
	for _, g := range c.groups {
		slices.SortFunc(g.children, func(a, b int) int { return strings.Compare(c.groups[a].Name, c.groups[b].Name) })
	}
	if c.rules.parents == gateWithCycles {
		return nil
	}
	for _, g := range c.groups {
		if slices.Contains(c.ancestors(g.index), g.index) {
			return fmt.Errorf("group %q is its own ancestor; remove a parent from the cycle", g.Name)
		}
	}
	return nil
}

// ancestors returns the groups that must be open before g can be opened, parents before children. It
// contains g only if g is on a cycle.
func (c *catalogue) ancestors(g int) []int {
	var visited, out []int
	var walk func(int)
	walk = func(i int) {
		for _, p := range c.groups[i].requiredParents {
			if !slices.Contains(visited, p) {
				visited = append(visited, p)
				walk(p)
				out = append(out, p)
			}
		}
	}
	walk(g)
	return out
}

// addExclusions resolves the exclusion sets. It rejects a set with a group and its ancestor:
// opening the group would close the ancestor, which it needs.
func (c *catalogue) addExclusions() error {
	for n, names := range c.cfg.Exclusive {
		var members []int
		for _, name := range names {
			i, ok := c.index[name]
			if !ok {
				return fmt.Errorf("exclusion set %d %q: group %q does not exist; add it or remove it from the set", n, names, name)
			}
			if !slices.Contains(members, i) {
				members = append(members, i)
			}
		}
		if len(members) < 2 {
			return fmt.Errorf("exclusion set %d %q: a set needs at least two groups", n, names)
		}
		for _, i := range members {
			for _, a := range c.ancestors(i) {
				if slices.Contains(members, a) {
					return fmt.Errorf("exclusion set %d %q: group %q needs group %q and cannot exclude it", n, names, c.groups[i].Name, c.groups[a].Name)
				}
			}
			others := slices.DeleteFunc(slices.Clone(members), func(j int) bool { return j == i })
			c.groups[i].exclusive = append(c.groups[i].exclusive, others)
		}
	}
	return nil
}

// maxLinear is the number of tools up to which a linear search is as fast as a map.
const maxLinear = 32

// named returns the tools with a name, in order of registration. There can be several only with laterShadows.
func (c *catalogue) named(name string) []*entry {
	if c.tools != nil {
		return c.tools[name]
	}
	var found []*entry
	for i, e := range c.entries {
		switch {
		case e.name != name:
		case found == nil:
			found = c.entries[i : i+1 : i+1] // allocates nothing in the usual case
		default:
			found = append(found, e)
		}
	}
	return found
}

// searchIndex returns the search index of all tools, which is built on first use.
func (c *catalogue) searchIndex() *searchIndex {
	c.indexOnce.Do(func() { c.lazyIndex = newSearchIndex(c) })
	return c.lazyIndex
}

// groupTitle returns a description of a group for messages; -1 is the basic group.
func (c *catalogue) groupTitle(g int) string {
	if g < 0 {
		return "the basic group"
	}
	return fmt.Sprintf("group %q", c.groups[g].Name)
}

// definitionSize returns the length of a tool's definition in a request, without escaping. It assumes OpenAI's format.
func definitionSize(i tool.Info) int {
	const frame = len(`{"type":"function","function":{"name":"","description":"","parameters":}},`)
	return frame + len(i.Name) + len(i.Description) + len(i.Input)
}
