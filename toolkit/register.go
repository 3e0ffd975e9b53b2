package toolkit

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/kitbag-go/kitbag/tool"
)

// A registrar fills a catalogue with tools. Only the catalogue outlives it.
type registrar struct {
	*catalogue
	settings  map[string]*Setting // by name of the tool
	spare     []entry             // for the host's tools, allocated together; newEntry takes the next
	lastPlace *place              // of the entry before; see setPlace
}

// readSettings indexes the settings by tool. The groups in the settings must exist, unless Config.LabelsOnly is set.
func (r *registrar) readSettings() error {
	r.settings = make(map[string]*Setting, len(r.cfg.Settings))
	for i := range r.cfg.Settings {
		s := &r.cfg.Settings[i]
		if r.settings[s.Tool] != nil && !r.cfg.Preset.Replaces() {
			return fmt.Errorf("tool %q has two settings; merge the two", s.Tool)
		}
		for _, name := range s.Groups {
			if !r.hasGroup(name) && !r.cfg.LabelsOnly {
				return fmt.Errorf("tool %q: group %q of its setting does not exist; add it or change the setting", s.Tool, name)
			}
		}
		r.settings[s.Tool] = s
	}
	return nil
}

// reserveControlNames reserves the names of control tools, except those in Config.Hidden, for which other tools may
// then be registered.
func (r *registrar) reserveControlNames(tk *Toolkit) error {
	var names []string
	if len(r.groups) > 0 && r.control.Tools != nil {
		for _, t := range r.control.Tools(tk, nil, r.groupInfos(r.resolve(state{ceiling: Only("*")}))) {
			if err := check(t); err != nil {
				return fmt.Errorf("control tool %q: %w", t.Info().Name, err)
			}
			names = append(names, t.Info().Name)
		}
	}
	if r.hasSkills(Only("*")) {
		names = append(names, skillTool)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return slices.Contains(r.cfg.Hidden, n) })
	if len(names) > 0 {
		r.reserved = make(map[string]bool, len(names))
	}
	for _, name := range names {
		r.reserved[name] = true
	}
	return nil
}

// addTools registers settings, control tools, tools and the tools of sources.
func (r *registrar) addTools(tk *Toolkit) error {
	if err := r.readSettings(); err != nil {
		return err
	}
	if err := r.reserveControlNames(tk); err != nil {
		return err
	}
	n := 0
	for _, g := range r.allGroups() {
		n += len(g.Tools)
		if slices.Contains(g.Skills, nil) {
			return fmt.Errorf("%s: a skill loader is nil", r.groupTitle(g.index))
		}
	}
	r.spare, r.entries = make([]entry, n), make([]*entry, 0, n)
	// Register the host's tools first, so that a tool of a source cannot take the name of a host's tool.
	for _, g := range r.allGroups() {
		for _, t := range g.Tools {
			if err := r.add(g, t, nil); err != nil {
				return err
			}
		}
	}
	hasSources := false
	for _, g := range r.allGroups() {
		for i, s := range g.Sources {
			hasSources = true
			src, err := tk.wrapSource(s)
			if err != nil {
				return err
			}
			g.Sources[i] = src // see source.Tools
			g.sources = append(g.sources, src)
			r.addListed(g, src)
		}
	}
	for _, s := range r.cfg.Settings {
		if len(r.named(s.Tool)) == 0 && !hasSources { // a source may list the tool later
			return fmt.Errorf("tool %q has a setting but is not registered; remove the setting or register the tool", s.Tool)
		}
	}
	r.finish()
	return nil
}

// addListed adds the tools that a source listed. An invalid tool is skipped, since an error would
// end the run in the middle of which the catalogue is rebuilt.
func (r *registrar) addListed(g *group, src *source) {
	if r.listings == nil {
		r.listings = map[*source]*listing{}
	}
	l, ok := r.listings[src]
	if !ok { // load once, so that all groups with the source get the same list even if a fetch ends meanwhile
		l = src.listing.Load()
		r.listings[src] = l
	}
	if l == nil {
		return
	}
	if l.err != nil {
		r.skipped = append(r.skipped, Skipped{Source: src.name, Reason: l.err.Error()})
	}
	for _, t := range l.tools {
		if err := r.add(g, t, l); err != nil {
			r.skipped = append(r.skipped, Skipped{Source: src.name, Tool: t.Info().Name, Reason: err.Error()})
		}
	}
}

// add registers a tool from a listing, or from the host if from is nil. A tool from a source never replaces another
// tool, whatever the preset.
func (r *registrar) add(g *group, t tool.Tool, from *listing) error {
	if t == nil {
		return fmt.Errorf("%s: a tool is nil; remove it, or check the error of the function that made it", r.groupTitle(g.index))
	}
	info := t.Info()
	if err := check(t); err != nil {
		return r.toolError(g, info.Name, err)
	}
	if r.reserved[info.Name] {
		if from != nil || !r.rules.replaceControls {
			return r.toolError(g, info.Name, errors.New("a control tool has this name; rename the tool"))
		}
	} else if err := r.rules.checkPath(info.Name, g.Name, r.hasGroup); err != nil {
		return r.toolError(g, info.Name, err)
	}
	onDuplicate := r.rules.onDuplicate
	if from != nil {
		onDuplicate = refused
	}
	newPlace := place{home: g.index, setting: &noSetting, from: from}
	if s := r.settings[info.Name]; s != nil {
		newPlace.setting = s
	}
	for _, old := range r.named(info.Name) {
		switch {
		case sameTool(old.tool, t):
			r.put(old, *old.place, g)
			return nil
		case from != nil && old.from != nil && sameOrigin(old.tool, t):
			oldPlace := *old.place
			if from.at.After(old.from.at) { // the newer definition is used in all groups
				old.tool, oldPlace.from = t, from
			}
			r.put(old, oldPlace, g)
			return nil
		case onDuplicate == laterReplaces:
			old.tool = t
			r.put(old, newPlace, g)
			return nil
		case onDuplicate == laterShadows:
			r.shadows = true
		default:
			return r.toolError(g, info.Name, fmt.Errorf("another tool in %s has this name; rename one", r.groupTitle(old.home)))
		}
	}
	e := r.newEntry()
	e.tool, e.name, e.predicate = t, info.Name, -1 // finish sets predicate
	r.put(e, newPlace, g)
	r.addEntry(e)
	return nil
}

// check returns an error if t cannot be registered.
func check(t tool.Tool) error {
	if err := checkTool(t.Info()); err != nil {
		return err
	}
	return tool.CheckCapabilities(t)
}

// noSetting is the setting of tools without one.
var noSetting Setting

func (r *registrar) newEntry() *entry {
	if len(r.spare) == 0 {
		return new(entry)
	}
	e := &r.spare[0]
	r.spare = r.spare[1:]
	return e
}

func (r *registrar) toolError(g *group, name string, err error) error {
	return fmt.Errorf("tool %q in %s: %w", name, r.groupTitle(g.index), err)
}

// addEntry appends a new entry. With more than maxLinear entries it also indexes them by name.
func (r *registrar) addEntry(e *entry) {
	r.entries = append(r.entries, e)
	n := len(r.entries)
	if n <= maxLinear {
		return
	}
	first := n - 1 // the first entry that is not in the index
	if r.tools == nil {
		r.tools, first = make(map[string][]*entry, cap(r.entries)), 0
	}
	for i := first; i < n; i++ {
		name := r.entries[i].name
		if same := r.tools[name]; same != nil {
			r.tools[name] = append(same, r.entries[i])
		} else { // usually the only tool with the name; a subslice allocates nothing
			r.tools[name] = r.entries[i : i+1 : i+1]
		}
	}
}

// put adds the groups and labels of e to p and makes p the place of e. The groups are those that the setting names; if
// its Groups are nil, the group g in which the tool was registered; if g is the basic group and the rules allow it,
// those that the tool itself names. Names without a group are kept as labels, for ceilings and [Toolkit.Labels].
func (r *registrar) put(e *entry, p place, g *group) {
	var names []string
	explicit := p.setting.Groups != nil
	switch {
	case explicit:
		names = p.setting.Groups
	case g.index >= 0:
		names = []string{g.Name}
	case r.rules.toolLabels:
		if l, ok := tool.As[interface{ Labels() []string }](e.tool); ok {
			names = l.Labels()
		}
	}
	if g.index < 0 && !explicit && len(names) == 0 {
		p.ungrouped = true
	}
	for _, name := range names {
		if slices.Contains(p.labels, name) {
			continue
		}
		p.labels = append(slices.Clip(p.labels), name)
		if i, ok := r.index[name]; ok {
			p.groups = append(slices.Clip(p.groups), i)
		}
	}
	r.setPlace(e, p)
}

// setPlace makes p the place of e. Consecutive entries with equal places share one, to save memory.
func (r *registrar) setPlace(e *entry, p place) {
	if r.lastPlace == nil || !p.equal(r.lastPlace) {
		shared := p // &p would allocate even if the last place is shared
		r.lastPlace = &shared
	}
	e.place = r.lastPlace
}

func (p *place) equal(q *place) bool {
	return p.home == q.home && p.ungrouped == q.ungrouped && p.setting == q.setting && p.from == q.from &&
		slices.Equal(p.groups, q.groups) && slices.Equal(p.labels, q.labels)
}

// finish sorts the tools by group, in each group the host's before those of sources, and indexes them by group and label.
func (r *registrar) finish() {
	byHome := func(a, b *entry) int { return a.home - b.home }
	if !slices.IsSortedFunc(r.entries, byHome) {
		r.entries = slices.Clone(r.entries) // the index by name has slices of the unsorted entries, so sort a copy
		slices.SortStableFunc(r.entries, byHome)
	}
	if r.cfg.LabelsOnly {
		r.labels = map[string][]*entry{}
	}
	basicLabels := []string{r.rules.basicLabel()}
	for i, e := range r.entries {
		e.seq = int32(i)
		if e.ungrouped && r.rules.ungrouped != unlabelled {
			p := *e.place
			p.labels = basicLabels
			r.setPlace(e, p)
		}
		if r.labels != nil {
			for _, l := range e.labels {
				r.labels[l] = append(r.labels[l], e)
			}
		}
		if (e.ungrouped || e.setting.Always) && len(r.groups) > 0 {
			r.always = append(r.always, e)
		}
		for _, g := range e.groups {
			r.groups[g].entries = append(r.groups[g].entries, e)
		}
		if e.setting.When != nil {
			e.predicate = int32(len(r.predicates))
			r.predicates = append(r.predicates, e)
		}
	}
	if len(r.groups) == 0 {
		r.always = r.entries
	}
}

// sameTool reports whether a and b are the same value. Values that are not comparable count as different tools.
func sameTool(a, b tool.Tool) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// sameOrigin reports whether two tools from sources are the same tool of the same server. A server is listed
// separately for each of its groups, and may change its definitions in between.
func sameOrigin(a, b tool.Tool) bool {
	type origin interface{ Origin() (server, name string) } // implemented by the tools of package mcpclient
	x, xOK := tool.As[origin](a)
	y, yOK := tool.As[origin](b)
	if !xOK || !yOK {
		return false
	}
	xServer, xName := x.Origin()
	yServer, yName := y.Origin()
	return xServer == yServer && xName == yName
}
