package toolkit

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/tool"
)

// A catalogue is an immutable snapshot of what is registered. Whoever looks at a
// scope takes the current one once and works with it to the end, so that a
// replacement in between cannot mix two. What is filled in later (steady,
// search, told) is derived from the rest and the same for everybody.
type catalogue struct {
	gen      uint64
	cfg      Config
	basic    *group
	groups   []*group            // in order of registration
	index    map[string]int      // position in groups by name
	entries  []*entry            // in order of registration
	tools    map[string][]*entry // by name; several only under Policy.Shadow
	labels   map[string][]*entry // by label, in order of registration
	always   []*entry            // those that need no group, in order of registration
	whens    []*entry            // those with a predicate
	skipped  []Skipped           // tools that were left out
	control  Control
	reserved map[string]bool      // names of the control tools of all groups
	listed   map[string]bool      // names that sources list
	built    map[*source]*listing // what each source had listed; nil if nothing yet
	steady   sync.Map             // ceiling → infos of control tools that depend on nothing else
	search   func() *searchIndex  // built when first used
	due      time.Time            // when some source must be listed again; zero for never
	told     *prompt
	shadows  bool // two tools share a name

	room  []entry         // to be used
	alone []*entry        // in tools, so that not each is an allocation
	sound json.RawMessage // a schema that was checked
}

// A group is a Group, resolved. The basic group has index -1.
type group struct {
	Group
	index     int
	parents   []int
	children  []int
	exclusive [][]int // for each exclusion set of the group, its other members in order
	entries   []*entry
	sources   []*source
}

// An entry is a registered tool. Its definition is asked for once: the same bytes
// are sent in every request.
type entry struct {
	tool      tool.Tool
	info      tool.Info
	seq       int
	home      int // the group it was registered in first
	groups    []int
	labels    []string // what a ceiling may grant it by
	ungrouped bool
	set       *Setting
	when      int      // position in catalogue.whens, or -1
	from      *listing // what listed it; nil if the host registered it
	size      int      // bytes of the definition as sent to a model
	hash      atomic.Pointer[[sha256.Size]byte]
}

// Skipped is something that could not be listed, and why. Tools that are
// skipped do not exist for the model.
type Skipped struct {
	Source string // which source offered it; empty if none did
	Tool   string // empty if the source itself failed
	Reason string
}

// basicLabel is the label of the tools of the basic group, by which a ceiling
// grants them, unless the policy has another.
const basicLabel = "basic"

// basicLabel returns the label under the policy.
func (c *catalogue) basicLabel() string {
	if c.cfg.Policy.DefaultGroup != "" {
		return c.cfg.Policy.DefaultGroup
	}
	return basicLabel
}

// build checks the configuration and resolves it. Tools of sources are those
// listed last.
func build(tk *Toolkit, cfg Config) (*catalogue, error) {
	c := &catalogue{cfg: cfg.clone(), index: map[string]int{}, labels: map[string][]*entry{},
		reserved: map[string]bool{}, listed: map[string]bool{}, built: map[*source]*listing{}}
	switch {
	case cfg.Control != nil:
		c.control = cfg.Control
	case cfg.Policy.control != nil:
		c.control = cfg.Policy.control
	default:
		c.control = ResetTools()
	}
	if err := c.addGroups(); err != nil {
		return nil, err
	}
	if err := c.addExclusions(); err != nil {
		return nil, err
	}
	if err := c.addTools(tk); err != nil {
		return nil, err
	}
	if err := c.checkInitial(); err != nil {
		return nil, err
	}
	c.told = new(prompt)
	c.due = c.recheck()
	c.search = sync.OnceValue(func() *searchIndex { return newSearchIndex(c) })
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

// all returns the basic group and the others.
func (c *catalogue) all() []*group { return append([]*group{c.basic}, c.groups...) }

// addGroups resolves the groups, in the order given, which is the order in which
// models and people see them.
func (c *catalogue) addGroups() error {
	if n := c.cfg.Basic.Name; n != "" {
		return fmt.Errorf("the basic group is called %q; it must have no name", n)
	}
	if b := c.cfg.Basic; len(b.Parents) > 0 || b.OnActivate != nil || b.OnDeactivate != nil {
		return errors.New("the basic group has parents or hooks; it is always open")
	}
	c.basic = &group{Group: c.cfg.Basic, index: -1}
	for i, g := range c.cfg.Groups {
		if err := c.checkGroup(g); err != nil {
			return err
		}
		c.index[g.Name] = i
		c.groups = append(c.groups, &group{Group: g, index: i})
	}
	return c.link()
}

// link resolves the parents.
func (c *catalogue) link() error {
	p := c.cfg.Policy
	for _, g := range c.groups {
		for _, name := range g.Parents {
			i, ok := c.index[name]
			if !ok && p.Contain {
				continue
			}
			if !ok {
				return fmt.Errorf("group %q: its parent %q does not exist", g.Name, name)
			}
			if p.Paths && !strings.HasPrefix(g.Name, name+".") {
				return fmt.Errorf("group %q: its name must start with that of its parent, %q", g.Name, name+".")
			}
			if !slices.Contains(g.parents, i) {
				g.parents = append(g.parents, i)
				c.groups[i].children = append(c.groups[i].children, g.index)
			}
		}
	}
	for _, g := range c.groups {
		slices.SortFunc(g.children, func(a, b int) int { return strings.Compare(c.groups[a].Name, c.groups[b].Name) })
	}
	if p.Contain || p.AllowCycles {
		return nil
	}
	for _, g := range c.groups {
		if slices.Contains(c.ancestors(g.index), g.index) {
			return fmt.Errorf("group %q: is its own ancestor", g.Name)
		}
	}
	return nil
}

// ancestors returns the groups above g, the nearest last; g only if it is on a
// cycle.
func (c *catalogue) ancestors(g int) []int {
	var out []int
	var walk func(int)
	walk = func(i int) {
		for _, p := range c.groups[i].parents {
			if !slices.Contains(out, p) {
				out = append(out, p)
				walk(p)
			}
		}
	}
	walk(g)
	slices.Reverse(out)
	return out
}

// addExclusions resolves the exclusion sets. A set with a group and its ancestor is
// refused: opening the child would close what it needs.
func (c *catalogue) addExclusions() error {
	for n, names := range c.cfg.Exclusive {
		var members []int
		for _, name := range names {
			i, ok := c.index[name]
			if !ok {
				return fmt.Errorf("exclusion set %d %q: group %q does not exist", n+1, names, name)
			}
			if !slices.Contains(members, i) {
				members = append(members, i)
			}
		}
		if len(members) < 2 {
			return fmt.Errorf("exclusion set %d %q: needs two groups or more", n+1, names)
		}
		for _, i := range members {
			for _, a := range c.ancestors(i) {
				if slices.Contains(members, a) {
					return fmt.Errorf("exclusion set %d %q: %q needs %q and cannot exclude it", n+1, names, c.groups[i].Name, c.groups[a].Name)
				}
			}
			others := slices.DeleteFunc(slices.Clone(members), func(j int) bool { return j == i })
			c.groups[i].exclusive = append(c.groups[i].exclusive, others)
		}
	}
	return nil
}

// settings returns the settings by tool. Groups that do not exist are mistakes
// unless groups are labels, which need not be described.
func (c *catalogue) settings() (map[string]Setting, error) {
	settings := map[string]Setting{}
	for _, s := range c.cfg.Settings {
		if _, ok := settings[s.Tool]; ok && !c.cfg.Policy.Replace {
			return nil, fmt.Errorf("tool %q: has two settings", s.Tool)
		}
		for _, name := range s.Groups {
			if _, ok := c.index[name]; !ok && !c.cfg.Policy.NoActivation {
				return nil, fmt.Errorf("tool %q: its group %q does not exist", s.Tool, name)
			}
		}
		settings[s.Tool] = s
	}
	return settings, nil
}

// addTools resolves settings, control tools, tools and sources.
func (c *catalogue) addTools(tk *Toolkit) error {
	settings, err := c.settings()
	if err != nil {
		return err
	}
	if len(c.groups) > 0 {
		for _, t := range c.control.Tools(tk, nil, c.infos(c.resolve(state{ceiling: Only("*")}))) {
			if err := checkTool(t.Info()); err != nil {
				return fmt.Errorf("control tool %q: %w", t.Info().Name, err)
			}
			c.reserved[t.Info().Name] = !slices.Contains(c.cfg.Hidden, t.Info().Name)
		}
	}
	if c.hasSkills(Only("*")) {
		c.reserved[skillTool] = true
	}
	n := 0
	for _, g := range c.all() {
		n += len(g.Tools)
	}
	c.tools = make(map[string][]*entry, n)
	c.room, c.alone, c.entries = make([]entry, n), make([]*entry, 0, n), make([]*entry, 0, n)
	// First what the host registered, then what sources list, so that no source
	// can be in the way of a tool of the host.
	for _, g := range c.all() {
		for _, t := range g.Tools {
			if err := c.add(g, t, settings, nil); err != nil {
				return err
			}
		}
	}
	hasSources := false
	for _, g := range c.all() {
		for i, s := range g.Sources {
			hasSources = true
			src, err := tk.source(s)
			if err != nil {
				return err
			}
			g.Sources[i] = src
			g.sources = append(g.sources, src)
			c.addListed(g, src, settings)
		}
	}
	for _, s := range c.cfg.Settings {
		if len(c.tools[s.Tool]) == 0 && !hasSources {
			return fmt.Errorf("tool %q: has a setting but does not exist", s.Tool)
		}
	}
	c.finish()
	return nil
}

// addListed adds what a source listed. One bad tool withdraws nothing else, and
// none can make the catalogue fail to build: that happens in the middle of runs.
func (c *catalogue) addListed(g *group, src *source, settings map[string]Setting) {
	l, ok := c.built[src] // one list for all groups that have the source
	if !ok {
		l = src.listing.Load()
		c.built[src] = l
	}
	if l == nil {
		return
	}
	if l.err != nil {
		c.skipped = append(c.skipped, Skipped{Source: src.name, Reason: l.err.Error()})
	}
	for _, t := range l.tools {
		c.listed[t.Info().Name] = true
		if err := c.add(g, t, settings, l); err != nil {
			c.skipped = append(c.skipped, Skipped{Source: src.name, Tool: t.Info().Name, Reason: err.Error()})
		}
	}
}

// add registers a tool that is in the listing from, nil being what the host
// registers. One that a source lists takes no other's place, whatever the policy.
func (c *catalogue) add(g *group, t tool.Tool, settings map[string]Setting, from *listing) error {
	if t == nil {
		return fmt.Errorf("%s: a tool is nil", c.groupTitle(g.index))
	}
	info := t.Info()
	if err := c.checkInfo(info); err != nil {
		return c.blame(g, info.Name, err)
	}
	p := c.cfg.Policy
	if from != nil {
		p.Override, p.Replace, p.Shadow = false, false, false
	}
	if c.reserved[info.Name] && !p.Override {
		return c.blame(g, info.Name, errors.New("the name is that of a control tool"))
	}
	if p.Paths && !c.reserved[info.Name] {
		if err := c.checkPath(g, info.Name); err != nil {
			return c.blame(g, info.Name, err)
		}
	}
	e := c.newEntry()
	*e = entry{tool: t, info: info, home: g.index, when: -1, from: from, set: &noSetting, size: definitionSize(info)}
	if set, ok := settings[info.Name]; ok {
		e.set = &set
	}
	for _, old := range c.tools[info.Name] {
		switch {
		case sameTool(old.tool, t):
			c.place(old, g)
			return nil
		case from != nil && old.from != nil && sameOrigin(old.tool, t):
			if from.at.After(old.from.at) {
				old.tool, old.info, old.size, old.from = e.tool, e.info, e.size, from
			}
			c.place(old, g)
			return nil
		case p.Replace:
			old.tool, old.info, old.size, old.home = e.tool, e.info, e.size, e.home
			old.groups, old.labels, old.ungrouped = nil, nil, false
			c.place(old, g)
			return nil
		case p.Shadow:
			c.shadows = true
		default:
			return c.blame(g, info.Name, fmt.Errorf("another tool of that name is in %s", c.groupTitle(old.home)))
		}
	}
	c.entries = append(c.entries, e)
	if same := c.tools[info.Name]; same != nil {
		c.tools[info.Name] = append(same, e)
	} else { // the only one, mostly
		c.alone = append(c.alone, e)
		n := len(c.alone)
		c.tools[info.Name] = c.alone[n-1 : n : n]
	}
	c.place(e, g)
	return nil
}

// noSetting is that of a tool without one.
var noSetting Setting

// newEntry returns an entry of those that were made for all tools together.
func (c *catalogue) newEntry() *entry {
	if len(c.room) == 0 {
		return new(entry)
	}
	e := &c.room[0]
	c.room = c.room[1:]
	return e
}

// blame says which tool, and where it was registered.
func (c *catalogue) blame(g *group, name string, err error) error {
	return fmt.Errorf("tool %q in %s: %w", name, c.groupTitle(g.index), err)
}

// groupTitle names a group in a message; -1 is the basic group.
func (c *catalogue) groupTitle(g int) string {
	if g < 0 {
		return "the basic group"
	}
	return fmt.Sprintf("group %q", c.groups[g].Name)
}

// place makes e a member of g, or of the groups that its setting or its labels
// name. A setting counts before where the tool was registered, and that before
// its labels: the host knows better than whoever made the tool. Labels of groups
// that do not exist are kept, for ceilings and for who lists them, and are
// members of nothing.
func (c *catalogue) place(e *entry, g *group) {
	var own []string
	explicit := e.set.Groups != nil
	switch {
	case explicit:
		own = e.set.Groups
	case g.index >= 0:
		own = []string{g.Name}
	case c.cfg.Policy.Labels:
		if l, ok := tool.As[tool.Labeled](e.tool); ok {
			own = l.Labels()
		}
	}
	if g.index < 0 && !explicit && len(own) == 0 {
		e.ungrouped = true
	}
	for _, name := range own {
		if slices.Contains(e.labels, name) {
			continue
		}
		e.labels = append(e.labels, name)
		if i, ok := c.index[name]; ok {
			e.groups = append(e.groups, i)
		}
	}
}

// finish puts the tools in order, those of a group before what its sources
// list, and fills what is looked up by group and label.
func (c *catalogue) finish() {
	slices.SortStableFunc(c.entries, func(a, b *entry) int { return a.home - b.home })
	basic := []string{c.basicLabel()}
	for i, e := range c.entries {
		e.seq = i
		if e.ungrouped && !c.cfg.Policy.Contain {
			e.labels = basic
		}
		for _, l := range e.labels {
			c.labels[l] = append(c.labels[l], e)
		}
		if e.ungrouped || e.set.Always {
			c.always = append(c.always, e)
		}
		for _, g := range e.groups {
			c.groups[g].entries = append(c.groups[g].entries, e)
		}
		if e.set.When != nil {
			e.when = len(c.whens)
			c.whens = append(c.whens, e)
		}
	}
}

// definitionSize is the length of a tool's definition on the wire, escaping
// left aside.
func definitionSize(i tool.Info) int {
	const frame = len(`{"type":"function","function":{"name":"","description":"","parameters":}},`)
	return frame + len(i.Name) + len(i.Description) + len(i.Input)
}
