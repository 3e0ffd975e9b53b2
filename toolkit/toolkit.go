package toolkit

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
)

// A Group is a named set of tools and skills that is opened and closed as one.
type Group struct {
	Name        string // as the model writes it; unique; "basic" is reserved
	Title       string // for display; may be empty
	Description string // what the group is for, by which the model chooses

	// Instructions are shown to the model when it opens the group.
	Instructions string

	// Parents are names of groups: all of them must be open to open the group, and closing a
	// parent closes the group. With the preset [MCP], parents contain the group instead; see [Toolkit.Select].
	Parents []string

	// Tools are members of the group. A tool may be in several groups.
	Tools []tool.Tool

	// Sources list further members. The source of a closed group is not contacted. A source may have these methods:
	//
	//	Instructions() string         // added to the group's instructions; called after listing
	//	Known() []string              // names of its tools in an earlier run, nil if unknown; called when it is registered
	//	Withheld(tool string) error   // why it does not list a tool, or nil
	//
	// If a model calls a Known tool before the source is listed, the error says how to open the group. If it calls
	// a Withheld tool, the error says why.
	Sources []tool.Source

	// Skills are shown while the group is open. If a loader has a method Known() []*skill.Skill, it contacts a server:
	// Load is only called while the group is open, and the tool Skill is only listed if there are known skills.
	Skills []skill.Loader

	// Meta is for programs that list the groups; the model does not see it.
	Meta map[string]json.RawMessage

	// OnActivate runs before the group is opened, OnDeactivate before it is closed, with the context of the
	// transition. An error prevents the transition. Nil means no hook.
	OnActivate, OnDeactivate func(context.Context) error
}

// A Setting limits the registered tool with its name, or puts it into other groups.
type Setting struct {
	Tool string

	// Groups, unless nil, are the groups that the tool is in, instead of those that it was registered in. With an
	// empty list the tool is in no group; with [Config.LabelsOnly] only a ceiling of "*" grants such a tool.
	Groups []string

	// Phases, unless nil, are the phases in which the tool is visible; "*" is
	// any phase. With an empty list the tool is never visible.
	Phases []string

	// Next is the phase that a successful call moves to; empty for none.
	Next string

	// When, unless nil, must return true for the tool to be visible. It is called for every view and must be fast,
	// safe for concurrent use and without side effects. A panic counts as false.
	When func(active func(group string) bool) bool

	// Always keeps the tool visible while its groups are closed.
	Always bool
}

// A Config is the configuration of a Toolkit.
type Config struct {
	Basic     Group      // always open; its name must be empty; its instructions are in [View.Prompt]
	Groups    []Group    // in the order in which the model sees them
	Settings  []Setting  // at most one for a tool
	Exclusive [][]string // sets of groups of which one may be open at a time
	Initial   []string   // groups open in a new scope, parents first; their OnActivate must be nil

	// Quotas on all open groups together; 0 means no limit. The basic group does not count. MaxBytes limits the size of
	// the tools' definitions in a request.
	MaxTools, MaxGroups, MaxBytes int

	// Control is how the model opens groups. Nil means the preset's Control, which is [ResetTools] for the zero
	// preset. It is not used while there is no group to open.
	Control *Control

	// Hidden has names of control tools that are left out, such as "files_deactivate" with [PerGroup].
	Hidden []string

	// LabelsOnly makes groups mere labels: every group counts as open, and a ceiling selects among
	// the groups. A nil Control then means the zero [Control]. Some presets imply LabelsOnly.
	LabelsOnly bool

	// Preset is the set of rules, perhaps of another system; the zero Preset has kitbag's own.
	Preset Preset

	// Refresh is the time after which the list of a source is fetched again;
	// 0 means never. See also [Toolkit.Refresh].
	Refresh time.Duration

	// Compensate undoes a transition in which a hook failed: for each hook that has run, the group's
	// opposite hook runs, in reverse order.
	Compensate bool
}

// A Toolkit is the catalogue of groups and tools. It is safe for concurrent use and shared by any number of sessions.
type Toolkit struct {
	current   atomic.Pointer[catalogue]
	refreshes atomic.Uint64 // counts calls of Refresh

	mu        sync.Mutex              // serialises the replacement of current
	sources   map[tool.Source]*source // of the current catalogue, by comparable inner source; guarded by mu
	bodies    bodyCache
	listeners listeners
}

// Registered returns all tools, visible or not: the program's own, which include the
// control tools, and those that sources listed last. It does not contact sources.
func (tk *Toolkit) Registered() (own, listed []tool.Tool) {
	c := tk.current.Load()
	for _, e := range c.entries {
		if e.from != nil {
			listed = append(listed, e.tool)
			continue
		}
		own = append(own, e.tool)
	}
	everything := c.resolve(state{ceiling: Only("*")})
	return append(own, tk.controlTools(c, nil, everything)...), listed
}

// New checks the configuration and returns the toolkit. An error names the group or the tool that is wrong.
func New(cfg Config) (*Toolkit, error) {
	tk := &Toolkit{sources: map[tool.Source]*source{}}
	tk.mu.Lock()
	defer tk.mu.Unlock()
	if len(cfg.Groups) > 0 { // replace calls Control.Tools with tk, which may use the current catalogue
		tk.install(&catalogue{rules: new(rules), basic: &group{Group: new(Group), index: -1}})
	}
	if err := tk.replace(cfg); err != nil {
		return nil, err
	}
	return tk, nil
}

// Of returns a toolkit whose tools are always visible, without a control tool. It panics if New would return an error.
func Of(tools ...tool.Tool) *Toolkit {
	tk, err := New(Config{Basic: Group{Tools: tools}})
	if err != nil {
		panic(err)
	}
	return tk
}

// replace builds a catalogue of cfg and makes it the current one. The caller holds tk.mu.
func (tk *Toolkit) replace(cfg Config) error {
	c, err := build(tk, cfg)
	if err != nil {
		return fmt.Errorf("toolkit: %w", err)
	}
	tk.install(c)
	return nil
}

// install makes c the current catalogue, and forgets the sources that c does not have.
func (tk *Toolkit) install(c *catalogue) {
	clear(tk.sources)
	for _, g := range c.allGroups() {
		for _, s := range g.sources {
			if reflect.ValueOf(s.inner).Comparable() {
				tk.sources[s.inner] = s
			}
		}
	}
	if old := tk.current.Load(); old != nil {
		c.gen = old.gen + 1
	}
	tk.current.Store(c)
	tk.bodies.clear()
}

// Enable opens groups, in order, as one transition: all of them, or none and an error. It closes groups that an
// exclusion set does not allow with them. A group that is already open is not an error.
func (tk *Toolkit) Enable(ctx context.Context, s *Scope, groups ...string) (Outcome, error) {
	return tk.runTransition(ctx, s, enable, groups)
}

// Disable closes groups and all groups that have them as ancestors, as one transition. A group that is
// already closed is not an error.
func (tk *Toolkit) Disable(ctx context.Context, s *Scope, groups ...string) (Outcome, error) {
	return tk.runTransition(ctx, s, disable, groups)
}

// Set opens exactly the named groups and closes all others that the scope's ceiling grants, as one transition.
func (tk *Toolkit) Set(ctx context.Context, s *Scope, groups ...string) (Outcome, error) {
	return tk.runTransition(ctx, s, set, groups)
}

// GroupInfo describes a group, as a scope sees it.
type GroupInfo struct {
	Name, Title, Description, Instructions string

	Parents []string // the parents that the ceiling grants
	Tools   []string // names of the tools; those of a source only after it was listed
	Active  bool     // the group and its ancestors are open
	ByUser  bool     // the user, not the model, was the last to open or close the group; see [Scope.ByUser]
	Skills  bool     // the group has skills
	Failed  []string // the sources that could not be listed, with the reason

	Meta map[string]json.RawMessage // as configured; do not change it
}

// Groups returns the groups that the scope's ceiling grants, without the basic group, in order of
// registration. A nil scope means a new scope.
func (tk *Toolkit) Groups(s *Scope) []GroupInfo {
	c := tk.current.Load()
	if s == nil {
		s = new(Scope)
	}
	return c.groupInfos(c.stateOf(s))
}

// Labels returns the names of the groups that a tool is in, including labels without a
// group, in order; nil if the tool has no labels or does not exist.
func (tk *Toolkit) Labels(name string) []string {
	for _, e := range tk.current.Load().named(name) {
		if !e.ungrouped {
			return slices.Clone(e.labels)
		}
	}
	return nil
}
